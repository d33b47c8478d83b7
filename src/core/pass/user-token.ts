import { passSkewMs, userIdMaxBytes } from '../bounds.ts';
import { utf8Length } from '../room/bytes.ts';
import type { KeyRing } from './key-ring.ts';
import { isSeconds } from './pass.ts';
import { openToken, peekClaims, sealToken } from './token.ts';
import type { TextCodec, TokenRefusal } from './token.ts';

/** The demo identity's token; in production the operator's own identity provider takes its place. */
export interface UserClaims {
  readonly issuer: string;
  readonly userId: string;
  readonly issuedAtMs: number;
  readonly expiresAtMs: number;
}

export type UserRefusal = TokenRefusal | 'issuer' | 'audience' | 'not_yet' | 'expired' | 'user';

export type UserVerdict =
  | { readonly kind: 'valid'; readonly claims: UserClaims; readonly keyId: string }
  | { readonly kind: 'refused'; readonly reason: UserRefusal };

/** Demo tokens are for this deployment's own gateways only. */
const audience = 'sluice';

export function signUserToken(ring: KeyRing, claims: UserClaims): string {
  return sealToken(ring, {
    sub: claims.userId,
    iss: claims.issuer,
    aud: audience,
    iat: Math.floor(claims.issuedAtMs / 1000),
    exp: Math.ceil(claims.expiresAtMs / 1000),
  });
}

export function verifyUserToken(
  ring: KeyRing,
  raw: string,
  expected: { readonly issuer: string; readonly skewMs?: number },
  nowMs: number,
): UserVerdict {
  const opened = openToken(ring, raw, nowMs);
  if (!opened.ok) return { kind: 'refused', reason: opened.reason };
  const { sub, iss, aud, iat, exp } = opened.claims;
  if (typeof sub !== 'string' || typeof iss !== 'string' || typeof aud !== 'string') {
    return { kind: 'refused', reason: 'payload' };
  }
  if (!isSeconds(iat) || !isSeconds(exp)) return { kind: 'refused', reason: 'payload' };
  if (iss !== expected.issuer) return { kind: 'refused', reason: 'issuer' };
  if (aud !== audience) return { kind: 'refused', reason: 'audience' };
  const skewMs = expected.skewMs ?? passSkewMs;
  if (nowMs + skewMs < iat * 1000) return { kind: 'refused', reason: 'not_yet' };
  if (nowMs - skewMs >= exp * 1000) return { kind: 'refused', reason: 'expired' };
  if (!isUserId(sub)) return { kind: 'refused', reason: 'user' };
  return {
    kind: 'valid',
    keyId: opened.keyId,
    claims: { issuer: iss, userId: sub, issuedAtMs: iat * 1000, expiresAtMs: exp * 1000 },
  };
}

/**
 * 1 to 255 bytes of well-formed Unicode. Lone surrogates are refused: they all turn into the same
 * replacement character in UTF-8, and two people would become one.
 */
export function isUserId(value: string): boolean {
  if (value.length === 0 || value.length > userIdMaxBytes) return false;
  return !/[\uD800-\uDFFF]/u.test(value) && utf8Length(value) <= userIdMaxBytes;
}

/** The person a user token claims, unverified; see {@link peekClaims}. */
export function peekClaim(codec: TextCodec, raw: string, claim: string): string | undefined {
  const value = peekClaims(codec, raw)?.[claim];
  return typeof value === 'string' ? value : undefined;
}
