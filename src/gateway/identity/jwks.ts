import {
  createLocalJWKSet,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from 'jose';
import { passSkewMs, tokenMaxBytes } from '../../core/bounds.ts';
import type { IdentityResult, IdentityVerifier } from '../../pipeline/identity.ts';
import type { Clock } from '../../ports/clock.ts';
import { claimedPersonReader, personOfClaims } from './claims.ts';
import type { JwtDemands } from './secret.ts';

/**
 * User tokens signed by an identity provider whose public keys stand under a configured URL.
 *
 * The keys are fetched when needed and kept. A token with an unknown key id may be the first after a
 * rotation, or noise: all of them together share one refresh, at most one per cool-down, so that
 * nobody can make us hammer the provider. Keys are refreshed behind the answer when they age, and not
 * believed past their longest life: a key that was withdrawn stops working even if the provider is
 * away.
 */

/** Refreshes are at least this far apart, ms, whatever tokens come. */
export const refreshCooldownMs = 30_000;
/** The same while there are no keys at all, and nobody can be let in. */
export const firstFetchCooldownMs = 2_000;
/** Keys older than this are fetched again, behind the answers. */
export const keysFreshMs = 10 * 60_000;
/** Keys older than this verify nothing. */
export const keysLifeMs = 60 * 60_000;

/** Verified tokens kept, so that a poll does not pay for an RSA check each time. */
const verifiedMax = 20_000;
/** A verified token is believed this long without being checked again, ms: bounds a withdrawn key. */
const verifiedLifeMs = 60_000;

/** Asymmetric only: a provider's public key must never be usable as a shared secret. */
const algorithms = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'EdDSA',
  'Ed25519',
];

export interface JwksOptions {
  /** Fetches the key set; rejects when it cannot. */
  readonly fetchKeys: () => Promise<unknown>;
  readonly clock: Clock;
  readonly onError?: (error: unknown) => void;
}

interface KeptToken {
  readonly result: IdentityResult;
  readonly untilMs: number;
}

export class JwksIdentity implements IdentityVerifier {
  readonly #options: JwksOptions;
  readonly #demands: JwtDemands;
  readonly #claimed: (token: string) => string | undefined;
  readonly #verified = new Map<string, KeptToken>();
  #keys: JWTVerifyGetKey | undefined;
  #fetchedUs = 0;
  #triedUs: number | undefined;
  #fetching: Promise<void> | undefined;
  #fetches = 0;

  constructor(options: JwksOptions, demands: JwtDemands) {
    this.#options = options;
    this.#demands = demands;
    this.#claimed = claimedPersonReader(demands);
  }

  verify(token: string, nowMs: number): IdentityResult | Promise<IdentityResult> {
    if (token.length > tokenMaxBytes) return { kind: 'refused', reason: 'too_long' };
    const kept = this.#verified.get(token);
    if (kept !== undefined && nowMs < kept.untilMs && this.#ageMs() < keysLifeMs)
      return kept.result;
    return this.#check(token, nowMs);
  }

  claimedPerson(token: string): string | undefined {
    return this.#claimed(token);
  }

  /** Fetches made since the start. */
  get fetches(): number {
    return this.#fetches;
  }

  async #check(token: string, nowMs: number): Promise<IdentityResult> {
    const before = await this.#currentKeys();
    if (before === undefined) return { kind: 'unavailable' };
    try {
      return await this.#verifyWith(before, token, nowMs);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) return refusalOf(error);
    }
    // Perhaps a rotation: look once, together with everybody who wonders the same.
    await this.#refresh();
    try {
      return await this.#verifyWith(this.#keys ?? before, token, nowMs);
    } catch (error) {
      return refusalOf(error);
    }
  }

  async #verifyWith(keys: JWTVerifyGetKey, token: string, nowMs: number): Promise<IdentityResult> {
    const { issuer, audience } = this.#demands;
    const { payload } = await jwtVerify(token, keys, {
      algorithms,
      currentDate: new Date(nowMs),
      clockTolerance: passSkewMs / 1000,
      requiredClaims: ['exp'],
      ...(issuer === undefined ? {} : { issuer }),
      ...(audience === undefined ? {} : { audience }),
    });
    const result = personOfClaims(payload, this.#demands);
    if (result.kind === 'person') this.#keep(token, result, payload, nowMs);
    return result;
  }

  #keep(token: string, result: IdentityResult, payload: JWTPayload, nowMs: number): void {
    if (this.#verified.size >= verifiedMax) {
      const [oldest] = this.#verified.keys();
      if (oldest !== undefined) this.#verified.delete(oldest);
    }
    const expiresMs = (payload.exp ?? 0) * 1000;
    this.#verified.set(token, { result, untilMs: Math.min(expiresMs, nowMs + verifiedLifeMs) });
  }

  /** Keys that may be used now; fetched first where there are none. */
  async #currentKeys(): Promise<JWTVerifyGetKey | undefined> {
    const ageMs = this.#ageMs();
    if (this.#keys === undefined || ageMs >= keysLifeMs) await this.#refresh();
    else if (ageMs >= keysFreshMs) void this.#refresh();
    return this.#ageMs() < keysLifeMs ? this.#keys : undefined;
  }

  #ageMs(): number {
    if (this.#keys === undefined) return Number.POSITIVE_INFINITY;
    return (this.#options.clock.monoUs() - this.#fetchedUs) / 1000;
  }

  /** One at a time, one per cool-down. Never rejects: the keys are there afterwards, or not. */
  #refresh(): Promise<void> {
    if (this.#fetching !== undefined) return this.#fetching;
    const nowUs = this.#options.clock.monoUs();
    const cooldownMs = this.#keys === undefined ? firstFetchCooldownMs : refreshCooldownMs;
    if (this.#triedUs !== undefined && nowUs - this.#triedUs < cooldownMs * 1000) {
      return Promise.resolve();
    }
    this.#triedUs = nowUs;
    this.#fetching = this.#fetch().finally(() => {
      this.#fetching = undefined;
    });
    return this.#fetching;
  }

  async #fetch(): Promise<void> {
    this.#fetches += 1;
    try {
      // createLocalJWKSet checks the shape, and throws on what is no key set.
      this.#keys = createLocalJWKSet((await this.#options.fetchKeys()) as JSONWebKeySet);
      this.#fetchedUs = this.#options.clock.monoUs();
      this.#verified.clear();
    } catch (error) {
      this.#options.onError?.(error);
    }
  }
}

/** Names of jose's refusals, as short words. */
function refusalOf(error: unknown): IdentityResult {
  if (error instanceof errors.JWTExpired) return { kind: 'refused', reason: 'expired' };
  if (error instanceof errors.JWTClaimValidationFailed) return { kind: 'refused', reason: 'claim' };
  if (error instanceof errors.JWSSignatureVerificationFailed) {
    return { kind: 'refused', reason: 'signature' };
  }
  if (error instanceof errors.JWKSNoMatchingKey) return { kind: 'refused', reason: 'key' };
  return { kind: 'refused', reason: 'structure' };
}
