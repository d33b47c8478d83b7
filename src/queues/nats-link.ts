import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import { JetStreamApiError, jetstream, jetstreamManager } from '@nats-io/jetstream';
import type { ConnectionOptions, Msg, NatsConnection } from '@nats-io/transport-node';
import { connect, createInbox, errors } from '@nats-io/transport-node';
import type { Timers } from '../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';

export interface NatsLinkOptions {
  /**
   * `nats://host:port`, or `tls://host:port` with the system's certificate authorities; any of the
   * servers of one cluster. `user:password@` or `token@` before the host, the same in all of them.
   */
  readonly urls: readonly string[];
  /** Longest wait for one answer, ms. */
  readonly timeoutMs: number;
  readonly timers: Timers;
}

/** Everything needed to reach the server; nothing is queued here while it cannot be reached. */
export class NatsLink {
  readonly js: JetStreamClient;
  readonly manager: JetStreamManager;
  readonly #connection: NatsConnection;
  readonly #timers: Timers;
  readonly #timeoutMs: number;
  #lost: string | undefined;
  #closed = false;
  readonly #enders = new Set<() => void>();

  private constructor(connection: NatsConnection, manager: JetStreamManager, o: NatsLinkOptions) {
    this.#connection = connection;
    this.#timers = o.timers;
    this.#timeoutMs = o.timeoutMs;
    this.js = jetstream(connection, { timeout: o.timeoutMs });
    this.manager = manager;
    void this.#watch();
  }

  /** Rejects with UnavailableError when no server answers or none has JetStream. */
  static async open(options: NatsLinkOptions): Promise<NatsLink> {
    const settings = connectionOf(options);
    let connection: NatsConnection | undefined;
    try {
      connection = await connect(settings);
      const manager = await jetstreamManager(connection, { timeout: options.timeoutMs });
      return new NatsLink(connection, manager, options);
    } catch (error) {
      await connection?.close();
      throw new UnavailableError(
        `NATS with JetStream at ${String(settings.servers)}: ${textOf(error)}`,
        { cause: error },
      );
    }
  }

  /** The most bytes of one message that the server takes. */
  get maxPayload(): number {
    return this.#connection.info?.max_payload ?? 1_048_576;
  }

  /**
   * Runs a call of the client. What the server answered, or what was never sent, surely changed
   * nothing and is an UnavailableError; the rest is an OutcomeUnknownError. API errors come as they are.
   */
  async call<T>(what: string, run: () => Promise<T>): Promise<T> {
    this.#refuseIfLost(what);
    try {
      return await run();
    } catch (error) {
      if (error instanceof JetStreamApiError) throw error;
      if (surelyNothing(error))
        throw new UnavailableError(`NATS, ${what}: ${textOf(error)}`, { cause: error });
      throw new OutcomeUnknownError(`NATS, ${what}: ${textOf(error)}`, { cause: error });
    }
  }

  /**
   * Sends to subjects in order, and resolves once the server has handled the last: one connection is
   * handled in order, so the last answer speaks for all.
   */
  async tell(what: string, subjects: readonly string[], body: string): Promise<void> {
    const last = subjects.at(-1);
    if (last === undefined) return;
    await this.call(what, async () => {
      for (const subject of subjects.slice(0, -1)) this.#connection.publish(subject, body);
      await this.#connection.request(last, body, { timeout: this.#timeoutMs });
    });
  }

