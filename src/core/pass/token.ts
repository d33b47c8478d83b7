import { tokenMaxBytes } from '../bounds.ts';
import type { KeyRing } from './key-ring.ts';

/**
 * Signed tokens in JWS compact form, and the order in which one is taken apart.
 *
 * The obvious way to read a JWT is to decode it and see what it says. That way has failed in every
 * language at least once: a token that names its own algorithm (`none`, or HS256 with somebody's
 * public key as the secret), a key of one purpose accepted for another, a payload acted upon before
 * its signature was checked, a megabyte parsed for a stranger. So here a token is only ever taken
 * apart in one order, and each step may only use what the steps before it have established:
 *
 *   length → three parts → header: type → key known to *this* ring → algorithm, as the key fixes it
 *          → signature → payload
 *
 * Each type has its own ring of keys, so a token of another type fails at `type`, and, with its type
 * forged, at `key`.
 *
 * Platform functions come in through {@link TextCodec} and the keys themselves, because this folder
 * must run wherever a token is checked.
 */

/** Token types: each has its own `typ` and its own keys. */
export const tokenTypes = {
  user: 'sluice-user+jwt',
  entry: 'sluice-entry+jwt',
  pass: 'sluice-pass+jwt',
  decision: 'sluice-decision+jwt',
  challenge: 'sluice-challenge+jwt',
} as const;

export type TokenType = keyof typeof tokenTypes;

export type TokenAlgorithm = 'HS256' | 'EdDSA';

/** UTF-8 text to and from unpadded base64url. `decode` may be lenient; a signature guards its input. */
export interface TextCodec {
  readonly encode: (text: string) => string;
  readonly decode: (segment: string) => string;
}

/** Why a token was refused before its payload was looked at; `payload` is one that makes no sense. */
export type TokenRefusal =
  | 'too_long'
  | 'structure'
  | 'type'
  | 'key'
  | 'algorithm'
  | 'signature'
  | 'payload';

/** Numbers, strings and what else JSON may hold: nothing in here has a promised type yet. */
export type RawClaims = Readonly<Record<string, unknown>>;

export type OpenedToken =
  | { readonly ok: true; readonly claims: RawClaims; readonly keyId: string }
  | { readonly ok: false; readonly reason: TokenRefusal };

const refusals = {
  too_long: { ok: false, reason: 'too_long' },
  structure: { ok: false, reason: 'structure' },
  type: { ok: false, reason: 'type' },
  key: { ok: false, reason: 'key' },
  algorithm: { ok: false, reason: 'algorithm' },
  signature: { ok: false, reason: 'signature' },
  payload: { ok: false, reason: 'payload' },
} as const satisfies Record<TokenRefusal, OpenedToken>;

/** The payload of a token whose signature holds, as text; or the refusal. */
export type OpenedText =
  | { readonly ok: true; readonly text: string; readonly keyId: string }
  | { readonly ok: false; readonly reason: TokenRefusal };

/**
 * Checks everything about a token that does not depend on what it claims. The text of an `ok` result
 * is authentic, and not parsed yet. O(length), and nothing of it is paid for input past 2 KiB.
 */
export function openText(ring: KeyRing, raw: string, nowMs: number): OpenedText {
  if (raw.length > tokenMaxBytes) return refusals.too_long;
  const firstDot = raw.indexOf('.');
  const secondDot = raw.indexOf('.', firstDot + 1);
  if (firstDot <= 0 || secondDot <= firstDot + 1 || secondDot === raw.length - 1) {
    return refusals.structure;
  }
  if (raw.indexOf('.', secondDot + 1) !== -1) return refusals.structure;

  const key = ring.keyForToken(raw, firstDot, nowMs);
  if (typeof key === 'string') return refusals[key];

  if (!key.verify(raw.slice(0, secondDot), raw.slice(secondDot + 1))) return refusals.signature;
  ring.rememberHeader(raw, firstDot, key);
  return { ok: true, text: ring.codec.decode(raw.slice(firstDot + 1, secondDot)), keyId: key.kid };
}

/**
 * As {@link openText}, with the payload parsed. The claims of an `ok` result are authentic; whether
 * they apply is the caller's question.
 */
export function openToken(ring: KeyRing, raw: string, nowMs: number): OpenedToken {
  const opened = openText(ring, raw, nowMs);
  if (!opened.ok) return opened;
  const claims = parseObject(opened.text);
  return claims === undefined ? refusals.payload : { ok: true, claims, keyId: opened.keyId };
}

/**
 * Signs claims with the ring's signing key. Throws when the ring has none, or when the result would
 * be longer than a verifier accepts: both are faults of the program, not of a buyer.
 */
export function sealToken(ring: KeyRing, claims: RawClaims): string {
  const signer = ring.signer();
  const input = `${signer.header}.${ring.codec.encode(JSON.stringify(claims))}`;
  const token = `${input}.${signer.sign(input)}`;
  if (token.length > tokenMaxBytes) {
    throw new RangeError(
      `a ${ring.type} token would be ${token.length} characters; at most ${tokenMaxBytes} are read`,
    );
  }
  return token;
}

/**
 * What a token claims, believed by nobody: no signature is checked. For looks that grant nothing, such
 * as asking whether a sold-out sale might still owe this person an answer.
 */
export function peekClaims(codec: TextCodec, raw: string): RawClaims | undefined {
  if (raw.length > tokenMaxBytes) return undefined;
  const firstDot = raw.indexOf('.');
  const secondDot = raw.indexOf('.', firstDot + 1);
  if (firstDot <= 0 || secondDot <= firstDot + 1) return undefined;
  return parseObject(codec.decode(raw.slice(firstDot + 1, secondDot)));
}

/** A JSON object, or undefined for anything else. */
export function parseObject(text: string): RawClaims | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as RawClaims)
      : undefined;
  } catch {
    // Not JSON: that is the answer, there is nothing else to know about it.
    return undefined;
  }
}
