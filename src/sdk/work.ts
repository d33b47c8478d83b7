import type { ClientEnvironment } from './environment.ts';

/**
 * Proof of work: an answer `token~found` whose SHA-256 begins with as many zero bits as were asked
 * for. About 2^bits tries, each independent of all others, so that how long it took says nothing of
 * how long it will take.
 *
 * Everything of the message but eight characters stays the same, so those before the last block are
 * hashed once, and the eight are made to fill two whole words of a block of their own: one try is one
 * compression, and of its result only the first word is wanted. Done in slices between which the page
 * lives; in a hidden tab, whose timers a browser slows to one a second, the slices are longer.
 */
export interface WorkOptions {
  /** After each slice: how likely an answer by now was (0 to 1), and the mean time still to go. */
  onProgress?(share: number, remainingMs: number): void;
  readonly signal?: AbortSignal;
  /** Given up after so long, ms; the server forgets a challenge some time. */
  readonly limitMs?: number;
}

/** The work that a refusal asks for. */
export interface Work {
  readonly token: string;
  readonly bits: number;
  /** Life of the challenge. */
  readonly limitMs: number;
  /** A limit takes the answer in a header of the same request, a room in the body of the join. */
  readonly inHeader: boolean;
}

/** Undefined where a problem asks for none. */
export function workIn(problem: unknown): Work | undefined {
  const { challenge, answer_header: header, server_time: now } = Object(problem) as Fields;
  const { kind, token, bits, expires_at: expires } = Object(challenge) as Fields;
  if (kind !== 'proof_of_work' || typeof token !== 'string' || typeof bits !== 'number') return;
  // By the server's two instants: the clock here may be wrong.
  const lifeMs = Date.parse(String(expires)) - Date.parse(String(now));
  const limitMs = Number.isNaN(lifeMs) ? Infinity : lifeMs;
  return { token, bits, limitMs, inHeader: header !== undefined };
}

type Fields = Record<string, unknown>;

/** How long a slice may hold the page up, ms: less than a frame; in a hidden tab nobody waits. */
const sliceMs = 10;
const hiddenSliceMs = 300;
/** Tries between two looks at the clock. */
const triesAtOnce = 128;
/** More would take a phone hours; it is not asked for by a server of ours. */
const bitsMax = 30;

/** The answer; undefined if given up. @throws RangeError for bits outside 0 to 30. */
export async function solveWork(
  env: Pick<ClientEnvironment, 'after' | 'nowMs' | 'hidden'>,
  token: string,
  bits: number,
  options: WorkOptions = {},
): Promise<string | undefined> {
  if (!Number.isInteger(bits) || bits < 0 || bits > bitsMax)
    throw new RangeError(`work of ${bits} bits; allowed are 0 to ${bitsMax}`);
  const attempt = attemptsOf(token, bits);
  const started = env.nowMs();
  let tried = 0;
  for (;;) {
    const until = env.nowMs() + (env.hidden() ? hiddenSliceMs : sliceMs);
    do {
      const answer = attempt(tried, triesAtOnce);
      if (answer !== undefined) return answer;
      tried += triesAtOnce;
    } while (env.nowMs() < until);
    const spentMs = Math.max(1, env.nowMs() - started);
    if (options.signal?.aborted === true || spentMs >= (options.limitMs ?? Infinity)) return;
    options.onProgress?.(1 - Math.exp(-tried / 2 ** bits), (2 ** bits / tried) * spentMs);
    await new Promise<void>((resolve) => {
      env.after(0, resolve);
    });
  }
}

/** Tries `count` numbers from `first` on. */
function attemptsOf(
  token: string,
  bits: number,
): (first: number, count: number) => string | undefined {
  const encoder = new TextEncoder();
  // The number begins at a word, in a block that also holds the end mark and the length.
  let start = `${token}~`;
  const open = encoder.encode(start).length;
  let padding = -open & 3;
  if (((open + padding) & 63) > 44) padding = -open & 63;
  start += '0'.repeat(padding);
  const bytes = encoder.encode(start);
  const whole = bytes.length & ~63;

  const words = new Int32Array(16);
  const before = initial.slice();
  for (let block = 0; block < whole; block += 64) {
    for (let at = 0; at < 16; at += 1) words[at] = word(bytes, block + at * 4);
    compress(before, words);
  }
  words.fill(0);
  const held = (bytes.length - whole) >> 2;
  for (let at = 0; at < held; at += 1) words[at] = word(bytes, whole + at * 4);
  words[held + 2] = 0x80 << 24;
  words[15] = (bytes.length + 8) * 8;

  const state = new Int32Array(8);
  return (first, count) => {
    for (let number = first; number < first + count; number += 1) {
      words[held] = hexWord(number >>> 16);
      words[held + 1] = hexWord(number & 0xffff);
      state.set(before);
      compress(state, words);
      if (bits === 0 || (state[0] as number) >>> (32 - bits) === 0)
        return start + number.toString(16).padStart(8, '0');
    }
    return undefined;
  };
}

function word(bytes: Uint8Array, at: number): number {
  return (
    ((bytes[at] ?? 0) << 24) |
    ((bytes[at + 1] ?? 0) << 16) |
    ((bytes[at + 2] ?? 0) << 8) |
    (bytes[at + 3] ?? 0)
  );
}

/** Four hexadecimal digits of a number below 65536, as the four bytes of their characters. */
function hexWord(value: number): number {
  let out = 0;
  for (let shift = 12; shift >= 0; shift -= 4) {
    const digit = (value >>> shift) & 15;
    out = (out << 8) | (digit < 10 ? 48 + digit : 87 + digit);
  }
  return out;
}

// FIPS 180-4: fractional parts of the square and cube roots of the first primes, 32 bits of each. A
// root below 7 leaves 50 bits of a double to its fraction.
const constants = new Int32Array(64);
const initial = new Int32Array(8);
for (let candidate = 2, found = 0; found < 64; candidate += 1) {
  let prime = true;
  for (let by = 2; by * by <= candidate; by += 1) if (candidate % by === 0) prime = false;
  if (!prime) continue;
  if (found < 8) initial[found] = fraction(Math.sqrt(candidate));
  constants[found] = fraction(Math.cbrt(candidate));
  found += 1;
}

function fraction(root: number): number {
  return Math.floor((root % 1) * 2 ** 32) | 0;
}

const schedule = new Int32Array(64);

/**
 * One compression of SHA-256: the same as the room's, and written again on purpose. The client is given
 * away alone, importing nothing from outside itself; the server's file computes its constants in exact
 * arithmetic, which a page need not carry.
 */
function compress(state: Int32Array, words: Int32Array): void {
  const w = schedule;
  w.set(words);
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
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + (constants[at] as number) + (w[at] as number)) | 0;
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
