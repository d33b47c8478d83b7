import type { OrderMessage } from '../ports/order-queue.ts';

/**
 * One partition of a log as a queue: which of the messages that came are free, out, or done, and how
 * far the log is done without a gap, which is all that Kafka remembers.
 *
 * Bounded by whoever fills it: it is asked for its size before more is fetched. A message that stays
 * undone holds the mark back, and once the window is full, what is behind it too.
 */
export class PartitionWindow {
  /** Where fetching goes on. */
  next: number;
  /** What the broker was told: everything before it is done. */
  committed: number;
  /** In order of offset. */
  readonly #entries = new Map<number, Entry>();
  #done = 0;

  constructor(start: number) {
    this.next = start;
    this.committed = start;
  }

  /** Entries kept, done or not. */
  get size(): number {
    return this.#entries.size;
  }

  /** Done ones behind one that is not. */
  get doneAhead(): number {
    return this.#done;
  }

  /** Everything before it is done; the mark to commit. O(1). */
  get stable(): number {
    for (const offset of this.#entries.keys()) return offset;
    return this.next;
  }

  /** The oldest message not done. O(1). */
  get head(): OrderMessage | undefined {
    for (const { message } of this.#entries.values()) return message;
    return undefined;
  }

  /** The next message of the log; one that is known already is passed over. */
  add(offset: number, message: OrderMessage): void {
    if (offset < this.next) return;
    this.#entries.set(offset, { message, attempt: 0, state: 'free', endsUs: 0 });
    this.next = offset + 1;
  }

  /** The log holds nothing of use before this offset. */
  skipTo(offset: number): void {
    this.next = Math.max(this.next, offset);
  }

  /** Up to `max` free ones, oldest first; out until `nowUs + visibleUs`. O(size). */
  take(max: number, nowUs: number, visibleUs: number): Taken[] {
    const taken: Taken[] = [];
    if (max <= 0) return taken;
    for (const [offset, entry] of this.#entries) {
      const free = entry.state === 'free' || (entry.state === 'out' && entry.endsUs <= nowUs);
      if (!free) continue;
      entry.state = 'out';
      entry.attempt += 1;
      entry.endsUs = nowUs + visibleUs;
      taken.push({ offset, attempt: entry.attempt, message: entry.message });
      if (taken.length === max) break;
    }
    return taken;
  }

  /** Its fate is committed. Whether that is news. */
  done(offset: number): boolean {
    const entry = this.#entries.get(offset);
    if (entry === undefined || entry.state === 'done') return false;
    entry.state = 'done';
    this.#done += 1;
    for (const [first, { state }] of this.#entries) {
      if (state !== 'done') break;
      this.#entries.delete(first);
      this.#done -= 1;
    }
    return true;
  }

  /** Whether this message is here and not done. */
  has(offset: number): boolean {
    const entry = this.#entries.get(offset);
    return entry !== undefined && entry.state !== 'done';
  }

  /** Only by whom it was given to last, and in time: an earlier holder has nothing to give. */
  giveBack(offset: number, attempt: number, nowUs: number): boolean {
    const entry = this.#entries.get(offset);
    if (entry?.state !== 'out' || entry.attempt !== attempt || entry.endsUs <= nowUs) return false;
    entry.state = 'free';
    return true;
  }
}

interface Entry {
  readonly message: OrderMessage;
  attempt: number;
  state: 'free' | 'out' | 'done';
  endsUs: number;
}

export interface Taken {
  readonly offset: number;
  readonly attempt: number;
  readonly message: OrderMessage;
}
