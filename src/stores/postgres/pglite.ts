/**
 * PostgreSQL inside the process, for one machine: PGlite in a thread of its own, behind the same
 * `Sql` port as a pool of connections to a real server.
 *
 * There is one connection. A statement outside of a transaction holds it for that statement, a
 * transaction from BEGIN to COMMIT; whoever else comes waits in a bounded line for a bounded time.
 * What a caller learns when something breaks follows from where its statement was:
 *
 *     in line            → UnavailableError      nothing was sent
 *     in a transaction   → UnavailableError      nothing was committed
 *     COMMIT, or a statement of its own, sent → OutcomeUnknownError
 *
 * A running statement cannot be interrupted from outside, so one that overruns its time is answered
 * to its caller but keeps the connection until PGlite is done with it.
 *
 * A new folder is made beside its final place by a thread that then ends, and renamed when it is
 * whole: a process killed in the middle leaves no half-made database, and what making one takes of
 * memory is not kept. An existing folder must belong to this process alone; a second PGlite on the
 * same folder damages it, even by reading. The owner of the data folder holds that lock.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, rmdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { Timers } from '../../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { Sql, SqlQueries } from '../../ports/sql.ts';
import { findTemplate, templatePath } from './database-template.ts';
import { SqlError, toPortError } from './errors.ts';
import type { FromThread, ThreadSettings, ToThread } from './pglite-protocol.ts';

export interface PgliteOptions {
  /** Made when absent; its parent too. */
  readonly folder: string;
  readonly timers: Timers;
  /**
   * `disk` (default): a commit is on the disk before it is answered. `os`: it survives the death of
   * the process, not of the machine.
   */
  readonly fsync?: 'disk' | 'os';
  /** Callers that may wait for the connection; the next is refused. Default 1,024. */
  readonly queueMax?: number;
  /** Longest wait for the connection. Default 5,000 ms. */
  readonly waitMs?: number;
  /** After this a running statement is answered as unknown. Default 15,000 ms. */
  readonly statementMs?: number;
  /** Longest life of a transaction, so that a caller that hangs cannot hold the database. Default 20,000 ms. */
  readonly holdMs?: number;
  /** Longest wait for the thread to open its folder. Default 60,000 ms. */
  readonly openMs?: number;
  /** Called once, should the thread die by itself. Everything asked from then on is unavailable. */
  readonly onDeath?: (reason: Error) => void;
}

/** What is lost with a statement whose reply never comes. */
type WhenLost = 'nothing' | 'unknown';

interface Pending {
  readonly resolve: (reply: { rows: readonly object[]; tag: string }) => void;
  readonly reject: (error: Error) => void;
  readonly whenLost: WhenLost;
}

/**
 * Opens the database in `folder`, making it first when there is none (some seconds, against a third
 * of one). Throws UnavailableError when the thread cannot open it.
 */
export async function openPglite(options: PgliteOptions): Promise<Sql> {
  const folder = resolve(options.folder);
  const fsync = options.fsync ?? 'disk';
  if (!existsSync(join(folder, 'PG_VERSION'))) await makeFolder(folder, fsync, options);
  const thread = await startThread({ mode: 'serve', folder, fsync }, options);
  return new PgliteSql(thread, options);
}

async function makeFolder(
  folder: string,
  fsync: 'disk' | 'os',
  options: PgliteOptions,
): Promise<void> {
  const found = existsSync(folder) ? readdirSync(folder) : [];
  if (found.length > 0) {
    throw new Error(
      `${folder} is no database folder: found ${found.slice(0, 3).join(', ')}; allowed: an absent or empty folder, or one that this program made`,
    );
  }
  mkdirSync(dirname(folder), { recursive: true });
  const half = `${folder}.initdb`;
  rmSync(half, { recursive: true, force: true });
  const template = findTemplate();
  await runThread({ mode: 'init', folder: half, fsync, template }, options);
  if (existsSync(folder)) rmdirSync(folder);
  renameSync(half, folder);
}

/** Writes the template of new databases for this version, unless it is there. For the build. */
export async function writeTemplate(timers: Timers): Promise<void> {
  const file = templatePath();
  if (!existsSync(file)) await runThread({ mode: 'template', file }, { timers });
}

/** Runs a thread that does one thing and ends. */
async function runThread(settings: ThreadSettings, options: OpenLimits): Promise<void> {
  const thread = await startThread(settings, options);
  await new Promise<void>((ended) => {
    thread.once('exit', () => ended());
  });
}

/**
 * From `dist/` the thread is a .js file. From a checkout (tests, benchmarks) it is a .ts file, which
 * Node 20 cannot start a thread with: a line of script registers tsx there first.
 */
