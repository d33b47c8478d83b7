import { type FixedRefusal, type Refusal, refuse, type StageName } from '../core/decision.ts';
import type { LimitRefusal } from './limits.ts';

/** Rules whose refusals are kept ready; beyond it they are made each time. */
const rememberedRulesMax = 256;

/**
 * Turns a limit's no into the refusal of `stage`. The part that does not change with the moment is
 * made once per rule.
 */
export function limitRefusals(stage: StageName, detail: string): (by: LimitRefusal) => Refusal {
  const fixed = new Map<string, Known>();
  return (by) => {
    const { ruleId, scope, reason = 'limit', answer = 'reject' } = by;
    let known = fixed.get(ruleId);
    if (known?.scope !== scope || known.reason !== reason || known.answer !== answer) {
      known = { scope, reason, answer, refusal: fixedOf(by, stage, detail) };
      if (fixed.size < rememberedRulesMax || fixed.has(ruleId)) fixed.set(ruleId, known);
    }
    const refusal = refuse(known.refusal, by.retryAfterMs, by.headers);
    if (answer === 'accept_later' || answer === 'challenge') {
      return by.extra === undefined ? refusal : { ...refusal, extra: by.extra };
    }
    if (answer !== 'queue' && by.activityId === undefined) return refusal;
    return { ...refusal, extra: whereToStand(by) };
  };
}

interface Known {
  readonly scope: LimitRefusal['scope'];
  readonly reason: LimitRefusal['reason'];
  readonly answer: LimitRefusal['answer'];
  readonly refusal: FixedRefusal;
}

function fixedOf(by: LimitRefusal, stage: StageName, detail: string): FixedRefusal {
  const { scope, ruleId } = by;
  const base = { decision: 'reject', stage, ruleId, detail, scope } as const;
  if (by.reason === 'store_away') {
    return {
      ...base,
      code: 'DEPENDENCY_UNAVAILABLE',
      scope: 'system',
      reason: 'limits_unavailable',
      detail: 'the store of shared limits did not answer; nothing was done',
      nextAction: 'RETRY_LATER',
    };
  }
  if (by.answer === 'queue') {
    return {
      ...base,
      code: 'WAITING_ROOM',
      reason: 'waiting_room',
      detail: 'more are here than can be served now; keep your place, and come back when told',
    };
  }
  if (by.answer === 'accept_later') {
    return {
      ...base,
      code: 'ACCEPTED_LATER',
      reason: 'accepted_later',
      detail: 'a place ahead is yours: send the same again with its ticket when its time has come',
    };
  }
  if (by.answer === 'challenge') {
    return {
      ...base,
      code: 'CHALLENGE_REQUIRED',
      reason: 'rate_limited',
      detail: 'past this limit each request costs an answer: send the same again with it, or wait',
    };
  }
  const limited = { ...base, code: 'RATE_LIMITED' } as const;
  switch (by.reason) {
    case 'penalty':
      return {
        ...limited,
        reason: 'penalty',
        detail: 'refusals were ignored; everything waits until the penalty is over',
      };
    case 'absent_key':
      return {
        ...limited,
        reason: 'absent_key',
        detail: 'the request lacks what this limit counts by, and is not taken without it',
      };
    default:
      return { ...limited, reason: 'rate_limited' };
  }
}

/** Where one stands meanwhile: asking there costs the sale nothing. */
function whereToStand({ activityId }: LimitRefusal): Readonly<Record<string, unknown>> {
  return activityId === undefined
    ? { activities_path: '/v1/activities' }
    : { activity_id: activityId, standing_path: `/v1/activities/${activityId}/entries/me` };
}
