/**
 * A line of people in the order of release: sorted keys, eight bytes each, and one bit each for those
 * who are gone. Keys are draw values (lobby) or places in the log (arrivals). Only control holds one;
 * it is what makes a wave release exactly its size.
 */

/** Marks on a line that a poll can place itself between: fewer would err by more than 0.1 %. */
export const sketchIntervals = 1024;

/**
 * What gateways know of a line: at most 1,025 keys at equal steps, and how many living entries stand
 * before each. A place between two marks is known to within one step, 1/1024 of the line.
 */
export interface Sketch {
  readonly keys: Float64Array;
  /** Living entries before the key of the same index; one more element: all of them. */
  readonly living: Float64Array;
}

/** Entries whose keys are equal stand in the order of their ids. */
export type Ties = ReadonlyMap<number, readonly string[]>;

const noTies: Ties = new Map();

export class Line {
  #keys: Float64Array;
  #size: number;
  #gone: Uint32Array;
  #goneCount = 0;
  readonly #ties: Ties;

  /** `sorted` ascending; taken over, not copied. */
  constructor(sorted: Float64Array = new Float64Array(0), ties: Ties = noTies) {
    this.#keys = sorted;
    this.#size = sorted.length;
    this.#gone = new Uint32Array((sorted.length + 31) >>> 5);
    this.#ties = ties;
  }

  get size(): number {
    return this.#size;
  }

  get living(): number {
    return this.#size - this.#goneCount;
  }

  /** Adds at the end; `key` above all before. Amortised O(1). */
  push(key: number): void {
    const last = this.#size === 0 ? -Infinity : this.keyAt(this.#size - 1);
    if (!(key > last)) throw new RangeError(`key ${key} does not stand behind ${last}`);
    if (this.#size === this.#keys.length) {
      const grown = new Float64Array(Math.max(64, this.#size * 2));
      grown.set(this.#keys);
      this.#keys = grown;
    }
    if (this.#size >>> 5 === this.#gone.length) {
      const grown = new Uint32Array(Math.max(2, this.#gone.length * 2));
      grown.set(this.#gone);
      this.#gone = grown;
    }
    this.#keys[this.#size] = key;
    this.#size += 1;
  }

  keyAt(rank: number): number {
    const key = rank < this.#size ? this.#keys[rank] : undefined;
    if (key === undefined) throw new RangeError(`rank ${rank} is not among ${this.#size}`);
    return key;
  }

  /** The id that decides among equal keys, or undefined where this key is the only one. */
  tieAt(rank: number): string | undefined {
    const key = this.keyAt(rank);
    const ids = this.#ties.get(key);
    return ids?.[rank - this.#lowerBound(key)];
  }

  /** The rank of an entry, or -1. O(log n). */
  rankOf(key: number, entryId: string): number {
    const first = this.#lowerBound(key);
    if (first >= this.#size || this.#keys[first] !== key) return -1;
    const ids = this.#ties.get(key);
    if (ids === undefined) return first;
    const at = ids.indexOf(entryId);
    return at < 0 ? -1 : first + at;
  }

  /** Entries, gone or not, whose key is below `key`, or equal with an id up to `tie`. O(log n). */
  countWithin(key: number, tie: string | undefined): number {
    const first = this.#lowerBound(key);
    const ids = this.#ties.get(key);
    if (ids === undefined)
      return first < this.#size && this.#keys[first] === key ? first + 1 : first;
    return first + (tie === undefined ? ids.length : ids.filter((id) => id <= tie).length);
  }

  isGone(rank: number): boolean {
    return ((this.#gone[rank >>> 5] ?? 0) & (1 << (rank & 31))) !== 0;
  }

  /** Takes the entry out of the count. True if it was in. */
  markGone(rank: number): boolean {
    if (this.isGone(rank)) return false;
    this.#gone[rank >>> 5] = (this.#gone[rank >>> 5] ?? 0) | (1 << (rank & 31));
    this.#goneCount += 1;
    return true;
  }

  /** Living entries with ranks in [from, to). O((to − from) / 32). */
  livingBetween(from: number, to: number): number {
    const end = Math.min(to, this.#size);
    if (end <= from) return 0;
    let gone = 0;
    const firstWord = from >>> 5;
    const lastWord = (end - 1) >>> 5;
    for (let word = firstWord; word <= lastWord; word += 1) {
      let bits = this.#gone[word] ?? 0;
      if (word === firstWord) bits &= -1 << (from & 31);
      if (word === lastWord && (end & 31) !== 0) bits &= (1 << (end & 31)) - 1;
      gone += popCount(bits);
    }
    return end - from - gone;
  }

  /** The next living rank at or after `from`; the size where there is none. */
  nextLiving(from: number): number {
    let rank = from;
    while (rank < this.#size && this.isGone(rank)) rank += 1;
    return rank;
  }

  sketch(): Sketch {
    const steps = Math.min(sketchIntervals, this.#size);
    const keys = new Float64Array(steps);
    const living = new Float64Array(steps + 1);
    let before = 0;
    let total = 0;
    for (let step = 0; step < steps; step += 1) {
      const rank = Math.floor((step * this.#size) / steps);
      total += this.livingBetween(before, rank);
      keys[step] = this.keyAt(rank);
      living[step] = total;
      before = rank;
    }
    living[steps] = total + this.livingBetween(before, this.#size);
    return { keys, living };
  }

  #lowerBound(key: number): number {
    let low = 0;
    let high = this.#size;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#keys[middle] ?? Infinity) < key) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function popCount(word: number): number {
  let bits = word - ((word >>> 1) & 0x55555555);
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333);
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

/**
 * How many living entries stand before `key`: an estimate between the two marks around it, and the
 * upper mark as a bound. O(log of the marks).
 */
export function livingBefore(
  sketch: Sketch,
  key: number,
): { readonly estimate: number; readonly atMost: number } {
  const { keys, living } = sketch;
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((keys[middle] ?? Infinity) <= key) low = middle + 1;
    else high = middle;
  }
  if (low === 0) return { estimate: 0, atMost: 0 };
  const lowKey = keys[low - 1] ?? 0;
  const highKey = keys[low];
  const lowLiving = living[low - 1] ?? 0;
  const highLiving = living[low] ?? lowLiving;
  if (key === lowKey) return { estimate: lowLiving, atMost: lowLiving };
  const share =
    highKey === undefined || !(highKey > lowKey) ? 0.5 : (key - lowKey) / (highKey - lowKey);
  return { estimate: lowLiving + share * (highLiving - lowLiving), atMost: highLiving };
}
