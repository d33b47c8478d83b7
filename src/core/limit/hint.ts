import { neverUs, type WaitUs } from './token-bucket.ts';

/**
 * What a refused caller is told to wait, ms.
 *
 * On a caller's own counter the wait is a promise: refused one unit before, admitted at it. On a
 * counter that many share (the instance, an activity, a SKU) a promise is impossible, and the same
 * number for everybody is worse than none: ten thousand callers told "300 ms" come back in one
 * instant. There the wait is the earliest useful moment, and each caller is told another one, spread
 * evenly over as much time again, or over `leastSpreadMs` where the wait is shorter than that.
 */

/** Longest wait that is told where no date can be promised: never, or on a shared counter. */
export const waitMaxMs = 3_600_000;

/**
 * Earliest hints, ms: another instance may have room at once, a shared budget not before the next
 * lease. With their spread they come to about 200 ms and about 1 s.
 */
export const instanceLeastMs = 100;
export const sharedLeastMs = 500;
export const instanceSpreadMs = 200;
export const sharedSpreadMs = 1_000;

/** The hint of a counter that many share. @param waitUs as the counter says it. */
export function sharedHintMs(waitUs: WaitUs, isShared: boolean, draw: number): number {
  const least = isShared ? sharedLeastMs : instanceLeastMs;
  const spread = isShared ? sharedSpreadMs : instanceSpreadMs;
  return spreadWaitMs(Math.max(waitUs, least * 1000), spread, draw);
}

/** The exact wait of a caller's own counter, however long: whole milliseconds, rounded up, at least 1. */
export function exactWaitMs(waitUs: WaitUs): number {
  if (waitUs === neverUs) return waitMaxMs;
  return Math.max(1, Math.ceil(waitUs / 1000));
}

/**
 * An earliest hint of a shared counter. @param draw uniform in [0, 1).
 */
export function spreadWaitMs(waitUs: WaitUs, leastSpreadMs: number, draw: number): number {
  const earliest = Math.min(waitMaxMs, exactWaitMs(waitUs));
  const spread = Math.max(earliest, leastSpreadMs);
  return Math.min(2 * waitMaxMs, earliest + Math.floor(spread * draw));
}

/** `Retry-After`: whole seconds, rounded up, never 0. */
export function retryAfterSeconds(waitMs: number): number {
  return Math.max(1, Math.ceil(waitMs / 1000));
}
