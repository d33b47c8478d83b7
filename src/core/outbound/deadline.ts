/**
 * A deadline that travels with a request. What came from outside is capped by our own; what is left,
 * less a margin for our own answer, is passed on; a request that cannot make it is refused before any
 * work is done for it.
 */
export interface Deadline {
  /** Monotonic milliseconds. */
  readonly atMs: number;
}

/** `asked` is the caller's remaining time, if it said one; never longer than `ownMs`. */
export function deadlineFrom(nowMs: number, ownMs: number, asked?: number): Deadline {
  const wanted = asked === undefined || !Number.isFinite(asked) || asked < 0 ? ownMs : asked;
  return { atMs: nowMs + Math.min(ownMs, wanted) };
}

/** Time that may be passed on to the next hop; 0 when there is none. */
export function remainingMs(deadline: Deadline, nowMs: number, marginMs: number): number {
  return Math.max(0, deadline.atMs - nowMs - marginMs);
}

/** Whether work that usually takes `expectedMs` can still be done in time. */
export function canMake(deadline: Deadline, nowMs: number, expectedMs: number): boolean {
  return deadline.atMs - nowMs >= expectedMs;
}
