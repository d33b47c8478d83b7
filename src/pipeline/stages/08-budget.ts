import type { Refusal } from '../../core/decision.ts';
import { limitRefusals } from '../limit-refusal.ts';
import { LimitedSubmit } from '../limited-request.ts';
import type { PathLimits } from '../limits.ts';
import type { AsyncStage, Submission, SubmitBody, VerifiedPass } from '../stage.ts';

/**
 * The last stage before anything shared is spent: so the body is read here, and not before (a refused
 * flood never has its bodies parsed) nor after (a slow body must not hold a slot). Then the activity's
 * and the SKU's budget.
 */
export function budgetStage(limits: PathLimits): AsyncStage {
  const refusals = limitRefusals('budget', 'the budget of this sale is used for the moment');

  function spend(
    submission: Submission,
    body: SubmitBody,
  ): Refusal | undefined | Promise<Refusal | undefined> {
    const { target, pass } = submission;
    if (target === undefined || pass === undefined) {
      throw new Error('budget runs after sold_out and identify');
    }
    const refused = refuseBody(submission, body, pass);
    if (refused !== undefined) return refused;
    submission.body = body;
    // It can start nothing, so it may not take a place from somebody who can.
    if (pass.expired) return undefined;
    const limited = limits.budget((submission.limited ??= new LimitedSubmit(submission, limits)));
    if (limited instanceof Promise) {
      return limited.then((later) => (later === undefined ? undefined : refusals(later)));
    }
    return limited === undefined ? undefined : refusals(limited);
  }

  return {
    name: 'budget',
    async run(submission) {
      const body = await submission.readBody();
      return 'decision' in body ? body : spend(submission, body);
    },
  };
}

/** The body against what the path, the pass and the headers already said. */
function refuseBody(
  submission: Submission,
  body: SubmitBody,
  pass: VerifiedPass,
): Refusal | undefined {
  const { target, idempotencyKey } = submission;
  if (target?.activityId !== body.activityId) {
    return misfit('pass_activity', `activity_id "${body.activityId}" is not the pass's activity`);
  }
  if (target.skuId !== body.skuId) {
    return misfit('pass_sku', `sku_id "${body.skuId}" is not the pass's SKU`);
  }
  if (idempotencyKey !== undefined && idempotencyKey !== body.requestId) {
    return invalid(body.requestId, {
      path: 'header:idempotency-key',
      found: JSON.stringify(idempotencyKey.slice(0, 64)),
      allowed: `the request_id of the body, "${body.requestId}"`,
    });
  }
  if (body.quantity > pass.maxQuantity) {
    return invalid(body.requestId, {
      path: '/quantity',
      found: String(body.quantity),
      allowed: `integer 1 to ${pass.maxQuantity}`,
    });
  }
  if (body.seats !== undefined && body.seats.length !== body.quantity) {
    return invalid(body.requestId, {
      path: '/seats',
      found: `${body.seats.length} seats for quantity ${body.quantity}`,
      allowed: 'as many seats as the quantity',
    });
  }
  return undefined;
}

function misfit(reason: string, detail: string): Refusal {
  return {
    decision: 'reject',
    stage: 'budget',
    code: 'TOKEN_INVALID',
    scope: 'pass',
    reason,
    detail,
  };
}

function invalid(
  requestId: string,
  error: { readonly path: string; readonly found: string; readonly allowed: string },
): Refusal {
  return {
    decision: 'reject',
    stage: 'budget',
    code: 'INVALID_ARGUMENT',
    reason: 'body',
    detail: `${error.path}: found ${error.found}, allowed is ${error.allowed}`,
    extra: { request_id: requestId, errors: [error] },
  };
}
