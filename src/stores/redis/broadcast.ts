import type { Broadcast, Heard, Word } from '../../ports/broadcast.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { RedisLink } from './client.ts';
import type { Keys } from './keys.ts';
import { type Listener, listenTo } from './listener.ts';
import { scripts } from './scripts.ts';

export interface RedisBroadcastOptions {
  /** The admission store's server; never the inventory's. Closed by its owner. */
  readonly link: RedisLink;
  readonly keys: Keys;
  readonly urls: readonly string[];
  readonly cluster: boolean;
  readonly onTrouble?: (error: unknown) => void;
}

/** How long the order of a topic's words is remembered, ms: longer than any process sleeps. */
const memoryMs = 24 * 3_600_000;

/** Words over Redis: published to whoever listens, and kept for whoever did not hear. */
export class RedisBroadcast implements Broadcast {
  readonly #options: RedisBroadcastOptions;
  readonly #channel: string;
  readonly #listeners: Listener[] = [];

  constructor(options: RedisBroadcastOptions) {
    this.#options = options;
    this.#channel = `${options.keys.prefix}:words`;
  }

  async say(topic: string, word: Word): Promise<boolean> {
    const { link, keys } = this.#options;
    const reply = await link.run(
      scripts.announce,
      [keys.topic(topic, 'announced'), keys.topic(topic, 'announcer')],
      [
        String(word.epoch),
        String(word.version),
        String(word.ttlMs),
        String(memoryMs),
        this.#channel,
        `${topic}\n${word.text}`,
      ],
    );
    return reply === 1;
  }

  async last(topic: string, ttlMs: number): Promise<Heard | undefined> {
    const { link, keys } = this.#options;
    const key = keys.topic(topic, 'announced');
    try {
      // The time left is asked first: a word said in between looks older than it is, never younger.
      const [left, text] = await Promise.all([
        link.command(key, ['PTTL', key]),
        link.command(key, ['GET', key]),
      ]);
      if (typeof text !== 'string' || typeof left !== 'number') return undefined;
      const ageMs = left < 0 ? ttlMs : Math.max(0, ttlMs - left);
      return { text: text.slice(text.indexOf('\n') + 1), ageMs };
    } catch (error) {
      if (!(error instanceof OutcomeUnknownError)) throw error;
      throw new UnavailableError(error.message, { cause: error });
    }
  }

  async listen(listener: (topic: string, text: string) => void): Promise<void> {
    const { urls, cluster, onTrouble } = this.#options;
    const opened = await listenTo({
      urls,
      cluster,
      channel: this.#channel,
      onMessage: (message) => {
        const end = message.indexOf('\n');
        if (end > 0) listener(message.slice(0, end), message.slice(end + 1));
      },
      ...(onTrouble === undefined ? {} : { onTrouble }),
    });
    this.#listeners.push(opened);
  }

  async close(): Promise<void> {
    for (const listener of this.#listeners.splice(0)) await listener.close();
  }
}
