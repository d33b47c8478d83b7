/** One answer of a server, read whole. */
export interface Reply {
  readonly status: number;
  /** The head as it came, without the empty line. */
  readonly head: string;
  readonly body: string;
  /** The server will close this connection. */
  readonly closes: boolean;
}

/** Value of a header in a reply's head, or undefined. Names are matched without regard to case. */
export function headerOf(head: string, name: string): string | undefined {
  const wanted = `\r\n${name.toLowerCase()}:`;
  const at = head.toLowerCase().indexOf(wanted);
  if (at < 0) return undefined;
  const from = at + wanted.length;
  const end = head.indexOf('\r\n', from);
  return head.slice(from, end < 0 ? head.length : end).trim();
}

export class BadReplyError extends Error {
  override readonly name = 'BadReplyError';
}

const headEnd = '\r\n\r\n';
/** Bytes of one reply; more is an error, so that no server can grow the generator. */
const replyMaxBytes = 8 * 1024 * 1024;
const nothing = Buffer.alloc(0);

/**
 * Reads HTTP/1.1 replies from one connection that carries one request at a time.
 *
 * A general client spends more on each request than the server under test does. This one knows what
 * it asked for (no HEAD, no pipelining, no upgrade), so a reply that arrives in one piece costs one
 * search for the end of its head and two slices.
 */
export class ReplyParser {
  #held: Buffer = nothing;

  /**
   * Takes bytes; returns the reply once it is whole, else undefined. `chunk` may be reused by the
   * caller afterwards. Throws BadReplyError on what is not HTTP.
   */
  take(chunk: Buffer): Reply | undefined {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    if (bytes.length > replyMaxBytes) {
      throw new BadReplyError(`reply of more than ${replyMaxBytes} bytes`);
    }
    const parsed = this.#parse(bytes, false);
    if (parsed === undefined) {
      this.#held = bytes === chunk ? Buffer.from(chunk) : bytes;
      return undefined;
    }
    this.#held = nothing;
    return parsed;
  }

  /** The connection ended: a reply that is delimited by the end of the connection is whole now. */
  end(): Reply | undefined {
    if (this.#held.length === 0) return undefined;
    const parsed = this.#parse(this.#held, true);
    this.#held = nothing;
    return parsed;
  }

  /** Has a part of a reply arrived? */
  get begun(): boolean {
    return this.#held.length > 0;
  }

  #parse(bytes: Buffer, ended: boolean): Reply | undefined {
    let start = 0;
    for (;;) {
      const split = bytes.indexOf(headEnd, start, 'latin1');
      if (split < 0) {
        if (bytes.length - start > 64 * 1024) throw new BadReplyError('reply head of over 64 KiB');
        return undefined;
      }
      const head = bytes.toString('latin1', start, split);
      if (!head.startsWith('HTTP/1.')) {
        throw new BadReplyError(`reply begins with ${JSON.stringify(head.slice(0, 16))}`);
      }
      const status = Number(head.slice(9, 12));
      if (!(status >= 100 && status <= 599)) {
        throw new BadReplyError(`reply with status ${JSON.stringify(head.slice(9, 12))}`);
      }
      const bodyStart = split + headEnd.length;
      if (status < 200) {
        start = bodyStart;
        continue;
      }
      const connection = headerOf(head, 'connection')?.toLowerCase();
      const closes =
        connection === 'close' || (head.startsWith('HTTP/1.0') && connection !== 'keep-alive');
      if (status === 204 || status === 304) return { status, head, body: '', closes };
      const length = headerOf(head, 'content-length');
      if (length !== undefined) {
        const size = Number(length);
        if (!Number.isInteger(size) || size < 0) {
          throw new BadReplyError(`content-length ${JSON.stringify(length)}`);
        }
        if (bytes.length < bodyStart + size) return undefined;
        return { status, head, body: bytes.toString('utf8', bodyStart, bodyStart + size), closes };
      }
      if (headerOf(head, 'transfer-encoding')?.toLowerCase().endsWith('chunked')) {
        const body = dechunk(bytes, bodyStart);
        return body === undefined ? undefined : { status, head, body, closes };
      }
      if (!ended) return undefined;
      return { status, head, body: bytes.toString('utf8', bodyStart), closes: true };
    }
  }
}

/** The body of a chunked reply once its last chunk is there. */
function dechunk(bytes: Buffer, from: number): string | undefined {
  const parts: Buffer[] = [];
  let at = from;
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at, 'latin1');
    if (lineEnd < 0) return undefined;
    const sizeText = bytes.toString('latin1', at, lineEnd).split(';', 1)[0]?.trim() ?? '';
    if (!/^[0-9a-fA-F]{1,8}$/.test(sizeText)) {
      throw new BadReplyError(`chunk size ${JSON.stringify(sizeText)}`);
    }
    const size = Number.parseInt(sizeText, 16);
    at = lineEnd + 2;
    if (size === 0) {
      // Trailers, if any, end with an empty line.
      const done =
        bytes.toString('latin1', at, at + 2) === '\r\n' ||
        bytes.indexOf(headEnd, at, 'latin1') >= 0;
      return done ? Buffer.concat(parts).toString('utf8') : undefined;
    }
    if (bytes.length < at + size + 2) return undefined;
    parts.push(bytes.subarray(at, at + size));
    at += size + 2;
  }
}
