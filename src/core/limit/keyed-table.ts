/**
 * A table of millions of small counters in one process.
 *
 * The obvious structure, a `Map` from key text to an object, costs 200 bytes and more per key, keeps
 * the collector busy with millions of objects, stalls for tens of milliseconds whenever it doubles, and
 * is emptied by a timer per key or by one sweep over everything. None of that is acceptable in a
 * process that has to answer in a millisecond while strangers choose the keys.
 *
 * The idea, in three steps:
 *
 * 1. **No keys, only fingerprints.** A slot holds the 64 bits of a keyed hash (key.ts), then the
 *    counter's state as `width` floats. A token bucket is 24 bytes, in one buffer, which the collector
 *    never looks into. Two keys share a counter only if all 64 bits agree: among a million keys, once in
 *    40 million tables, and nobody outside knows the seed.
 * 2. **A table of small tables.** The hash picks one of many segments; each is an open-addressing table
 *    of its own that starts empty and grows by half. So growing moves at most a few thousand slots at a
 *    time, memory follows what is used, and a resize never stalls anybody.
 *
 *        hash ──► segment 0  [bits level last | bits level last | · · · | bits level last]
 *                 segment 1  [ · · · | · · · ]
 *                 …
 *
 * 3. **Expiry in slices.** A cursor walks the slots, a bounded number per call, and removes what the
 *    owner says is forgotten. Removal closes the gap (backward shift), so there are no tombstones and
 *    a search stops at the first empty slot. A segment that has become mostly empty shrinks.
 *
 * What a state means is the owner's business; here it is `width` floats, zero when new.
 */

/** Slots of a segment that holds anything. */
const segmentMinSlots = 8;
/** Bytes a segment aims to stay below: what one resize or one shrink moves. */
const segmentTargetBytes = 64 * 1024;
/** Segments are objects of their own; more of them than this would cost more than they save. */
const segmentsMax = 1 << 16;
/** A slot in four stays empty, so that a search for an unknown key stays short. */
const fullNumerator = 3;
const fullDenominator = 4;

const twoToMinus32 = 2 ** -32;
const noCells = new Float64Array(0);
const noWords = new Int32Array(0);

interface Segment {
  cells: Float64Array;
  /** The same buffer: words 2·stride·slot and the next are the fingerprint; both 0 is an empty slot. */
  words: Int32Array;
  slots: number;
  used: number;
}

/** What a sweep asks about a key: its state, and the two words of its hash. */
export type SweepVisitor = (cells: Float64Array, at: number, low: number, high: number) => boolean;

export class KeyedTable {
  /** The floats of the segment that the last `find` or `insert` looked into. */
  cells: Float64Array = noCells;
  /** Floats of a slot: the fingerprint and the state. */
  readonly stride: number;
  readonly #segments: readonly Segment[];
  readonly #mask: number;
  #entries = 0;
  #slots = 0;
  #segment: Segment;
  #low = 0;
  #high = 0;
  #cursorSegment = 0;
  #cursorSlot = 0;

