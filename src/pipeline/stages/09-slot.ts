import { backlogCeilingDefault } from '../../core/bounds.ts';
import { type FixedRefusal, refuse } from '../../core/decision.ts';
import type { Health, RetrySpread } from '../health.ts';
import type { SyncStage } from '../stage.ts';

const busy = (reason: string, detail: string): FixedRefusal => ({
  decision: 'reject',
  stage: 'slot',
  code: 'SYSTEM_OVERLOADED',
  scope: 'system',
  reason,
  detail,
});

const noSlot = busy('slots', 'as many reservations are in progress as may be');
const backlogged = busy('backlog', 'as many orders wait to be made as may wait');

/** Messages between reservation and order, as last sampled; undefined while nobody has sampled. */
export type BacklogDepth = () => number | undefined;

/** A place downstream: given back by the pipeline when the path ends. O(1). */
export function slotStage(
  health: Health,
  spread: RetrySpread,
  backlog: BacklogDepth,
  backlogCeiling = backlogCeilingDefault,
): SyncStage {
  return {
    name: 'slot',
    run(submission) {
      // A retry of somebody who holds a reservation adds no message, but cannot be told apart here;
      // the status route answers them meanwhile.
      if ((backlog() ?? 0) >= backlogCeiling) return refuse(backlogged, spread.busyMs());
      const slots = health.slots.submit;
      if (!slots.tryTake()) return refuse(noSlot, spread.busyMs());
      submission.slots = slots;
      return undefined;
    },
  };
}