  /**
   * One pull request: up to `batch` messages. With `waitMs` 0 only what is there; else until the batch
   * is full or the time is over. `close` ends it with what has come.
   */
  async pull(stream: string, consumer: string, batch: number, waitMs: number): Promise<Msg[]> {
    this.#refuseIfLost('receive');
    const inbox = createInbox();
    const got: Msg[] = [];
    let finish: (error?: Error) => void = () => undefined;
    const ended = new Promise<void>((resolve, reject) => {
      finish = (error) => (error === undefined ? resolve() : reject(error));
    });
    const end = (): void => finish();
    const subscription = this.#connection.subscribe(inbox, {
      callback: (error, message) => {
        if (error !== null) return finish(new UnavailableError(`NATS, receive: ${error.message}`));
        const code = message.headers?.code ?? 0;
        if (code === 0) {
          got.push(message);
          if (got.length === batch) end();
        } else if (ends(code, message.headers?.description ?? '')) end();
        else if (code !== 100)
          finish(
            new UnavailableError(`NATS, receive: ${code} ${message.headers?.description ?? ''}`),
          );
      },
    });
    const guard = this.#timers.after(waitMs + this.#timeoutMs, () =>
      finish(new UnavailableError(`NATS, receive: no answer within ${this.#timeoutMs} ms`)),
    );
    this.#enders.add(end);
    try {
      const request = waitMs > 0 ? { batch, expires: waitMs * 1e6 } : { batch, no_wait: true };
      this.#connection.publish(
        `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`,
        JSON.stringify(request),
        { reply: inbox },
      );
      await ended;
    } catch (error) {
      // What has come is given on all the same: its time runs.
      if (got.length === 0) throw error;
    } finally {
      guard.cancel();
      this.#enders.delete(end);
      if (!this.#connection.isClosed()) subscription.unsubscribe();
    }
    return got;
  }

  /** Ends every wait. */
  endWaits(): void {
    for (const end of this.#enders) end();
  }

  /** Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.endWaits();
    await this.#connection.close();
  }

  #refuseIfLost(what: string): void {
    if (this.#closed || this.#connection.isClosed())
      throw new UnavailableError(`NATS, ${what}: the connection is closed`);
    // The client would keep it and send it later, when nobody waits for it any more.
    if (this.#lost !== undefined)
      throw new UnavailableError(`NATS, ${what}: no connection (${this.#lost})`);
  }

  /** A pull under way dies with its connection. */
  async #watch(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === 'reconnect') this.#lost = undefined;
      if (status.type === 'disconnect') {
        this.#lost = `lost to ${status.server}`;
        this.endWaits();
      }
    }
  }
}

/** Codes that say "no more", among them that all of the consumer's messages are out. */
function ends(code: number, description: string): boolean {
  return code === 404 || code === 408 || (code === 409 && /maxackpending/i.test(description));
}

function surelyNothing(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return (
    error.name === 'JetStreamNotEnabled' ||
    error instanceof errors.NoRespondersError ||
    (error instanceof errors.RequestError && error.isNoResponders())
  );
}

export const textOf = (error: unknown): string =>
  error instanceof Error ? error.message || error.name : String(error);

function connectionOf({ urls, timeoutMs }: NatsLinkOptions): ConnectionOptions {
  const parsed = urls.map((url) => {
    const one = URL.canParse(url) ? new URL(url) : undefined;
    if (one === undefined || !['nats:', 'tls:'].includes(one.protocol) || one.hostname === '')
      throw new RangeError(`${url} is not the address of a NATS server; nats://host:port is`);
    return one;
  });
  const [first] = parsed;
  if (first === undefined) throw new RangeError('no address of a NATS server');
  const same = (pick: (url: URL) => string): boolean =>
    parsed.every((url) => pick(url) === pick(first));
  if (!same((url) => `${url.protocol}${url.username}:${url.password}`))
    throw new RangeError('the addresses of one NATS cluster have one scheme and one user');
  const user = decodeURIComponent(first.username);
  const pass = decodeURIComponent(first.password);
  return {
    servers: parsed.map((url) => `${url.hostname}:${url.port === '' ? '4222' : url.port}`),
    name: 'sluice',
    timeout: timeoutMs,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 250,
    reconnectJitter: 250,
    noAsyncTraces: true,
    ignoreAuthErrorAbort: true,
    ...(first.protocol === 'tls:' ? { tls: {} } : {}),
    ...(user === '' ? {} : pass === '' ? { token: user } : { user, pass }),
  };
}
