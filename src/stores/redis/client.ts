import {
  ClientClosedError,
  ClientOfflineError,
  ErrorReply,
  createClient,
  createCluster,
} from '@redis/client';
import type { Timers } from '../../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { Script } from './scripts.ts';

/**
 * One connection to Redis, or one to each node of a cluster, with the failure semantics that stores
 * promise.
 *
 * The problem. A client library that is helpful by itself repeats what must not be repeated: it
 * queues commands while it is disconnected and sends them minutes later, or resends what was sent and
 * not answered. A reservation made twice that way is an oversale; one made late has no buyer.
 *
 * So: nothing is queued without a connection, nothing is resent, every call has a deadline, and each
 * failure is one of two kinds.
 *
 *     not connected · error reply that stands for "refused before it began"   UnavailableError
 *     sent, and no reply in time · connection lost while waiting              OutcomeUnknownError
 *
 * Scripts run by their hash. NOSCRIPT did nothing: the text is loaded once and the call repeated once.
 * Redis answers READONLY where a primary has become a replica: the connection is made anew, so that a
 * name that points elsewhere by now is looked up again. On a cluster the library follows MOVED and
 * ASK, which did nothing at the node that said so.
 */
export interface RedisOptions {
  /** `redis://…` or `rediss://…`; several for a cluster. */
  readonly urls: readonly string[];
  readonly cluster: boolean;
  /** For one call, ms. Default 500: far above a healthy store, far below a buyer's patience. */
  readonly timeoutMs?: number;
  readonly timers: Timers;
  /** Told of lost connections and the like; never of single calls, which throw. */
  readonly onTrouble?: (error: unknown) => void;
}

export type RedisArgument = string | Buffer;

/** Calls waiting for a reply past which new ones are refused: a hung server must not fill memory. */
const waitingMax = 50_000;
const timeoutDefaultMs = 500;

/** Replies that say that nothing was done. */
const refusedBefore =
  /^(READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|OOM|NOREPLICAS|BUSY|MISCONF|NOAUTH|NOPERM|WRONGPASS|MOVED|ASK) /;

interface Wire {
  send(key: string | undefined, args: RedisArgument[]): Promise<unknown>;
  destroy(): void;
  close(): Promise<void>;
}

export class RedisLink {
  readonly #options: RedisOptions;
  readonly #timeoutMs: number;
  #wire: Wire;
  #waiting = 0;
  #closed = false;
  #renewing: Promise<void> | undefined;

  private constructor(options: RedisOptions, wire: Wire) {
    this.#options = options;
    this.#timeoutMs = options.timeoutMs ?? timeoutDefaultMs;
    this.#wire = wire;
  }

  /** Connects; throws UnavailableError where nothing answers. */
  static async open(options: RedisOptions): Promise<RedisLink> {
    return new RedisLink(options, await connectWire(options));
  }

  /** Runs a script. All keys must lie in one slot. */
  async run(
    script: Script,
    keys: readonly string[],
    args: readonly RedisArgument[],
  ): Promise<unknown> {
    const call: RedisArgument[] = ['EVALSHA', script.sha, String(keys.length), ...keys, ...args];
    try {
      return await this.command(keys[0], call);
    } catch (error) {
      if (!replyStarts(error, 'NOSCRIPT')) throw error;
    }
    // EVAL loads and runs at once, at the very node that did not know it.
    return this.command(keys[0], ['EVAL', script.text, ...call.slice(2)]);
  }

