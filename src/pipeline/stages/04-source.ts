import { LimitedSubmit } from '../limited-request.ts';
import type { PathLimits } from '../limits.ts';
import { limitRefusals } from '../limit-refusal.ts';
import type { SyncStage } from '../stage.ts';

/** Address and prefix: soft, because many people share one, and before anything costs more. O(1). */
export function sourceStage(limits: PathLimits): SyncStage {
  const refusals = limitRefusals('source', 'too many requests from this network address');
  return {
    name: 'source',
    run(submission) {
      const limited = limits.source((submission.limited ??= new LimitedSubmit(submission, limits)));
      return limited === undefined ? undefined : refusals(limited);
    },
  };
}
