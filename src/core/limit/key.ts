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

/** Marks the length word of a text that has characters above 255, which come two to a word. */
const wideMark = 0x4000_0000;
/** Marks the count word of a list, which no length word can equal. */
const listMark = 0x8000_0000 | 0;
/** Stands for the second part of a key that has one only; no text can be it. */
const noSecond = Symbol('list of one');

/**
 * Hashes tuples under one seed and one rule. The 64-bit result is left in `low` and `high`, because
 * returning a pair would allocate on every decision.
 *
 * What is hashed is a sequence of 32-bit words from which the tuple can be read back, so that no two
 * tuples are the same input: for each text its length, then its characters, four to a word where all
 * are Latin-1 (nearly every key), else two to a word with the length marked.
 */
export class KeyHasher {
  /** First word of the last hash, as a signed 32-bit integer. */
  low = 0;
  /** Second word of the last hash, as a signed 32-bit integer. */
  high = 0;
  // The state behind the seed and the rule id: every key of this rule starts from here.
  readonly #r0: number;
  readonly #r1: number;
  readonly #r2: number;
  readonly #r3: number;
  // The state behind the second part of the last pair. Mostly it is the same again (a route, an
  // activity), and then only the first part costs time.
  #second: string | typeof noSecond | undefined;
  #s0 = 0;
  #s1 = 0;
  #s2 = 0;
  #s3 = 0;
  // The working state of everything that is not the inner loop of `hashPair`.
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
    this.#text(ruleId);
    this.#r0 = this.#v0;
    this.#r1 = this.#v1;
    this.#r2 = this.#v2;
    this.#r3 = this.#v3;
  }

  /** Hashes (rule, a, b). O(length). */
  hashPair(a: string, b: string | typeof noSecond): void {
    if (b !== this.#second) {
      if (b === noSecond) this.#rememberOne();
      else this.#rememberSecond(b);
    }
    let v0 = this.#s0;
    let v1 = this.#s1;
    let v2 = this.#s2;
    let v3 = this.#s3;
    const length = a.length;
    let seen = 0;
    let word = length;
    let at = 0;
    // Written out, not built from #word: this loop is most of what a decision costs.
    for (;;) {
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
      if (at >= length) break;
      const c0 = a.charCodeAt(at);
      const c1 = at + 1 < length ? a.charCodeAt(at + 1) : 0;
      const c2 = at + 2 < length ? a.charCodeAt(at + 2) : 0;
      const c3 = at + 3 < length ? a.charCodeAt(at + 3) : 0;
      seen |= c0 | c1 | c2 | c3;
      word = c0 | (c1 << 8) | (c2 << 16) | (c3 << 24);
      at += 4;
    }
    if (seen > 255) {
      this.#restore(this.#s0, this.#s1, this.#s2, this.#s3);
      this.#text(a);
      [v0, v1, v2, v3] = [this.#v0, this.#v1, this.#v2, this.#v3];
    }
    this.#finish(v0, v1, v2, v3);
  }

  /** Hashes (rule, ...parts). The same as `hashPair` for two parts. */
  hashParts(parts: readonly string[]): void {
    const [a, b] = parts;
    if (parts.length === 2 && a !== undefined && b !== undefined) {
      this.hashPair(a, b);
      return;
    }
    if (parts.length === 1 && a !== undefined) {
      // The commonest key of a rule: the pair's loop, from the state behind "a list of one".
      this.hashPair(a, noSecond);
      return;
    }
    this.#restore(this.#r0, this.#r1, this.#r2, this.#r3);
    this.#word(listMark | parts.length);
    for (const part of parts) this.#text(part);
    this.#finish(this.#v0, this.#v1, this.#v2, this.#v3);
  }

  #rememberOne(): void {
    this.#restore(this.#r0, this.#r1, this.#r2, this.#r3);
    this.#word(listMark | 1);
    this.#keepSecond(noSecond);
  }

  #rememberSecond(b: string): void {
    this.#restore(this.#r0, this.#r1, this.#r2, this.#r3);
    this.#text(b);
    this.#keepSecond(b);
  }

  #keepSecond(b: string | typeof noSecond): void {
    this.#second = b;
    this.#s0 = this.#v0;
    this.#s1 = this.#v1;
    this.#s2 = this.#v2;
    this.#s3 = this.#v3;
  }

  #restore(v0: number, v1: number, v2: number, v3: number): void {
    this.#v0 = v0;
    this.#v1 = v1;
    this.#v2 = v2;
    this.#v3 = v3;
  }

  #text(text: string): void {
    const perWord = isLatin1(text) ? 4 : 2;
    const bits = 32 / perWord;
    this.#word(perWord === 4 ? text.length : text.length | wideMark);
    for (let at = 0; at < text.length; at += perWord) {
      let word = 0;
      for (let n = 0; n < perWord && at + n < text.length; n += 1) {
        word |= text.charCodeAt(at + n) << (n * bits);
      }
      this.#word(word);
    }
  }

  #word(word: number): void {
    this.#v3 ^= word;
    this.#rounds(1);
    this.#v0 ^= word;
  }

  #finish(v0: number, v1: number, v2: number, v3: number): void {
    this.#restore(v0, v1, v2 ^ 0xff, v3);
    this.#rounds(3);
    this.low = this.#v1 ^ this.#v3;
    this.high = this.#v0 ^ this.#v2;
  }

  #rounds(count: number): void {
    let v0 = this.#v0;
    let v1 = this.#v1;
    let v2 = this.#v2;
    let v3 = this.#v3;
    for (let round = 0; round < count; round += 1) {
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
    this.#restore(v0, v1, v2, v3);
  }
}

function isLatin1(text: string): boolean {
  for (let at = 0; at < text.length; at += 1) if (text.charCodeAt(at) > 255) return false;
  return true;
}
