/**
 * Keys of limits: which counter a request is charged to.
 *
 * A key is a tuple (rule, part, part, …). Joining parts with a separator lets a caller who chooses one
 * part imitate another tuple ("aa"+"b" = "a"+"ab"); so parts are length-delimited everywhere, in the
 * text form for shared stores and in the hash for the table in memory.
 *
 * The hash is HalfSipHash-1-3 over 32-bit words with a 64-bit seed drawn per process. It is keyed, not
 * merely seeded: for the usual fast hashes (FNV, Murmur) there are inputs that collide under every
 * seed, and a caller who picks their own user id or header would use them to share, and drain,
 * somebody else's counter. Reference: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012;
 * the half-width variant and its 1-3 rounds are those used for hash tables by the Linux kernel.
 */

/** Parts as one text, no two tuples alike: each part preceded by its length. O(total length). */
export function encodeKey(parts: readonly string[]): string {
  let text = '';
  for (const part of parts) text += `${part.length}:${part}`;
  return text;
}

/** Two words from a secure random source. More are ignored. */
export type HashSeed = ArrayLike<number>;

/**
 * Hashes tuples under one seed and one rule. The 64-bit result is left in `low` and `high`, because
 * returning a pair would allocate on every decision.
 */
export class KeyHasher {
  /** First word of the last hash, as a signed 32-bit integer. */
  low = 0;
  /** Second word of the last hash, as a signed 32-bit integer. */
  high = 0;
  #v0: number;
  #v1: number;
  #v2: number;
  #v3: number;

  /** @throws RangeError when the seed has fewer than two words. */
  constructor(seed: HashSeed, ruleId: string) {
    const [k0, k1] = [seed[0], seed[1]];
    if (k0 === undefined || k1 === undefined) {
      throw new RangeError(`hash seed: found ${seed.length} words; allowed is 2 or more`);
    }
    this.#v0 = k0 | 0;
    this.#v1 = k1 | 0;
    this.#v2 = 0x6c796765 ^ k0;
    this.#v3 = 0x74656462 ^ k1;
    // The rule id is absorbed once, here: every key of this rule starts from the state behind it.
    this.#absorb(ruleId);
  }

  /** Hashes (rule, a, b). */
  hashPair(a: string, b: string): void {
    let v0 = this.#v0;
    let v1 = this.#v1;
    let v2 = this.#v2;
    let v3 = this.#v3;
    for (let part = 0; part < 2; part += 1) {
      const text = part === 0 ? a : b;
      const length = text.length;
      // Word −1 is the length, then two characters a word.
      for (let at = -2; at < length; at += 2) {
        let word = length;
        if (at >= 0) {
          word = text.charCodeAt(at);
          if (at + 1 < length) word |= text.charCodeAt(at + 1) << 16;
        }
        v3 ^= word;
        v0 = (v0 + v1) | 0;
        v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
        v0 = (v0 << 16) | (v0 >>> 16);
        v2 = (v2 + v3) | 0;
        v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
        v0 = (v0 + v3) | 0;
        v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
        v2 = (v2 + v1) | 0;
        v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
        v2 = (v2 << 16) | (v2 >>> 16);
        v0 ^= word;
      }
    }
    this.#finish(v0, v1, v2, v3);
  }

  /** Hashes (rule, ...parts). The same as `hashPair` for two parts. */
  hashParts(parts: readonly string[]): void {
    const before = [this.#v0, this.#v1, this.#v2, this.#v3] as const;
    for (const part of parts) this.#absorb(part);
    this.#finish(this.#v0, this.#v1, this.#v2, this.#v3);
    [this.#v0, this.#v1, this.#v2, this.#v3] = before;
  }

  #absorb(text: string): void {
    const length = text.length;
    this.#word(length);
    for (let at = 0; at < length; at += 2) {
      const second = at + 1 < length ? text.charCodeAt(at + 1) : 0;
      this.#word(text.charCodeAt(at) | (second << 16));
    }
  }

  #word(word: number): void {
    this.#v3 ^= word;
    this.#round();
    this.#v0 ^= word;
  }

  #round(): void {
    let [v0, v1, v2, v3] = [this.#v0, this.#v1, this.#v2, this.#v3];
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    this.#v0 = v0;
    this.#v1 = v1;
    this.#v2 = v2;
    this.#v3 = v3;
  }

  #finish(a: number, b: number, c: number, d: number): void {
    let [v0, v1, v2, v3] = [a, b, c ^ 0xff, d];
    for (let round = 0; round < 3; round += 1) {
      v0 = (v0 + v1) | 0;
      v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
      v0 = (v0 << 16) | (v0 >>> 16);
      v2 = (v2 + v3) | 0;
      v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
      v0 = (v0 + v3) | 0;
      v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
      v2 = (v2 + v1) | 0;
      v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
      v2 = (v2 << 16) | (v2 >>> 16);
    }
    this.low = v1 ^ v3;
    this.high = v0 ^ v2;
  }
}
