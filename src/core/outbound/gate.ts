import { perSecond, type Rate, rateMaxTokens } from '../limit/rate.ts';
import { SingleBucket } from '../limit/single-bucket.ts';
import { tokenBucket } from '../limit/token-bucket.ts';
import { Breaker, type BreakerSettings, type CallResult, type Permit } from './breaker.ts';
import { canMake, type Deadline } from './deadline.ts';

/**
 * The way out to one dependency: whether a call may start now. Cheapest and surest question first.
 *
 *     deadline   can it still be done in time?          no: nothing is spent on it
 *     rate       as often as we agreed to?              no: come back when a token is there
 *     slots      a place among those in progress?       no: full is full, nobody waits in a line
 *     breaker    does the other side answer at all?     no: come back when it is probed
 *
 * What a refusal costs nothing else must pay: a call that finds no slot takes no token, and one that
 * the breaker refuses neither. Refusals of this gate are ours; they are no evidence about the other
 * side, and the breaker never hears of them.
 */
export interface GateSettings {
  /** Calls per period, with that many at once; no limit when absent. */
  readonly rate?: { readonly rate: Rate; readonly burst: number };
  /** Calls in progress at once, 1…100,000. */
  readonly slots: number;
  readonly breaker: BreakerSettings;
  /** What a call usually takes, ms: one that has less left is not begun. */
  readonly expectedMs: number;
}

export type GateReason = 'deadline' | 'rate' | 'slots' | 'breaker';

export interface GateRefusal {
  readonly kind: 'refused';
  readonly reason: GateReason;
  /** When asking again may help; absent where nobody can say. */
  readonly retryAfterMs?: number;
}

const tokenMilli = 1_000;

export class Gate {
  readonly breaker: Breaker;
  readonly #settings: GateSettings;
  readonly #bucket: SingleBucket | undefined;
  #inflight = 0;

  /** @throws RangeError for settings that cannot work. */
  constructor(settings: GateSettings, nowMs: number) {
    const { slots, expectedMs, rate } = settings;
    if (!(Number.isInteger(slots) && slots >= 1 && slots <= 100_000)) {
      throw new RangeError(`slots ${slots}; allowed: a whole number from 1 to 100000`);
    }
    if (!(expectedMs >= 0 && Number.isFinite(expectedMs))) {
      throw new RangeError(`expectedMs ${expectedMs}; allowed: 0 or more`);
    }
    if (
      rate !== undefined &&
      !(rate.burst >= 1 && rate.burst <= rateMaxTokens && perSecond(rate.rate) > 0)
    ) {
      throw new RangeError(
        `a rate of ${perSecond(rate.rate)}/s with burst ${rate.burst}; allowed: a rate above 0, burst from 1 to ${rateMaxTokens}`,
      );
    }
    this.#settings = settings;
    this.breaker = new Breaker(settings.breaker);
    this.#bucket =
      rate === undefined
        ? undefined
        : new SingleBucket(
            tokenBucket(rate.rate, rate.burst * tokenMilli),
            Math.round(nowMs * 1000),
          );
  }

  /** A permit that must come back by `leave`, or why not. O(1). */
  enter(nowMs: number, deadline: Deadline): Permit | GateRefusal {
    if (deadline.atMs <= nowMs || !canMake(deadline, nowMs, this.#settings.expectedMs)) {
      return { kind: 'refused', reason: 'deadline' };
    }
    const waitUs = this.#bucket?.probe(tokenMilli, Math.round(nowMs * 1000)) ?? 0;
    if (waitUs > 0) {
      return { kind: 'refused', reason: 'rate', retryAfterMs: Math.ceil(waitUs / 1000) };
    }
    if (this.#inflight >= this.#settings.slots) return { kind: 'refused', reason: 'slots' };
    const permit = this.breaker.ask(nowMs);
    if (permit.kind === 'refused') {
      return { kind: 'refused', reason: 'breaker', retryAfterMs: permit.retryAfterMs };
    }
    this.#bucket?.charge(tokenMilli);
    this.#inflight += 1;
    return permit;
  }

  /**
   * What the other side showed, as soon as it is known: a call given up at its deadline is told here
   * while its work may still go on, and gives its slot back by `free` when that ends.
   */
  judge(permit: Permit, result: CallResult, tookMs: number, nowMs: number): void {
    this.breaker.settle(permit, result, tookMs, nowMs);
  }

  /** The work has really ended. */
  free(): void {
    if (this.#inflight <= 0) throw new Error('a slot was given back that nobody held');
    this.#inflight -= 1;
  }

  get inflight(): number {
    return this.#inflight;
  }

  get slots(): number {
    return this.#settings.slots;
  }
}
