import { greatestCommonDivisor } from './numbers.ts';
import type { Rate } from './rate.ts';
import { formatMilli, formatRate } from './rate.ts';

/**
 * The token bucket, exact.
 *
 * A bucket earns `rate` and holds at most `burst`. The textbook form keeps a float of tokens, and is
 * wrong at both ends: at 1/30d one microsecond earns 3.9e-13 tokens, which vanishes in rounding, and
 * at 2,000,000/s a caller polled each microsecond gains or loses fractions for ever.
 *
 * Here the level is an integer, counted in *units* chosen so that one tick of the clock earns a whole
 * number of them. The rate in thousandths of a token per tick, as a reduced fraction, is p/q; a unit
 * is 1/q of a thousandth; each tick earns exactly p units. Nothing is ever rounded, so it does not
 * matter how often a bucket is looked at, and the wait that a refusal tells is exact: one tick
 * earlier it is refused, at it it is admitted.
 *
 * The tick is a microsecond wherever burst·q fits the 53 bits of a float's integers. Odd rates over
 * long periods with large bursts (10,007/30d with burst 10,007) do not; they tick in milliseconds or
 * seconds, still without rounding: earned time is counted in whole ticks since the last one counted.
 *
 * Any Δt then admits at most burst + rate·Δt. The same arithmetic runs in Lua, whose numbers are the
 * same floats.
 */
export interface TokenBucket {
  readonly rate: Rate;
  readonly burstMilli: number;
  /** Microseconds in which `unitsPerTick` are earned: 1, 1,000 or 1,000,000. */
  readonly tickUs: number;
  /** p. 0 when the rate is 0. */
  readonly unitsPerTick: number;
  /** q. */
  readonly unitsPerMilli: number;
  readonly capacityUnits: number;
  /** What a key seen for the first time starts with. */
  readonly initialUnits: number;
  /** Time from empty to full; `never` when the rate is 0. */
  readonly fillUs: number;
}

/** State of one bucket. All integers. */
export interface TokenBucketState {
  readonly levelUnits: number;
  /** Steady time up to which the level has been earned; a whole number of ticks after the first. */
  readonly lastUs: number;
}

/**
 * A decision as one number, so that deciding allocates nothing: 0 admits; a positive number is the
 * exact wait in microseconds; `neverUs` says that no wait helps (rate 0).
 */
export type WaitUs = number;

/** No wait helps. Larger than any wait, finite, and an integer: arithmetic on it stays sane. */
export const neverUs: WaitUs = Number.MAX_SAFE_INTEGER;

/** The parameters can never work; `message` says what was found and what is allowed. */
export class LimitParameterError extends RangeError {
  override readonly name = 'LimitParameterError';
}

/** A cost above the capacity can never fit: the caller must not wait for it. */
export class CostNeverFitsError extends RangeError {
  override readonly name = 'CostNeverFitsError';

  constructor(costMilli: number, capacityMilli: number) {
    super(
      `cost ${formatMilli(costMilli)} can never fit: the limit holds at most ${formatMilli(capacityMilli)}`,
    );
  }
}

/**
 * Parameters of a bucket.
 * @param burstMilli capacity in thousandths of a token; an integer ≥ 0. 0 refuses everything.
 * @param initialShareMilli share of the burst a new key starts with, in thousandths (0 … 1000).
 * @throws LimitParameterError
 */
export function tokenBucket(rate: Rate, burstMilli: number, initialShareMilli = 1000): TokenBucket {
  if (!Number.isSafeInteger(burstMilli) || burstMilli < 0) {
    throw new LimitParameterError(
      `burst: found ${burstMilli / 1000}; allowed is 0 or more, with at most three decimals`,
    );
  }
  if (!Number.isInteger(initialShareMilli) || initialShareMilli < 0 || initialShareMilli > 1000) {
    throw new LimitParameterError(
      `initial share: found ${initialShareMilli / 1000}; allowed is 0 to 1, with at most three decimals`,
    );
  }
  const units = chooseUnits(rate, burstMilli);
  const initial = (BigInt(units.capacityUnits) * BigInt(initialShareMilli)) / 1000n;
  return { rate, burstMilli, ...units, initialUnits: Number(initial) };
}

function chooseUnits(
  rate: Rate,
  burstMilli: number,
): Omit<TokenBucket, 'rate' | 'burstMilli' | 'initialUnits'> {
  if (rate.tokensMilli === 0) {
    return {
      tickUs: 1,
      unitsPerTick: 0,
      unitsPerMilli: 1,
      capacityUnits: burstMilli,
      fillUs: neverUs,
    };
  }
  for (const tickUs of [1, 1_000, 1_000_000]) {
    if (rate.periodUs % tickUs !== 0) continue;
    const ticks = rate.periodUs / tickUs;
    const divisor = greatestCommonDivisor(rate.tokensMilli, ticks);
    const unitsPerTick = rate.tokensMilli / divisor;
    const unitsPerMilli = ticks / divisor;
    const capacityUnits = burstMilli * unitsPerMilli;
    // One tick is earned before the level is clamped, so both together must be an exact integer.
    if (capacityUnits + unitsPerTick > Number.MAX_SAFE_INTEGER) continue;
    const fillTicks = Math.ceil(capacityUnits / unitsPerTick);
    return {
      tickUs,
      unitsPerTick,
      unitsPerMilli,
      capacityUnits,
      fillUs: Math.min(fillTicks * tickUs, neverUs),
    };
  }
  throw new LimitParameterError(
    `rate and burst: found ${formatRate(rate)} with burst ${formatMilli(burstMilli)}, which cannot be counted exactly; allowed is a smaller burst or a rounder rate`,
  );
}

