import { systemClock } from '../../src/app/system.ts';
import { MemoryBroadcast } from '../../src/stores/memory/broadcast.ts';
import { broadcastContract } from './broadcast.ts';

broadcastContract('memory', async () => {
  const words = new MemoryBroadcast(systemClock);
  const heard: string[] = [];
  await words.listen((topic, text) => heard.push(`${topic}: ${text}`));
  return { speaker: words, hearer: words, heard, close: () => words.close() };
});
