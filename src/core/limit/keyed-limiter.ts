import type { Algorithm, LimitSpec } from './algorithm.ts';
import { createAlgorithm, sameLimit } from './algorithms/create.ts';
import { isTokenBucket } from './algorithms/token-bucket.ts';
import type { HashSeed } from './key.ts';
import { KeyHasher } from './key.ts';
import { KeyedTable } from './keyed-table.ts';
import { sameRate, type Rate } from './rate.ts';
import { SingleBucket } from './single-bucket.ts';
import { Timeline } from './timeline.ts';
import type { TokenBucket, WaitUs } from './token-bucket.ts';
import { assertCost, levelAt, neverUs, tokenBucket } from './token-bucket.ts';

/**
 * A limit per key, for strangers' keys: bounded, and unable to be used against the others.
 *
 * Ways in which such a limiter is turned against its owner, and what stands in the way:
 *
 * - *A new key for every request* fills memory, or, where old keys are evicted, gives the flood a
 *   fresh burst each time and throws honest keys out. Here a full table keeps the keys it knows, with
 *   their balances, and every unknown key shares one stricter overflow bucket. Nothing is evicted
 *   before its time; `overflowTotal` raises the alarm.
 * - *Waiting to be forgotten* gives a burst back early. A key is forgotten only when its state is as
 *   good as new and has been for at least as long again (two fill times).
 * - *Making all keys expire at once* stalls a sweep. Expiry runs in bounded slices, a few slots with
 *   each new key and the rest from the owner's one timer (`sweep`).
 * - *Waiting for a change of the rule* that starts every counter anew. Here a changed limit opens a new
 *   table and keeps the old one; each key takes its share over when it is next seen, or when the sweep
 *   comes by, and the old table is dropped when it is empty.
 *
 * A refusal takes nothing. A decision allocates nothing: see `WaitUs`.
 */
export type KeyedLimiterOptions = KeyedLimiterSize &
  (
    | { readonly limit: LimitSpec }
    /** Short for a token bucket; a new key starts with this share of the burst, 1000 when absent. */
    | { readonly rate: Rate; readonly burstMilli: number; readonly initialShareMilli?: number }
  );

interface KeyedLimiterSize {
  /** Stands in front of every key: no two rules share a counter. */
  readonly ruleId: string;
  /** Keys remembered at a time, ≥ 1. */
  readonly maxKeys: number;
  /** What unknown keys share once the table is full. */
  readonly overflow: OverflowLimit;
  /** Two words or more from a secure random source, drawn once per process. */
  readonly hashSeed: HashSeed;
}

export interface OverflowLimit {
  readonly rate: Rate;
  readonly burstMilli: number;
}

/** The table of a limit that has been replaced. */
interface Generation {
  readonly algorithm: Algorithm;
  readonly table: KeyedTable;
  /** Steady time at which the next one took over. */
  readonly endedUs: number;
}

/** Slots swept with each new key; twice the slots a key takes, so the cursor outruns any flood. */
const sweepPerInsert = 8;
/** Slots swept before an unknown key is sent to the overflow bucket. */
const sweepWhenFull = 32;
/** Old tables kept at a time; one more reload moves the oldest over at once. */
const generationsMax = 4;

export class KeyedLimiter {
  #algorithm: Algorithm;
  /** The same algorithm's parameters, where it is the one that has a fast way. */
  #bucket: TokenBucket | undefined;
  #table: KeyedTable;
  readonly #older: Generation[] = [];
  readonly #hasher: KeyHasher;
  readonly #timeline = new Timeline();
  #overflow: SingleBucket;
  #overflowLimit: OverflowLimit;
  #maxKeys: number;
  #overflowTotal = 0;
  #scratch: Float64Array;
  #sweepNowUs = 0;
  readonly #forgettable = (cells: Float64Array, at: number): boolean =>
    this.#algorithm.forgettable(cells, at, this.#sweepNowUs);

  // What the last probe found, for the charge that may follow.
  #at = -1;
  #now = 0;
  #viaOverflow = false;
  #delayUs = 0;

  /** @throws LimitParameterError, RangeError */
  constructor(options: KeyedLimiterOptions) {
    this.#maxKeys = checkMaxKeys(options.maxKeys);
    this.#algorithm = createAlgorithm(limitOf(options));
    this.#bucket = isTokenBucket(this.#algorithm) ? this.#algorithm.bucket : undefined;
    this.#overflowLimit = options.overflow;
    this.#overflow = new SingleBucket(overflowBucket(options.overflow), 0);
    this.#table = new KeyedTable(this.#algorithm.width, options.maxKeys);
    this.#scratch = new Float64Array(this.#algorithm.width);
    this.#hasher = new KeyHasher(options.hashSeed, options.ruleId);
  }

