import { limitRefusals } from '../limit-refusal.ts';
import { LimitedSubmit } from '../limited-request.ts';
import type { PathLimits } from '../limits.ts';
import type { SyncStage } from '../stage.ts';

/** The verified user and the device: whose requests these really are. O(1). */
export function personStage(limits: PathLimits): SyncStage {
  const refusals = limitRefusals('person', 'too many requests from this user or device');
  return {
    name: 'person',
    run(submission) {
      if (submission.userId === undefined)
        throw new Error('person runs after identify has set the user');
      const limited = limits.person((submission.limited ??= new LimitedSubmit(submission, limits)));
      return limited === undefined ? undefined : refusals(limited);
    },
  };
}
