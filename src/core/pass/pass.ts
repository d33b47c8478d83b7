import { passSkewMs } from '../bounds.ts';
import type { KeyRing } from './key-ring.ts';
import { openToken, sealToken } from './token.ts';
import type { RawClaims, TokenRefusal } from './token.ts';

/** What a pass says. Instants are in ms here and in whole seconds on the wire, as JWT has them. */
export interface PassClaims {
  readonly issuer: string;
  /** The deployment's submit audience. */
  readonly audience: string;
  readonly activityId: string;
  readonly skuId: string;
  readonly userId: string;
  readonly activityVersion: number;
  readonly pathId: string;
  readonly maxQuantity: number;
  readonly wave: number;
  /** `jti`: the single-use id. */
  readonly nonce: string;
  readonly notBeforeMs: number;
  readonly expiresAtMs: number;
  readonly issuedAtMs: number;
  readonly deviceHash?: string;
  readonly region?: string;
}

/** What the request at hand demands of its pass. */
export interface PassExpectations {
  readonly issuer: string;
  readonly audience: string;
  readonly activityId: string;
  readonly skuId: string;
  readonly userId: string;
  readonly activityVersion: number;
  readonly pathId: string;
  isWaveRevoked(wave: number): boolean;
  /** Demand that the pass names a device and that it is this one. */
  readonly bindDevice?: boolean;
  readonly deviceHash?: string | undefined;
  /** Clock difference tolerated at both ends, ms; {@link passSkewMs} unless set. */
  readonly skewMs?: number;
}

export type PassRefusal =
  | TokenRefusal
  | 'issuer'
  | 'audience'
  | 'not_yet'
  | 'expired'
  | 'activity'
  | 'sku'
  | 'user'
  | 'activity_version'
  | 'path'
  | 'wave_revoked'
  | 'device'
  | 'nonce';

/**
 * `expired` is a pass that is authentic and fits in everything but time: it may still ask what became
 * of its own request, and start nothing. One that fits in less is `refused` with `expired`.
 */
export type PassVerdict =
  | { readonly kind: 'valid' | 'expired'; readonly claims: PassClaims; readonly keyId: string }
  | { readonly kind: 'refused'; readonly reason: PassRefusal };

/** Version of the claims' meaning (`v`). */
const claimsVersion = 1;
const noncePattern = /^[A-Za-z0-9_-]{16,64}$/;

function refuse(reason: PassRefusal): PassVerdict {
  return { kind: 'refused', reason };
}

/**
 * Whole seconds that contain the life asked for: the start rounds down and the end up, so that a pass
 * never lives shorter than was promised. What the buyer is told must be these instants.
 */
export function passSeconds(
  notBeforeMs: number,
  expiresAtMs: number,
): { nbf: number; exp: number } {
  return { nbf: Math.floor(notBeforeMs / 1000), exp: Math.ceil(expiresAtMs / 1000) };
}

export function signPass(ring: KeyRing, claims: PassClaims): string {
  const { nbf, exp } = passSeconds(claims.notBeforeMs, claims.expiresAtMs);
  return sealToken(ring, {
    iss: claims.issuer,
    aud: claims.audience,
    v: claimsVersion,
    act: claims.activityId,
    sku: claims.skuId,
    sub: claims.userId,
    av: claims.activityVersion,
    pid: claims.pathId,
    qty: claims.maxQuantity,
    wave: claims.wave,
    jti: claims.nonce,
    nbf,
    exp,
    iat: Math.floor(claims.issuedAtMs / 1000),
    ...(claims.deviceHash === undefined ? {} : { dev: claims.deviceHash }),
    ...(claims.region === undefined ? {} : { region: claims.region }),
  });
}

/**
 * The whole verdict on a pass but for its nonce's use, which only the reservation step can know.
 * Bindings are checked in a fixed order and the first that fails is the reason. O(length).
 */
export function verifyPass(
  ring: KeyRing,
  raw: string,
  expected: PassExpectations,
  nowMs: number,
): PassVerdict {
  const opened = openToken(ring, raw, nowMs);
  if (!opened.ok) return refuse(opened.reason);
  const claims = readClaims(opened.claims);
  if (claims === undefined) return refuse('payload');

  if (claims.issuer !== expected.issuer) return refuse('issuer');
  if (claims.audience !== expected.audience) return refuse('audience');

  const skewMs = expected.skewMs ?? passSkewMs;
  if (nowMs + skewMs < claims.notBeforeMs) return refuse('not_yet');
  if (nowMs + skewMs < claims.issuedAtMs) return refuse('not_yet');
  const expired = nowMs - skewMs >= claims.expiresAtMs;

  const misfit = bindingMisfit(claims, expected);
  if (expired && misfit !== undefined) return refuse('expired');
  if (misfit !== undefined) return refuse(misfit);
  return { kind: expired ? 'expired' : 'valid', claims, keyId: opened.keyId };
}

function bindingMisfit(claims: PassClaims, expected: PassExpectations): PassRefusal | undefined {
  if (claims.activityId !== expected.activityId) return 'activity';
  if (claims.skuId !== expected.skuId) return 'sku';
  if (claims.userId !== expected.userId) return 'user';
  if (claims.activityVersion !== expected.activityVersion) return 'activity_version';
  if (claims.pathId !== expected.pathId) return 'path';
  if (expected.isWaveRevoked(claims.wave)) return 'wave_revoked';
  if (expected.bindDevice === true) {
    if (claims.deviceHash === undefined || claims.deviceHash !== expected.deviceHash) {
      return 'device';
    }
  }
  return noncePattern.test(claims.nonce) ? undefined : 'nonce';
}

function readClaims(raw: RawClaims): PassClaims | undefined {
  const { iss, aud, v, act, sku, sub, av, pid, qty, wave, jti, nbf, exp, iat, dev, region } = raw;
  if (v !== claimsVersion) return undefined;
  if (typeof iss !== 'string' || typeof aud !== 'string') return undefined;
  if (typeof act !== 'string' || typeof sku !== 'string' || typeof sub !== 'string') {
    return undefined;
  }
  if (typeof pid !== 'string' || typeof jti !== 'string') return undefined;
  if (!isCount(av) || !isCount(qty) || qty === 0 || !isCount(wave)) return undefined;
  if (!isSeconds(nbf) || !isSeconds(exp) || !isSeconds(iat) || exp <= nbf) return undefined;
  if (dev !== undefined && typeof dev !== 'string') return undefined;
  if (region !== undefined && typeof region !== 'string') return undefined;
  return {
    issuer: iss,
    audience: aud,
    activityId: act,
    skuId: sku,
    userId: sub,
    activityVersion: av,
    pathId: pid,
    maxQuantity: qty,
    wave,
    nonce: jti,
    notBeforeMs: nbf * 1000,
    expiresAtMs: exp * 1000,
    issuedAtMs: iat * 1000,
    ...(dev === undefined ? {} : { deviceHash: dev }),
    ...(region === undefined ? {} : { region }),
  };
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

/** Seconds since the epoch up to the year 2286; fractions are allowed, as the standard has them. */
export function isSeconds(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value < 1e10;
}
