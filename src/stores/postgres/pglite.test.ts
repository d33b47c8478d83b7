import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { freshPgliteFolder } from '../../../test/support/servers/pglite.ts';
import { World } from '../../../test/support/world.ts';
import { systemTimers } from '../../app/system.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { Sql } from '../../ports/sql.ts';
import { SqlError } from './errors.ts';
import { openPglite } from './pglite.ts';
import { reasonOf } from './pglite-start.ts';

// Real threads and processes are opened here, many of them: a busy machine takes its time.
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let sql: Sql;
let remove: () => void;

beforeAll(async () => {
  const fresh = await freshPgliteFolder();
  remove = fresh.remove;
  sql = await openPglite({ folder: fresh.folder, timers: systemTimers, fsync: 'os' });
  await sql.query('CREATE TABLE t (a text PRIMARY KEY, b bigint); CREATE TABLE u (a text)');
});

afterAll(async () => {
  await sql.close();
  remove();
});

test('values go in and rows come out as the port promises', async () => {
  const rows = await sql.query(
    'SELECT $1::text AS a, $2::bigint AS b, $3::text[] AS c, $4::jsonb AS d, $5::text AS e',
    ['x', 2 ** 40, ['p', 'q"{}'], JSON.stringify({ z: 1 }), null],
  );
  expect(rows).toEqual([{ a: 'x', b: 2 ** 40, c: ['p', 'q"{}'], d: { z: 1 }, e: null }]);
});

test('a transaction is all or nothing, and its error is the one that broke it', async () => {
  const broken = sql.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1, $2)', ['gone', 1]);
    throw new Error('changed my mind');
  });
  await expect(broken).rejects.toThrow('changed my mind');
  expect(await sql.query('SELECT a FROM t')).toEqual([]);

  const twice = sql.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1, $2)', ['k', 1]);
    await tx.query('INSERT INTO t VALUES ($1, $2)', ['k', 2]);
  });
  const error = await twice.catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(SqlError);
  expect(error).toMatchObject({ code: '23505', constraint: 't_pkey' });
  expect(await sql.query('SELECT a FROM t')).toEqual([]);
});

test('a failed statement that was passed over is no commit', async () => {
  const passedOver = sql.transaction(async (tx) => {
    await tx.query('INSERT INTO u VALUES ($1)', ['lost']);
    await tx.query('SELECT 1/0', []).catch(() => undefined);
  });
  await expect(passedOver).rejects.toMatchObject({ code: '25P02' });
  expect(await sql.query('SELECT a FROM u')).toEqual([]);
});

test('nobody gets between the statements of a transaction', async () => {
  const seen: string[] = [];
  const slow = sql.transaction(async (tx) => {
    await tx.query('SELECT 1', []);
    seen.push('first half');
    await new Promise<void>((later) => setTimeout(later, 20));
    await tx.query('SELECT 2', []);
    seen.push('second half');
  });
  const other = sql.query('SELECT 3', []).then(() => seen.push('other'));
  await Promise.all([slow, other]);
  expect(seen).toEqual(['first half', 'second half', 'other']);
});

test('the line is bounded in length and in time, and so is a transaction', async () => {
  const fresh = await freshPgliteFolder();
  const world = new World();
  const timers = {
    after: (ms: number, run: () => void) =>
      // Opening needs real time; everything after it is driven by the test.
      ms === 60_000 ? systemTimers.after(ms, run) : world.after(ms, run),
    every: world.every.bind(world),
  };
  const bounded = await openPglite({
    folder: fresh.folder,
    timers,
    fsync: 'os',
    queueMax: 2,
    waitMs: 5_000,
    holdMs: 8_000,
  });
  await bounded.query('CREATE TABLE t (a text)');
  const holder = bounded.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1)', ['never']);
    await new Promise<void>(() => undefined);
  });
  const holderEnds = expect(holder).rejects.toThrow(/held the database for more than 8000 ms/);
  const waiting = [bounded.query('SELECT 1', []), bounded.query('SELECT 2', [])];
  const waitingEnd = waiting.map((waiter) => expect(waiter).rejects.toThrow(/waited 5000 ms/));
  await expect(bounded.query('SELECT 3', [])).rejects.toThrow(/2 callers wait, allowed: 2/);
  await world.advance(5_000);
  await Promise.all(waitingEnd);
  await world.advance(3_000);
  await holderEnds;
  expect(await bounded.query('SELECT a FROM t', [])).toEqual([]);
  await bounded.close();
  await expect(bounded.query('SELECT 1', [])).rejects.toBeInstanceOf(UnavailableError);
  fresh.remove();
});

