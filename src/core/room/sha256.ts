/**
 * SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104) in plain arithmetic.
 *
 * Why not the platform's: a draw hashes a million short messages under one key, and a poll hashes one
 * more of them. Here the key's two blocks, and any common beginning of the messages, are hashed once
 * and copied, so a draw value costs two rounds of compression and no call out of the engine: less
 * than half of the platform's price for the same MAC. And whoever checks a draw needs nothing but
 * this file, in any runtime. Tests compare it with the platform's on random input.
 */

// The constants are what FIPS 180-4 says they are: fractional parts of the square and cube roots of
// the first primes, cut to 32 bits; computed, so that no digit can be mistyped, in exact arithmetic.
const primes = firstPrimes(64);
const roundConstants = Int32Array.from(primes, (prime) => rootFraction(prime, 3));
const initialState = Int32Array.from(primes.slice(0, 8), (prime) => rootFraction(prime, 2));

function firstPrimes(count: number): number[] {
  const found: number[] = [];
  for (let candidate = 2; found.length < count; candidate += 1) {
    if (found.every((prime) => candidate % prime !== 0)) found.push(candidate);
  }
  return found;
}

/** First 32 bits of the fraction of `value`'s root: the integer root of value·2^(32·degree). */
function rootFraction(value: number, degree: 2 | 3): number {
  const target = BigInt(value) << BigInt(32 * degree);
  let low = 0n;
  let high = 1n << 40n;
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** BigInt(degree) <= target) low = middle;
    else high = middle;
  }
  return Number(BigInt.asIntN(32, low));
}

const schedule = new Int32Array(64);

/** One compression: mixes 64 bytes at `offset` into `state`. */
function compress(state: Int32Array, block: Uint8Array, offset: number): void {
  const w = schedule;
  for (let at = 0; at < 16; at += 1) {
    const from = offset + at * 4;
    w[at] =
      ((block[from] as number) << 24) |
      ((block[from + 1] as number) << 16) |
      ((block[from + 2] as number) << 8) |
      (block[from + 3] as number);
  }
  mix(state);
}

/** Mixes the block that stands in the schedule's first sixteen words into `state`. */
function mix(state: Int32Array): void {
  const w = schedule;
  const k = roundConstants;
  for (let at = 16; at < 64; at += 1) {
    const x = w[at - 15] as number;
    const y = w[at - 2] as number;
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[at] = ((w[at - 16] as number) + (w[at - 7] as number) + s0 + s1) | 0;
  }
  let a = state[0] as number;
  let b = state[1] as number;
  let c = state[2] as number;
  let d = state[3] as number;
  let e = state[4] as number;
  let f = state[5] as number;
  let g = state[6] as number;
  let h = state[7] as number;
  for (let at = 0; at < 64; at += 1) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + (k[at] as number) + (w[at] as number)) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  state[0] = ((state[0] as number) + a) | 0;
  state[1] = ((state[1] as number) + b) | 0;
  state[2] = ((state[2] as number) + c) | 0;
  state[3] = ((state[3] as number) + d) | 0;
  state[4] = ((state[4] as number) + e) | 0;
  state[5] = ((state[5] as number) + f) | 0;
  state[6] = ((state[6] as number) + g) | 0;
  state[7] = ((state[7] as number) + h) | 0;
}

/** A hash on its way: a state, the bytes not mixed in yet, and how many came before. */
class Running {
  readonly state = new Int32Array(8);
  readonly block = new Uint8Array(64);
  length = 0;

  copyFrom(other: Running): this {
    this.state.set(other.state);
    this.block.set(other.block);
    this.length = other.length;
    return this;
  }

  start(): this {
    this.state.set(initialState);
    this.length = 0;
    return this;
  }

  update(bytes: Uint8Array): this {
    let held = this.length & 63;
    this.length += bytes.length;
    for (let at = 0; at < bytes.length; at += 1) {
      this.block[held++] = bytes[at] as number;
      if (held === 64) {
        compress(this.state, this.block, 0);
        held = 0;
      }
    }
    return this;
  }

