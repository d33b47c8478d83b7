import { isUserId, peekClaim } from '../../core/pass/user-token.ts';
import type { RawClaims } from '../../core/pass/token.ts';
import type { IdentityResult } from '../../pipeline/identity.ts';
import { nodeTextCodec } from '../../pipeline/keys.ts';

/** Which claims name the user and the person whom purchase limits count. */
export interface ClaimNames {
  readonly userClaim: string;
  readonly personClaim: string;
}

/** From claims whose signature has held. */
export function personOfClaims(claims: RawClaims, names: ClaimNames): IdentityResult {
  const userId = claims[names.userClaim];
  const personId = claims[names.personClaim];
  if (typeof userId !== 'string' || !isUserId(userId)) return { kind: 'refused', reason: 'user' };
  if (typeof personId !== 'string' || !isUserId(personId)) {
    return { kind: 'refused', reason: 'person' };
  }
  return { kind: 'person', userId, personId };
}

/** From claims that nobody has verified; for looks that grant nothing. */
export function claimedPersonOf(token: string, names: ClaimNames): string | undefined {
  return peekClaim(nodeTextCodec, token, names.personClaim);
}
