import { tokenMaxBytes } from '../../core/bounds.ts';
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
  return { kind: 'person', userId, personId, claim: (name) => claimText(claims[name]) };
}

/** A claim as rules compare it; lists and mappings are none. */
function claimText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : undefined;
}

/**
 * Reads the person from claims that nobody has verified; for looks that grant nothing. Asked for every
 * submit after sell-out, so most payloads are not parsed: in a flat object without escapes, in which
 * the name comes once, the value stands behind the name. Anything else is parsed.
 */
export function claimedPersonReader(names: ClaimNames): (token: string) => string | undefined {
  const quoted = `"${names.personClaim}"`;
  const opening = `${quoted}:"`;
  return (token) => {
    const start = token.indexOf('.') + 1;
    const end = token.indexOf('.', start);
    if (start === 0 || end < 0 || token.length > tokenMaxBytes) return undefined;
    const text = nodeTextCodec.decode(token.slice(start, end));
    const at = text.indexOf(opening);
    const flat =
      at >= 0 &&
      !text.includes(quoted, at + quoted.length) &&
      text.indexOf(quoted) === at &&
      !text.includes('\\') &&
      !text.includes('{', 1);
    if (!flat) return peekClaim(nodeTextCodec, token, names.personClaim);
    const from = at + opening.length;
    return text.slice(from, text.indexOf('"', from));
  };
}
