import { connect as connectPlain } from 'node:net';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Clock } from '../../ports/clock.ts';
import { ReplyParser, headerOf } from './reply-parser.ts';
import type { Reply } from './reply-parser.ts';

/** One request on its way; plain data, so that a million of them in a run cost no closures. */
export interface Call<Kind extends string = string> {
  readonly kind: Kind;
  /** Whose request; an index into the population. */
  readonly person: number;
  /** More about it, by kind. */
  readonly detail: number;
  /** The whole request, head and body, ASCII. */
  readonly text: string;
  /** When it should have been sent, monotonic ms: latency counts from here. */
  readonly dueMs: number;
  /** When it was written; 0 before that. */
  sentMs: number;
  begun: boolean;
  settled: boolean;
}

export type FailureReason = 'refused' | 'reset' | 'timeout' | 'bad_reply' | 'closed';

export interface Sink<Kind extends string> {
  /**
   * The generator has done its part: the request is written, or a connection is being opened for it.
   * From here on it is the server that makes it wait.
   */
  begun(call: Call<Kind>, nowMs: number): void;
  replied(call: Call<Kind>, reply: Reply, nowMs: number): void;
  /** The fate at the server is unknown, except for `refused`, which reached nobody. */
  failed(call: Call<Kind>, reason: FailureReason, nowMs: number): void;
}

export interface PoolLimits {
  readonly maxConnections: number;
  /** An answer that takes longer counts as lost. */
  readonly replyTimeoutMs: number;
  /** Idle connections are dropped after this, or a second before the server says that it would. */
  readonly idleMs: number;
  /**
   * Addresses of this machine to connect from, in turn; empty for the system's choice. A server that
   * bounds connections per address would else see one address alone.
   */
  readonly localAddresses: readonly string[];
}

export const poolLimitsDefault: PoolLimits = {
  maxConnections: 4_096,
  replyTimeoutMs: 15_000,
  idleMs: 20_000,
  localAddresses: [],
};

interface Connection<Kind extends string> {
  readonly socket: Socket;
  readonly parser: ReplyParser;
  state: 'connecting' | 'free' | 'busy' | 'dead';
  call: Call<Kind> | undefined;
  /** Since when it is in its state, ms. */
  sinceMs: number;
}

/**
 * Keep-alive connections to one origin, one request at a time on each, as many as needed up to a
 * limit; past it requests stand in line and their lateness is the caller's to count.
 *
 * The generator stands where a site's reverse proxy would: pooled connections, and the person's
 * address in X-Forwarded-For. Latency is counted from when a request was due, not from when it was
 * written, so that a slow server cannot hide behind its own queue.
 */
export class HttpPool<Kind extends string> {
  readonly #host: string;
  readonly #port: number;
  readonly #secure: boolean;
  readonly #limits: PoolLimits;
  readonly #sink: Sink<Kind>;
  readonly #clock: Clock;
  readonly #all = new Set<Connection<Kind>>();
  readonly #free: Connection<Kind>[] = [];
  #connecting = 0;
  /** Ever. */
  #opened = 0;
  #busy = 0;
  #queue: Call<Kind>[] = [];
  #queueHead = 0;
  /** Calls in line before this place are begun: a connection is being opened for each. */
  #begunHead = 0;
  #closed = false;
  #idleMs: number;
  #idleKnown = false;
  readonly #readBuffer = Buffer.allocUnsafeSlow(64 * 1024);

  constructor(origin: URL, limits: PoolLimits, sink: Sink<Kind>, clock: Clock) {
    this.#host = origin.hostname.replace(/^\[|\]$/g, '');
    this.#secure = origin.protocol === 'https:';
    this.#port = origin.port === '' ? (this.#secure ? 443 : 80) : Number(origin.port);
    this.#limits = limits;
    this.#idleMs = limits.idleMs;
    this.#sink = sink;
    this.#clock = clock;
  }

  get inFlight(): number {
    return this.#busy;
  }

  get waiting(): number {
    return this.#queue.length - this.#queueHead;
  }

  get connections(): number {
    return this.#all.size;
  }