/** The state of a key seen for the first time. */
export function freshBucket(bucket: TokenBucket, nowUs: number): TokenBucketState {
  return { levelUnits: bucket.initialUnits, lastUs: nowUs };
}

/** Level at `nowUs`. A time before `lastUs` earns nothing. */
export function levelAt(
  bucket: TokenBucket,
  levelUnits: number,
  lastUs: number,
  nowUs: number,
): number {
  const elapsedUs = nowUs - lastUs;
  if (elapsedUs <= 0) return levelUnits;
  // Past the fill time the product could leave the exact integers, and is not needed.
  if (elapsedUs >= bucket.fillUs) return bucket.capacityUnits;
  const ticks = bucket.tickUs === 1 ? elapsedUs : Math.floor(elapsedUs / bucket.tickUs);
  const level = levelUnits + ticks * bucket.unitsPerTick;
  return level < bucket.capacityUnits ? level : bucket.capacityUnits;
}

/** Steady time that `levelAt` has counted: `nowUs`, less the begun tick. */
export function countedTo(bucket: TokenBucket, lastUs: number, nowUs: number): number {
  if (nowUs <= lastUs) return lastUs;
  if (bucket.tickUs === 1) return nowUs;
  return nowUs - ((nowUs - lastUs) % bucket.tickUs);
}

/**
 * The wait of a cost that the level does not cover.
 * @param levelUnits as `levelAt` says; @param lastUs as `countedTo` says.
 */
export function waitFor(
  bucket: TokenBucket,
  levelUnits: number,
  lastUs: number,
  nowUs: number,
  costUnits: number,
): WaitUs {
  if (bucket.unitsPerTick === 0) return neverUs;
  const ticks = Math.ceil((costUnits - levelUnits) / bucket.unitsPerTick);
  const waitUs = ticks * bucket.tickUs - (nowUs - lastUs);
  return waitUs < neverUs ? waitUs : neverUs;
}

/**
 * One decision: old state, time and cost in; new state and decision out. A refusal changes nothing.
 * @param nowUs steady time (see timeline.ts): integer microseconds. A time before the state's own
 *   earns nothing and takes nothing.
 * @param costMilli integer thousandths of a token, > 0.
 * @throws CostNeverFitsError when the cost is above the burst; a burst of 0 refuses without throwing.
 */
export function takeTokens(
  bucket: TokenBucket,
  state: TokenBucketState,
  nowUs: number,
  costMilli: number,
): { readonly state: TokenBucketState; readonly waitUs: WaitUs } {
  assertCost(bucket.burstMilli, costMilli);
  const costUnits = costMilli * bucket.unitsPerMilli;
  const levelUnits = levelAt(bucket, state.levelUnits, state.lastUs, nowUs);
  const lastUs = countedTo(bucket, state.lastUs, nowUs);
  if (levelUnits >= costUnits) {
    return { state: { levelUnits: levelUnits - costUnits, lastUs }, waitUs: 0 };
  }
  if (bucket.burstMilli === 0) return { state, waitUs: neverUs };
  return { state, waitUs: waitFor(bucket, levelUnits, lastUs, nowUs, costUnits) };
}

/** @throws CostNeverFitsError above the capacity, RangeError for a cost that is no positive integer. */
export function assertCost(capacityMilli: number, costMilli: number): void {
  if (!Number.isInteger(costMilli) || costMilli <= 0) {
    throw new RangeError(
      `cost: found ${costMilli}; allowed is a positive whole number of thousandths`,
    );
  }
  if (costMilli > capacityMilli && capacityMilli > 0) {
    throw new CostNeverFitsError(costMilli, capacityMilli);
  }
}

/**
 * The same share of the new bucket as there was in the old one: a changed rule neither refills
 * everybody nor punishes anybody. Rounded down, by less than one unit.
 */
export function carryOver(
  from: TokenBucket,
  to: TokenBucket,
  state: TokenBucketState,
  nowUs: number,
): TokenBucketState {
  // A bucket that held nothing has no share to carry: its key starts like a new one.
  if (from.capacityUnits === 0) return freshBucket(to, nowUs);
  const levelUnits = levelAt(from, state.levelUnits, state.lastUs, nowUs);
  if (levelUnits >= from.capacityUnits) return { levelUnits: to.capacityUnits, lastUs: nowUs };
  const scaled = (BigInt(levelUnits) * BigInt(to.capacityUnits)) / BigInt(from.capacityUnits);
  return { levelUnits: Number(scaled), lastUs: nowUs };
}