  /** Pads and mixes in the end; the digest is then in `state`. Lengths below 2^53 bits. */
  finish(): Int32Array {
    const { block, length } = this;
    let held = length & 63;
    block[held++] = 0x80;
    if (held > 56) {
      block.fill(0, held);
      compress(this.state, block, 0);
      held = 0;
    }
    block.fill(0, held, 56);
    writeWord(block, 56, Math.floor(length / 0x20000000));
    writeWord(block, 60, (length << 3) | 0);
    compress(this.state, block, 0);
    return this.state;
  }
}

function writeWord(target: Uint8Array, offset: number, word: number): void {
  target[offset] = word >>> 24;
  target[offset + 1] = word >>> 16;
  target[offset + 2] = word >>> 8;
  target[offset + 3] = word;
}

function wordsToBytes(words: Int32Array): Uint8Array {
  const bytes = new Uint8Array(32);
  for (let at = 0; at < 8; at += 1) writeWord(bytes, at * 4, words[at] as number);
  return bytes;
}

/** SHA-256 of bytes that come in pieces. */
export class RunningSha256 {
  readonly #running = new Running().start();

  update(bytes: Uint8Array): this {
    this.#running.update(bytes);
    return this;
  }

  /** Of everything so far; more may follow. */
  digest(): Uint8Array {
    return wordsToBytes(new Running().copyFrom(this.#running).finish());
  }
}

const scratch = new Running();

export function sha256(...parts: readonly Uint8Array[]): Uint8Array {
  scratch.start();
  for (const part of parts) scratch.update(part);
  return wordsToBytes(scratch.finish());
}

/** HMAC-SHA-256 under one key, over messages that may share a beginning. */
export class HmacSha256 {
  readonly #inner = new Running().start();
  readonly #outer = new Running().start();
  readonly #work = new Running();
  readonly #digest = new Uint8Array(32);

  constructor(key: Uint8Array, commonStart: Uint8Array = new Uint8Array(0)) {
    const block = new Uint8Array(64);
    block.set(key.length > 64 ? sha256(key) : key);
    this.#inner.update(block.map((byte) => byte ^ 0x36)).update(commonStart);
    this.#outer.update(block.map((byte) => byte ^ 0x5c));
  }

  /** MAC over the common start and `rest`, as eight words that are valid until the next call. */
  words(rest: Uint8Array): Int32Array {
    const held = this.#inner.length & 63;
    if (held + rest.length + 9 <= 64) return this.#wordsOfOneBlock(rest, held);
    const inner = this.#work.copyFrom(this.#inner).update(rest).finish();
    const digest = this.#digest;
    for (let at = 0; at < 8; at += 1) writeWord(digest, at * 4, inner[at] as number);
    return this.#work.copyFrom(this.#outer).update(digest).finish();
  }

  /**
   * The same where all that is left fits one block, as every draw value does: the inner block is filled
   * in place, and the inner digest is the outer block's beginning without going through bytes.
   */
  #wordsOfOneBlock(rest: Uint8Array, held: number): Int32Array {
    const inner = this.#inner;
    const { state, block } = this.#work;
    block.set(inner.block);
    block.set(rest, held);
    const end = held + rest.length;
    block[end] = 0x80;
    block.fill(0, end + 1, 56);
    const length = inner.length + rest.length;
    writeWord(block, 56, Math.floor(length / 0x20000000));
    writeWord(block, 60, (length << 3) | 0);
    state.set(inner.state);
    compress(state, block, 0);
    const w = schedule;
    for (let at = 0; at < 8; at += 1) w[at] = state[at] as number;
    w[8] = 0x80000000 | 0;
    w.fill(0, 9, 15);
    // The outer key's block and the digest, in bits.
    w[15] = (64 + 32) * 8;
    state.set(this.#outer.state);
    mix(state);
    return state;
  }

  mac(rest: Uint8Array): Uint8Array {
    return wordsToBytes(this.words(rest));
  }
}
