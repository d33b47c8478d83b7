import { type FixedRefusal, type Refusal, refuse, type StageName } from '../core/decision.ts';
import type { LimitRefusal } from './limits.ts';

/** Rules whose refusals are kept ready; beyond it they are made each time. */
const rememberedRulesMax = 256;

/**
 * Turns a limit's no into the refusal of `stage`. The part that does not change with the moment is
 * made once per rule.
 */
export function limitRefusals(stage: StageName, detail: string): (by: LimitRefusal) => Refusal {
  const fixed = new Map<string, FixedRefusal>();
  return (by) => {
    const key = by.ruleId;
    let known = fixed.get(key);
    if (known === undefined || known.scope !== by.scope) {
      known = {
        decision: 'reject',
        stage,
        code: 'RATE_LIMITED',
        reason: 'rate_limited',
        detail,
        scope: by.scope,
        ruleId: by.ruleId,
      };
      if (fixed.size < rememberedRulesMax) fixed.set(key, known);
    }
    return refuse(known, by.retryAfterMs, by.headers);
  };
}
