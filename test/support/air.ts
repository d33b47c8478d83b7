import type { Broadcast, Heard, Word } from '../../src/ports/broadcast.ts';
import type { World } from './world.ts';

/** Words in one process; each listener may be deaf. */
export class Air {
  readonly #world: World;
  readonly #last = new Map<string, Word & { readonly atUs: number }>();
  readonly #listeners: ((topic: string, text: string) => void)[] = [];
  deaf = false;
  dumb = false;
  said = 0;

  constructor(world: World) {
    this.#world = world;
  }

  broadcast(): Broadcast {
    return {
      say: async (topic, word) => {
        if (this.dumb) throw new Error('nothing can be said');
        const last = this.#last.get(topic);
        const older =
          last !== undefined &&
          (word.epoch < last.epoch || (word.epoch === last.epoch && word.version <= last.version));
        if (older) return false;
        this.said += 1;
        this.#last.set(topic, { ...word, atUs: this.#world.monoUs() });
        if (!this.deaf) for (const listener of this.#listeners) listener(topic, word.text);
        return true;
      },
      last: async (topic, ttlMs): Promise<Heard | undefined> => {
        const last = this.#last.get(topic);
        if (last === undefined) return undefined;
        const ageMs = (this.#world.monoUs() - last.atUs) / 1_000;
        return ageMs >= ttlMs ? undefined : { text: last.text, ageMs };
      },
      listen: async (listener) => void this.#listeners.push(listener),
      close: async () => undefined,
    };
  }
}
