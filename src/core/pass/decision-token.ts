import { passSkewMs } from '../bounds.ts';
import type { KeyRing } from './key-ring.ts';
import { isSeconds } from './pass.ts';
import { openToken, sealToken } from './token.ts';
import type { TokenRefusal } from './token.ts';

/** What the origin behind the proxy is told, signed: who is asking, and what was decided of it. */
export interface DecisionClaims {
  readonly issuer: string;
  /** The origin that is meant. */
  readonly audience: string;
  readonly userId?: string;
  readonly decision: 'admit';
  readonly method: string;
  /** Path and query that the decision was made for. */
  readonly target: string;
  readonly ruleId?: string;
  /** `jti`, one per decision. */
  readonly decisionId: string;
  readonly issuedAtMs: number;
  readonly expiresAtMs: number;
}

export type DecisionRefusal = TokenRefusal | 'issuer' | 'audience' | 'not_yet' | 'expired';

export type DecisionVerdict =
  | { readonly kind: 'valid'; readonly claims: DecisionClaims; readonly keyId: string }
  | { readonly kind: 'refused'; readonly reason: DecisionRefusal };

export function signDecision(ring: KeyRing, claims: DecisionClaims): string {
  return sealToken(ring, {
    iss: claims.issuer,
    aud: claims.audience,
    ...(claims.userId === undefined ? {} : { sub: claims.userId }),
    dec: claims.decision,
    mth: claims.method,
    tgt: claims.target,
    ...(claims.ruleId === undefined ? {} : { rul: claims.ruleId }),
    jti: claims.decisionId,
    iat: Math.floor(claims.issuedAtMs / 1000),
    exp: Math.ceil(claims.expiresAtMs / 1000),
  });
}

export function verifyDecision(
  ring: KeyRing,
  raw: string,
  expected: { readonly issuer: string; readonly audience: string; readonly skewMs?: number },
  nowMs: number,
): DecisionVerdict {
  const opened = openToken(ring, raw, nowMs);
  if (!opened.ok) return { kind: 'refused', reason: opened.reason };
  const { iss, aud, sub, dec, mth, tgt, rul, jti, iat, exp } = opened.claims;
  if (
    typeof iss !== 'string' ||
    typeof aud !== 'string' ||
    (sub !== undefined && typeof sub !== 'string') ||
    dec !== 'admit' ||
    typeof mth !== 'string' ||
    typeof tgt !== 'string' ||
    (rul !== undefined && typeof rul !== 'string') ||
    typeof jti !== 'string' ||
    !isSeconds(iat) ||
    !isSeconds(exp)
  ) {
    return { kind: 'refused', reason: 'payload' };
  }
  if (iss !== expected.issuer) return { kind: 'refused', reason: 'issuer' };
  if (aud !== expected.audience) return { kind: 'refused', reason: 'audience' };
  const skewMs = expected.skewMs ?? passSkewMs;
  if (nowMs + skewMs < iat * 1000) return { kind: 'refused', reason: 'not_yet' };
  if (nowMs - skewMs >= exp * 1000) return { kind: 'refused', reason: 'expired' };
  return {
    kind: 'valid',
    keyId: opened.keyId,
    claims: {
      issuer: iss,
      audience: aud,
      ...(sub === undefined ? {} : { userId: sub }),
      decision: dec,
      method: mth,
      target: tgt,
      ...(rul === undefined ? {} : { ruleId: rul }),
      decisionId: jti,
      issuedAtMs: iat * 1000,
      expiresAtMs: exp * 1000,
    },
  };
}
