import type { HashSeed } from './key.ts';
import { KeyHasher } from './key.ts';
import { KeyedTable } from './keyed-table.ts';
import type { Rate } from './rate.ts';
import { SingleBucket } from './single-bucket.ts';
import { Timeline } from './timeline.ts';
import type { TokenBucket, WaitUs } from './token-bucket.ts';
import { assertFits, countedTo, levelAt, neverUs, tokenBucket, waitFor } from './token-bucket.ts';

/**
 * A token bucket per key, for strangers' keys: bounded, and unable to be used against the others.
 *
 * Three ways in which such a limiter is turned against its owner, and what stands in the way:
 *
 * - *A new key for every request* fills memory, or, where old keys are evicted, gives the flood a
 *   fresh burst each time and throws honest keys out. Here a full table keeps the keys it knows, with
 *   their balances, and every unknown key shares one stricter overflow bucket. Nothing is evicted
 *   before its time; `overflowTotal` raises the alarm.
 * - *Waiting to be forgotten* gives a burst back early. A key is forgotten only after at least two
 *   fill times without a charge, when its bucket is full anyway.
 * - *Making all keys expire at once* stalls a sweep. Expiry runs in bounded slices, a few slots with
 *   each new key and the rest from the owner's one timer (`sweep`).
 *
 * A refusal writes nothing. A decision allocates nothing: see `WaitUs`.
 */
export interface KeyedLimiterOptions {
  /** Stands in front of every key: no two rules share a counter. */
  readonly ruleId: string;
  readonly rate: Rate;
  readonly burstMilli: number;
  /** Share of the burst that a new key starts with, thousandths; 1000 when absent. */
  readonly initialShareMilli?: number;
  /** Keys remembered at a time, ≥ 1. */
  readonly maxKeys: number;
  /** What unknown keys share once the table is full. */
  readonly overflow: { readonly rate: Rate; readonly burstMilli: number };
  /** Two words or more from a secure random source, drawn once per process. */
  readonly hashSeed: HashSeed;
}

/** No key is forgotten sooner than this, however fast its bucket fills: it would only come and go. */
const idleMinUs = 1_000_000;
/** Slots swept with each new key; twice the slots a key takes, so the cursor outruns any flood. */
const sweepPerInsert = 8;
/** Slots swept before an unknown key is sent to the overflow bucket. */
const sweepWhenFull = 32;

export class KeyedLimiter {
  readonly #table: KeyedTable;
  readonly #hasher: KeyHasher;
  readonly #timeline = new Timeline();
  readonly #overflow: SingleBucket;
  readonly #maxKeys: number;
  readonly #bucket: TokenBucket;
  readonly #idleUs: number;
  #sweepNowUs = 0;
  readonly #forgotten = (cells: Float64Array, at: number): boolean =>
    this.#sweepNowUs - (cells[at + 1] ?? 0) >= this.#idleUs;
  #overflowTotal = 0;

  // What the last probe found, for the charge that may follow.
  #at = -1;
  #level = 0;
  #now = 0;
  #viaOverflow = false;

  /** @throws LimitParameterError, RangeError */
  constructor(options: KeyedLimiterOptions) {
    const { maxKeys, overflow } = options;
    if (!Number.isSafeInteger(maxKeys) || maxKeys < 1) {
      throw new RangeError(`max keys: found ${maxKeys}; allowed is a whole number of 1 or more`);
    }
    this.#bucket = tokenBucket(options.rate, options.burstMilli, options.initialShareMilli);
    this.#idleUs = Math.max(idleMinUs, Math.min(2 * this.#bucket.fillUs, neverUs));
    this.#overflow = new SingleBucket(tokenBucket(overflow.rate, overflow.burstMilli), 0);
    this.#maxKeys = maxKeys;
    this.#table = new KeyedTable(2, maxKeys);
    this.#hasher = new KeyHasher(options.hashSeed, options.ruleId);
  }

  get bucket(): TokenBucket {
    return this.#bucket;
  }

  /** Keys remembered now. */
  get entries(): number {
    return this.#table.entries;
  }

  /** Bytes of the table. */
  get bytes(): number {
    return this.#table.bytes;
  }

  /** Decisions that the overflow bucket took since the start; any growth is an alarm. */
  get overflowTotal(): number {
    return this.#overflowTotal;
  }

  /** The last decision came from the shared overflow bucket: its wait is a hint, not a promise. */
  get viaOverflow(): boolean {
    return this.#viaOverflow;
  }

