import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { SeededRandom } from '../../test/support/world.ts';
import type { DataFolder } from './data-folder.ts';
import { DataFolderLockedError, openDataFolder } from './data-folder.ts';

const script = fileURLToPath(new URL('../../test/support/folder-holder.ts', import.meta.url));
const random = new SeededRandom('folders');
let base: string;
const children: ChildProcess[] = [];

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'folder-'));
});
afterEach(async () => {
  for (const child of children.splice(0)) await kill(child);
  await rm(base, { recursive: true, force: true });
});

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

/** Another process that tries; its first line says whether it got the folder. */
async function tryInProcess(path: string): Promise<{ child: ChildProcess; said: string }> {
  const child = spawn(process.execPath, ['--import', 'tsx', script, path], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  children.push(child);
  const [line] = (await once(child.stdout!, 'data')) as [Buffer];
  return { child, said: line.toString().trim() };
}

const open = (path: string): Promise<DataFolder> => openDataFolder({ path, random });

it('makes a folder for its owner alone, and narrows one that is wider', async () => {
  const path = join(base, 'a', 'b');
  const folder = await open(path);
  expect((await stat(path)).mode & 0o777).toBe(0o700);
  await folder.release();
  const wide = join(base, 'wide');
  await mkdir(wide, { mode: 0o755 });
  const second = await open(wide);
  expect((await stat(wide)).mode & 0o777).toBe(0o700);
  await second.release();
});

it('refuses a second opener and says who has it and where to turn', async () => {
  const { child, said } = await tryInProcess(base);
  expect(said).toBe('held');
  const error = await open(base).catch((failure: unknown) => failure);
  expect(error).toBeInstanceOf(DataFolderLockedError);
  expect((error as DataFolderLockedError).pid).toBe(child.pid);
  expect((error as Error).message).toContain(`process id ${child.pid}`);
  expect((error as Error).message).toContain('http://127.0.0.1:9090');
  expect((await tryInProcess(base)).said).toBe(`refused by ${child.pid}`);
});

it('is free the moment its holder is killed, and again, and again', async () => {
  for (let round = 0; round < 3; round += 1) {
    const { child, said } = await tryInProcess(base);
    expect(said).toBe('held');
    await kill(child);
  }
  const folder = await open(base);
  await folder.release();
  await folder.release();
  expect((await readdir(base)).length).toBe(1);
});

it('stays taken while its holder is stopped', async () => {
  const { child } = await tryInProcess(base);
  child.kill('SIGSTOP');
  const error = await open(base).catch((failure: unknown) => failure);
  expect(error).toBeInstanceOf(DataFolderLockedError);
  expect((error as DataFolderLockedError).pid).toBeUndefined();
  expect((error as Error).message).toContain('does not answer');
});

it('gives one of many processes that start at once the folder, on a stale lock too', async () => {
  for (let round = 0; round < 2; round += 1) {
    const tries = await Promise.all(Array.from({ length: 4 }, () => tryInProcess(base)));
    expect(tries.filter(({ said }) => said === 'held')).toHaveLength(1);
    for (const { child } of tries) await kill(child);
  }
});

it('gives one of many openers the folder, round after round of a changing holder', async () => {
  for (let round = 0; round < 20; round += 1) {
    const results = await Promise.allSettled(Array.from({ length: 16 }, () => open(base)));
    const held = results.filter((each) => each.status === 'fulfilled');
    expect(held).toHaveLength(1);
    for (const each of results)
      if (each.status === 'rejected') expect(each.reason).toBeInstanceOf(DataFolderLockedError);
    await held[0]!.value.release();
  }
  // Bounded: only the last lock remains.
  expect(await readdir(base)).toHaveLength(1);
});

it('never has two holders while openers and releases race', async () => {
  let holders = 0;
  let turns = 0;
  const worker = async (): Promise<void> => {
    while (turns < 60) {
      const folder = await open(base).catch((error: unknown) => {
        if (!(error instanceof DataFolderLockedError)) throw error;
        return undefined;
      });
      if (folder === undefined) continue;
      holders += 1;
      turns += 1;
      expect(holders).toBe(1);
      await new Promise<void>((resolve) => setImmediate(resolve));
      expect(holders).toBe(1);
      holders -= 1;
      await folder.release();
    }
  };
  await Promise.all(Array.from({ length: 6 }, worker));
  expect(turns).toBeGreaterThanOrEqual(60);
});

it('control: without the lock file nothing stops a second opener', async () => {
  const first = await open(base);
  for (const name of await readdir(base)) await rm(join(base, name));
  const second = await open(base);
  await second.release();
  await first.release();
});

it('takes a path far longer than a socket address, and a foreign file in the lock place', async () => {
  const path = join(base, 'x'.repeat(120), 'y'.repeat(120));
  const folder = await open(path);
  await expect(open(path)).rejects.toThrow(DataFolderLockedError);
  await folder.release();
  await writeFile(join(base, 'lock.00000007'), 'restored from a backup as a plain file');
  const second = await open(base);
  await expect(open(base)).rejects.toThrow(DataFolderLockedError);
  await second.release();
});
