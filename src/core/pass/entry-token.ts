import { passSkewMs } from '../bounds.ts';
import type { KeyRing } from './key-ring.ts';
import { isSeconds } from './pass.ts';
import { openText, parseObject, sealToken } from './token.ts';
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
  const opened = openText(ring, raw, nowMs);
  if (!opened.ok) return { kind: 'refused', reason: opened.reason };
  const claims = readOurs(opened.text, expected) ?? readAny(opened.text);
  if (claims === undefined) return { kind: 'refused', reason: 'payload' };
  if (claims.issuer !== expected.issuer) return { kind: 'refused', reason: 'issuer' };
  if (claims.activityId !== expected.activityId) return { kind: 'refused', reason: 'activity' };
  if (nowMs - (expected.skewMs ?? passSkewMs) >= claims.expiresAtMs) {
    return { kind: 'refused', reason: 'expired' };
  }
  return { kind: 'valid', keyId: opened.keyId, claims };
}

function readAny(text: string): EntryClaims | undefined {
  const raw = parseObject(text);
  if (raw === undefined) return undefined;
  const { iss, act, eid, c, s, j, l = '', w = 1, exp } = raw;
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
    return undefined;
  }
  return {
    issuer: iss,
    activityId: act,
    entryId: eid,
    cohort: c === 0 ? 'lobby' : 'late',
    sequence: s,
    joinedAtMs: j,
    lane: l,
    weight: w,
    expiresAtMs: exp * 1000,
  };
}

let lastPattern = { issuer: '', activityId: '', pattern: /$^/ };

/**
 * The payload as {@link signEntryToken} writes it for a place in the one lane, with the issuer and
 * activity that are expected: read by a pattern, at a quarter of a parse. Anything that differs by a
 * character is left to {@link readAny}; both give the same claims for the same text.
 */
function readOurs(
  text: string,
  { issuer, activityId }: { readonly issuer: string; readonly activityId: string },
): EntryClaims | undefined {
  if (lastPattern.issuer !== issuer || lastPattern.activityId !== activityId) {
    lastPattern = { issuer, activityId, pattern: patternOf(issuer, activityId) };
  }
  const found = lastPattern.pattern.exec(text);
  if (found === null) return undefined;
  const exp = Number(found[5]);
  if (!isSeconds(exp)) return undefined;
  return {
    issuer,
    activityId,
    entryId: found[1] ?? '',
    cohort: found[2] === '0' ? 'lobby' : 'late',
    sequence: Number(found[3]),
    joinedAtMs: Number(found[4]),
    lane: '',
    weight: 1,
    expiresAtMs: exp * 1000,
  };
}

/** Integers of up to 15 digits, which a double holds exactly, spelled as JSON spells them. */
function patternOf(issuer: string, activityId: string): RegExp {
  const start = JSON.stringify({ iss: issuer, act: activityId }).slice(0, -1);
  const literal = start.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&');
  const integer = '(0|[1-9][0-9]{0,14})';
  return new RegExp(
    `^${literal},"eid":"([^"\\\\]{22})","c":([01]),"s":${integer},"j":${integer},"exp":${integer}\\}$`,
  );
}
