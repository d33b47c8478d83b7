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
 * A thread that dies (out of memory, a disk that refuses) is followed by another on the same folder,
 * which recovers from the log as after any crash; until it is open everything is unavailable. A few
 * deaths in a row without a success between them, and it stays so.
 *
 * The folder must belong to this process alone; a second PGlite on the same folder damages it, even
 * by reading. The owner of the data folder holds that lock.
 */
import { resolve } from 'node:path';
import type { Worker } from 'node:worker_threads';
import type { Timers } from '../../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { Sql, SqlQueries } from '../../ports/sql.ts';
import { SqlError, toPortError } from './errors.ts';
import type { FromThread, Fsync, ToThread } from './pglite-protocol.ts';
import { ensureFolder, serveFolder } from './pglite-start.ts';

export interface PgliteOptions {
  /** Made when absent; its parent too. */
  readonly folder: string;
  readonly timers: Timers;
  /**
   * `disk` (default): a commit is on the disk before it is answered. `os`: it survives the death of
   * the process, not of the machine.
   */
  readonly fsync?: Fsync;
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
  readonly onChange?: (change: PgliteChange) => void;
}

export type PgliteChange =
  /** The thread died by itself; `final`: no other follows. */
  | { readonly kind: 'died'; readonly reason: string; readonly final: boolean }
  | { readonly kind: 'back' };

/** Waits before the thread after a death is opened, ms; a death past the last is final. */
const revivalsAfterMs = [0, 500, 2_000, 8_000, 30_000];

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
  const serve = (): Promise<Worker> => serveFolder(folder, fsync, options);
  await ensureFolder(folder, fsync, options);
  return new PgliteSql(await serve(), serve, options);
}

class PgliteSql implements Sql {
  readonly #serve: () => Promise<Worker>;
  readonly #timers: Timers;
  readonly #queueMax: number;
  readonly #waitMs: number;
  readonly #statementMs: number;
  readonly #holdMs: number;
  readonly #onChange: ((change: PgliteChange) => void) | undefined;
  readonly #waiting = new Set<{ readonly go: () => void; readonly fail: (error: Error) => void }>();
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  #held = false;
  /** Run when the connection is let go and the thread has answered everything sent to it. */
  #letGo: (() => void) | undefined;
  /** Undefined while there is none that answers. */
  #thread: Worker | undefined;
  /** Counts threads: a transaction begun on one must not go on, on the next. */
  #life = 0;
  #deathsInARow = 0;
  #closing = false;
  #whyUnavailable = 'the database is closed';
  /** Resolves once the present thread is gone. */
  #exited: Promise<void> = Promise.resolve();
  /** Opening the next one, if so. */
  #reviving: Promise<void> = Promise.resolve();
  #stopReviving: (() => void) | undefined;

  constructor(thread: Worker, serve: () => Promise<Worker>, options: PgliteOptions) {
    this.#serve = serve;
    this.#timers = options.timers;
    this.#queueMax = options.queueMax ?? 1024;
    this.#waitMs = options.waitMs ?? 5_000;
    this.#statementMs = options.statementMs ?? 15_000;
    this.#holdMs = options.holdMs ?? 20_000;
    this.#onChange = options.onChange;
    this.#attach(thread);
  }

  #attach(thread: Worker): void {
    this.#thread = thread;
    this.#life += 1;
    let reason: string | undefined;
    thread.on('message', (message: FromThread) => this.#answer(message));
    thread.on('error', (error: unknown) => {
      reason = error instanceof Error ? error.message : String(error);
      this.#lose(reason);
    });
    this.#exited = new Promise((exited) => {
      thread.on('exit', (code) => {
        reason ??= `its thread ended with code ${code}`;
        this.#lose(reason);
        // Only now is the folder free for another.
        if (!this.#closing) this.#revive(reason);
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
    const life = this.#life;
    let ended: string | undefined;
    const sameLife = (): void => {
      if (life !== this.#life) {
        throw new UnavailableError('nothing was committed: the database thread died inside');
      }
    };
    const inside: SqlQueries = {
      query: async <Row extends object>(text: string, values?: readonly unknown[]) => {
        if (ended !== undefined) throw new UnavailableError(`transaction is over: ${ended}`);
        sameLife();
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
        if (life === this.#life) await this.#rollBack();
        throw error;
      }
      ended = 'committed';
      timer.cancel();
      sameLife();
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
    if (!this.#closing) {
      this.#closing = true;
      this.#refuseWaiting('the database is closing');
      if (this.#held) {
        await new Promise<void>((free) => {
          this.#waiting.add({ go: free, fail: () => free() });
        });
      }
      this.#stopReviving?.();
      await this.#reviving;
      this.#thread?.postMessage({ kind: 'close' } satisfies ToThread);
      const thread = this.#thread;
      const timer = this.#timers.after(this.#statementMs, () => void thread?.terminate());
      await this.#exited;
      timer.cancel();
      return;
    }
    await this.#exited;
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
    if (this.#thread === undefined || this.#closing) {
      return Promise.reject(new UnavailableError(`database unavailable: ${this.#whyUnavailable}`));
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
    const thread = this.#thread;
    if (thread === undefined) {
      return Promise.reject(new UnavailableError(`database unavailable: ${this.#whyUnavailable}`));
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
        thread.postMessage(message);
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
    this.#deathsInARow = 0;
    if (message.kind === 'rows') pending?.resolve({ rows: message.rows, tag: message.tag });
    else pending?.reject(toPortError(message.error));
    if (this.#pending.size === 0) this.#letGo?.();
  }

  /** Tells everybody who has something under way what became of it. */
  #lose(reason: string): void {
    if (this.#thread === undefined) return;
    this.#thread = undefined;
    if (!this.#closing) this.#whyUnavailable = `the database thread died: ${reason}`;
    for (const pending of this.#pending.values()) {
      pending.reject(lost(pending.whenLost, this.#whyUnavailable));
    }
    this.#pending.clear();
    this.#refuseWaiting(`database unavailable: ${this.#whyUnavailable}`);
    this.#letGo?.();
  }

  #refuseWaiting(why: string): void {
    for (const waiter of this.#waiting) waiter.fail(new UnavailableError(why));
    this.#waiting.clear();
  }

  #revive(reason: string): void {
    const waitMs = this.#closing ? undefined : revivalsAfterMs[this.#deathsInARow];
    this.#deathsInARow += 1;
    this.#whyUnavailable = `the database thread died: ${reason}`;
    this.#onChange?.({ kind: 'died', reason, final: waitMs === undefined });
    if (waitMs === undefined) return;
    this.#reviving = new Promise((over) => {
      const timer = this.#timers.after(waitMs, () => {
        this.#stopReviving = undefined;
        this.#serve()
          .then(
            (thread) => {
              this.#attach(thread);
              this.#onChange?.({ kind: 'back' });
            },
            (error: unknown) =>
              this.#revive(error instanceof Error ? error.message : String(error)),
          )
          .finally(over);
      });
      this.#stopReviving = () => {
        timer.cancel();
        over();
      };
    });
  }
}

function lost(whenLost: WhenLost, why: string): Error {
  return whenLost === 'unknown'
    ? new OutcomeUnknownError(`statement may have been done: ${why}`)
    : new UnavailableError(`nothing was committed: ${why}`);
}
