import { passSkewMs } from '../bounds.ts';
import { toBase64Url, utf8 } from '../room/bytes.ts';
import { sha256 } from '../room/sha256.ts';
import type { KeyRing } from './key-ring.ts';
import { isSeconds } from './pass.ts';
import { openToken, sealToken } from './token.ts';
import type { TokenRefusal } from './token.ts';

/**
 * A challenge before joining: something that costs its solver a little, so that ten thousand accounts
 * of one machine cost it a lot. The challenge is a signed token that says for whom, for what and how
 * hard; nothing is remembered of it until it is answered.
 *
 * Proof of work: find a text n such that SHA-256(token ~ n) begins with so many zero bits. Checking
 * costs one hash, solving 2^bits of them on average.
 */
export interface ChallengeClaims {
  readonly issuer: string;
  readonly activityId: string;
  readonly userId: string;
  /** Leading zero bits that are asked for; 0 where somebody else vouches for the person. */
  readonly bits: number;
  /** `jti`: answered once. */
  readonly challengeId: string;
  /** `iat`, with its milliseconds: whoever joined after it has used it up. */
  readonly issuedAtMs: number;
  readonly expiresAtMs: number;
}

export type ChallengeRefusal =
  | TokenRefusal
  | 'issuer'
  | 'activity'
  | 'user'
  | 'expired'
  | 'work'
  | 'used';

export type ChallengeVerdict =
  | { readonly kind: 'solved'; readonly claims: ChallengeClaims }
  | { readonly kind: 'refused'; readonly reason: ChallengeRefusal };

/** Between the token and what was found: stands in neither. */
export const answerMark = '~';

/** Most zero bits that are ever asked for: a minute of a phone. */
export const challengeBitsMax = 26;

export function signChallenge(ring: KeyRing, claims: ChallengeClaims): string {
  return sealToken(ring, {
    iss: claims.issuer,
    act: claims.activityId,
    sub: subjectOf(claims.challengeId, claims.userId),
    bits: claims.bits,
    jti: claims.challengeId,
    iat: claims.issuedAtMs / 1000,
    exp: Math.ceil(claims.expiresAtMs / 1000),
  });
}

/** For whom, without saying so: a challenge passes through other people's hands. */
function subjectOf(challengeId: string, userId: string): string {
  return toBase64Url(sha256(utf8(`${challengeId} ${userId}`)).subarray(0, 16));
}

/** Everything but whether it was answered before, and, for 0 bits, whether somebody vouched. */
export function verifyChallenge(
  ring: KeyRing,
  answer: string,
  expected: { readonly issuer: string; readonly activityId: string; readonly userId: string },
  nowMs: number,
): ChallengeVerdict {
  const mark = answer.lastIndexOf(answerMark);
  if (mark < 0) return { kind: 'refused', reason: 'structure' };
  const opened = openToken(ring, answer.slice(0, mark), nowMs);
  if (!opened.ok) return { kind: 'refused', reason: opened.reason };
  const { iss, act, sub, bits, jti, iat, exp } = opened.claims;
  if (
    typeof iss !== 'string' ||
    typeof act !== 'string' ||
    typeof sub !== 'string' ||
    typeof bits !== 'number' ||
    !Number.isInteger(bits) ||
    bits < 0 ||
    bits > challengeBitsMax ||
    typeof jti !== 'string' ||
    typeof iat !== 'number' ||
    !Number.isFinite(iat) ||
    !isSeconds(exp)
  ) {
    return { kind: 'refused', reason: 'payload' };
  }
  if (iss !== expected.issuer) return { kind: 'refused', reason: 'issuer' };
  if (act !== expected.activityId) return { kind: 'refused', reason: 'activity' };
  if (sub !== subjectOf(jti, expected.userId)) return { kind: 'refused', reason: 'user' };
  if (nowMs - passSkewMs >= exp * 1000) return { kind: 'refused', reason: 'expired' };
  if (leadingZeroBits(sha256(utf8(answer))) < bits) return { kind: 'refused', reason: 'work' };
  return {
    kind: 'solved',
    claims: {
      issuer: iss,
      activityId: act,
      userId: expected.userId,
      bits,
      challengeId: jti,
      issuedAtMs: Math.round(iat * 1000),
      expiresAtMs: exp * 1000,
    },
  };
}

export function leadingZeroBits(bytes: Uint8Array): number {
  let bits = 0;
  for (const byte of bytes) {
    if (byte === 0) {
      bits += 8;
      continue;
    }
    return bits + Math.clz32(byte) - 24;
  }
  return bits;
}

/** What a client does: the answer to a token, by trying. About 2^bits hashes. */
export function solveChallenge(token: string, bits: number): string {
  for (let tried = 0; ; tried += 1) {
    const answer = `${token}${answerMark}${tried.toString(36)}`;
    if (leadingZeroBits(sha256(utf8(answer))) >= bits) return answer;
  }
}
