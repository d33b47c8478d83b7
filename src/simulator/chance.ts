import type { Random } from '../ports/random.ts';

/** xoshiro128** (Blackman and Vigna), seeded by a string hash: small, fast, the same everywhere. */
export class SeededRandom implements Random {
  readonly #seed: string;
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  constructor(seed: string) {
    this.#seed = seed;
    // FNV-1a over the seed and the number of the word, one hash going on into the next.
    let hash = mixed(2166136261, `${seed}#0`);
    this.#a = hash | 0 || 1;
    hash = mixed(hash, `${seed}#1`);
    this.#b = hash | 0 || 1;
    hash = mixed(hash, `${seed}#2`);
    this.#c = hash | 0 || 1;
    hash = mixed(hash, `${seed}#3`);
    this.#d = hash | 0 || 1;
  }

  #next(): number {
    const product = Math.imul(this.#b, 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9) >>> 0;
    const t = this.#b << 9;
    const c = this.#c ^ this.#a;
    const d = this.#d ^ this.#b;
    this.#b ^= c;
    this.#a ^= d;
    this.#c = c ^ t;
    this.#d = (d << 11) | (d >>> 21);
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

function mixed(from: number, text: string): number {
  let hash = from;
  for (let at = 0; at < text.length; at += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 16777619);
  }
  return hash;
}
