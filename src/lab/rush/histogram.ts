/**
 * Latencies in constant memory: buckets that are 1/32 of their power of two wide, so that a quantile
 * is off by at most 3.2 %. Range 1 µs to 71 minutes; above that everything falls in the last bucket.
 */
export class Histogram {
  static readonly #perOctave = 32;
  readonly #buckets = new Uint32Array(33 * Histogram.#perOctave);
  #count = 0;
  #maxMs = 0;

  record(ms: number): void {
    const us = Math.min(2 ** 32 - 1, Math.max(1, Math.round(ms * 1000)));
    const octave = 31 - Math.clz32(us);
    const within = Math.floor((us / 2 ** octave - 1) * Histogram.#perOctave);
    const at = octave * Histogram.#perOctave + within;
    this.#buckets[at] = (this.#buckets[at] ?? 0) + 1;
    this.#count += 1;
    if (ms > this.#maxMs) this.#maxMs = ms;
  }

  get count(): number {
    return this.#count;
  }

  get maxMs(): number {
    return this.#maxMs;
  }

  /** The upper edge of the bucket that holds the quantile, ms; null when nothing was recorded. */
  quantile(q: number): number | null {
    if (this.#count === 0) return null;
    let left = Math.max(1, Math.ceil(q * this.#count));
    for (let at = 0; at < this.#buckets.length; at += 1) {
      left -= this.#buckets[at] ?? 0;
      if (left <= 0) {
        const octave = Math.floor(at / Histogram.#perOctave);
        const within = at % Histogram.#perOctave;
        const upperUs = 2 ** octave * (1 + (within + 1) / Histogram.#perOctave);
        return Math.round(Math.min(upperUs / 1000, this.#maxMs) * 1000) / 1000;
      }
    }
    return this.#maxMs;
  }

  /** Non-empty buckets as [upper edge in ms, count], for plots. */
  points(): [number, number][] {
    const out: [number, number][] = [];
    this.#buckets.forEach((count, at) => {
      if (count === 0) return;
      const octave = Math.floor(at / Histogram.#perOctave);
      const within = at % Histogram.#perOctave;
      out.push([(2 ** octave * (1 + (within + 1) / Histogram.#perOctave)) / 1000, count]);
    });
    return out;
  }
}
