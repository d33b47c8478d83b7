import type { IncomingMessage } from 'node:http';
import type { RequestHead } from '../pipeline/stage.ts';

/**
 * What a request's head says, read with suspicion.
 *
 * Node keeps the first of some repeated headers and joins others with a comma, silently; an
 * intermediary in front of us may have believed another of the two. So a header that decides who is
 * asking or what is asked must stand alone, and the raw list tells whether it does.
 */

/** Headers of which a second one is an error. */
const single = [
  'Authorization',
  'Sluice-Entry',
  'Sluice-Pass',
  'Sluice-Device',
  'Idempotency-Key',
  'Content-Type',
  'Content-Length',
  'Content-Encoding',
  'Host',
  'Origin',
];

/** Each has a bit; the usual spellings are found without folding the case of every header. */
const bits = new Map(
  single.flatMap((name, at) => [
    [name, 1 << at],
    [name.toLowerCase(), 1 << at],
  ]),
);
const singleLengths = new Set(single.map((name) => name.length));

export function requestHead(request: IncomingMessage): RequestHead {
  const { headers, rawHeaders } = request;
  const length = headers['content-length'];
  return {
    method: request.method ?? '',
    headerCount: rawHeaders.length >>> 1,
    contentType: headers['content-type'],
    contentEncoding: headers['content-encoding'],
    contentLength: length === undefined ? undefined : Number(length),
    repeated: repeatedHeader(rawHeaders),
  };
}

/** The first header that must stand alone and does not, in lower case. O(headers). */
export function repeatedHeader(rawHeaders: readonly string[]): string | undefined {
  let seen = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? '';
    if (!singleLengths.has(name.length)) continue;
    const bit = bits.get(name) ?? bits.get(name.toLowerCase());
    if (bit === undefined) continue;
    if ((seen & bit) !== 0) return name.toLowerCase();
    seen |= bit;
  }
  return undefined;
}

/** The one value of a header that Node may have joined or listed. */
export function headerText(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
