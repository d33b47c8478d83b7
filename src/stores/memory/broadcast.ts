import type { Broadcast, Heard, Word } from '../../ports/broadcast.ts';
import type { Clock } from '../../ports/clock.ts';

/** Words in one process, or in a simulated deployment: kept while they are worth reading. */
export class MemoryBroadcast implements Broadcast {
  readonly #clock: Pick<Clock, 'monoUs'>;
  /** A topic's order outlives its last word: whoever was silenced stays so. */
  readonly #words = new Map<string, { readonly word: Word; readonly atUs: number }>();
  readonly #listeners = new Set<(topic: string, text: string) => void>();

  constructor(clock: Pick<Clock, 'monoUs'>) {
    this.#clock = clock;
  }

  async say(topic: string, word: Word): Promise<boolean> {
    const known = this.#words.get(topic)?.word;
    if (known !== undefined) {
      const newer = word.epoch - known.epoch || word.version - known.version;
      if (newer <= 0) return false;
    }
    this.#words.set(topic, { word, atUs: this.#clock.monoUs() });
    for (const listener of this.#listeners) listener(topic, word.text);
    return true;
  }

  async last(topic: string, ttlMs: number): Promise<Heard | undefined> {
    const known = this.#words.get(topic);
    if (known === undefined) return undefined;
    const ageMs = (this.#clock.monoUs() - known.atUs) / 1_000;
    return ageMs >= Math.min(ttlMs, known.word.ttlMs)
      ? undefined
      : { text: known.word.text, ageMs };
  }

  async listen(listener: (topic: string, text: string) => void): Promise<void> {
    this.#listeners.add(listener);
  }

  async close(): Promise<void> {
    this.#listeners.clear();
  }
}
