/**
 * Which named seats of a SKU are free, and the best that are beside each other.
 *
 * The list is in order of liking, best first, and neighbours in the list sit beside each other while
 * they are in one row. The best `n` are the first run of `n` free neighbours. A scan from the front
 * for each buyer would cost the whole hall once the front has sold, so each length remembers where
 * its last search ended: nothing before it can be free, unless a seat before it comes back. A sale
 * that only sells thus scans the hall once per length.
 */
export class SeatMap {
  readonly names: readonly string[];
  readonly #index = new Map<string, number>();
  readonly #taken: Uint8Array;
  /** 1 where a seat begins a row. */
  readonly #rowStart: Uint8Array;
  /** By length of run: no free run of that length begins before this index. */
  readonly #searchFrom = new Map<number, number>();

  /** Throws RangeError for a name that comes twice. O(seats). */
  constructor(names: readonly string[]) {
    this.names = names;
    this.#taken = new Uint8Array(names.length);
    this.#rowStart = new Uint8Array(names.length);
    let lastRow: string | undefined;
    for (const [index, name] of names.entries()) {
      if (this.#index.has(name)) throw new RangeError(`Seat ${name} is listed twice`);
      this.#index.set(name, index);
      const row = rowOf(name);
      if (row !== lastRow) this.#rowStart[index] = 1;
      lastRow = row;
    }
  }

  /** Whether the seat at this place of the list begins a row. */
  beginsRow(index: number): boolean {
    return this.#rowStart[index] === 1;
  }

  /** Those of `names` that cannot be had: taken, or not seats of this SKU. */
  unavailable(names: readonly string[]): readonly string[] {
    return names.filter((name) => {
      const index = this.#index.get(name);
      return index === undefined || this.#taken[index] === 1;
    });
  }

  /** The best `count` free seats beside each other, or none. Amortized O(count). */
  bestAdjacent(count: number): readonly string[] | undefined {
    let start = this.#searchFrom.get(count) ?? 0;
    let length = 0;
    for (let at = start; at < this.names.length; at += 1) {
      if (this.#rowStart[at] === 1) length = 0;
      length = this.#taken[at] === 1 ? 0 : length + 1;
      if (length === count) {
        start = at - count + 1;
        this.#searchFrom.set(count, start);
        return this.names.slice(start, at + 1);
      }
    }
    this.#searchFrom.set(count, this.names.length);
    return undefined;
  }

  /** Takes free seats. Throws RangeError, taking none, where one is not free. */
  take(names: readonly string[]): void {
    const bad = this.unavailable(names);
    if (bad.length > 0) throw new RangeError(`Seats ${bad.join(', ')} are not free`);
    for (const name of names) this.#taken[this.#index.get(name) ?? 0] = 1;
  }

  free(names: readonly string[]): void {
    for (const name of names) {
      const index = this.#index.get(name);
      if (index === undefined) continue;
      this.#taken[index] = 0;
      for (const [count, from] of this.#searchFrom) {
        const first = Math.max(0, index - count + 1);
        if (first < from) this.#searchFrom.set(count, first);
      }
    }
  }
}

/** `A-12` is in row `A`; a name without `-` is in the one row of all such names. */
function rowOf(name: string): string {
  const dash = name.lastIndexOf('-');
  return dash < 0 ? '' : name.slice(0, dash);
}
