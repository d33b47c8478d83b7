import type { HashSeed } from './key.ts';
import { KeyHasher } from './key.ts';
import { KeyedTable } from './keyed-table.ts';
import { Timeline } from './timeline.ts';

/**
 * Callers that ignore refusals. Who is refused `after` times within `withinUs` is refused everything
 * of the rule for `forUs`: their requests are answered before anything is computed for them.
 *
 * Bounded in every way: in keys (once full, strangers are not booked), in time (a penalty ends when it
 * was said to end; refusals during it neither count nor extend it, so nobody is locked out for ever by
 * a client that cannot stop), and in memory (idle entries go with the sweep).
 */
export interface PenaltyTerms {
  readonly after: number;
  readonly withinUs: number;
  readonly forUs: number;
}

/** State of a key: start of the counting window, refusals in it, end of the penalty (0 for none). */
const width = 3;
const sweepPerInsert = 8;

export class PenaltyBook {
  #terms: PenaltyTerms;
  readonly #maxKeys: number;
  readonly #table: KeyedTable;
  readonly #hasher: KeyHasher;
  readonly #timeline = new Timeline();

  constructor(ruleId: string, terms: PenaltyTerms, maxKeys: number, hashSeed: HashSeed) {
    this.#terms = terms;
    this.#maxKeys = maxKeys;
    this.#table = new KeyedTable(width, maxKeys);
    this.#hasher = new KeyHasher(hashSeed, `${ruleId}#penalty`);
  }

  get entries(): number {
    return this.#table.entries;
  }

  /** Penalties that run keep their end; the rest goes by the new terms. */
  set terms(terms: PenaltyTerms) {
    this.#terms = terms;
  }

  /** Time until the penalty of this key ends, µs; 0 for none. O(1). */
  remainingUs(parts: readonly string[], nowUs: number): number {
    this.#hasher.hashParts(parts);
    const now = this.#timeline.read(nowUs);
    const at = this.#table.find(this.#hasher.low, this.#hasher.high);
    const until = at < 0 ? 0 : (this.#table.cells[at + 2] ?? 0);
    return until > now ? until - now + this.#timeline.debtUs : 0;
  }

  /** Books one refusal; answers true when it starts a penalty. Not called for refusals by penalty. */
  refused(parts: readonly string[], nowUs: number): boolean {
    this.#hasher.hashParts(parts);
    const now = this.#timeline.read(nowUs);
    let at = this.#table.find(this.#hasher.low, this.#hasher.high);
    if (at < 0) {
      this.#sweep(now, sweepPerInsert);
      if (this.#table.entries >= this.#maxKeys) return false;
      this.#table.find(this.#hasher.low, this.#hasher.high);
      at = this.#table.insert();
      this.#table.cells[at] = now;
    }
    const { cells } = this.#table;
    const { after, withinUs, forUs } = this.#terms;
    if (now - (cells[at] ?? 0) >= withinUs) {
      cells[at] = now;
      cells[at + 1] = 0;
    }
    const count = (cells[at + 1] ?? 0) + 1;
    cells[at + 1] = count;
    if (count < after) return false;
    cells[at + 1] = 0;
    cells[at + 2] = now + forUs;
    return true;
  }

  /** Forgets what has ended, within `budget` slots. */
  sweep(nowUs: number, budget: number): number {
    return this.#sweep(this.#timeline.read(nowUs), budget);
  }

  #sweep(now: number, budget: number): number {
    const { withinUs } = this.#terms;
    return this.#table.sweep(
      budget,
      (cells, at) => now - (cells[at] ?? 0) >= withinUs && now >= (cells[at + 2] ?? 0),
    );
  }
}
