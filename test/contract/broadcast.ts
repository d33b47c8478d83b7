import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { Broadcast } from '../../src/ports/broadcast.ts';

/** Two ends of one broadcast; the second has listened from the beginning. */
export interface BroadcastPair {
  readonly speaker: Broadcast;
  readonly hearer: Broadcast;
  readonly heard: readonly string[];
  readonly close: () => Promise<void>;
}

const until = async (holds: () => boolean): Promise<void> => {
  for (let tries = 0; !holds(); tries += 1) {
    if (tries > 1_000) throw new Error('it never came to be');
    await sleep(10);
  }
};

/** What every implementation promises: a test for each line of the port's contract. */
export function broadcastContract(name: string, pair: () => Promise<BroadcastPair>): void {
  describe(name, () => {
    const word = (epoch: number, version: number, text: string, ttlMs = 60_000) => ({
      epoch,
      version,
      text,
      ttlMs,
    });

    test('a word is heard by others, and can be read by whoever was not there', async () => {
      const { speaker, hearer, heard, close } = await pair();
      expect(await hearer.last('a', 60_000)).toBeUndefined();
      expect(await speaker.say('a', word(1, 1, 'one\ntwo'))).toBe(true);
      await until(() => heard.length === 1);
      expect(heard).toEqual(['a: one\ntwo']);
      const last = await hearer.last('a', 60_000);
      expect(last?.text).toBe('one\ntwo');
      expect(last?.ageMs).toBeGreaterThanOrEqual(0);
      await close();
    });

    test('whoever was deposed takes nothing back, on any topic but its own', async () => {
      const { speaker, hearer, heard, close } = await pair();
      expect(await speaker.say('a', word(2, 1, 'new'))).toBe(true);
      expect(await speaker.say('a', word(1, 99, 'deposed'))).toBe(false);
      expect(await speaker.say('a', word(2, 1, 'again'))).toBe(false);
      expect(await speaker.say('b', word(1, 1, 'elsewhere'))).toBe(true);
      expect(await speaker.say('a', word(2, 2, 'newer'))).toBe(true);
      await until(() => heard.length === 3);
      expect(heard).toEqual(['a: new', 'b: elsewhere', 'a: newer']);
      expect((await hearer.last('a', 60_000))?.text).toBe('newer');
      await close();
    });

    test('a word goes when it is not worth reading any more; its order stays', async () => {
      const { speaker, close } = await pair();
      await speaker.say('a', word(5, 1, 'short', 1));
      await sleep(20);
      expect(await speaker.last('a', 1)).toBeUndefined();
      expect(await speaker.say('a', word(4, 9, 'older'))).toBe(false);
      await close();
    });
  });
}
