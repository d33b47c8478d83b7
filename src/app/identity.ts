import { addressSet } from '../core/limit/address.ts';
import type { KeyRing } from '../core/pass/key-ring.ts';
import type { IdentityOptions } from '../config/config.ts';
import type { SessionIssuer } from '../gateway/deps.ts';
import { demoIdentity, demoSessions } from '../gateway/identity/demo.ts';
import { JwksIdentity } from '../gateway/identity/jwks.ts';
import { type JwtDemands, secretIdentity } from '../gateway/identity/secret.ts';
import { getJson } from '../gateway/outbound.ts';
import type { IdentityVerifier } from '../pipeline/identity.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';

export interface IdentityParts {
  readonly options: IdentityOptions;
  readonly ring: KeyRing;
  readonly issuer: string;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** The way out to whoever publishes the keys. */
  readonly guardKeys: (fetchKeys: () => Promise<unknown>) => () => Promise<unknown>;
  readonly onError: (error: unknown) => void;
}

/** A key set is small, and its server is near. */
const keySetMaxBytes = 256 * 1024;
const keySetTimeoutMs = 5_000;

/** Who people are, as the configuration says: demo users of ours, or the shop's own tokens. */
export function identityOf(parts: IdentityParts): {
  readonly identity: IdentityVerifier;
  readonly sessions?: SessionIssuer;
} {
  const { options, ring, issuer, clock, timers, random, onError } = parts;
  if (options.mode === 'demo') {
    return {
      identity: demoIdentity(ring, issuer),
      sessions: demoSessions({ ring, issuer, clock, random, anywhere: options.demoAnywhere }),
    };
  }
  const demands: JwtDemands = {
    userClaim: options.userClaim,
    personClaim: options.personClaim,
    ...(options.issuer === undefined ? {} : { issuer: options.issuer }),
    ...(options.audience === undefined ? {} : { audience: options.audience }),
  };
  const { keys } = options;
  if ('secret' in keys) return { identity: secretIdentity(keys.secret, demands) };
  const outbound = {
    timers,
    allowsPrivate: addressSet(options.allowedPrivate),
    timeoutMs: keySetTimeoutMs,
    maxBytes: keySetMaxBytes,
  };
  const fetchKeys = parts.guardKeys(() => getJson(keys.jwksUrl, outbound));
  return { identity: new JwksIdentity({ fetchKeys, clock, onError }, demands) };
}
