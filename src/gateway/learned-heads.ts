import type { ServerResponse } from 'node:http';

/**
 * Heads of answers, learnt from Node.
 *
 * A crowd gets the same head a million times: of all its lines only the length, the date and what a
 * limit adds differ. Node builds it anew each time, checking each header against patterns, which costs
 * as much as verifying a token does. So the first answer under a kept array of headers is written by
 * Node's own way; its text (`_header`, the name that middleware has known for ten years) is taken apart
 * at the length and the date, and later ones are put together from the pieces. Whatever is not as in
 * the first (a connection that closes, a body that is none, headers of somebody else's, a text in
 * which the pieces are not found) goes Node's way again.
 */
interface Head {
  /** Up to the digits of the length; from there to the date; from there to the end. */
  readonly upToLength: string;
  readonly upToDate: string;
  readonly rest: string;
}

/** What Node keeps of an answer under names that it does not promise. */
interface Insides {
  _header?: unknown;
  readonly shouldKeepAlive?: unknown;
  readonly maxRequestsOnConnectionReached?: unknown;
}

/** Arrays of headers that are used again and again, each with its heads by status. */
const kept = new WeakMap<readonly string[], Map<number, Head | undefined>>();

/** Lets answers with this very array be put together from a learnt head. */
export function keepHead<Headers extends readonly string[]>(headers: Headers): Headers {
  if (!kept.has(headers)) kept.set(headers, new Map());
  return headers;
}

/** A header line is put into the text as it is only if nothing in it could end it. */
const plain = /^[\t\x20-\x7e]*$/;

export class LearnedHeads {
  readonly #wallMs: () => number;
  #dateSecond = Number.NaN;
  #date = '';

  constructor(wallMs: () => number) {
    this.#wallMs = wallMs;
  }

  /** Puts a learnt head into the answer; false if there is none that fits. */
  put(
    response: ServerResponse,
    status: number,
    headers: readonly string[],
    more: readonly string[],
    length: number,
  ): boolean {
    const head = kept.get(headers)?.get(status);
    if (head === undefined) return false;
    const insides = response as unknown as Insides;
    if (insides.shouldKeepAlive !== true || insides.maxRequestsOnConnectionReached === true) {
      return false;
    }
    const lines = more.length === 0 ? '' : linesOf(more);
    if (lines === undefined) return false;
    response.statusCode = status;
    insides._header =
      head.upToLength + length + head.upToDate + lines + 'Date: ' + this.#dateNow() + head.rest;
    return true;
  }

  /** Takes the head apart that Node has just made for these headers, if they are kept. */
  learn(
    response: ServerResponse,
    status: number,
    headers: readonly string[],
    more: readonly string[],
    length: number,
  ): void {
    const heads = kept.get(headers);
    if (heads === undefined || heads.has(status)) return;
    const insides = response as unknown as Insides;
    if (insides.shouldKeepAlive !== true) return;
    const made = insides._header;
    heads.set(status, typeof made === 'string' ? apart(made, linesOf(more), length) : undefined);
  }

  /** As Node writes it, made once a second. */
  #dateNow(): string {
    const second = Math.floor(this.#wallMs() / 1000);
    if (second !== this.#dateSecond) {
      this.#dateSecond = second;
      this.#date = new Date(second * 1000).toUTCString();
    }
    return this.#date;
  }
}

/** Undefined where one of them is not plain. */
function linesOf(headers: readonly string[]): string | undefined {
  let lines = '';
  for (let at = 0; at < headers.length; at += 2) {
    const line = `${headers[at]}: ${headers[at + 1]}`;
    if (!plain.test(line)) return undefined;
    lines += `${line}\r\n`;
  }
  return lines;
}

function apart(made: string, more: string | undefined, length: number): Head | undefined {
  if (more === undefined || !made.includes(`${more}Content-Length: `)) return undefined;
  const pieces =
    /^(HTTP\/1\.1 [^]*\r\nContent-Length: )(\d+)(\r\n)Date: [^\r]{29}(\r\nConnection: keep-alive\r\n(?:[^]*\r\n)?\r\n)$/.exec(
      made.replace(more, ''),
    );
  if (pieces === null || pieces[2] !== String(length)) return undefined;
  const [, upToLength = '', , upToDate = '', rest = ''] = pieces;
  return { upToLength, upToDate, rest };
}
