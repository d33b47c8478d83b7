/**
 * One pending wake-up per person, for a million people, without a timer or a closure each.
 *
 * A ring of millisecond slots; each slot heads a linked list threaded through one Int32Array, so that
 * setting, cancelling and firing are O(1) and memory is 16 bytes per person. A wake-up further away
 * than the ring lies in its slot and is passed over once a round.
 */
export class Wheel {
  static readonly #slots = 65_536;
  readonly #heads = new Int32Array(Wheel.#slots).fill(-1);
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  readonly #dueMs: Float64Array;
  #tick: number;
  #pending = 0;

  /** `size`: people, numbered from 0. `startMs`: the instant from which the wheel turns. */
  constructor(size: number, startMs: number) {
    this.#next = new Int32Array(size).fill(-1);
    this.#previous = new Int32Array(size).fill(-1);
    this.#dueMs = new Float64Array(size).fill(Number.NaN);
    this.#tick = Math.floor(startMs);
  }

  get pending(): number {
    return this.#pending;
  }

  /** Sets (or moves) a person's wake-up. A due time in the past fires at the next turn. */
  set(person: number, dueMs: number): void {
    this.cancel(person);
    const due = Math.max(dueMs, this.#tick);
    const slot = Math.floor(due) % Wheel.#slots;
    const head = this.#heads[slot] ?? -1;
    this.#next[person] = head;
    this.#previous[person] = -1;
    if (head >= 0) this.#previous[head] = person;
    this.#heads[slot] = person;
    this.#dueMs[person] = due;
    this.#pending += 1;
  }

  cancel(person: number): void {
    const due = this.#dueMs[person] ?? Number.NaN;
    if (Number.isNaN(due)) return;
    const next = this.#next[person] ?? -1;
    const previous = this.#previous[person] ?? -1;
    if (previous >= 0) this.#next[previous] = next;
    else this.#heads[Math.floor(due) % Wheel.#slots] = next;
    if (next >= 0) this.#previous[next] = previous;
    this.#dueMs[person] = Number.NaN;
    this.#pending -= 1;
  }

  /** When the person will be woken; NaN when not at all. */
  dueOf(person: number): number {
    return this.#dueMs[person] ?? Number.NaN;
  }

  /** Fires everything due up to `nowMs`, slot by slot. `fire` may set wake-ups, its own included. */
  turn(nowMs: number, fire: (person: number) => void): void {
    const until = Math.floor(nowMs);
    // After a stall of more than a round every slot is visited once, which is all there is.
    if (until - this.#tick > Wheel.#slots) this.#tick = until - Wheel.#slots;
    while (this.#tick < until) {
      const slot = this.#tick % Wheel.#slots;
      let person = this.#heads[slot] ?? -1;
      // What fires may be set again into this very slot only for a later round, or is due at a later
      // tick, so one walk over a snapshot of the list is complete.
      const due: number[] = [];
      while (person >= 0) {
        if ((this.#dueMs[person] ?? 0) < this.#tick + 1) due.push(person);
        person = this.#next[person] ?? -1;
      }
      this.#tick += 1;
      for (const each of due) {
        if ((this.#dueMs[each] ?? Number.NaN) < this.#tick) {
          this.cancel(each);
          fire(each);
        }
      }
    }
  }
}
