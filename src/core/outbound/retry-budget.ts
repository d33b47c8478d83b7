/**
 * How many retries a caller may add to its own traffic.
 *
 * A fixed number of tries per call multiplies the load exactly when the other side can least bear it:
 * three tries turn an outage into a threefold flood. A budget ties retries to successes instead: each
 * success earns a fraction of a token, each retry spends one. While things go well there is plenty;
 * when everything fails the bucket runs dry and retries stop by themselves, everywhere at once. The
 * scheme is the one of gRPC's retry throttling and of Finagle's RetryBudget.
 */
export class RetryBudget {
  readonly #maxMilli: number;
  readonly #earnMilli: number;
  #milli: number;

  /**
   * @param ratio retries per success, above 0 and at most 1; 0.1 means at most 10 % more attempts
   * @param burst retries that may be spent before anything was earned, 0…10,000
   */
  constructor(ratio = 0.1, burst = 10) {
    if (!(ratio > 0 && ratio <= 1)) {
      throw new RangeError(`retry ratio ${ratio}; allowed: above 0, at most 1`);
    }
    if (!(Number.isInteger(burst) && burst >= 0 && burst <= 10_000)) {
      throw new RangeError(`retry burst ${burst}; allowed: a whole number from 0 to 10000`);
    }
    this.#earnMilli = Math.round(ratio * 1000);
    this.#maxMilli = Math.max(1, burst) * 1000;
    this.#milli = burst * 1000;
  }

  /** A call succeeded at its first attempt or later. */
  succeeded(): void {
    this.#milli = Math.min(this.#maxMilli, this.#milli + this.#earnMilli);
  }

  /** Takes one retry, or says that there is none. */
  tryRetry(): boolean {
    if (this.#milli < 1000) return false;
    this.#milli -= 1000;
    return true;
  }

  get remaining(): number {
    return this.#milli / 1000;
  }
}

/**
 * Wait before retry number `attempt` (from 0): full jitter, uniform in [0, min(cap, base·2^attempt)),
 * so that callers refused together do not return together. `uniform` is a draw from [0, 1).
 * Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
 */
export function fullJitterMs(
  attempt: number,
  baseMs: number,
  capMs: number,
  uniform: number,
): number {
  return uniform * Math.min(capMs, baseMs * 2 ** Math.min(attempt, 30));
}
