import { formatMilli, milli, type Rate } from './rate.ts';
import { LimitParameterError, type WaitUs } from './token-bucket.ts';

/**
 * What every algorithm of a limit is: a function from (old state, now, cost) to (new state, decision),
 * over states that are a few floats in somebody's array. All arithmetic is on integers below 2^53 (thousandths of a
 * token, microseconds), so that TypeScript and the Lua of a shared store decide alike.
 *
 * The function is split in two, because several limits may have to be charged together or not at all:
 * `wait` reads the state and decides, `charge` writes what was decided. Between the two nothing else
 * touches the state: an owner in memory is single-threaded, and a script is atomic.
 *
 * Time is steady (timeline.ts); a time before the state's own counts as the state's own.
 */
export interface Algorithm {
  readonly spec: LimitSpec;
  /** Floats of state. A state of zeros is never read before `fresh` has written it. */
  readonly width: number;
  /** The largest cost that can ever fit. */
  readonly capacityMilli: number;
  /** From empty to as good as new; `neverUs` when that does not happen by itself. */
  readonly fillUs: number;
  /** So long after its last charge a state may be forgotten; `neverUs` when never. */
  readonly idleUs: number;
  /** What a script needs to decide alike, in the order that limit-take.lua documents. */
  readonly parameters: readonly number[];
  /** Writes the state of a key seen for the first time. */
  fresh(cells: Float64Array, at: number, nowUs: number): void;
  /** 0: the cost fits now. Otherwise the exact wait, or for `concurrency` a hint. Writes nothing. */
  wait(cells: Float64Array, at: number, nowUs: number, costMilli: number): WaitUs;
  /** Charges a cost for which `wait`, just before, said 0. */
  charge(cells: Float64Array, at: number, nowUs: number, costMilli: number): void;
  /**
   * A refusal takes nothing, but a state that has gone cold begins to earn with it: without this, who
   * waits as told would find it cold again. Called after each refusal; changes no decision now.
   */
  note?(cells: Float64Array, at: number, nowUs: number): void;
  /**
   * Takes back a charge that turned out not to count. @param chargedUs steady time of the charge: what
   * has been forgotten since is not given back twice.
   */
  give(cells: Float64Array, at: number, chargedUs: number, costMilli: number): void;
  /** What is left now, rounded down. */
  leftMilli(cells: Float64Array, at: number, nowUs: number): number;
  /** How long until as much is left as ever can be, µs; 0 when it is, `neverUs` when it never will. */
  fullUs(cells: Float64Array, at: number, nowUs: number): number;
  /** Would forgetting this state change no decision in the caller's favour? */
  forgettable(cells: Float64Array, at: number, nowUs: number): boolean;
  /**
   * Writes a state in which `leftMilli` of `ofMilli` is left, of whatever limit that was: a changed
   * rule carries the share over. Rounded against the caller by less than a thousandth.
   */
  adopt(cells: Float64Array, at: number, nowUs: number, leftMilli: number, ofMilli: number): void;
  /** The same algorithm with other parameters: carries over more exactly than a share can. */
  carry?(
    cells: Float64Array,
    at: number,
    nowUs: number,
    from: Algorithm,
    fromCells: Float64Array,
    fromAt: number,
  ): boolean;
  /** Pacing: how long the call about to be charged has to be held back. */
  delayUs?(cells: Float64Array, at: number, nowUs: number): number;
}

/** A limit as configured: the public parameters of each algorithm, units in the names. */
export type LimitSpec =
  | TokenBucketSpec
  | FixedWindowSpec
  | SlidingWindowSpec
  | SlidingLogSpec
  | LeakyBucketSpec
  | WarmUpSpec
  | ConcurrencySpec;

export interface TokenBucketSpec {
  readonly algorithm: 'token_bucket';
  readonly rate: Rate;
  readonly burstMilli: number;
  /** Share of the burst that a new key starts with, thousandths; 1000 when absent. */
  readonly initialShareMilli?: number;
}

export interface FixedWindowSpec {
  readonly algorithm: 'fixed_window';
  readonly limitMilli: number;
  readonly windowUs: number;
}

export interface SlidingWindowSpec {
  readonly algorithm: 'sliding_window';
  readonly limitMilli: number;
  readonly windowUs: number;
}

export interface SlidingLogSpec {
  readonly algorithm: 'sliding_log';
  readonly limitMilli: number;
  readonly windowUs: number;
}

export interface LeakyBucketSpec {
  readonly algorithm: 'leaky_bucket';
  readonly rate: Rate;
  readonly maxWaitUs: number;
}

export interface WarmUpSpec {
  readonly algorithm: 'warm_up';
  readonly rate: Rate;
  readonly burstMilli: number;
  readonly warmUpUs: number;
  /** Share of the rate when cold, as a fraction; 1/3 when absent. */
  readonly coldShare?: { readonly of: number; readonly parts: number };
}

export interface ConcurrencySpec {
  readonly algorithm: 'concurrency';
  readonly limitMilli: number;
}

export type AlgorithmName = LimitSpec['algorithm'];

export const algorithmNames: readonly AlgorithmName[] = [
  'token_bucket',
  'fixed_window',
  'sliding_window',
  'sliding_log',
  'leaky_bucket',
  'warm_up',
  'concurrency',
];

/** Clock ticks an algorithm may count in, finest first. */
export const ticksUs: readonly number[] = [1, 1_000, 1_000_000];

/** @throws LimitParameterError unless `value` is a whole number from `min` to `max`. */
export function assertWhole(
  name: string,
  value: number,
  min: number,
  max: number,
  write: (value: number) => string = formatMilli,
): void {
  if (!Number.isSafeInteger(value) || value < min || value > max) {
    const found = Number.isFinite(value) ? write(value) : String(value);
    throw new LimitParameterError(
      `${name}: found ${found}; allowed is ${write(min)} to ${write(max)}`,
    );
  }
}

/** A limit of at most a thousand million. */
export const limitMaxMilli = 1_000_000_000 * milli;