  get limit(): LimitSpec {
    return this.#algorithm.spec;
  }

  get capacityMilli(): number {
    return this.#algorithm.capacityMilli;
  }

  /** Keys remembered now. */
  get entries(): number {
    let entries = this.#table.entries;
    for (const { table } of this.#older) entries += table.entries;
    return entries;
  }

  /** Bytes of the tables. */
  get bytes(): number {
    let bytes = this.#table.bytes;
    for (const { table } of this.#older) bytes += table.bytes;
    return bytes;
  }

  /** Decisions that the overflow bucket took since the start; any growth is an alarm. */
  get overflowTotal(): number {
    return this.#overflowTotal;
  }

  /** The last decision came from the shared overflow bucket: its wait is a hint, not a promise. */
  get viaOverflow(): boolean {
    return this.#viaOverflow;
  }

  /** How long the call charged last has to be held back; 0 unless the algorithm paces. */
  get delayUs(): number {
    return this.#delayUs;
  }

  /**
   * Charges `costMilli` to the key (a, b) if it fits: 0, or else the wait (`WaitUs`). Expected O(1).
   * @param nowUs integer microseconds of one clock, which may step.
   * @throws CostNeverFitsError when the cost is above the capacity.
   */
  take(a: string, b: string, costMilli: number, nowUs: number): WaitUs {
    const hasher = this.#hasher;
    hasher.hashPair(a, b);
    // Nearly every decision: a known key of a token bucket that ticks in microseconds, admitted.
    // Everything else, and every doubt, goes the general way; a property holds both together.
    const bucket = this.#bucket;
    if (bucket !== undefined && bucket.tickUs === 1 && Number.isInteger(costMilli)) {
      const costUnits = costMilli * bucket.unitsPerMilli;
      const table = this.#table;
      const at = table.find(hasher.low, hasher.high);
      if (at >= 0 && costUnits > 0) {
        const now = this.#timeline.read(nowUs);
        const { cells } = table;
        const lastUs = cells[at + 1] ?? 0;
        const level = levelAt(bucket, cells[at] ?? 0, lastUs, now);
        if (level >= costUnits) {
          cells[at] = level - costUnits;
          if (now > lastUs) cells[at + 1] = now;
          this.#at = at;
          this.#now = now;
          this.#viaOverflow = false;
          return 0;
        }
      }
    }
    const wait = this.#probe(costMilli, nowUs, 0);
    if (wait === 0) this.charge(costMilli);
    return wait;
  }

  /** The same for a key of any number of parts. `takeParts([a, b], …)` is `take(a, b, …)`. */
  takeParts(parts: readonly string[], costMilli: number, nowUs: number): WaitUs {
    const wait = this.probeParts(parts, costMilli, nowUs);
    if (wait === 0) this.charge(costMilli);
    return wait;
  }

  /**
   * What `take` would say, charging nothing. Where several limits must be charged together or not at
   * all, all are probed, then all are charged.
   */
  probe(a: string, b: string, costMilli: number, nowUs: number): WaitUs {
    this.#hasher.hashPair(a, b);
    return this.#probe(costMilli, nowUs, 0);
  }

  /** @param keepMilli what has to be left after the charge: a part set aside for other work. */
  probeParts(parts: readonly string[], costMilli: number, nowUs: number, keepMilli = 0): WaitUs {
    this.#hasher.hashParts(parts);
    return this.#probe(costMilli, nowUs, keepMilli);
  }

  /** Charges what the `probe` just before, with the same cost, said fits. */
  charge(costMilli: number): void {
    this.#delayUs = 0;
    if (this.#viaOverflow) {
      this.#overflow.charge(costMilli);
      return;
    }
    if (this.#at < 0) this.#at = this.#insertScratch();
    const { cells } = this.#table;
    const algorithm = this.#algorithm;
    if (algorithm.delayUs !== undefined) {
      this.#delayUs = algorithm.delayUs(cells, this.#at, this.#now);
    }
    algorithm.charge(cells, this.#at, this.#now, costMilli);
  }

  /** Steady time of the last decision: what `giveParts` asks for. */
  get decidedUs(): number {
    return this.#now;
  }

  /**
   * Takes a charge back: a holder has finished, or the request turned out not to count. What the
   * overflow bucket was charged stays charged.
   * @param chargedUs `decidedUs` of the charge.
   */
  giveParts(parts: readonly string[], costMilli: number, chargedUs: number): void {
    this.#hasher.hashParts(parts);
    const at = this.#find(this.#timeline.steadyUs);
    if (at >= 0) this.#algorithm.give(this.#table.cells, at, chargedUs, costMilli);
  }

  /** What is left of the counter that the last decision looked at, thousandths. */
  leftMilli(): number {
    if (this.#viaOverflow) return this.#overflow.peek(this.#now);
    if (this.#at < 0) return this.#algorithm.leftMilli(this.#scratch, 0, this.#now);
    return this.#algorithm.leftMilli(this.#table.cells, this.#at, this.#now);
  }

  /** How long until that counter is as good as new, µs; 0 for the shared overflow bucket. */
  fullUs(): number {
    if (this.#viaOverflow) return 0;
    if (this.#at < 0) return this.#algorithm.fullUs(this.#scratch, 0, this.#now);
    return this.#algorithm.fullUs(this.#table.cells, this.#at, this.#now);
  }

  /** Thousandths of a token that this key has now; what a new key starts with when it is unknown. */
  peek(a: string, b: string, nowUs: number): number {
    return this.peekParts([a, b], nowUs);
  }

  peekParts(parts: readonly string[], nowUs: number): number {
    this.#hasher.hashParts(parts);
    const now = this.#timeline.read(nowUs);
    const at = this.#find(now);
    if (at >= 0) return this.#algorithm.leftMilli(this.#table.cells, at, now);
    this.#algorithm.fresh(this.#scratch, 0, now);
    return this.#algorithm.leftMilli(this.#scratch, 0, now);
  }

  /**
   * Forgets idle keys, and moves keys of a replaced limit over, within `budget` slots (2,000 take well
   * under a millisecond); answers how many were forgotten. Called from the owner's one timer. Every
   * key is visited once per `slots / budget` calls.
   */
  sweep(nowUs: number, budget: number): number {
    return this.#sweep(this.#timeline.read(nowUs), budget);
  }

  /**
   * Goes on under another limit, with each key's share carried over in proportion. Nothing changes for
   * a limit that is the same. At once, whatever the number of keys.
   */
  reconfigure(
    options: {
      readonly limit: LimitSpec;
      readonly maxKeys: number;
      readonly overflow: OverflowLimit;
    },
    nowUs: number,
  ): void {
    const now = this.#timeline.read(nowUs);
    this.#maxKeys = checkMaxKeys(options.maxKeys);
    const { overflow } = options;
    if (
      !sameRate(overflow.rate, this.#overflowLimit.rate) ||
      overflow.burstMilli !== this.#overflowLimit.burstMilli
    ) {
      this.#overflow.reconfigure(overflowBucket(overflow), nowUs);
      this.#overflowLimit = overflow;
    }
    if (sameLimit(options.limit, this.#algorithm.spec)) return;
    const next = createAlgorithm(options.limit);
    if (this.#table.entries > 0) {
      this.#older.push({ algorithm: this.#algorithm, table: this.#table, endedUs: now });
    }
    this.#algorithm = next;
    this.#bucket = isTokenBucket(next) ? next.bucket : undefined;
    this.#table = new KeyedTable(next.width, this.#maxKeys);
    this.#scratch = new Float64Array(next.width);
    this.#at = -1;
    this.#delayUs = 0;
    if (this.#older.length > generationsMax) this.#moveOver(now, Number.MAX_SAFE_INTEGER);
  }

  /** The hasher holds the key. */
  #probe(costMilli: number, nowUs: number, keepMilli: number): WaitUs {
    const algorithm = this.#algorithm;
    assertCost(algorithm.capacityMilli, costMilli);
    this.#viaOverflow = false;
    const now = this.#timeline.read(nowUs);
    this.#now = now;
    if (algorithm.capacityMilli === 0) {
      algorithm.fresh(this.#scratch, 0, now);
      this.#at = -1;
      return neverUs;
    }
    let at = this.#find(now);
    if (at < 0) {
      // Sweeping moves what `find` prepared for an insert, so it goes first, and the key is sought again.
      const full = this.entries >= this.#maxKeys;
      this.#sweep(now, full ? sweepWhenFull : sweepPerInsert);
      at = this.#find(now);
      if (this.entries >= this.#maxKeys) {
        this.#viaOverflow = true;
        this.#overflowTotal += 1;
        return this.#probeOverflow(costMilli, nowUs);
      }
      algorithm.fresh(this.#scratch, 0, now);
    }
    this.#at = at;
    const cells = at < 0 ? this.#scratch : this.#table.cells;
    const wait = algorithm.wait(cells, at < 0 ? 0 : at, now, costMilli + keepMilli);
    if (wait === 0) return 0;
    // A new key that is refused (it starts with less than this costs) is remembered all the same, or
    // it would start anew, and be refused, each time it comes back.
    if (at < 0) this.#at = this.#insertScratch();
    else algorithm.note?.(cells, at, now);
    return wait === neverUs ? wait : wait + this.#timeline.debtUs;
  }

  /** The overflow bucket may be smaller than the rule's own: what can never fit there just waits. */
  #probeOverflow(costMilli: number, nowUs: number): WaitUs {
    if (costMilli > this.#overflowLimit.burstMilli) return neverUs;
    return this.#overflow.probe(costMilli, nowUs);
  }

  /** Looks in the present table, then in the older ones, from which a key moves over. */
  #find(now: number): number {
    const { low, high } = this.#hasher;
    const at = this.#table.find(low, high);
    if (at >= 0 || this.#older.length === 0) return at;
    for (let nth = this.#older.length - 1; nth >= 0; nth -= 1) {
      const generation = this.#older[nth];
      const found = generation?.table.find(low, high) ?? -1;
      if (generation === undefined || found < 0) continue;
      this.#carry(nth, generation.table.cells, found, now);
      generation.table.remove(found);
      this.#table.find(low, high);
      return this.#insertScratch();
    }
    return -1;
  }

  /** Leaves in the scratch what a state of the nth old table has become by `now`. */
  #carry(nth: number, cells: Float64Array, at: number, now: number): void {
    let from = this.#older[nth]?.algorithm ?? this.#algorithm;
    let [fromCells, fromAt] = [cells, at];
    for (let step = nth; step < this.#older.length; step += 1) {
      const to = this.#older[step + 1]?.algorithm ?? this.#algorithm;
      const last = step + 1 === this.#older.length;
      const atUs = Math.min(now, this.#older[step]?.endedUs ?? now);
      const target = last ? this.#scratch : new Float64Array(to.width);
      if (to.carry?.(target, 0, atUs, from, fromCells, fromAt) !== true) {
        to.adopt(target, 0, atUs, from.leftMilli(fromCells, fromAt, atUs), from.capacityMilli);
      }
      [from, fromCells, fromAt] = [to, target, 0];
    }
  }

  /** Puts the scratch into the slot that the last `find` of the present table prepared. */
  #insertScratch(): number {
    const at = this.#table.insert();
    this.#table.cells.set(this.#scratch, at);
    return at;
  }

  #sweep(steadyUs: number, budget: number): number {
    const moved = this.#older.length === 0 ? 0 : this.#moveOver(steadyUs, budget);
    this.#sweepNowUs = steadyUs;
    return moved + this.#table.sweep(budget, this.#forgettable);
  }

  /** Empties the oldest table into the present one; answers how many keys were forgotten on the way. */
  #moveOver(now: number, budget: number): number {
    const oldest = this.#older[0];
    if (oldest === undefined) return 0;
    let forgotten = 0;
    oldest.table.sweep(budget, (cells, at, low, high) => {
      if (oldest.algorithm.forgettable(cells, at, now)) {
        forgotten += 1;
        return true;
      }
      this.#carry(0, cells, at, now);
      if (this.#table.find(low, high) < 0) this.#insertScratch();
      return true;
    });
    if (oldest.table.entries === 0) this.#older.shift();
    return forgotten;
  }
}

function limitOf(options: KeyedLimiterOptions): LimitSpec {
  if ('limit' in options) return options.limit;
  const { rate, burstMilli, initialShareMilli } = options;
  return {
    algorithm: 'token_bucket',
    rate,
    burstMilli,
    ...(initialShareMilli === undefined ? {} : { initialShareMilli }),
  };
}

function overflowBucket(overflow: OverflowLimit): TokenBucket {
  return tokenBucket(overflow.rate, overflow.burstMilli);
}

function checkMaxKeys(maxKeys: number): number {
  if (!Number.isSafeInteger(maxKeys) || maxKeys < 1) {
    throw new RangeError(`max keys: found ${maxKeys}; allowed is a whole number of 1 or more`);
  }
  return maxKeys;
}
