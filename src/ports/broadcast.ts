/**
 * What the processes of one deployment tell each other: small words on named topics, each with its
 * place in an order. Hearing is best effort; reading the last word heals what was not heard.
 *
 * - A word is said only if none of its order or a later one was said before: whoever was deposed
 *   cannot take anything back.
 * - Whoever listens may miss words and hear them late; an older word never follows a newer one on one
 *   connection.
 * - The last word can be read for as long as it is worth reading, with its age.
 */
export interface Broadcast {
  /**
   * False where a newer one stands, and nothing was said. Rejects with UnavailableError, or with
   * OutcomeUnknownError where it may have been said: saying it again is harmless.
   */
  say(topic: string, word: Word): Promise<boolean>;
  /** The last word while it is worth reading; `ttlMs` as whoever speaks gives it. */
  last(topic: string, ttlMs: number): Promise<Heard | undefined>;
  /** From now on; a word that came from another process, or from this one. */
  listen(listener: (topic: string, text: string) => void): Promise<void>;
  close(): Promise<void>;
}

export interface Word {
  /** Of whoever speaks; a higher one silences every lower one. */
  readonly epoch: number;
  /** Grows within an epoch. */
  readonly version: number;
  readonly text: string;
  /** How long it is worth reading, ms. */
  readonly ttlMs: number;
}

export interface Heard {
  readonly text: string;
  /** Since it was said, on the store's clock, ms. */
  readonly ageMs: number;
}
