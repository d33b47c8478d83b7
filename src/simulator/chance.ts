import type { Random } from '../ports/random.ts';

/** xoshiro128** (Blackman and Vigna), seeded by a string hash: small, fast, the same everywhere. */
export class SeededRandom implements Random {
  readonly #state: Uint32Array;
  readonly #seed: string;

  constructor(seed: string) {
    this.#seed = seed;
    this.#state = new Uint32Array(4);
    let hash = 2166136261;
    for (let word = 0; word < 4; word += 1) {
      for (const char of `${seed}#${word}`) hash = Math.imul(hash ^ char.charCodeAt(0), 16777619);
      this.#state[word] = hash >>> 0 || 1;
    }
  }

  #next(): number {
    const s = this.#state;
    const a = s[0] ?? 0;
    const b = s[1] ?? 0;
    const c = s[2] ?? 0;
    const d = s[3] ?? 0;
    const product = Math.imul(b, 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9) >>> 0;
    const t = b << 9;
    s[2] = c ^ a;
    s[3] = d ^ b;
    s[1] = b ^ (s[2] ?? 0);
    s[0] = a ^ (s[3] ?? 0);
    s[2] = (s[2] ?? 0) ^ t;
    const last = s[3] ?? 0;
    s[3] = (last << 11) | (last >>> 21);
    return result;
  }

  float(): number {
    return ((this.#next() >>> 5) * 67108864 + (this.#next() >>> 6)) / 2 ** 53;
  }

  below(bound: number): number {
    return Math.floor(this.float() * bound);
  }

  bytes(count: number): Uint8Array {
    return Uint8Array.from({ length: count }, () => this.#next() >>> 24);
  }

  fork(label: string): SeededRandom {
    return new SeededRandom(`${this.#seed}/${label}`);
  }
}
