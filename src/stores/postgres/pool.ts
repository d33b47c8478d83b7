/**
 * A pool of connections to a PostgreSQL server, behind the same `Sql` port as the embedded one.
 *
 * What a caller learns when something breaks follows from where its statement was:
 *
 *     no connection to be had in time           → UnavailableError      nothing was sent
 *     inside a transaction, before its COMMIT   → UnavailableError      nothing was committed
 *     COMMIT sent, or a statement of its own    → OutcomeUnknownError   unless the server said no
 *
 * A server that said no to a COMMIT with a constraint or a serialization failure has rolled back; any
 * other word or silence after COMMIT proves nothing. Serialization failures and deadlocks are the
 * server's way of asking again: the whole transaction is run again, a bounded number of times, so its
 * work must be a function of what it reads.
 *
 * Every wait is bounded: for a connection, for a statement (at the server, and a little longer here
 * in case the server is gone), for a transaction that sits idle, and for a place in the line.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import type { Timers } from '../../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { Random } from '../../ports/random.ts';
import type { Sql, SqlQueries } from '../../ports/sql.ts';
import {
  SqlError,
  type SqlErrorFields,
  asksForRetry,
  endsConnection,
  toPortError,
} from './errors.ts';

export interface PoolOptions {
  /** `postgres://user:password@host:port/database`. */
  readonly url: string;
  readonly timers: Timers;
  readonly random: Random;
  /** Connections at most. Default 10. */
  readonly connections?: number;
  /** Longest wait for one. Default 2,000 ms. */
  readonly connectMs?: number;
  /** Callers that may wait for one; the next is refused. Default 1,024. */
  readonly queueMax?: number;
  /** Longest statement, at the server. Default 5,000 ms. */
  readonly statementMs?: number;
  /** Longest idle time inside a transaction, at the server. Default 10,000 ms. */
  readonly idleInTransactionMs?: number;
  /** Runs of a transaction that the server asks to repeat. Default 5. */
  readonly attempts?: number;
  /** Told how long each caller waited for a connection, µs, on the given clock. */
  readonly waits?: { readonly monoUs: () => number; readonly told: (waitedUs: number) => void };
  /** Told of connections that break between two statements; their users are told apart. */
  readonly onBrokenConnection?: (error: Error) => void;
}

/** Opens nothing yet: the first statement connects. */
export function openPool(options: PoolOptions): Sql {
  return new PoolSql(options);
}

/** int8 arrives as text; ours fit a double, and one that does not is an error, never a wrong number. */
function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) {
    throw new RangeError(
      `bigint ${text} is past what a number holds: allowed ±${Number.MAX_SAFE_INTEGER}`,
    );
  }
  return value;
}

const int8 = 20;
const types: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    oid === int8 && format !== 'binary'
      ? parseInt8
      : pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
};

/** Statements kept prepared on each connection; more distinct texts than this are sent whole. */
const preparedMax = 200;

