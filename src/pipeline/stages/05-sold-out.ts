import { idPattern } from '../../core/bounds.ts';
import { type FixedRefusal, refuse } from '../../core/decision.ts';
import type { IdentityVerifier } from '../identity.ts';
import { outcomeOf } from '../outcomes.ts';
import type { SoldOutFlags } from '../sold-out-flags.ts';
import type { Answer, Submission, SubmitTarget, SyncStage } from '../stage.ts';

/** Path ids of everything on sale, of the activity versions in force. */
export interface PathIndex {
  resolve(pathId: string): SubmitTarget | undefined;
}

const unknownPath: FixedRefusal = {
  decision: 'reject',
  stage: 'sold_out',
  code: 'NOT_FOUND',
  reason: 'unknown_path',
  detail: 'nothing is on sale under this path; ask for a pass to learn the current one',
};

/**
 * Says "sold out" from local memory to whoever cannot be owed another answer. It grants nothing, so it
 * may look at the person that the token merely claims. O(1), no store call.
 */
export function soldOutStage(
  paths: PathIndex,
  flags: SoldOutFlags,
  identity: Pick<IdentityVerifier, 'claimedPerson'>,
): SyncStage {
  // One answer object per SKU on sale: the hottest answer of all is made once.
  const anonymous = new WeakMap<SubmitTarget, Answer>();

  function answer(target: SubmitTarget, submission: Submission): Answer {
    const requestId = submission.idempotencyKey;
    if (requestId !== undefined && idPattern.test(requestId)) return soldOut(target, requestId);
    let known = anonymous.get(target);
    if (known === undefined) {
      known = { ...soldOut(target, null), template: target };
      anonymous.set(target, known);
    }
    return known;
  }

  return {
    name: 'sold_out',
    run(submission) {
      const target = paths.resolve(submission.pathId);
      if (target === undefined) return refuse(unknownPath);
      submission.target = target;
      if (!flags.isSoldOut(target)) return undefined;
      const token = submission.userToken;
      const person = token === undefined ? undefined : identity.claimedPerson(token);
      const verdict = flags.ask(target, person);
      if (verdict === 'sold_out') return answer(target, submission);
      if (verdict === 'probe') submission.probe = target;
      return undefined;
    },
  };
}

function soldOut(target: SubmitTarget, requestId: string | null): Answer {
  return {
    decision: 'handle',
    stage: 'sold_out',
    code: 'SECKILL_SOLD_OUT',
    reason: 'flag',
    outcome: outcomeOf('SOLD_OUT', target, requestId),
  };
}
