import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Journal } from './journal.ts';
import { SeededRandom } from '../../../test/support/world.ts';

const writer = fileURLToPath(new URL('../../../test/support/journal-writer.ts', import.meta.url));
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'journal-kill-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

async function replayed(path: string): Promise<number> {
  let count = 0;
  const journal = await Journal.open({
    folder: path,
    fsync: 'always',
    onSnapshot: ([line = '0']) => {
      count = Number(line);
    },
    onRecord: (record) => {
      // A gap or a repeat would be a record that was lost or came twice.
      expect(record.split(' ')[0]).toBe(`${count}`);
      count += 1;
    },
  });
  await journal.close();
  return count;
}

it.each(['always', 'os'])(
  'with fsync %s, a writer killed at any instant loses nothing that it promised',
  async (mode) => {
    const random = new SeededRandom(`kill ${mode}`);
    const path = join(folder, mode);
    for (let round = 0; round < 12; round += 1) {
      const child = spawn(process.execPath, ['--import', 'tsx', writer, path, mode], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let output = '';
      // Killed after a random amount of acknowledged work, not after a time.
      const enough = 1 + random.below(6000);
      child.stdout.setEncoding('utf8').on('data', (some: string) => {
        output += some;
        if (output.length > enough) child.kill('SIGKILL');
      });
      await once(child, 'close');
      // The last line may be half written.
      const last = output.split('\n').at(-2) ?? '0';
      const promised = Number(last.replace('ready ', ''));
      expect(promised).toBeGreaterThan(0);
      expect(await replayed(path)).toBeGreaterThanOrEqual(promised);
    }
  },
);
