import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { bodyMaxBytes } from '../core/bounds.ts';
import type { HttpAnswer } from './answer.ts';

/** Requests of a connection that have no answer yet, kept on the socket itself. */
const openRequests: unique symbol = Symbol('open requests');
type CountedSocket = Socket & { [openRequests]?: number };

/**
 * The one place that writes an answer, and the books of what is open. The ledger counts what the path
 * decided; this counts what the server owes: both must agree, or a request was lost between them.
 */
export class Exchanges {
  #open = 0;
  #closing = false;
  #whenIdle: (() => void)[] = [];

  /** Requests that came in and have no answer yet. */
  get open(): number {
    return this.#open;
  }

  /** From now on every answer closes its connection. */
  startClosing(): void {
    this.#closing = true;
  }

  begin(request: IncomingMessage): void {
    this.#open += 1;
    const socket: CountedSocket = request.socket;
    socket[openRequests] = (socket[openRequests] ?? 0) + 1;
  }

  /** Every `begin` is followed by exactly one `end`. */
  end(request: IncomingMessage): void {
    this.#open -= 1;
    const socket: CountedSocket = request.socket;
    socket[openRequests] = (socket[openRequests] ?? 1) - 1;
    if (this.#open !== 0) return;
    for (const resolve of this.#whenIdle) resolve();
    this.#whenIdle = [];
  }

  isBusy(socket: Socket): boolean {
    return ((socket as CountedSocket)[openRequests] ?? 0) > 0;
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
    const { body } = answer;
    const headers = answer.headers.slice();
    if (answer.status !== 204 && answer.status !== 304) {
      headers.push('Content-Length', String(Buffer.byteLength(body)));
    }
    if (this.#closing || leavesBodyBehind(request)) headers.push('Connection', 'close');
    response.writeHead(answer.status, headers);
    response.end(body);
  }
}

/**
 * A small rest of a body that nobody read is drained by Node, so that the connection can be used
 * again; one that is large, or of a length that nobody said, would be read for nothing.
 */
function leavesBodyBehind(request: IncomingMessage): boolean {
  if (request.complete) return false;
  const length = request.headers['content-length'];
  return length === undefined
    ? request.headers['transfer-encoding'] !== undefined
    : Number(length) > bodyMaxBytes;
}
