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
 * 1. **No keys, only fingerprints.** A slot holds 53 bits of a keyed 64-bit hash (key.ts) as one float,
 *    then the counter's state as `width` more. A token bucket is 24 bytes, in one `Float64Array`, which
 *    the collector never looks into. Two keys share a counter only if 53 bits *and* the segment agree:
 *    about one in 2^61 for a pair, and nobody outside knows the seed.
 * 2. **A table of small tables.** The hash picks one of many segments; each is an open-addressing table
 *    of its own that starts empty and grows by half. So growing moves at most a few thousand slots at a
 *    time, memory follows what is used, and a resize never stalls anybody.
 *
 *        hash ──► segment 0  [fp level last | fp level last | · · · | fp level last]
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

const twoTo21 = 2 ** 21;
const twoToMinus21 = 2 ** -21;
const twoToMinus32 = 2 ** -32;
const nothing = new Float64Array(0);

interface Segment {
  cells: Float64Array;
  slots: number;
  used: number;
}

export class KeyedTable {
  /** The floats of the segment that the last `find` or `insert` looked into. */
  cells: Float64Array = nothing;
  /** Floats of a slot: the fingerprint and the state. */
  readonly stride: number;
  readonly #segments: readonly Segment[];
  readonly #mask: number;
  #entries = 0;
  #slots = 0;
  #segment: Segment;
  #fingerprint = 0;
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
    this.#segments = Array.from({ length: count }, () => ({ cells: nothing, slots: 0, used: 0 }));
    this.#mask = count - 1;
    const first = this.#segments[0];
    if (first === undefined) throw new Error('a table has at least one segment');
    this.#segment = first;
  }

  /** Keys in the table. */
  get entries(): number {
    return this.#entries;
  }

  /** Bytes of the arrays; the objects around them add less than 100 per segment. */
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
    const fingerprint = (high >>> 0) * twoTo21 + (low >>> 11) || 1;
    this.#segment = segment;
    this.#fingerprint = fingerprint;
    const { cells, slots } = segment;
    this.cells = cells;
    if (slots === 0) return -1;
    const stride = this.stride;
    const end = slots * stride;
    let at = ((((high >>> 0) * slots * twoToMinus32) | 0) * stride) | 0;
    for (;;) {
      const found = cells[at];
      if (found === fingerprint) return at + 1;
      if (found === 0) return -1;
      at += stride;
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
    const at = freeSlot(segment, this.stride, this.#fingerprint);
    segment.cells[at] = this.#fingerprint;
    segment.used += 1;
    this.#entries += 1;
    this.cells = segment.cells;
    return at + 1;
  }

  /**
   * Moves the cursor over at most `budget` slots and removes the keys that `forgotten` names.
   * Removing and shrinking are charged to the budget, so that a slice is bounded in time, not only in
   * slots. Answers how many were removed. Invalidates what `find` said.
   */
  sweep(budget: number, forgotten: (cells: Float64Array, at: number) => boolean): number {
    let left = budget;
    let removed = 0;
    let emptyInARow = 0;
    while (left > 0 && emptyInARow <= this.#mask) {
      const segment = this.#segments[this.#cursorSegment];
      if (segment === undefined) throw new Error('the cursor stays inside the segments');
      left -= 1;
      emptyInARow = segment.slots === 0 ? emptyInARow + 1 : 0;
      while (left > 0 && this.#cursorSlot < segment.slots) {
        const at = this.#cursorSlot * this.stride;
        if (segment.cells[at] !== 0 && forgotten(segment.cells, at + 1)) {
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
    for (const { cells, slots } of this.#segments) {
      for (let slot = 0; slot < slots; slot += 1) {
        if (cells[slot * this.stride] !== 0) visit(cells, slot * this.stride + 1);
      }
    }
  }

  #remove(segment: Segment, slot: number): void {
    const { cells, slots } = segment;
    const stride = this.stride;
    let gap = slot;
    let next = slot;
    for (;;) {
      next = next + 1 === slots ? 0 : next + 1;
      const fingerprint = cells[next * stride] ?? 0;
      if (fingerprint === 0) break;
      const home = homeSlot(fingerprint, slots);
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
    const old = segment.cells;
    this.#slots += slots - segment.slots;
    segment.cells = slots === 0 ? nothing : new Float64Array(slots * stride);
    segment.slots = slots;
    for (let at = 0; at < old.length; at += stride) {
      const fingerprint = old[at] ?? 0;
      if (fingerprint === 0) continue;
      const to = freeSlot(segment, stride, fingerprint);
      for (let cell = 0; cell < stride; cell += 1) segment.cells[to + cell] = old[at + cell] ?? 0;
    }
    if (this.#segment === segment) this.cells = segment.cells;
  }
}

function homeSlot(fingerprint: number, slots: number): number {
  return (Math.floor(fingerprint * twoToMinus21) * slots * twoToMinus32) | 0;
}

/** Index of the first empty slot from the fingerprint's home on. There is one: see `insert`. */
function freeSlot(segment: Segment, stride: number, fingerprint: number): number {
  const { cells, slots } = segment;
  const end = slots * stride;
  let at = homeSlot(fingerprint, slots) * stride;
  while (cells[at] !== 0) {
    at += stride;
    if (at === end) at = 0;
  }
  return at;
}