function makeThread(settings: ThreadSettings): Worker {
  const options = { workerData: settings, name: 'pglite', execArgv: [] };
  if (!import.meta.url.endsWith('.ts')) {
    return new Worker(new URL('./pglite-thread.js', import.meta.url), options);
  }
  const entry = new URL('./pglite-thread.ts', import.meta.url).href;
  const script = `import('tsx/esm/api').then((tsx) => { tsx.register(); return import('${entry}'); });`;
  return new Worker(script, { ...options, eval: true });
}

type OpenLimits = Pick<PgliteOptions, 'timers' | 'openMs'>;

function startThread(settings: ThreadSettings, options: OpenLimits): Promise<Worker> {
  const what = settings.mode === 'template' ? settings.file : settings.folder;
  const thread = makeThread(settings);
  return new Promise((opened, failed) => {
    const openMs = options.openMs ?? 60_000;
    const fail = (why: string): void => {
      stopListening();
      // Its own failure has been told; a second one while ending says nothing new.
      thread.on('error', () => undefined);
      void thread.terminate();
      failed(new UnavailableError(`database ${what} did not open: ${why}`));
    };
    const onError = (error: unknown): void =>
      fail(error instanceof Error ? error.message : String(error));
    const onExit = (code: number): void => fail(`its thread ended with code ${code}`);
    const onReady = (): void => {
      stopListening();
      opened(thread);
    };
    const timer = options.timers.after(openMs, () => fail(`no answer within ${openMs} ms`));
    // One by one: a Worker keeps listeners of its own, without which it stops delivering.
    const stopListening = (): void => {
      timer.cancel();
      thread.off('error', onError);
      thread.off('exit', onExit);
      thread.off('message', onReady);
    };
    thread.on('error', onError);
    thread.on('exit', onExit);
    thread.on('message', onReady);
  });
}

class PgliteSql implements Sql {
  readonly #thread: Worker;
  readonly #timers: Timers;
  readonly #queueMax: number;
  readonly #waitMs: number;
  readonly #statementMs: number;
  readonly #holdMs: number;
  readonly #onDeath: ((reason: Error) => void) | undefined;
  readonly #waiting = new Set<{ readonly go: () => void; readonly fail: (error: Error) => void }>();
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  #held = false;
  /** Run when the connection is let go and the thread has answered everything sent to it. */
  #letGo: (() => void) | undefined;
  #state: 'open' | 'closing' | 'dead' = 'open';
  #deathReason = 'the database is closed';
  readonly #exited: Promise<void>;

