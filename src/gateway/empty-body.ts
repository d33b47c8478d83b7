import type { IncomingMessage } from 'node:http';

/** What Node's readable stream keeps of itself under names that it does not promise. */
interface Insides {
  _dumped?: unknown;
  _readableState?: { ended?: unknown; endEmitted?: unknown };
}

/**
 * A request without a body still has a stream for one. Once the answer is out Node makes it flow, end,
 * and close, in half a dozen turns of its queue for each request of a crowd that only asks: a tenth of
 * what a poll costs. So its stream is said to have ended before it began, as newer versions of Node do
 * themselves when asked (`optimizeEmptyRequests`). For lanes alone that never read a body nor wait for
 * the request's `end` or `close`. Where Node's insides are not as expected it takes its own way.
 */
export function skipEmptyBody(request: IncomingMessage): void {
  const { headers } = request;
  if (headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined) return;
  const insides = request as unknown as Insides;
  const state = insides._readableState;
  if (state?.ended !== false || state.endEmitted !== false || insides._dumped !== false) return;
  insides._dumped = true;
  state.ended = true;
  state.endEmitted = true;
}
