/**
 * The busiest values of a key, found in bounded memory.
 *
 * A rule may want to hold the few hottest values (one SKU, one address block) to a limit of their own
 * without naming them beforehand, and without a counter per value. This is the Space-Saving sketch
 * (Metwally, Agrawal and El Abbadi, 2005): `capacity` counters; a value that is watched counts up, a
 * value that is not takes over the counter of the least, together with its count, which becomes its
 * possible error. Then, of N observations:
 *
 * - every value seen more than N ÷ capacity times is watched;
 * - a count is never below the truth, and above it by at most its `error` ≤ N ÷ capacity.
 *
 * To follow a moving crowd, counts fade: every `halfLifeUs` all are halved, and N with them, so the
 * guarantees hold for the faded stream. A value is *hot* only by what is certain (count − error): a
 * newcomer that inherited a large count is not punished for its predecessor.
 *
 * The least counter is found in a binary heap: O(log capacity) per observation.
 */
export interface HeavyHitter {
  readonly value: string;
  /** Upper bound of the faded number of observations. */
  readonly count: number;
  /** How much of it may be somebody else's. */
  readonly error: number;
}

interface Counter {
  value: string;
  count: number;
  error: number;
  place: number;
}

/** Longer values are watched by their beginning: the memory of the sketch is bounded in bytes as well. */
const valueMaxLength = 256;

export class HeavyHitters {
  readonly #capacity: number;
  readonly #halfLifeUs: number;
  readonly #counters = new Map<string, Counter>();
  /** Binary heap by count, least first. */
  readonly #heap: Counter[] = [];
  #total = 0;
  #fadedUs = -1;

  /**
   * @param capacity values watched at a time, 1 … 10,000; twice as many as are to be found is ample.
   * @param halfLifeUs time after which an observation counts half.
   */
  constructor(capacity: number, halfLifeUs: number) {
    if (!Number.isInteger(capacity) || capacity < 1 || capacity > 10_000) {
      throw new RangeError(`capacity: found ${capacity}; allowed is 1 to 10000`);
    }
    if (!(halfLifeUs > 0)) {
      throw new RangeError(`half-life: found ${halfLifeUs}; allowed is more than 0`);
    }
    this.#capacity = capacity;
    this.#halfLifeUs = halfLifeUs;
  }

  /** Values watched now. */
  get size(): number {
    return this.#heap.length;
  }

  /** Faded number of all observations. */
  get total(): number {
    return this.#total;
  }

  /** Counts one observation; answers what of the value's count is certain. */
  observe(value: string, nowUs: number): number {
    this.#fade(nowUs);
    this.#total += 1;
    const key = value.length > valueMaxLength ? value.slice(0, valueMaxLength) : value;
    const known = this.#counters.get(key);
    if (known !== undefined) {
      known.count += 1;
      this.#sink(known);
      return known.count - known.error;
    }
    if (this.#heap.length < this.#capacity) {
      const counter = { value: key, count: 1, error: 0, place: this.#heap.length };
      this.#heap.push(counter);
      this.#counters.set(key, counter);
      this.#rise(counter);
      return 1;
    }
    const least = this.#heap[0];
    if (least === undefined) throw new Error('a full sketch has a least counter');
    this.#counters.delete(least.value);
    least.error = least.count;
    least.count += 1;
    least.value = key;
    this.#counters.set(key, least);
    this.#sink(least);
    return 1;
  }

  /** What of the value's count is certain; 0 when it is not watched. */
  certain(value: string): number {
    const counter = this.#counters.get(value.slice(0, valueMaxLength));
    return counter === undefined ? 0 : counter.count - counter.error;
  }

  /** The `n` busiest by what is certain, busiest first. O(capacity · log capacity). */
  top(n: number): HeavyHitter[] {
    return this.#heap
      .map(({ value, count, error }) => ({ value, count, error }))
      .sort((a, b) => b.count - b.error - (a.count - a.error) || (a.value < b.value ? -1 : 1))
      .slice(0, n);
  }

  #fade(nowUs: number): void {
    if (this.#fadedUs < 0) this.#fadedUs = nowUs;
    const halvings = Math.floor((nowUs - this.#fadedUs) / this.#halfLifeUs);
    if (halvings <= 0) return;
    this.#fadedUs += halvings * this.#halfLifeUs;
    // Halving keeps the order, so the heap stays a heap. Counters that have faded to nothing go.
    const factor = halvings > 60 ? 0 : 2 ** -halvings;
    this.#total *= factor;
    for (const counter of this.#heap) {
      counter.count *= factor;
      counter.error *= factor;
    }
    while ((this.#heap[0]?.count ?? 1) < 0.01) this.#dropLeast();
  }

  #dropLeast(): void {
    const least = this.#heap[0];
    const last = this.#heap.pop();
    if (least === undefined || last === undefined) return;
    this.#counters.delete(least.value);
    if (last === least) return;
    this.#heap[0] = last;
    last.place = 0;
    this.#sink(last);
  }

  #rise(counter: Counter): void {
    while (counter.place > 0) {
      const parent = this.#heap[(counter.place - 1) >> 1];
      if (parent === undefined || parent.count <= counter.count) return;
      this.#swap(parent, counter);
    }
  }

  #sink(counter: Counter): void {
    for (;;) {
      const left = this.#heap[2 * counter.place + 1];
      const right = this.#heap[2 * counter.place + 2];
      const least =
        right !== undefined && left !== undefined && right.count < left.count ? right : left;
      if (least === undefined || least.count >= counter.count) return;
      this.#swap(counter, least);
    }
  }

  /** Exchanges a counter with one below it. */
  #swap(above: Counter, below: Counter): void {
    const place = above.place;
    above.place = below.place;
    below.place = place;
    this.#heap[above.place] = above;
    this.#heap[below.place] = below;
  }
}
