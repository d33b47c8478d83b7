import { type FixedRefusal, refuse } from '../../core/decision.ts';
import type { Health, RetrySpread } from '../health.ts';
import type { SyncStage } from '../stage.ts';

const overloaded = (reason: string, detail: string): FixedRefusal => ({
  decision: 'reject',
  stage: 'shed',
  code: 'SYSTEM_OVERLOADED',
  scope: 'system',
  reason,
  detail,
});

const closed = overloaded('mode_closed', 'the doors are closed until the system has recovered');
const passOnly = overloaded('queue_only', 'only those who already hold a pass are served now');
const full = overloaded('inflight', 'as many requests are in progress as may be');
const noBudget = overloaded('admission_budget', 'the admission budget of this moment is used');

/** Health says no: the mode, the in-flight ceiling, the admission budget. O(1). */
export function shedStage(health: Health, spread: RetrySpread): SyncStage {
  return {
    name: 'shed',
    run(submission) {
      const { mode, slots } = health;
      if (mode === 'CLOSED') return refuse(closed, spread.closedMs());
      // Unverified on purpose: a forged pass gets past here and no further than identify.
      if (mode === 'QUEUE_ONLY' && submission.passToken === undefined) {
        return refuse(passOnly, spread.closedMs());
      }
      if (slots.submit.inflight >= slots.submit.limitInForce) {
        return refuse(full, spread.busyMs());
      }
      const caller = submission.userToken ?? submission.address;
      return health.admit(1, caller) ? undefined : refuse(noBudget, spread.busyMs());
    },
  };
}
