import { decodeBase64UrlInto, toBase64Url, toHex, utf8 } from './bytes.ts';
import { HmacSha256, sha256 } from './sha256.ts';

/**
 * The draw: who stands where, from a secret nobody knew to change and a list nobody can edit.
 *
 * Before the lobby opens a secret is made and its hash published (the commitment): the operator can
 * no longer pick a secret after seeing who came. At closing, the Merkle root over all participants is
 * published: the list can no longer be edited. Each entry's value is a MAC, under the secret, of the
 * root and of its own id; sorted, the values are the order. Once the secret is out, anyone can repeat
 * all of it.
 *
 * What this alone cannot stop: an operator who peeks at the secret early and tries out last-moment
 * participants, since each changes the root and so the whole order. A public beacon, named before and
 * known only after closing, is mixed in for that; without one the page says so.
 */

/** Bytes of an entry id: HMAC-SHA-256 cut to half, as RFC 2104 section 5 allows. */
export const entryIdBytes = 16;
export const secretBytes = 32;

/** Hex SHA-256 of a secret: what is published before the first person joins. */
export function commitmentOf(secret: Uint8Array): string {
  return toHex(sha256(secret));
}

/** Makes entry ids of one activity; the activity id has no NUL, so the join is unambiguous. */
export class EntryIdMaker {
  readonly #mac: HmacSha256;

  constructor(entryKey: Uint8Array, activityId: string) {
    this.#mac = new HmacSha256(entryKey, utf8(`${activityId}\0`));
  }

  /** The same person has the same id on every device, for this activity alone. */
  idOf(personId: string): string {
    return toBase64Url(this.#mac.mac(utf8(personId)).subarray(0, entryIdBytes));
  }
}

/** Leaf of the participant log: entry id, then the weight as IEEE 754 double, big endian. */
export function participantLeaf(entryId: string, weight: number): Uint8Array {
  const leaf = new Uint8Array(entryIdBytes + 8);
  if (!decodeBase64UrlInto(entryId, leaf, 0)) throw badId(entryId);
  new DataView(leaf.buffer).setFloat64(entryIdBytes, weight);
  return leaf;
}

function badId(entryId: string): Error {
  return new RangeError(`entry id "${entryId}" is not ${entryIdBytes} bytes in base64url`);
}

/** Draw values of one draw. */
export class Drawer {
  readonly #mac: HmacSha256;
  readonly #id = new Uint8Array(entryIdBytes);

  /** `root` has 32 bytes and ids have 16, so a beacon of any length between them is unambiguous. */
  constructor(secret: Uint8Array, root: Uint8Array, beacon: Uint8Array) {
    const start = new Uint8Array(root.length + beacon.length);
    start.set(root);
    start.set(beacon, root.length);
    this.#mac = new HmacSha256(secret, start);
  }

  /** First 53 bits of HMAC-SHA-256(secret, root ‖ beacon ‖ entry id), as a number in [0, 1). */
  valueOf(entryId: string): number {
    if (entryId.length !== 22 || !decodeBase64UrlInto(entryId, this.#id, 0)) throw badId(entryId);
    const words = this.#mac.words(this.#id);
    const high = (words[0] as number) >>> 0;
    const low = (words[1] as number) >>> 11;
    return (high * 0x200000 + low) / 0x20000000000000;
  }

  /** What an entry is sorted by: its value, or for a weight other than 1 its weighted key. */
  keyOf(entryId: string, weight: number, weighted: boolean): number {
    const value = this.valueOf(entryId);
    return weighted ? weightedKey(value, weight) : value;
  }
}

/**
 * −ln(u)/w with u = value + 2⁻⁵³ in (0, 1]: sorted ascending, an entry of weight w is as likely to be
 * first as w entries of weight 1 together (Efraimidis and Spirakis, 2006).
 */
export function weightedKey(value: number, weight: number): number {
  return Math.abs(exactLn(value + 2 ** -53)) / weight;
}

/**
 * Natural logarithm of x in (0, 1], the same bits on every platform: only +, −, × and ÷ of IEEE 754
 * doubles are used, which are exactly specified; `Math.log` is not. Error below 4 units in the last
 * place: x = m·2^e with m in [√½, √2); ln m = 2·artanh(s), s = (m−1)/(m+1), as a series in s².
 */
export function exactLn(x: number): number {
  let mantissa = x;
  let exponent = 0;
  while (mantissa < Math.SQRT1_2) {
    mantissa *= 2;
    exponent -= 1;
  }
  const s = (mantissa - 1) / (mantissa + 1);
  const square = s * s;
  // |s| ≤ 0.172, so s^23/23 is below half a unit in the last place of the sum.
  let sum = 1 / 23;
  for (let odd = 21; odd >= 3; odd -= 2) sum = sum * square + 1 / odd;
  const series = 2 * (s + s * square * sum);
  return exponent * ln2High + (series + exponent * ln2Low);
}

// ln 2 in two parts, the first with enough zero bits at its end that exponent·ln2High is exact.
const ln2High = 6.9314718036912381649e-1;
const ln2Low = 1.90821492927058770002e-10;
