import type { Activity } from '../core/activity.ts';

/** The sales of this deployment, as they stand now. Reads are local and at once. */
export interface ActivityDirectory {
  list(): readonly Activity[];
  get(activityId: string): Activity | undefined;
}
