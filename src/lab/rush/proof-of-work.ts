import { answerMark, leadingZeroBits } from '../../core/pass/challenge.ts';
import { utf8 } from '../../core/room/bytes.ts';
import { sha256 } from '../../core/room/sha256.ts';
import type { Body } from './scene.ts';

/** More would hold up everybody else of the crowd: some four thousand tries are ten milliseconds. */
export const crowdBitsMax = 12;

/**
 * The answer to the work that a refused join asks for; undefined where it asks for something else, or
 * for more than a crowd out of one machine can do.
 */
export function answerWork(refusal: Body): string | undefined {
  const { kind, token, bits } = Object(refusal['challenge']) as Body;
  if (kind !== 'proof_of_work' || typeof token !== 'string' || typeof bits !== 'number') return;
  if (!(bits >= 0 && bits <= crowdBitsMax)) return;
  for (let found = 0; ; found += 1) {
    const answer = `${token}${answerMark}${found}`;
    if (leadingZeroBits(sha256(utf8(answer))) >= bits) return answer;
  }
}
