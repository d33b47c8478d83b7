/**
 * How many requests of one resource may be in progress at once.
 *
 * The static ceiling always holds. Inside it the limit follows the queue wait: the time from "the
 * socket was readable" to "the handler ran", which grows before anything else does when a process is
 * full, and which needs no learnt baseline. Above the setpoint the limit shrinks in proportion, at
 * most once per window, so that ten late answers of one stall do not shrink it ten times. Below it,
 * the limit grows by about √L/2, but only while at least half of it is used: an idle process proves
 * nothing about a larger limit. The floor and the additive term keep a way back.
 *
 * Two things keep it from doing too much. A limit far above what was ever in progress is no statement
 * about the system: it shrinks from what was really used, so that a first spike is answered within a few
 * windows and not after it has halved its way down from the ceiling. And the wait that is measured now
 * was caused by those let in earlier: while a backlog drains it stays high, whatever the limit is by
 * then. So the limit never shrinks below what the finished work of the window proves: by Little's law
 * X finished per second keep X · setpoint waiting and as many in service.
 *
 * The shape (proportional decrease, square-root increase) is that of gradient limiters such as
 * Netflix's concurrency-limits; the measured quantity is ours.
 */
export type AdaptiveSwitch = 'off' | 'shadow' | 'on';

export interface InflightSettings {
  readonly adaptive: AdaptiveSwitch;
  /** Never more than this, whatever is measured. */
  readonly ceiling: number;
  /** Never fewer. At least 1, at most the ceiling. */
  readonly floor: number;
  /** Queue wait that we are willing to see, ms. */
  readonly setpointMs: number;
}

export interface InflightWindow {
  /** Mean queue wait of the window itself, not smoothed, ms; undefined when nothing was measured. */
  readonly waitMs: number | undefined;
  /** Highest number in progress during the window. */
  readonly peakInflight: number;
  /** Work that ended well during the window, per second; 0 when none did. */
  readonly finishedPerSecond: number;
}

/** One window shrinks what is used to no less than this share of itself. */
const strongestCut = 0.5;

/** A limit above this that nobody uses has proven nothing; a pause of the process is no overload. */
const unprovenLimit = 64;

/** The next limit after one window. Pure, O(1). */
export function nextLimit(limit: number, window: InflightWindow, s: InflightSettings): number {
  const clamp = (value: number): number => Math.min(s.ceiling, Math.max(s.floor, value));
  const { waitMs } = window;
  if (waitMs === undefined) return clamp(limit);
  if (waitMs > s.setpointMs) {
    const used = Math.min(limit, Math.max(window.peakInflight, unprovenLimit));
    const proven = (2 * window.finishedPerSecond * s.setpointMs) / 1000;
    return clamp(
      Math.min(limit, Math.max(proven, used * Math.max(strongestCut, s.setpointMs / waitMs))),
    );
  }
  const used = window.peakInflight >= limit / 2;
  return clamp(used ? limit + Math.max(1, Math.sqrt(limit) / 2) : limit);
}

export function checkInflightSettings(s: InflightSettings): void {
  if (!(s.floor >= 1 && s.floor <= s.ceiling)) {
    throw new RangeError(
      `in-flight floor ${s.floor} with ceiling ${s.ceiling}; allowed: 1 ≤ floor ≤ ceiling`,
    );
  }
  if (!(s.setpointMs > 0)) {
    throw new RangeError(`wait setpoint ${s.setpointMs} ms; allowed: above 0`);
  }
}

export type Release = 'success' | 'ignore' | 'dropped';

/** Slots of one resource. Check and take are one step; a release says what happened. */
export class InflightSlots {
  readonly #settings: InflightSettings;
  #limit: number;
  #inflight = 0;
  #peak = 0;
  #dropped = 0;
  #finished = 0;

  constructor(settings: InflightSettings) {
    checkInflightSettings(settings);
    this.#settings = settings;
    this.#limit = settings.ceiling;
  }

  /** Takes a slot, or says no. Every `true` must be followed by exactly one `release`. */
  tryTake(): boolean {
    if (this.#inflight >= this.limitInForce) return false;
    this.#inflight += 1;
    if (this.#inflight > this.#peak) this.#peak = this.#inflight;
    return true;
  }

  release(how: Release): void {
    if (this.#inflight <= 0) throw new Error('a slot was released that nobody held');
    this.#inflight -= 1;
    if (how === 'dropped') this.#dropped += 1;
    else if (how === 'success') this.#finished += 1;
  }

  /** Ends a window of `windowMs`; call every 100 ms or so. `waitMs` is of this window alone. */
  tick(waitMs: number | undefined, windowMs = 100): void {
    if (this.#settings.adaptive !== 'off') {
      // A dropped release is proof of trouble even where no wait was measured.
      const wait =
        this.#dropped > 0 ? Math.max(waitMs ?? 0, this.#settings.setpointMs * 2) : waitMs;
      this.#limit = nextLimit(
        this.#limit,
        {
          waitMs: wait,
          peakInflight: this.#peak,
          finishedPerSecond: (this.#finished * 1000) / windowMs,
        },
        this.#settings,
      );
    }
    this.#peak = this.#inflight;
    this.#dropped = 0;
    this.#finished = 0;
  }

  get inflight(): number {
    return this.#inflight;
  }

  /** What the controller would allow; equals the limit in force only when `adaptive` is `on`. */
  get adaptiveLimit(): number {
    return Math.floor(this.#limit);
  }

  get limitInForce(): number {
    return this.#settings.adaptive === 'on' ? this.adaptiveLimit : this.#settings.ceiling;
  }
}
