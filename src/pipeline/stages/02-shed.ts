import { type FixedRefusal, refuse } from '../../core/decision.ts';
import { type Health, spreadClosedRetryMs, spreadRetryMs } from '../health.ts';
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
export function shedStage(health: Health, random: { float(): number }): SyncStage {
  return {
    name: 'shed',
    run(submission) {
      const { mode, slots } = health;
      if (mode === 'CLOSED') return refuse(closed, spreadClosedRetryMs(random));
      // Unverified on purpose: a forged pass gets past here and no further than identify.
      if (mode === 'QUEUE_ONLY' && submission.passToken === undefined) {
        return refuse(passOnly, spreadClosedRetryMs(random));
      }
      if (slots.submit.inflight >= slots.submit.limitInForce) {
        return refuse(full, spreadRetryMs(random));
      }
      const caller = submission.userToken ?? submission.address;
      return health.admit(1, caller) ? undefined : refuse(noBudget, spreadRetryMs(random));
    },
  };
}
