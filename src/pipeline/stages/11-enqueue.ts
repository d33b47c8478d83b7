import { outcomeOfRecord } from '../outcomes.ts';
import type { SyncStage } from '../stage.ts';

/**
 * The order message is in the outbox already: it was written in the very step that took the units, so
 * that a reservation without a message cannot exist. What is left is to say so.
 */
export function enqueueStage(): SyncStage {
  return {
    name: 'enqueue',
    run(submission) {
      const { reserved, target } = submission;
      if (reserved === undefined || target === undefined) {
        throw new Error('enqueue runs after reserve has taken the units');
      }
      return {
        decision: 'handle',
        stage: 'enqueue',
        code: 'SECKILL_QUEUED',
        reason: 'queued',
        outcome: outcomeOfRecord(target, reserved.record),
      };
    },
  };
}