test('a statement that overruns is unknown to its caller and keeps the connection until done', async () => {
  const fresh = await freshPgliteFolder();
  const world = new World();
  const timers = {
    after: (ms: number, run: () => void) =>
      ms === 60_000 ? systemTimers.after(ms, run) : world.after(ms, run),
    every: world.every.bind(world),
  };
  const bounded = await openPglite({ folder: fresh.folder, timers, fsync: 'os', statementMs: 100 });
  const slow = bounded.query('CREATE TABLE late AS SELECT generate_series(1, 300000) AS n', []);
  const unknown = expect(slow).rejects.toBeInstanceOf(OutcomeUnknownError);
  await world.advance(100);
  await unknown;
  // It was done after all, which is why nobody may say "failed".
  expect(await bounded.query('SELECT count(*) AS n FROM late', [])).toEqual([{ n: 300000 }]);
  await bounded.close();
  fresh.remove();
});

/** The threads made from here on, so that a test can end one. */
function threadsFromNow(): readonly Worker[] {
  const threads: Worker[] = [];
  const remember = (thread: Worker): void => void threads.push(thread);
  process.on('worker', remember);
  onTestFinished(() => void process.off('worker', remember));
  return threads;
}

test('death of the thread: what it had was undone or is unknown; another follows, with all that was answered', async () => {
  const fresh = await freshPgliteFolder();
  const changes: string[] = [];
  const threads = threadsFromNow();
  const mortal = await openPglite({
    folder: fresh.folder,
    timers: systemTimers,
    fsync: 'os',
    onChange: (change) => changes.push(change.kind),
  });
  await mortal.query('CREATE TABLE t (a text)');
  await mortal.query('INSERT INTO t VALUES ($1)', ['kept']);
  const inside = mortal.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1)', ['lost']);
    await threads[0]!.terminate();
    // The next thread may be there by now; this transaction is not on it.
    await until(() => changes.includes('back'));
    await tx.query('INSERT INTO t VALUES ($1)', ['astray']);
  });
  const waiting = mortal.query('SELECT 1', []);
  const waitingFails = expect(waiting).rejects.toBeInstanceOf(UnavailableError);
  await expect(inside).rejects.toThrow(/nothing was committed: the database thread died inside/);
  await waitingFails;
  expect(await mortal.query('SELECT a FROM t', [])).toEqual([{ a: 'kept' }]);
  expect(changes).toEqual(['died', 'back']);
  await mortal.close();
  fresh.remove();
});

test('death between a transaction and its COMMIT: surely nothing', async () => {
  const fresh = await freshPgliteFolder();
  const changes: string[] = [];
  const threads = threadsFromNow();
  const mortal = await openPglite({
    folder: fresh.folder,
    timers: systemTimers,
    fsync: 'os',
    onChange: (change) => changes.push(change.kind),
  });
  await mortal.query('CREATE TABLE t (a text)');
  const inside = mortal.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1)', ['lost']);
    await threads[0]!.terminate();
    await until(() => changes.includes('back'));
  });
  await expect(inside).rejects.toBeInstanceOf(UnavailableError);
  expect(await mortal.query('SELECT a FROM t', [])).toEqual([]);
  await mortal.close();
  fresh.remove();
});

test('death while a statement of its own is on its way: nobody can say what became of it', async () => {
  const fresh = await freshPgliteFolder();
  const threads = threadsFromNow();
  const mortal = await openPglite({ folder: fresh.folder, timers: systemTimers, fsync: 'os' });
  const sent = mortal.query('CREATE TABLE t AS SELECT generate_series(1, 1000000) AS n', []);
  const unknown = expect(sent).rejects.toBeInstanceOf(OutcomeUnknownError);
  await threads[0]!.terminate();
  await unknown;
  await mortal.close();
  fresh.remove();
});

