import { LimitedSubmit } from '../limited-request.ts';
import type { PathLimits } from '../limits.ts';
import { limitRefusals } from '../limit-refusal.ts';
import type { SyncStage } from '../stage.ts';

/** The instance's own bucket: what this process was configured to take, whoever asks. O(1). */
export function instanceStage(limits: PathLimits): SyncStage {
  const refusals = limitRefusals('instance', 'this instance takes no more for the moment');
  return {
    name: 'instance',
    run(submission) {
      const limited = limits.instance(
        (submission.limited ??= new LimitedSubmit(submission, limits)),
      );
      return limited === undefined ? undefined : refusals(limited);
    },
  };
}
