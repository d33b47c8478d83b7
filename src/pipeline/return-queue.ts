import { RetrySpread } from './health.ts';

/** People whom one process asks back in one second; a small part of what it can serve. */
export const returnsPerSecond = 1_000;

/** Nobody is sent away for longer, ms. */
export const returnMaxMs = 30_000;

/**
 * When those come back whom health refused and who have nothing to lose by waiting: people in a room,
 * people at its door.
 *
 * A fixed hint makes a crowd that is refused ask more often than one that is served. Twenty thousand
 * people of whom each is told "in two seconds" are ten thousand requests a second, so whoever is
 * overloaded stays so, long after what began it is over. Here each refusal takes the next free place in
 * a line of returns that moves at a fixed pace: the larger the crowd, the later the hint, until returns
 * come no faster than that pace. Past the longest hint they are spread over its second half.
 *
 * O(1), one number of state, whatever the crowd.
 */
export class ReturnQueue {
  readonly #spread: RetrySpread;
  readonly #monoUs: () => number;
  /** The last place taken, on the monotonic clock. */
  #lastUs = Number.NEGATIVE_INFINITY;

  constructor(random: { float(): number }, monoUs: () => number) {
    this.#spread = new RetrySpread(random);
    this.#monoUs = monoUs;
  }

  /** Takes a place; ms from now, at least a second. */
  nextMs(): number {
    const nowUs = this.#monoUs();
    const soonMs = this.#spread.busyMs();
    const placeUs = Math.max(this.#lastUs, nowUs) + 1_000_000 / returnsPerSecond;
    const lineMs = (placeUs - nowUs) / 1_000;
    if (lineMs >= returnMaxMs) {
      return Math.round((returnMaxMs / 2) * (1 + this.#spread.draw()));
    }
    this.#lastUs = placeUs;
    return Math.round(Math.max(soonMs, lineMs));
  }
}