test('a folder that has vanished is not replaced by an empty one: dead for good after five tries', async () => {
  const fresh = await freshPgliteFolder();
  const finals: boolean[] = [];
  const threads = threadsFromNow();
  const mortal = await openPglite({
    folder: fresh.folder,
    timers: {
      // The waits between the tries are not what is tested.
      after: (ms, run) => systemTimers.after(ms === 60_000 ? ms : Math.min(ms, 5), run),
      every: (ms, run) => systemTimers.every(ms, run),
    },
    fsync: 'os',
    onChange: (change) => {
      if (change.kind === 'died') finals.push(change.final);
    },
  });
  renameSync(fresh.folder, `${fresh.folder}.gone`);
  await threads[0]!.terminate();
  await until(() => finals.includes(true));
  expect(finals).toEqual([false, false, false, false, false, true]);
  await expect(mortal.query('SELECT 1', [])).rejects.toThrow(/no database in/);
  await mortal.close();
  fresh.remove();
});

test('closed while the next thread is waited for', async () => {
  const fresh = await freshPgliteFolder();
  const threads = threadsFromNow();
  const mortal = await openPglite({ folder: fresh.folder, timers: systemTimers, fsync: 'os' });
  await threads[0]!.terminate();
  await mortal.close();
  await expect(mortal.query('SELECT 1', [])).rejects.toBeInstanceOf(UnavailableError);
  fresh.remove();
});

test('SIGKILL in mid-write: everything answered is there, and nothing half', async () => {
  const { folder, remove: removeFolder } = await freshPgliteFolder();
  let answered = 0;
  for (let round = 0; round < 3; round += 1) {
    answered = Math.max(answered, await writeUntilKilled(folder, answered + 40 + round * 25));
    const reopened = await openPglite({ folder, timers: systemTimers });
    const [row] = await reopened.query<{ n: number; last: number; half: number }>(
      'SELECT count(*) AS n, max(n) AS last, count(*) FILTER (WHERE pair <> n) AS half FROM written WHERE $1',
      [true],
    );
    expect(row?.last).toBeGreaterThanOrEqual(answered);
    expect(row?.n).toBe(row?.last);
    expect(row?.half).toBe(0);
    await reopened.close();
  }
  removeFolder();
});

test('a folder with something else in it is refused, and a half-made one is made anew', async () => {
  const parent = mkdtempSync(join(tmpdir(), 'sluice-folder-'));
  const foreign = join(parent, 'foreign');
  mkdirSync(foreign);
  writeFileSync(join(foreign, 'holiday.jpg'), '');
  await expect(openPglite({ folder: foreign, timers: systemTimers })).rejects.toThrow(
    /found holiday\.jpg; allowed: an absent or empty folder/,
  );
  const folder = join(parent, 'deep', 'orders');
  mkdirSync(`${folder}.initdb`, { recursive: true });
  writeFileSync(join(`${folder}.initdb`, 'PG_VERSION'), '18\n');
  const made = await openPglite({ folder, timers: systemTimers });
  expect(await made.query('SELECT 1 AS one', [])).toEqual([{ one: 1 }]);
  await made.close();
  rmSync(parent, { recursive: true, force: true });
});

/** Starts a writing process, kills it once it has answered `until`, and says what it answered last. */
function writeUntilKilled(folder: string, until: number): Promise<number> {
  const script = fileURLToPath(
    new URL('../../../test/support/servers/pglite-writer.ts', import.meta.url),
  );
  const child = spawn(process.execPath, ['--import', 'tsx', script, folder], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  let last = 0;
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
    const lines = text.split('\n');
    text = lines.pop() ?? '';
    last = Number(lines.at(-1) ?? last) || last;
    if (last >= until) child.kill('SIGKILL');
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => {
      if (signal === 'SIGKILL') resolve(last);
      else reject(new Error(`the writer ended by itself with code ${code}`));
    });
  });
}

test('what a database thread dies of is told in words, whatever it threw', () => {
  expect(reasonOf(new Error('no database'))).toBe('no database');
  expect(reasonOf('gone')).toBe('gone');
  expect(reasonOf({ name: 'ErrnoError', errno: 51 })).toBe('no space left on the device');
  expect(reasonOf({ name: 'ErrnoError', errno: 2 })).toContain('"errno":2');
});

async function until(holds: () => boolean): Promise<void> {
  for (let tries = 0; tries < 6_000; tries += 1) {
    if (holds()) return;
    await new Promise<void>((resume) => setTimeout(resume, 10));
  }
  throw new Error('it never held');
}