  constructor(thread: Worker, options: PgliteOptions) {
    this.#thread = thread;
    this.#timers = options.timers;
    this.#queueMax = options.queueMax ?? 1024;
    this.#waitMs = options.waitMs ?? 5_000;
    this.#statementMs = options.statementMs ?? 15_000;
    this.#holdMs = options.holdMs ?? 20_000;
    this.#onDeath = options.onDeath;
    thread.on('message', (message: FromThread) => this.#answer(message));
    thread.on('error', (error) =>
      this.#die(error instanceof Error ? error : new Error(String(error))),
    );
    this.#exited = new Promise((exited) => {
      thread.on('exit', (code) => {
        this.#die(new Error(`the database thread ended with code ${code}`));
        exited();
      });
    });
  }

  async query<Row extends object>(
    text: string,
    values?: readonly unknown[],
  ): Promise<readonly Row[]> {
    await this.#hold();
    try {
      const reply = await this.#send(text, values, 'unknown');
      return reply.rows as readonly Row[];
    } finally {
      this.#release();
    }
  }

  async transaction<Result>(work: (sql: SqlQueries) => Promise<Result>): Promise<Result> {
    await this.#hold();
    let ended: string | undefined;
    const inside: SqlQueries = {
      query: async <Row extends object>(text: string, values?: readonly unknown[]) => {
        if (ended !== undefined) throw new UnavailableError(`transaction is over: ${ended}`);
        const reply = await this.#send(text, values, 'nothing');
        return reply.rows as readonly Row[];
      },
    };
    let overdue: (error: Error) => void = () => undefined;
    const expiry = new Promise<never>((_, reject) => {
      overdue = reject;
    });
    // The race below may be over before it; nobody else listens then.
    expiry.catch(() => undefined);
    const timer = this.#timers.after(this.#holdMs, () => {
      ended = `it held the database for more than ${this.#holdMs} ms`;
      overdue(new UnavailableError(`transaction rolled back: ${ended}`));
    });
    try {
      await this.#send('BEGIN', undefined, 'nothing');
      let result: Result;
      try {
        result = await Promise.race([work(inside), expiry]);
      } catch (error) {
        ended ??= 'rolled back';
        await this.#rollBack();
        throw error;
      }
      ended = 'committed';
      timer.cancel();
      const reply = await this.#send('COMMIT', undefined, 'unknown');
      if (reply.tag !== 'COMMIT') {
        throw new SqlError({
          message: 'transaction was rolled back: a statement in it had failed and was passed over',
          code: '25P02',
        });
      }
      return result;
    } finally {
      timer.cancel();
      this.#release();
    }
  }

  /** Waits for what holds the connection now, refuses what waits, and ends the thread. */
  async close(): Promise<void> {
    if (this.#state === 'open') {
      this.#state = 'closing';
      for (const waiter of this.#waiting) {
        waiter.fail(new UnavailableError('the database is closing'));
      }
      this.#waiting.clear();
      if (this.#held) {
        await new Promise<void>((free) => {
          this.#waiting.add({ go: free, fail: () => free() });
        });
      }
      if (!this.#isDead()) this.#thread.postMessage({ kind: 'close' } satisfies ToThread);
      const timer = this.#timers.after(this.#statementMs, () => void this.#thread.terminate());
      await this.#exited;
      timer.cancel();
      return;
    }
    await this.#exited;
  }

  #isDead(): boolean {
    return this.#state === 'dead';
  }

  async #rollBack(): Promise<void> {
    try {
      await this.#send('ROLLBACK', undefined, 'nothing');
    } catch (error) {
      // Dead or overdue: either way nothing was committed, and the caller hears the first error.
      if (!(error instanceof UnavailableError)) throw error;
    }
  }

  #hold(): Promise<void> {
    if (this.#state !== 'open') {
      return Promise.reject(new UnavailableError(`database unavailable: ${this.#deathReason}`));
    }
    if (!this.#held) {
      this.#held = true;
      return Promise.resolve();
    }
    if (this.#waiting.size >= this.#queueMax) {
      return Promise.reject(
        new UnavailableError(
          `database busy: ${this.#waiting.size} callers wait, allowed: ${this.#queueMax}`,
        ),
      );
    }
    return new Promise((resolve, reject) => {
      const waiter = {
        go: () => {
          timer.cancel();
          resolve();
        },
        fail: (error: Error) => {
          timer.cancel();
          reject(error);
        },
      };
      const timer = this.#timers.after(this.#waitMs, () => {
        this.#waiting.delete(waiter);
        reject(new UnavailableError(`database busy: waited ${this.#waitMs} ms for it`));
      });
      this.#waiting.add(waiter);
    });
  }

  #release(): void {
    const next = (): void => {
      this.#letGo = undefined;
      for (const waiter of this.#waiting) {
        this.#waiting.delete(waiter);
        waiter.go();
        return;
      }
      this.#held = false;
    };
    // A statement that overran its time still runs: the connection is not free before it ends.
    if (this.#pending.size === 0) next();
    else this.#letGo = next;
  }

  #send(
    text: string,
    values: readonly unknown[] | undefined,
    whenLost: WhenLost,
  ): Promise<{ rows: readonly object[]; tag: string }> {
    if (this.#state === 'dead') {
      return Promise.reject(new UnavailableError(`database unavailable: ${this.#deathReason}`));
    }
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const timer = this.#timers.after(this.#statementMs, () => {
        reject(lost(whenLost, `no answer within ${this.#statementMs} ms`));
      });
      this.#pending.set(id, {
        whenLost,
        resolve: (reply) => {
          timer.cancel();
          resolve(reply);
        },
        reject: (error) => {
          timer.cancel();
          reject(error);
        },
      });
      const message: ToThread =
        values === undefined
          ? { kind: 'run', id, text }
          : { kind: 'run', id, text, values: [...values] };
      try {
        this.#thread.postMessage(message);
      } catch (error) {
        // A value that cannot be copied to the thread: the caller's fault, and nothing was sent.
        this.#pending.delete(id);
        timer.cancel();
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    });
  }

  #answer(message: FromThread): void {
    if (message.kind === 'ready') return;
    const pending = this.#pending.get(message.id);
    this.#pending.delete(message.id);
    if (message.kind === 'rows') pending?.resolve({ rows: message.rows, tag: message.tag });
    else pending?.reject(toPortError(message.error));
    if (this.#pending.size === 0) this.#letGo?.();
  }

  #die(reason: Error): void {
    if (this.#state === 'dead') return;
    const expected = this.#state === 'closing';
    this.#state = 'dead';
    if (!expected) this.#deathReason = `the database thread died: ${reason.message}`;
    for (const pending of this.#pending.values()) {
      pending.reject(lost(pending.whenLost, this.#deathReason));
    }
    this.#pending.clear();
    for (const waiter of this.#waiting) {
      waiter.fail(new UnavailableError(`database unavailable: ${this.#deathReason}`));
    }
    this.#waiting.clear();
    if (!expected) this.#onDeath?.(new Error(this.#deathReason, { cause: reason }));
  }
}

function lost(whenLost: WhenLost, why: string): Error {
  return whenLost === 'unknown'
    ? new OutcomeUnknownError(`statement may have been done: ${why}`)
    : new UnavailableError(`nothing was committed: ${why}`);
}