  send(call: Call<Kind>): void {
    if (this.#closed) {
      this.#fail(call, 'closed');
      return;
    }
    const connection = this.#takeFree();
    if (connection !== undefined) this.#write(connection, call);
    else {
      this.#queue.push(call);
      this.#open();
    }
  }

  /** The person gives up on the answer: the connection is cut, as by a phone that lost its network. */
  abandon(call: Call<Kind>): void {
    if (call.settled) return;
    call.settled = true;
    for (const connection of this.#all) {
      if (connection.call === call) {
        this.#kill(connection);
        return;
      }
    }
    // Still in line: #pump passes settled calls over.
  }

  /** Finds answers that are overdue and connections that idle; to be called every 50 ms or so. */
  tick(): void {
    const now = this.#now();
    for (const connection of this.#all) {
      const age = now - connection.sinceMs;
      if (connection.state === 'busy' && age > this.#limits.replyTimeoutMs) {
        this.#lose(connection, 'timeout');
      } else if (connection.state === 'connecting' && age > this.#limits.replyTimeoutMs) {
        this.#lose(connection, 'refused');
      } else if (connection.state === 'free' && age > this.#idleMs) {
        const at = this.#free.indexOf(connection);
        if (at >= 0) this.#free.splice(at, 1);
        this.#kill(connection);
      }
    }
    this.#pump();
  }

  close(): void {
    this.#closed = true;
    for (const connection of this.#all) this.#lose(connection, 'closed');
    const left = this.#queue.slice(this.#queueHead);
    this.#queue = [];
    this.#queueHead = 0;
    this.#begunHead = 0;
    for (const call of left) this.#fail(call, 'closed');
  }

  #now(): number {
    return this.#clock.monoUs() / 1000;
  }

