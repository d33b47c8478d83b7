import { type FixedRefusal, type Refusal, refuse } from '../../core/decision.ts';
import type { PassExpectations, PassVerdict } from '../../core/pass/pass.ts';
import type { IdentityResult, IdentityVerifier } from '../identity.ts';
import type { AsyncStage, Submission, SubmitTarget } from '../stage.ts';

/** Verifies passes for this deployment: ring, issuer and audience are its own business. */
export interface PassVerifier {
  verify(
    raw: string,
    expected: Pick<
      PassExpectations,
      'activityId' | 'skuId' | 'userId' | 'activityVersion' | 'pathId' | 'deviceHash'
    >,
    nowMs: number,
  ): PassVerdict;
}

const signIn = (reason: string, detail: string): FixedRefusal => ({
  decision: 'reject',
  stage: 'identify',
  code: 'UNAUTHENTICATED',
  scope: 'user',
  reason,
  detail,
});

export const noUserToken = signIn('user_token_missing', 'no user token; sign in and send it');
export const badUserToken = signIn('user_token_invalid', 'the user token is not valid here');

export const foreignOrigin: FixedRefusal = {
  decision: 'reject',
  stage: 'identify',
  code: 'FORBIDDEN_ORIGIN',
  scope: 'user',
  reason: 'foreign_origin',
  detail: 'a change by cookie must come from a page of this site; Origin says otherwise',
};

export const identityDown: FixedRefusal = {
  decision: 'reject',
  stage: 'identify',
  code: 'DEPENDENCY_UNAVAILABLE',
  scope: 'system',
  reason: 'identity_keys',
  detail: 'the keys that verify user tokens could not be fetched; nothing was done',
  nextAction: 'RETRY_LATER',
};

const badPass = (reason: string, detail: string): FixedRefusal => ({
  decision: 'reject',
  stage: 'identify',
  code: 'TOKEN_INVALID',
  scope: 'pass',
  reason,
  detail,
});

const noPass = badPass('pass_missing', 'no pass; take one first and send it as Sluice-Pass');

const expiredPass: FixedRefusal = {
  ...badPass('pass_expired', 'the pass is not valid any more'),
  code: 'TOKEN_EXPIRED',
};

const earlyPass: FixedRefusal = {
  ...badPass('pass_not_yet', 'the pass is not valid yet'),
  code: 'TOKEN_EXPIRED',
  nextAction: 'RETRY_LATER',
};

/** One fixed refusal per reason that the verifier can give, made on first use. */
const misfits = new Map<string, FixedRefusal>();

function passRefusal(reason: string): Refusal {
  if (reason === 'expired') return refuse(expiredPass);
  if (reason === 'not_yet') return refuse(earlyPass);
  let known = misfits.get(reason);
  if (known === undefined) {
    known = badPass(`pass_${reason}`, `the pass is refused: ${reason.replaceAll('_', ' ')}`);
    misfits.set(reason, known);
  }
  return refuse(known);
}

/** The user token, then the pass. Nothing of either is believed before its signature holds. */
export function identifyStage(identity: IdentityVerifier, passes: PassVerifier): AsyncStage {
  function withPerson(
    submission: Submission,
    target: SubmitTarget,
    found: IdentityResult,
  ): Refusal | undefined {
    const refused = refusalOfIdentity(found);
    if (refused !== undefined || found.kind !== 'person') return refused;
    submission.userId = found.userId;
    submission.personId = found.personId;
    submission.claim = found.claim;
    const raw = submission.passToken;
    if (raw === undefined) return refuse(noPass);
    const verdict = passes.verify(
      raw,
      {
        activityId: target.activityId,
        skuId: target.skuId,
        activityVersion: target.activityVersion,
        pathId: submission.pathId,
        userId: found.userId,
        deviceHash: submission.deviceHash,
      },
      submission.nowMs,
    );
    if (verdict.kind === 'refused') return passRefusal(verdict.reason);
    const { claims } = verdict;
    submission.pass = {
      nonce: claims.nonce,
      maxQuantity: claims.maxQuantity,
      wave: claims.wave,
      keyId: verdict.keyId,
      expiresAtMs: claims.expiresAtMs,
      expired: verdict.kind === 'expired',
    };
    return undefined;
  }

  return {
    name: 'identify',
    run(submission) {
      const { target, userToken } = submission;
      if (target === undefined) throw new Error('identify runs after sold_out has set the target');
      if (userToken === undefined) return refuse(noUserToken);
      if (submission.fromForeignOrigin) return refuse(foreignOrigin);
      const found = identity.verify(userToken, submission.nowMs);
      return found instanceof Promise
        ? found.then((later) => withPerson(submission, target, later))
        : withPerson(submission, target, found);
    },
  };
}

/** Shared with every other route that needs to know who asks. */
export function refusalOfIdentity(found: IdentityResult): Refusal | undefined {
  if (found.kind === 'person') return undefined;
  return found.kind === 'unavailable' ? refuse(identityDown, 1_000) : refuse(badUserToken);
}
