/**
 * A filter of strings that may say yes to a stranger and never says no to a member. Bounded by
 * construction; travels as bytes.
 *
 * With m bits, n members and k hashes a stranger passes with probability (1 − e^(−kn/m))^k. At 20
 * bits per member and 14 hashes that is about 7 in 100,000, which keeps sold-out answers from costing
 * more than one store call in a thousand even when the crowd is large.
 *
 * Two 32-bit hashes are combined as g_i = h1 + i·h2 (Kirsch and Mitzenmacher, "Less Hashing, Same
 * Performance", 2006).
 */
export const bloomBitsPerMember = 20;
export const bloomHashes = 14;

/** 2 MiB: 838,000 holders at full precision; more only raises the share of needless store calls. */
export const bloomMaxBytes = 2 * 1024 * 1024;

export interface BloomBytes {
  readonly bits: Uint8Array;
  readonly hashes: number;
  readonly members: number;
}

export class Bloom {
  readonly #bits: Uint8Array;
  readonly #hashes: number;
  #members: number;

  private constructor(bits: Uint8Array, hashes: number, members: number) {
    this.#bits = bits;
    this.#hashes = hashes;
    this.#members = members;
  }

  /** Room for `expected` members at full precision. O(expected) bytes. */
  static sized(expected: number): Bloom {
    const wanted = Math.ceil((Math.max(expected, 16) * bloomBitsPerMember) / 8);
    return new Bloom(new Uint8Array(Math.min(wanted, bloomMaxBytes)), bloomHashes, 0);
  }

  static of(members: Iterable<string>, expected: number): Bloom {
    const bloom = Bloom.sized(expected);
    for (const member of members) bloom.add(member);
    return bloom;
  }

  /** From the wire. Throws RangeError on sizes that no writer of ours makes. */
  static from(bytes: BloomBytes): Bloom {
    const { bits, hashes, members } = bytes;
    if (bits.length < 1 || bits.length > bloomMaxBytes || hashes < 1 || hashes > 32) {
      throw new RangeError(
        `filter of ${bits.length} bytes and ${hashes} hashes; allowed: 1 to ${bloomMaxBytes} bytes, 1 to 32 hashes`,
      );
    }
    return new Bloom(bits, hashes, members);
  }

  add(member: string): void {
    const size = this.#bits.length * 8;
    const [start, step] = twoHashes(member);
    let at = start;
    for (let i = 0; i < this.#hashes; i += 1) {
      const bit = at % size;
      this.#bits[bit >>> 3] = (this.#bits[bit >>> 3] ?? 0) | (1 << (bit & 7));
      at = (at + step) >>> 0;
    }
    this.#members += 1;
  }

  /** True for every member, and for few others. O(hashes), allocates one pair. */
  mayHave(member: string): boolean {
    const size = this.#bits.length * 8;
    const [start, step] = twoHashes(member);
    let at = start;
    for (let i = 0; i < this.#hashes; i += 1) {
      const bit = at % size;
      if (((this.#bits[bit >>> 3] ?? 0) & (1 << (bit & 7))) === 0) return false;
      at = (at + step) >>> 0;
    }
    return true;
  }

  get members(): number {
    return this.#members;
  }

  toBytes(): BloomBytes {
    return { bits: this.#bits.slice(), hashes: this.#hashes, members: this.#members };
  }
}

/** FNV-1a forwards and a multiplicative hash with another prime, both finished by a mix. */
function twoHashes(text: string): readonly [number, number] {
  let a = 2166136261;
  let b = 374761393;
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 16777619);
    b = Math.imul(b + code, 2654435761) ^ (b >>> 15);
  }
  // An even step would visit only part of a power-of-two table.
  return [mix(a), (mix(b) | 1) >>> 0];
}

function mix(value: number): number {
  let h = value ^ (value >>> 16);
  h = Math.imul(h, 2246822507);
  h ^= h >>> 13;
  h = Math.imul(h, 3266489909);
  return (h ^ (h >>> 16)) >>> 0;
}
