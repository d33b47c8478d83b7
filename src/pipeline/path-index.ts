import type { Activity } from '../core/activity.ts';
import { type Mac, pathIdOf } from '../core/pass/path-id.ts';
import type { PathIndex } from './stages/05-sold-out.ts';
import type { SubmitTarget } from './stage.ts';

/**
 * Path ids of what is on sale, in the activity versions in force. A path of an older version opens
 * nothing. Rebuilt as a whole when activities change; a lookup is one map read.
 */
export class ActivityPaths implements PathIndex {
  readonly #mac: Mac;
  #targets: ReadonlyMap<string, SubmitTarget> = new Map();

  constructor(mac: Mac, activities: readonly Activity[]) {
    this.#mac = mac;
    this.replace(activities);
  }

  replace(activities: readonly Activity[]): void {
    const targets = new Map<string, SubmitTarget>();
    for (const { activityId, activityVersion, skus } of activities) {
      for (const { skuId } of skus) {
        const target = { activityId, skuId, activityVersion };
        targets.set(pathIdOf(this.#mac, target, activityVersion), target);
      }
    }
    this.#targets = targets;
  }

  resolve(pathId: string): SubmitTarget | undefined {
    return this.#targets.get(pathId);
  }
}