  #takeFree(): Connection<Kind> | undefined {
    for (;;) {
      const connection = this.#free.pop();
      if (connection === undefined || connection.state === 'free') return connection;
    }
  }

  #write(connection: Connection<Kind>, call: Call<Kind>): void {
    const now = this.#now();
    connection.state = 'busy';
    connection.call = call;
    connection.sinceMs = now;
    this.#busy += 1;
    call.sentMs = now;
    connection.socket.write(call.text, 'latin1');
    this.#begin(call, now);
  }

  #begin(call: Call<Kind>, now: number): void {
    if (call.begun) return;
    call.begun = true;
    this.#sink.begun(call, now);
  }

  /** Opens as many connections as there are requests in line, within the limits. */
  #open(): void {
    while (this.waiting > this.#connecting && this.#all.size < this.#limits.maxConnections) {
      this.#connect();
    }
    // As many in line as connections are being opened have all that the generator can give them.
    this.#begunHead = Math.max(this.#begunHead, this.#queueHead);
    while (
      this.#begunHead < this.#queueHead + this.#connecting &&
      this.#begunHead < this.#queue.length
    ) {
      const call = this.#queue[this.#begunHead];
      this.#begunHead += 1;
      if (call !== undefined) this.#begin(call, this.#now());
    }
  }

  #connect(): void {
    const onread = {
      buffer: this.#readBuffer,
      callback: (count: number, buffer: Uint8Array): boolean => {
        this.#received(connection, Buffer.from(buffer.buffer, buffer.byteOffset, count));
        return true;
      },
    };
    const { localAddresses } = this.#limits;
    const localAddress = localAddresses[this.#opened % Math.max(1, localAddresses.length)];
    this.#opened += 1;
    const place = {
      host: this.#host,
      port: this.#port,
      ...(localAddress === undefined ? {} : { localAddress }),
    };
    const socket = this.#secure
      ? connectTls({ ...place, servername: this.#host })
      : connectPlain({ ...place, noDelay: true, onread });
    const connection: Connection<Kind> = {
      socket,
      parser: new ReplyParser(),
      state: 'connecting',
      call: undefined,
      sinceMs: this.#now(),
    };
    this.#all.add(connection);
    this.#connecting += 1;
    if (this.#secure) socket.on('data', (chunk: Buffer) => this.#received(connection, chunk));
    socket.once(this.#secure ? 'secureConnect' : 'connect', () => {
      if (connection.state !== 'connecting') return;
      this.#connecting -= 1;
      this.#release(connection);
      this.#pump();
    });
    socket.on('error', () => this.#lose(connection, 'reset'));
    socket.on('end', () => this.#ended(connection));
    socket.on('close', () => this.#lose(connection, 'reset'));
  }

  #received(connection: Connection<Kind>, chunk: Buffer): void {
    if (connection.state === 'dead') return;
    let reply: Reply | undefined;
    try {
      reply = connection.parser.take(chunk);
    } catch {
      this.#lose(connection, 'bad_reply');
      return;
    }
    if (reply !== undefined) this.#finish(connection, reply);
  }

  #ended(connection: Connection<Kind>): void {
    const reply = connection.state === 'busy' ? connection.parser.end() : undefined;
    if (reply !== undefined) this.#finish(connection, reply);
    else this.#lose(connection, 'reset');
  }

  #finish(connection: Connection<Kind>, reply: Reply): void {
    const call = connection.call;
    if (call === undefined) {
      // Bytes that nobody asked for: the connection cannot be trusted any more.
      this.#lose(connection, 'bad_reply');
      return;
    }
    connection.call = undefined;
    this.#busy -= 1;
    this.#heedKeepAlive(reply);
    if (reply.closes) {
      connection.state = 'free';
      this.#kill(connection);
    } else this.#release(connection);
    if (!call.settled) {
      call.settled = true;
      this.#sink.replied(call, reply, this.#now());
    }
    this.#pump();
  }

  /** Servers that close idle connections may say when; then we close first, and no request is lost to it. */
  #heedKeepAlive(reply: Reply): void {
    if (this.#idleKnown) return;
    this.#idleKnown = true;
    const told = /timeout=(\d+)/.exec(headerOf(reply.head, 'keep-alive') ?? '')?.[1];
    if (told === undefined) return;
    this.#idleMs = Math.min(this.#idleMs, Math.max(500, Number(told) * 1000 - 1_000));
  }

  #release(connection: Connection<Kind>): void {
    connection.state = 'free';
    connection.sinceMs = this.#now();
    this.#free.push(connection);
  }

  #pump(): void {
    while (this.#queueHead < this.#queue.length) {
      const call = this.#queue[this.#queueHead];
      if (call === undefined || call.settled) {
        this.#queueHead += 1;
        continue;
      }
      const connection = this.#takeFree();
      if (connection === undefined) break;
      this.#queueHead += 1;
      this.#write(connection, call);
    }
    if (this.#queueHead > 1024 && this.#queueHead * 2 > this.#queue.length) {
      this.#queue = this.#queue.slice(this.#queueHead);
      this.#begunHead = Math.max(0, this.#begunHead - this.#queueHead);
      this.#queueHead = 0;
    }
    this.#open();
  }

  /** Ends a connection without telling anybody. */
  #kill(connection: Connection<Kind>): void {
    if (connection.state === 'dead') return;
    if (connection.state === 'connecting') this.#connecting -= 1;
    if (connection.state === 'busy') this.#busy -= 1;
    connection.state = 'dead';
    connection.call = undefined;
    this.#all.delete(connection);
    connection.socket.destroy();
  }

  #lose(connection: Connection<Kind>, reason: FailureReason): void {
    if (connection.state === 'dead') return;
    const { call, state } = connection;
    this.#kill(connection);
    if (call !== undefined) this.#fail(call, reason);
    if (state === 'connecting' && !this.#closed) {
      // Nobody listens: whoever stands in line learns it, instead of waiting for ever.
      const head = this.#queue[this.#queueHead];
      if (head !== undefined && this.#free.length === 0) {
        this.#queueHead += 1;
        if (!head.settled) this.#fail(head, 'refused');
      }
    }
    if (!this.#closed) this.#open();
  }

  #fail(call: Call<Kind>, reason: FailureReason): void {
    if (call.settled) return;
    call.settled = true;
    this.#sink.failed(call, reason, this.#now());
  }
}
