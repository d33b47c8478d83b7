import { passSkewMs } from '../bounds.ts';
import type { KeyRing } from './key-ring.ts';
import { isSeconds } from './pass.ts';
import { openToken, sealToken } from './token.ts';
import type { TokenRefusal } from './token.ts';

/**
 * What makes a poll free of store calls: everything about a place that never changes. Together with
 * the release state it tells where its holder stands.
 */
export interface EntryClaims {
  readonly issuer: string;
  readonly activityId: string;
  readonly entryId: string;
  readonly cohort: 'lobby' | 'late';
  /** Place in the participant log, from 0. */
  readonly sequence: number;
  readonly joinedAtMs: number;
  /** The line this place stands in: a group and a choice of SKUs; '' where there is but one line. */
  readonly lane: string;
  /** 1 unless a signed entitlement says otherwise. */
  readonly weight: number;
  readonly expiresAtMs: number;
}

export type EntryRefusal = TokenRefusal | 'issuer' | 'activity' | 'expired';

export type EntryVerdict =
  | { readonly kind: 'valid'; readonly claims: EntryClaims; readonly keyId: string }
  | { readonly kind: 'refused'; readonly reason: EntryRefusal };

export function signEntryToken(ring: KeyRing, claims: EntryClaims): string {
  return sealToken(ring, {
    iss: claims.issuer,
    act: claims.activityId,
    eid: claims.entryId,
    // One letter each: this token comes with every poll.
    c: claims.cohort === 'lobby' ? 0 : 1,
    s: claims.sequence,
    j: claims.joinedAtMs,
    ...(claims.lane === '' ? {} : { l: claims.lane }),
    ...(claims.weight === 1 ? {} : { w: claims.weight }),
    exp: Math.ceil(claims.expiresAtMs / 1000),
  });
}

export function verifyEntryToken(
  ring: KeyRing,
  raw: string,
  expected: { readonly issuer: string; readonly activityId: string; readonly skewMs?: number },
  nowMs: number,
): EntryVerdict {
  const opened = openToken(ring, raw, nowMs);
  if (!opened.ok) return { kind: 'refused', reason: opened.reason };
  const { iss, act, eid, c, s, j, l = '', w = 1, exp } = opened.claims;
  if (
    typeof iss !== 'string' ||
    typeof act !== 'string' ||
    typeof eid !== 'string' ||
    (c !== 0 && c !== 1) ||
    typeof s !== 'number' ||
    !Number.isSafeInteger(s) ||
    s < 0 ||
    typeof j !== 'number' ||
    typeof l !== 'string' ||
    typeof w !== 'number' ||
    !(w > 0) ||
    !isSeconds(exp)
  ) {
    return { kind: 'refused', reason: 'payload' };
  }
  if (iss !== expected.issuer) return { kind: 'refused', reason: 'issuer' };
  if (act !== expected.activityId) return { kind: 'refused', reason: 'activity' };
  if (nowMs - (expected.skewMs ?? passSkewMs) >= exp * 1000) {
    return { kind: 'refused', reason: 'expired' };
  }
  return {
    kind: 'valid',
    keyId: opened.keyId,
    claims: {
      issuer: iss,
      activityId: act,
      entryId: eid,
      cohort: c === 0 ? 'lobby' : 'late',
      sequence: s,
      joinedAtMs: j,
      lane: l,
      weight: w,
      expiresAtMs: exp * 1000,
    },
  };
}
