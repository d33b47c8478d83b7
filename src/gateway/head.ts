import type { IncomingMessage } from 'node:http';
import type { RequestHead } from '../pipeline/stage.ts';

/**
 * What a request's head says, read with suspicion.
 *
 * Node keeps the first of some repeated headers and joins others with a comma, silently; an
 * intermediary in front of us may have believed another of the two. So a header that decides who is
 * asking or what is asked must stand alone, and the raw list tells whether it does.
 */

/** Headers of which a second one is an error. By length first: most headers fall out at once. */
const single = new Set([
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
const singleLengths = new Set([...single].map((name) => name.length));

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

/** The first header that must stand alone and does not. O(headers). */
export function repeatedHeader(rawHeaders: readonly string[]): string | undefined {
  let seen = '';
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const raw = rawHeaders[at] ?? '';
    if (!singleLengths.has(raw.length)) continue;
    const name = raw.toLowerCase();
    if (!single.has(name)) continue;
    // Names hold no space, so one string of them can be searched without a set per request.
    const marked = ` ${name} `;
    if (seen.includes(marked)) return name;
    seen += marked;
  }
  return undefined;
}

/** The one value of a header that Node may have joined or listed. */
export function headerText(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