  /**
   * Charges `costMilli` to the key (a, b) if it fits: 0, or else the wait (`WaitUs`). Expected O(1).
   * @param nowUs integer microseconds of one clock, which may step.
   * @throws CostNeverFitsError when the cost is above the burst.
   */
  take(a: string, b: string, costMilli: number, nowUs: number): WaitUs {
    const hasher = this.#hasher;
    hasher.hashPair(a, b);
    // Nearly every decision: a known key, a tick of a microsecond, an admission. Everything else, and
    // every doubt, goes the general way from the start; both ways are held together by a property.
    const bucket = this.#bucket;
    const costUnits = costMilli * bucket.unitsPerMilli;
    if (costUnits > 0 && bucket.tickUs === 1 && Number.isInteger(costMilli)) {
      const table = this.#table;
      const at = table.find(hasher.low, hasher.high);
      if (at >= 0) {
        const now = this.#timeline.read(nowUs);
        const { cells } = table;
        const lastUs = cells[at + 1] ?? 0;
        const level = levelAt(bucket, cells[at] ?? 0, lastUs, now);
        if (level >= costUnits) {
          cells[at] = level - costUnits;
          if (now > lastUs) cells[at + 1] = now;
          this.#viaOverflow = false;
          return 0;
        }
      }
    }
    const wait = this.#probe(costMilli, nowUs);
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
    return this.#probe(costMilli, nowUs);
  }

  probeParts(parts: readonly string[], costMilli: number, nowUs: number): WaitUs {
    this.#hasher.hashParts(parts);
    return this.#probe(costMilli, nowUs);
  }

  /** Charges what the `probe` just before, with the same cost, said fits. */
  charge(costMilli: number): void {
    if (this.#viaOverflow) {
      this.#overflow.charge(costMilli);
      return;
    }
    const bucket = this.#bucket;
    const now = this.#now;
    let at = this.#at;
    if (at < 0) {
      at = this.#table.insert();
      this.#table.cells[at + 1] = now;
    }
    const cells = this.#table.cells;
    cells[at] = this.#level - costMilli * bucket.unitsPerMilli;
    cells[at + 1] = countedTo(bucket, cells[at + 1] ?? now, now);
    this.#at = at;
  }

  /** Thousandths of a token that this key has now; what a new key starts with when it is unknown. */
  peek(a: string, b: string, nowUs: number): number {
    return this.peekParts([a, b], nowUs);
  }

  peekParts(parts: readonly string[], nowUs: number): number {
    this.#hasher.hashParts(parts);
    const now = this.#timeline.read(nowUs);
    const at = this.#table.find(this.#hasher.low, this.#hasher.high);
    const { cells } = this.#table;
    const bucket = this.#bucket;
    const level =
      at < 0 ? bucket.initialUnits : levelAt(bucket, cells[at] ?? 0, cells[at + 1] ?? 0, now);
    return Math.floor(level / bucket.unitsPerMilli);
  }

  /**
   * Forgets idle keys within `budget` slots (2,000 take well under a millisecond); answers how many.
   * Called from the owner's one timer. Every key is visited once per `slots / budget` calls.
   */
  sweep(nowUs: number, budget: number): number {
    return this.#sweep(this.#timeline.read(nowUs), budget);
  }

  #sweep(steadyUs: number, budget: number): number {
    this.#sweepNowUs = steadyUs;
    return this.#table.sweep(budget, this.#forgotten);
  }

  /** The hasher holds the key. */
  #probe(costMilli: number, nowUs: number): WaitUs {
    const bucket = this.#bucket;
    assertFits(bucket, costMilli);
    this.#viaOverflow = false;
    if (bucket.burstMilli === 0) return neverUs;
    const now = this.#timeline.read(nowUs);
    this.#now = now;
    const table = this.#table;
    let at = table.find(this.#hasher.low, this.#hasher.high);
    if (at < 0) {
      // Sweeping may move what `find` prepared for an insert, so it goes first and the key is sought again.
      const full = table.entries >= this.#maxKeys;
      this.#sweep(now, full ? sweepWhenFull : sweepPerInsert);
      at = table.find(this.#hasher.low, this.#hasher.high);
      if (table.entries >= this.#maxKeys) {
        this.#viaOverflow = true;
        this.#overflowTotal += 1;
        return this.#overflow.probe(costMilli, nowUs);
      }
    }
    this.#at = at;
    const { cells } = table;
    const costUnits = costMilli * bucket.unitsPerMilli;
    const lastUs = at < 0 ? now : (cells[at + 1] ?? 0);
    const level = at < 0 ? bucket.initialUnits : levelAt(bucket, cells[at] ?? 0, lastUs, now);
    this.#level = level;
    if (level >= costUnits) return 0;
    const wait = waitFor(bucket, level, countedTo(bucket, lastUs, now), now, costUnits);
    return wait === neverUs ? wait : wait + this.#timeline.debtUs;
  }
}
