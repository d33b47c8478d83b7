import type { KeyRing } from '../../core/pass/key-ring.ts';
import { signUserToken, verifyUserToken } from '../../core/pass/user-token.ts';
import type { IdentityVerifier } from '../../pipeline/identity.ts';
import type { Clock } from '../../ports/clock.ts';
import { newId, type Random } from '../../ports/random.ts';
import type { SessionIssuer } from '../deps.ts';
import { claimedPersonReader } from './claims.ts';

/** Demo people: every session is a new person, signed by a key ring of this deployment. */

/** Life of a demo session, ms: a long afternoon of trying things out. */
export const demoSessionMs = 12 * 3_600_000;

const names = { userClaim: 'sub', personClaim: 'sub' } as const;

export function demoIdentity(ring: KeyRing, issuer: string): IdentityVerifier {
  return {
    verify(token, nowMs) {
      const verdict = verifyUserToken(ring, token, { issuer }, nowMs);
      if (verdict.kind === 'refused') return { kind: 'refused', reason: verdict.reason };
      const { userId } = verdict.claims;
      return { kind: 'person', userId, personId: userId };
    },
    claimedPerson: claimedPersonReader(names),
  };
}

export interface DemoSessionOptions {
  readonly ring: KeyRing;
  readonly issuer: string;
  readonly clock: Pick<Clock, 'wallMs'>;
  readonly random: Random;
  /** `identity.demo_anywhere`: other machines too. */
  readonly anywhere: boolean;
}

export function demoSessions(options: DemoSessionOptions): SessionIssuer {
  const { ring, issuer, clock, random, anywhere } = options;
  return {
    issue({ loopback }) {
      if (!loopback && !anywhere) return undefined;
      const nowMs = clock.wallMs();
      const userId = newId(random, 'u');
      // Whole seconds, as the token has them: what the buyer is told is what holds.
      const expiresAtMs = Math.ceil((nowMs + demoSessionMs) / 1000) * 1000;
      const token = signUserToken(ring, { issuer, userId, issuedAtMs: nowMs, expiresAtMs });
      return { userId, token, expiresAtMs };
    },
  };
}
