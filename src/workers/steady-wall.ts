import type { Clock } from '../ports/clock.ts';

/**
 * Wall time for deadlines, that does not believe a leap forward at once.
 *
 * A wall clock set wrong by an hour, for a minute, would expire every unpaid order and release every
 * queued reservation of a sale, for good. So a leap forward, seen against the monotonic clock, is held
 * back: time goes on as it went, until the clock comes back or the leap has stood for `holdMs`. A
 * machine that slept wakes to such a leap too; its deadlines then come that much later, which loses
 * nothing. A leap backward is believed at once, for the same reason: deadlines only come later by it.
 */
export class SteadyWall {
  readonly #clock: Clock;
  readonly #toleranceMs: number;
  readonly #holdMs: number;
  readonly #onLeap: ((byMs: number) => void) | undefined;
  /** Believed wall time less monotonic time, ms. */
  #offsetMs: number;
  #heldSinceMs: number | undefined;

  constructor(
    clock: Clock,
    settings: {
      /** Differences up to this are slewing, and followed. Default 5 s. */
      readonly toleranceMs?: number;
      /** A leap that stands this long is true. Default 10 min. */
      readonly holdMs?: number;
      /** Told once per leap that is held back. */
      readonly onLeap?: (byMs: number) => void;
    } = {},
  ) {
    this.#clock = clock;
    this.#toleranceMs = settings.toleranceMs ?? 5_000;
    this.#holdMs = settings.holdMs ?? 600_000;
    this.#onLeap = settings.onLeap;
    this.#offsetMs = clock.wallMs() - clock.monoUs() / 1_000;
  }

  /** O(1). */
  nowMs(): number {
    const monoMs = this.#clock.monoUs() / 1_000;
    const seenMs = this.#clock.wallMs() - monoMs;
    const leapMs = seenMs - this.#offsetMs;
    if (leapMs <= this.#toleranceMs) {
      this.#offsetMs = seenMs;
      this.#heldSinceMs = undefined;
    } else if (this.#heldSinceMs === undefined) {
      this.#heldSinceMs = monoMs;
      this.#onLeap?.(leapMs);
    } else if (monoMs - this.#heldSinceMs >= this.#holdMs) {
      this.#offsetMs = seenMs;
      this.#heldSinceMs = undefined;
    }
    return Math.floor(monoMs + this.#offsetMs);
  }
}