class PoolSql implements Sql {
  readonly #pool: pg.Pool;
  readonly #options: PoolOptions;
  readonly #queueMax: number;
  readonly #names = new Map<string, string>();
  readonly #onClientError: (error: Error) => void;
  #closing: Promise<void> | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#queueMax = options.queueMax ?? 1024;
    const statementMs = options.statementMs ?? 5_000;
    this.#pool = new pg.Pool({
      connectionString: options.url,
      max: options.connections ?? 10,
      connectionTimeoutMillis: options.connectMs ?? 2_000,
      statement_timeout: statementMs,
      // The server's own limit comes first; this one is for a server that is gone.
      query_timeout: statementMs + 1_000,
      idle_in_transaction_session_timeout: options.idleInTransactionMs ?? 10_000,
      keepAlive: true,
      application_name: 'sluice',
      types,
    });
    this.#onClientError = (error) => options.onBrokenConnection?.(error);
    this.#pool.on('error', this.#onClientError);
    // Between the moment in which the pool hands a connection out and the one in which whoever waits for
    // it goes on, nobody listens; a server that ends it right then must not end this process.
    this.#pool.on('connect', (client) => void client.on('error', () => undefined));
  }

  async query<Row extends object>(
    text: string,
    values?: readonly unknown[],
  ): Promise<readonly Row[]> {
    const client = await this.#connect();
    let broken: Error | undefined;
    try {
      return (await this.#run<Row>(client, text, values)).rows;
    } catch (error) {
      const fields = serverFields(error);
      if (fields === undefined || endsConnection(fields.code)) {
        broken = asError(error);
        throw new OutcomeUnknownError(`statement may have been done: ${broken.message}`);
      }
      throw toPortError(fields);
    } finally {
      this.#release(client, broken);
    }
  }

  async transaction<Result>(work: (sql: SqlQueries) => Promise<Result>): Promise<Result> {
    const attempts = this.#options.attempts ?? 5;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#transactionOnce(work);
      } catch (error) {
        if (!asksForRetry(error)) throw error;
        if (attempt >= attempts) {
          throw new UnavailableError(
            `transaction given up after ${attempts} serialization failures or deadlocks`,
            { cause: error },
          );
        }
      }
      // Full jitter: those who collided do not collide again in step.
      const delayMs = this.#options.random.float() * 2 ** attempt;
      await new Promise<void>((resume) => this.#options.timers.after(delayMs, resume));
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#pool.end();
    return this.#closing;
  }

  async #transactionOnce<Result>(work: (sql: SqlQueries) => Promise<Result>): Promise<Result> {
    const client = await this.#connect();
    let broken: Error | undefined;
    let over = false;
    const step = async <Row extends object>(text: string, values?: readonly unknown[]) => {
      if (over) throw new UnavailableError('transaction is over: it ended before this statement');
      try {
        return (await this.#run<Row>(client, text, values)).rows;
      } catch (error) {
        const fields = serverFields(error);
        if (fields !== undefined && !endsConnection(fields.code)) throw toPortError(fields);
        broken = asError(error);
        throw new UnavailableError(`nothing was committed: ${broken.message}`);
      }
    };
    try {
      await step('BEGIN');
      let result: Result;
      try {
        result = await work({ query: step });
      } catch (error) {
        // A connection that cannot roll back is thrown away, which rolls back at the server.
        if (broken === undefined) {
          await this.#run(client, 'ROLLBACK').catch((reason: unknown) => {
            broken = asError(reason);
          });
        }
        throw error;
      }
      over = true;
      if (broken !== undefined) {
        throw new UnavailableError('nothing was committed: the connection broke inside');
      }
      await this.#commit(client).catch((error: unknown) => {
        if (error instanceof OutcomeUnknownError) broken = error;
        throw error;
      });
      return result;
    } finally {
      over = true;
      this.#release(client, broken);
    }
  }

  async #commit(client: pg.PoolClient): Promise<void> {
    let tag: string;
    try {
      tag = (await client.query('COMMIT')).command;
    } catch (error) {
      const fields = serverFields(error);
      const surelyRolledBack = fields?.code !== undefined && /^(23|40)/.test(fields.code);
      if (fields !== undefined && surelyRolledBack) throw new SqlError(fields);
      throw new OutcomeUnknownError(`commit may have been done: ${asError(error).message}`);
    }
    if (tag !== 'COMMIT') {
      throw new SqlError({
        message: 'transaction was rolled back: a statement in it had failed and was passed over',
        code: '25P02',
      });
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    if (this.#closing !== undefined) throw new UnavailableError('the database pool is closed');
    if (this.#pool.waitingCount >= this.#queueMax) {
      throw new UnavailableError(
        `database busy: ${this.#pool.waitingCount} callers wait, allowed: ${this.#queueMax}`,
      );
    }
    const { waits } = this.#options;
    const sinceUs = waits?.monoUs() ?? 0;
    try {
      const client = await this.#pool.connect();
      waits?.told(waits.monoUs() - sinceUs);
      // A connection that breaks between two statements says so here; the next statement on it fails
      // and tells its caller. Without a listener it would end the process.
      client.on('error', this.#onClientError);
      return client;
    } catch (error) {
      throw new UnavailableError(`no database connection: ${asError(error).message}`);
    }
  }

  #release(client: pg.PoolClient, broken: Error | undefined): void {
    client.off('error', this.#onClientError);
    client.release(broken);
  }

  #run<Row extends object>(
    client: pg.PoolClient,
    text: string,
    values?: readonly unknown[],
  ): Promise<{ rows: Row[] }> {
    if (values === undefined) return client.query<Row & pg.QueryResultRow>(text);
    const name = this.#nameOf(text);
    return client.query<Row & pg.QueryResultRow>({
      text,
      values: [...values],
      ...(name === undefined ? {} : { name }),
    });
  }

  #nameOf(text: string): string | undefined {
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    if (this.#names.size >= preparedMax) return undefined;
    const name = createHash('sha256').update(text).digest('hex').slice(0, 24);
    this.#names.set(text, name);
    return name;
  }
}

/** The server's own words; undefined when it was the connection, or the client, that failed. */
function serverFields(error: unknown): SqlErrorFields | undefined {
  if (!(error instanceof pg.DatabaseError)) return undefined;
  return {
    message: error.message,
    code: error.code,
    constraint: error.constraint,
    detail: error.detail,
  };
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
