import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { bodyMaxBytes } from '../core/bounds.ts';
import type { Clock } from '../ports/clock.ts';
import type { HttpAnswer } from './answer.ts';
import { LearnedHeads } from './learned-heads.ts';

const none: readonly string[] = [];

/** Kept on the socket itself: requests without an answer yet, and when the last answer went out. */
const openRequests: unique symbol = Symbol('open requests');
const answeredUs: unique symbol = Symbol('answered');
const latestResponse: unique symbol = Symbol('latest response');
type CountedSocket = Socket & {
  [openRequests]?: number;
  [answeredUs]?: number;
  [latestResponse]?: ServerResponse;
};

/**
 * The one place that writes an answer, and the books of what is open. The ledger counts what the path
 * decided; this counts what the server owes: both must agree, or a request was lost between them.
 */
export class Exchanges {
  readonly #monoUs: () => number;
  readonly #heads: LearnedHeads;
  #open = 0;
  #closing = false;
  #whenIdle: (() => void)[] = [];

  constructor(clock: Clock) {
    this.#monoUs = () => clock.monoUs();
    this.#heads = new LearnedHeads(() => clock.wallMs());
  }

  /** Requests that came in and have no answer yet. */
  get open(): number {
    return this.#open;
  }

  /** From now on every answer closes its connection. */
  startClosing(): void {
    this.#closing = true;
  }

  begin(request: IncomingMessage, response: ServerResponse): void {
    this.#open += 1;
    const socket: CountedSocket = request.socket;
    socket[openRequests] = (socket[openRequests] ?? 0) + 1;
    socket[latestResponse] = response;
  }

  /** Every `begin` is followed by exactly one `end`. */
  end(request: IncomingMessage): void {
    this.#open -= 1;
    const socket: CountedSocket = request.socket;
    socket[openRequests] = (socket[openRequests] ?? 1) - 1;
    socket[answeredUs] = this.#monoUs();
    if (this.#open !== 0) return;
    for (const resolve of this.#whenIdle) resolve();
    this.#whenIdle = [];
  }

  /** The answer that this connection owes, if it owes exactly one and has not begun it. */
  owedBy(socket: Socket): ServerResponse | undefined {
    const { [openRequests]: owed = 0, [latestResponse]: response } = socket as CountedSocket;
    return owed === 1 && response?.headersSent === false ? response : undefined;
  }

  isBusy(socket: Socket): boolean {
    return ((socket as CountedSocket)[openRequests] ?? 0) > 0;
  }

  /**
   * Microseconds since the last answer on this connection; undefined while one is owed, and before
   * the first (the time limit for headers holds there).
   */
  idleUs(socket: Socket, nowUs: number): number | undefined {
    const { [openRequests]: owed = 0, [answeredUs]: since } = socket as CountedSocket;
    return owed > 0 || since === undefined ? undefined : nowUs - since;
  }

  /** Resolves when nothing is open. */
  idle(): Promise<void> {
    if (this.#open === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenIdle.push(resolve));
  }

  /** Writes the answer and ends the exchange. */
  send(request: IncomingMessage, response: ServerResponse, answer: HttpAnswer): void {
    this.end(request);
    this.write(request, response, answer);
  }

  /** Writes the answer alone. A sender who has gone away is no error. */
  write(request: IncomingMessage, response: ServerResponse, answer: HttpAnswer): void {
    if (response.destroyed || response.writableEnded) return;
    const { status, body, more = none } = answer;
    const length = answer.ascii === true ? body.length : Buffer.byteLength(body);
    const left = bodyLeft(request);
    const closes = this.#closing || left === 'much';
    if (!closes && left === 'little') discardBody(request);
    // One that could be put together: with a body in ASCII, over a connection that goes on.
    const plain = !closes && length === body.length && length > 0 && request.method !== 'HEAD';
    if (!plain || !this.#heads.put(response, status, answer.headers, more, length)) {
      const headers = [...answer.headers, ...more];
      if (status !== 204 && status !== 304) headers.push('Content-Length', String(length));
      if (closes) headers.push('Connection', 'close');
      response.writeHead(status, headers);
      if (plain) this.#heads.learn(response, status, answer.headers, more, length);
    }
    endInOneWrite(response, body, length);
  }
}

/**
 * Node ends an answer as two chunks, head with body and an empty one, which go out by a gathering
 * write; ended with no body it is one plain write. So an ASCII body is put behind the head that Node has
 * just made (its text is `_header`, as middleware has known it for ten years). Where it is not what is
 * expected, or the body is not ASCII, Node's own way is taken.
 */
function endInOneWrite(response: ServerResponse, body: string, length: number): void {
  const made: { _header?: unknown } = response as unknown as { _header?: unknown };
  const hasBody = response.req.method !== 'HEAD';
  if (typeof made._header === 'string' && hasBody && length === body.length) {
    made._header += body;
    response.end();
  } else {
    response.end(body);
  }
}

/**
 * What of a request's body has not been read. A little is drained, so that the connection can be used
 * again; much, of a length that nobody said, or held back until a go-ahead that will not come, ends the
 * connection. A request without a body has none left, though Node calls it complete only later.
 */
function bodyLeft(request: IncomingMessage): 'none' | 'little' | 'much' {
  if (request.complete) return 'none';
  const { headers } = request;
  if (headers.expect !== undefined) return 'much';
  const length = headers['content-length'];
  if (length !== undefined) return Number(length) > bodyMaxBytes ? 'much' : 'little';
  return headers['transfer-encoding'] === undefined ? 'none' : 'much';
}

/**
 * Node discards the body of a request that was answered unread, but only after the answer has gone
 * out; until then it buffers what comes. Told now, it never buffers. `_dump` is its own name for it.
 */
function discardBody(request: IncomingMessage): void {
  const dumpable: { _dump?: unknown } = request as unknown as { _dump?: unknown };
  if (typeof dumpable._dump === 'function') dumpable._dump();
  else request.resume();
}
