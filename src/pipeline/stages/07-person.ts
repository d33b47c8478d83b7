import { limitRefusals } from '../limit-refusal.ts';
import type { PathLimits } from '../limits.ts';
import type { SyncStage } from '../stage.ts';

/** The verified user and the device: whose requests these really are. O(1). */
export function personStage(limits: PathLimits): SyncStage {
  const refusals = limitRefusals('person', 'too many requests from this user or device');
  return {
    name: 'person',
    run(submission) {
      const { userId, deviceHash, arrivedUs } = submission;
      if (userId === undefined) throw new Error('person runs after identify has set the user');
      const limited = limits.person('submit', userId, deviceHash, arrivedUs);
      return limited === undefined ? undefined : refusals(limited);
    },
  };
}
