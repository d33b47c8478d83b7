import { passSkewMs, tokenMaxBytes } from '../../core/bounds.ts';
import { isSeconds } from '../../core/pass/pass.ts';
import { parseObject, type RawClaims } from '../../core/pass/token.ts';
import type { IdentityResult, IdentityVerifier } from '../../pipeline/identity.ts';
import { hmacSha256 } from '../../pipeline/hmac.ts';
import { nodeTextCodec, sameText } from '../../pipeline/keys.ts';
import { type ClaimNames, claimedPersonReader, personOfClaims } from './claims.ts';

/** What a foreign JWT must say beside its signature. */
export interface JwtDemands extends ClaimNames {
  readonly issuer?: string;
  readonly audience?: string;
}

/** Fewer bytes of secret than the hash has would be its weakest part (RFC 7518, 3.2). */
const secretMinBytes = 32;

/** Headers seen to be in order, kept so that one issuer's header is parsed once. */
const knownHeadersMax = 16;

/**
 * User tokens signed by the shop itself with a shared secret (HS256). Synchronous and by hand, because
 * it stands in the path of every submit. The algorithm is ours to say, never the token's.
 */
export function secretIdentity(secret: string, demands: JwtDemands): IdentityVerifier {
  const bytes = Buffer.from(secret, 'utf8');
  if (bytes.length < secretMinBytes) {
    throw new RangeError(
      `identity.secret has ${bytes.length} bytes; HS256 needs at least ${secretMinBytes}`,
    );
  }
  const mac = hmacSha256(bytes);
  const knownHeaders = new Set<string>();

  function verify(token: string, nowMs: number): IdentityResult {
    if (token.length > tokenMaxBytes) return refused('too_long');
    const parts = token.split('.');
    const [header, payload, signature] = parts;
    if (parts.length !== 3 || !header || !payload || !signature) return refused('structure');
    const headerKnown = knownHeaders.has(header);
    if (!headerKnown && !isPlainHs256(header)) return refused('algorithm');
    if (!sameText(mac(`${header}.${payload}`), signature)) return refused('signature');
    if (!headerKnown && knownHeaders.size < knownHeadersMax) knownHeaders.add(header);
    const claims = parseObject(nodeTextCodec.decode(payload));
    if (claims === undefined) return refused('payload');
    const misfit = claimMisfit(claims, demands, nowMs);
    return misfit === undefined ? personOfClaims(claims, demands) : refused(misfit);
  }

  return { verify, claimedPerson: claimedPersonReader(demands) };
}

function refused(reason: string): IdentityResult {
  return { kind: 'refused', reason };
}

function isPlainHs256(header: string): boolean {
  const fields = parseObject(nodeTextCodec.decode(header));
  if (fields?.['alg'] !== 'HS256' || 'crit' in fields) return false;
  const { typ } = fields;
  return typ === undefined || (typeof typ === 'string' && /^(?:at\+)?jwt$/i.test(typ));
}

/** Issuer, audience and times, as configured; `exp` is demanded always. */
function claimMisfit(claims: RawClaims, demands: JwtDemands, nowMs: number): string | undefined {
  const { iss, aud, exp, nbf } = claims;
  if (demands.issuer !== undefined && iss !== demands.issuer) return 'issuer';
  if (demands.audience !== undefined) {
    const audiences: readonly unknown[] = Array.isArray(aud) ? aud : [aud];
    if (!audiences.includes(demands.audience)) return 'audience';
  }
  if (!isSeconds(exp) || nowMs - passSkewMs >= exp * 1000) return 'expired';
  if (nbf !== undefined && (!isSeconds(nbf) || nowMs + passSkewMs < nbf * 1000)) return 'not_yet';
  return undefined;
}
