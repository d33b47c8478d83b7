import { expect, test } from 'vitest';
import { leadingZeroBits } from '../../core/pass/challenge.ts';
import { utf8 } from '../../core/room/bytes.ts';
import { sha256 } from '../../core/room/sha256.ts';
import { answerWork, crowdBitsMax } from './proof-of-work.ts';

const asked = (challenge: unknown) => ({ code: 'CHALLENGE_REQUIRED', challenge });

test('the work that is asked for is done', () => {
  for (const bits of [0, 1, 7, 10]) {
    const answer = answerWork(asked({ kind: 'proof_of_work', token: 'a.b.c', bits }));
    expect(answer).toMatch(/^a\.b\.c~\d+$/);
    expect(leadingZeroBits(sha256(utf8(answer ?? '')))).toBeGreaterThanOrEqual(bits);
  }
});

test('nothing else, and no more than a crowd out of one machine can do', () => {
  const more = { kind: 'proof_of_work', token: 't', bits: crowdBitsMax + 1 };
  for (const challenge of [
    more,
    { ...more, bits: Number.NaN },
    { ...more, bits: '3' },
    { ...more, bits: -1 },
    { kind: 'callback', token: 't', bits: 0 },
    null,
    'text',
    undefined,
  ]) {
    expect(answerWork(asked(challenge))).toBeUndefined();
  }
});