  /** Sends a command; `key` finds the node of a cluster. */
  command(key: string | undefined, args: RedisArgument[]): Promise<unknown> {
    if (this.#closed) return Promise.reject(new UnavailableError('The Redis link is closed'));
    if (this.#waiting >= waitingMax)
      return Promise.reject(
        new UnavailableError(`${this.#waiting} calls wait for Redis; at most ${waitingMax} may`),
      );
    return new Promise((resolve, reject) => {
      this.#waiting += 1;
      let waits = true;
      const ended = (): boolean => {
        if (!waits) return false;
        waits = false;
        this.#waiting -= 1;
        timer.cancel();
        return true;
      };
      const timer = this.#options.timers.after(this.#timeoutMs, () => {
        if (ended())
          reject(new OutcomeUnknownError(`Redis did not answer within ${this.#timeoutMs} ms`));
      });
      this.#wire.send(key, args).then(
        (reply) => {
          if (ended()) resolve(reply);
        },
        (error: unknown) => {
          if (replyStarts(error, 'READONLY')) this.#renew();
          if (ended()) reject(translate(error));
        },
      );
    });
  }

  /** Waits for replies, at most as long as a call may take, and closes. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#renewing;
    await new Promise<void>((resolve) => {
      const timer = this.#options.timers.after(this.#timeoutMs, () => {
        this.#wire.destroy();
        resolve();
      });
      this.#wire.close().then(
        () => {
          timer.cancel();
          resolve();
        },
        (error: unknown) => {
          this.#options.onTrouble?.(error);
          timer.cancel();
          resolve();
        },
      );
    });
  }

  /** Makes the connection anew, once however many calls ask for it. */
  #renew(): void {
    if (this.#closed) return;
    this.#renewing ??= connectWire(this.#options)
      .then(
        (fresh) => {
          const old = this.#wire;
          this.#wire = fresh;
          old.destroy();
        },
        (error: unknown) => this.#options.onTrouble?.(error),
      )
      .finally(() => {
        this.#renewing = undefined;
      });
  }
}

async function connectWire(options: RedisOptions): Promise<Wire> {
  const trouble = (error: unknown): void => options.onTrouble?.(error);
  const timeoutMs = options.timeoutMs ?? timeoutDefaultMs;
  const common = {
    disableOfflineQueue: true,
    // Half-open connections are found by silence; a healthy one is never silent for longer.
    pingInterval: 1_000,
    RESP: 2 as const,
    socket: {
      connectTimeout: Math.max(1_000, timeoutMs),
      socketTimeout: 5_000,
      // Soon, then steadily: a store that comes back should be found within a second.
      reconnectStrategy: (tries: number): number => Math.min(1_000, 20 * 2 ** Math.min(tries, 6)),
    },
  };
  try {
    if (options.cluster) {
      const cluster = createCluster({
        RESP: 2,
        rootNodes: options.urls.map((url) => ({ url, ...common })),
        defaults: common,
        topologyRefreshOnReconnectionAttemptStrategy: 250,
      });
      cluster.on('error', trouble);
      cluster.on('node-error', trouble);
      await cluster.connect();
      return {
        send: (key, args) => cluster.sendCommand(key, false, args),
        destroy: () => cluster.destroy(),
        close: () => cluster.close(),
      };
    }
    const [url] = options.urls;
    if (url === undefined || options.urls.length !== 1)
      throw new RangeError(`${options.urls.length} Redis URLs; one is needed, or a cluster`);
    const client = createClient({ url, ...common });
    client.on('error', trouble);
    try {
      await Promise.race([client.connect(), firstError(client)]);
    } catch (error) {
      // The library would try for ever; a start should fail while somebody looks.
      if (client.isOpen) client.destroy();
      throw error;
    }
    return {
      send: (_key, args) => client.sendCommand(args),
      destroy: () => client.destroy(),
      close: () => client.close(),
    };
  } catch (cause) {
    if (cause instanceof RangeError) throw cause;
    throw new UnavailableError(`Redis at ${options.urls.map(withoutSecret).join(', ')}`, { cause });
  }
}

function firstError(client: {
  once(event: 'error', listener: (error: unknown) => void): unknown;
}): Promise<never> {
  return new Promise((_, reject) => {
    client.once('error', (error) => {
      // Harmless once connected: the promise is settled by then.
      reject(error instanceof Error ? error : new Error(String(error)));
    });
  });
}

function translate(error: unknown): unknown {
  if (!(error instanceof Error)) return new OutcomeUnknownError(String(error));
  if (error instanceof ClientOfflineError || error instanceof ClientClosedError)
    return new UnavailableError('No connection to Redis', { cause: error });
  if (error instanceof ErrorReply)
    return refusedBefore.test(error.message)
      ? new UnavailableError(`Redis refused: ${error.message}`, { cause: error })
      : error;
  return new OutcomeUnknownError(`The connection to Redis was lost: ${error.message}`, {
    cause: error,
  });
}

function replyStarts(error: unknown, word: string): boolean {
  return error instanceof ErrorReply && error.message.startsWith(word);
}

/** A URL that may be logged. */
function withoutSecret(url: string): string {
  return url.replace(/\/\/[^@/]*@/, '//');
}
