import type { StockMark } from '../../core/stock/model.ts';

/** What scripts return, read with care: a reply of another shape is an error that shows it. */
export class Reply {
  readonly #values: readonly unknown[];
  #at = 0;

  constructor(reply: unknown) {
    if (!Array.isArray(reply)) throw new Error(`Redis replied ${show(reply)}, expected a list`);
    this.#values = reply;
  }

  get length(): number {
    return this.#values.length;
  }

  get ended(): boolean {
    return this.#at >= this.#values.length;
  }

  text(): string {
    const value = this.#next();
    if (typeof value !== 'string') throw new Error(`Redis replied ${show(value)}, expected text`);
    return value;
  }

  number(): number {
    const value = this.#next();
    if (typeof value !== 'number')
      throw new Error(`Redis replied ${show(value)}, expected a number`);
    return value;
  }

  list(): Reply {
    return new Reply(this.#next());
  }

  /** seq, gen, epoch, total, available, held, ordered, paused: the order of every script. */
  mark(): StockMark {
    const [sequence, generation, stockEpoch, total, available, held, ordered, paused] = [
      this.number(),
      this.number(),
      this.number(),
      this.number(),
      this.number(),
      this.number(),
      this.number(),
      this.number(),
    ];
    return {
      total,
      available,
      held,
      ordered,
      sequence,
      generation,
      stockEpoch,
      paused: paused === 1,
    };
  }

  #next(): unknown {
    const value = this.#values[this.#at];
    this.#at += 1;
    return value;
  }
}

const show = (value: unknown): string => JSON.stringify(value)?.slice(0, 200) ?? String(value);
