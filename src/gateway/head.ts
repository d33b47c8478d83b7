import type { IncomingMessage } from 'node:http';
import type { RequestHead } from '../pipeline/stage.ts';

/**
 * What a request's head says, read with suspicion.
 *
 * Node keeps the first of some repeated headers and joins others with a comma, silently; an
 * intermediary in front of us may have believed another of the two. So a header that decides who is
 * asking or what is asked must stand alone, and the raw list tells whether it does.
 */

/** Headers of which a second one is an error, in lower case. */
const single: ReadonlySet<string> = new Set([
  'authorization',
  'sluice-entry',
  'sluice-pass',
  'sluice-device',
  'idempotency-key',
  'content-type',
  'content-length',
  'content-encoding',
  'host',
  'origin',
]);

const lengthMax = Math.max(...[...single].map((name) => name.length));
/** Bits, one per header of `single`: index is length × 32 + the letter's low five bits; 0 is none. */
const bits = new Int32Array((lengthMax + 1) * 32);
[...single].forEach((name, at) => {
  bits[name.length * 32 + (name.charCodeAt(0) & 31)] = 1 << at;
});

/** The server has refused repeated headers of any request before this is asked. */
export function requestHead(request: IncomingMessage): RequestHead {
  const { headers, rawHeaders } = request;
  const length = headers['content-length'];
  return {
    method: request.method ?? '',
    headerCount: rawHeaders.length >>> 1,
    contentType: headers['content-type'],
    contentEncoding: headers['content-encoding'],
    contentLength: length === undefined ? undefined : Number(length),
    repeated: undefined,
  };
}

/**
 * The first header that must stand alone and does not, in lower case. Length and first letter tell the
 * ten apart, so an ordinary request costs an array look-up per header and no string work; what looks
 * like a second one is compared in full.
 */
export function repeatedHeader(rawHeaders: readonly string[]): string | undefined {
  let seen = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? '';
    if (name.length > lengthMax) continue;
    const bit = bits[name.length * 32 + (name.charCodeAt(0) & 31)] ?? 0;
    if (bit === 0) continue;
    if ((seen & bit) !== 0) return compareInFull(rawHeaders);
    seen |= bit;
  }
  return undefined;
}

function compareInFull(rawHeaders: readonly string[]): string | undefined {
  const seen = new Set<string>();
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] ?? '').toLowerCase();
    if (!single.has(name)) continue;
    if (seen.has(name)) return name;
    seen.add(name);
  }
  return undefined;
}

/** The one value of a header that Node may have joined or listed. */
export function headerText(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

/**
 * The same for one field of the head as it came: for what is asked of every request, also of those that
 * are refused before anybody else looks at their headers, which makes an object of all of them. Of a
 * field that came more than once the first.
 */
export function rawHeaderText(request: IncomingMessage, name: string): string | undefined {
  const { rawHeaders } = request;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const field = rawHeaders[at];
    if (field?.length === name.length && field.toLowerCase() === name) return rawHeaders[at + 1];
  }
  return undefined;
}