  /**
   * @param width floats of state per key.
   * @param expectedKeys sets the number of segments; the table works, only slower, beyond it.
   */
  constructor(width: number, expectedKeys: number) {
    this.stride = width + 1;
    const slotBytes = this.stride * 8;
    const perSegment = Math.max(segmentMinSlots, Math.floor(segmentTargetBytes / slotBytes));
    const wanted = (expectedKeys * fullDenominator) / fullNumerator / perSegment;
    let count = 1;
    while (count < wanted && count < segmentsMax) count *= 2;
    this.#segments = Array.from({ length: count }, () => ({
      cells: noCells,
      words: noWords,
      slots: 0,
      used: 0,
    }));
    this.#mask = count - 1;
    const first = this.#segments[0];
    if (first === undefined) throw new Error('a table has at least one segment');
    this.#segment = first;
  }

  /** Keys in the table. */
  get entries(): number {
    return this.#entries;
  }

  /** Bytes of the arrays; the objects around them add less than 200 per segment. */
  get bytes(): number {
    return this.#slots * this.stride * 8;
  }

  /** Slots one full turn of the cursor passes. */
  get slots(): number {
    return this.#slots;
  }

  /**
   * Where the key with this hash has its state (an index into `cells`, valid until the next call), or
   * −1. Expected O(1).
   */
  find(low: number, high: number): number {
    const segment = this.#segments[low & this.#mask];
    if (segment === undefined) throw new Error('the mask covers the segments');
    // Both words zero mark an empty slot, so that one hash is moved aside.
    const first = (low | high) === 0 ? 1 : low;
    this.#segment = segment;
    this.#low = first;
    this.#high = high;
    const { words, slots } = segment;
    this.cells = segment.cells;
    if (slots === 0) return -1;
    const step = this.stride * 2;
    const end = slots * step;
    let at = homeSlot(high, slots) * step;
    for (;;) {
      const foundLow = words[at];
      const foundHigh = words[at + 1];
      if (foundLow === first && foundHigh === high) return (at >> 1) + 1;
      if (foundLow === 0 && foundHigh === 0) return -1;
      at += step;
      if (at === end) at = 0;
    }
  }

  /**
   * Makes a slot for the key that the last `find` did not find; its state is all zero. Amortised O(1),
   * at worst one resize of one segment.
   */
  insert(): number {
    const segment = this.#segment;
    if ((segment.used + 1) * fullDenominator > segment.slots * fullNumerator) {
      this.#resize(segment, Math.max(segmentMinSlots, Math.ceil(segment.slots * 1.5)));
    }
    const word = freeWord(segment, this.stride, this.#high);
    segment.words[word] = this.#low;
    segment.words[word + 1] = this.#high;
    segment.used += 1;
    this.#entries += 1;
    this.cells = segment.cells;
    return (word >> 1) + 1;
  }

  /** Removes the key that the last `find` found at `at`. */
  remove(at: number): void {
    this.#remove(this.#segment, (at - 1) / this.stride);
  }

  /**
   * Moves the cursor over at most `budget` slots and removes the keys for which `gone` says so.
   * Removing and shrinking are charged to the budget, so that a slice is bounded in time, not only in
   * slots. Answers how many were removed. Invalidates what `find` said.
   */
  sweep(budget: number, gone: SweepVisitor): number {
    let left = budget;
    let removed = 0;
    let emptyInARow = 0;
    while (left > 0 && emptyInARow <= this.#mask) {
      const segment = this.#segments[this.#cursorSegment];
      if (segment === undefined) throw new Error('the cursor stays inside the segments');
      left -= 1;
      emptyInARow = segment.slots === 0 ? emptyInARow + 1 : 0;
      while (left > 0 && this.#cursorSlot < segment.slots) {
        if (asks(segment, this.#cursorSlot * this.stride, gone)) {
          // The gap may have been filled by a later slot: look at the same place again.
          this.#remove(segment, this.#cursorSlot);
          removed += 1;
          left -= 4;
        } else {
          this.#cursorSlot += 1;
          left -= 1;
        }
      }
      if (this.#cursorSlot < segment.slots) break;
      left -= this.#shrink(segment);
      this.#cursorSegment = (this.#cursorSegment + 1) & this.#mask;
      this.#cursorSlot = 0;
    }
    return removed;
  }

  /** Visits every key. O(size): for tests and for audited one-time work, never in a request. */
  forEach(visit: (cells: Float64Array, at: number) => void): void {
    for (const segment of this.#segments) {
      for (let slot = 0; slot < segment.slots; slot += 1) {
        asks(segment, slot * this.stride, (cells, at) => {
          visit(cells, at);
          return false;
        });
      }
    }
  }

  #remove(segment: Segment, slot: number): void {
    const { cells, words, slots } = segment;
    const stride = this.stride;
    let gap = slot;
    let next = slot;
    for (;;) {
      next = next + 1 === slots ? 0 : next + 1;
      const word = next * stride * 2;
      const high = words[word + 1] ?? 0;
      if (words[word] === 0 && high === 0) break;
      const home = homeSlot(high, slots);
      // A slot may fill the gap unless its home lies cyclically in (gap, next].
      const stays = gap <= next ? home > gap && home <= next : home > gap || home <= next;
      if (stays) continue;
      cells.copyWithin(gap * stride, next * stride, next * stride + stride);
      gap = next;
    }
    cells.fill(0, gap * stride, gap * stride + stride);
    segment.used -= 1;
    this.#entries -= 1;
  }

  /** Gives memory back where at most an eighth is used; answers what that cost, in slots. */
  #shrink(segment: Segment): number {
    if (segment.slots <= segmentMinSlots && segment.used > 0) return 0;
    if (segment.used * 8 > segment.slots || segment.slots === 0) return 0;
    const moved = segment.used;
    this.#resize(segment, moved === 0 ? 0 : Math.max(segmentMinSlots, moved * 2));
    return moved;
  }

  #resize(segment: Segment, slots: number): void {
    const { stride } = this;
    const { cells, words } = segment;
    this.#slots += slots - segment.slots;
    segment.cells = slots === 0 ? noCells : new Float64Array(slots * stride);
    segment.words = new Int32Array(segment.cells.buffer);
    segment.slots = slots;
    for (let at = 0; at < cells.length; at += stride) {
      const low = words[at * 2] ?? 0;
      const high = words[at * 2 + 1] ?? 0;
      if (low === 0 && high === 0) continue;
      // The fingerprint moves as words: as a float it may be a NaN, whose bits need not survive.
      const word = freeWord(segment, stride, high);
      segment.words[word] = low;
      segment.words[word + 1] = high;
      for (let cell = 1; cell < stride; cell += 1) {
        segment.cells[(word >> 1) + cell] = cells[at + cell] ?? 0;
      }
    }
    if (this.#segment === segment) this.cells = segment.cells;
  }
}

function asks(segment: Segment, at: number, visitor: SweepVisitor): boolean {
  const low = segment.words[at * 2] ?? 0;
  const high = segment.words[at * 2 + 1] ?? 0;
  return (low !== 0 || high !== 0) && visitor(segment.cells, at + 1, low, high);
}

function homeSlot(high: number, slots: number): number {
  return ((high >>> 0) * slots * twoToMinus32) | 0;
}

/** Index of the first word of the first empty slot from home on. There is one: see `insert`. */
function freeWord(segment: Segment, stride: number, high: number): number {
  const { words, slots } = segment;
  const step = stride * 2;
  const end = slots * step;
  let at = homeSlot(high, slots) * step;
  while (words[at] !== 0 || words[at + 1] !== 0) {
    at += step;
    if (at === end) at = 0;
  }
  return at;
}
