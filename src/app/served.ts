import type { Activity } from '../core/activity.ts';
import type { ActivityDirectory } from '../pipeline/activities.ts';
import type { Clock } from '../ports/clock.ts';
import type { Stores } from './embedded-stores.ts';
import { prepareStock } from './prepare-stock.ts';
import { isOver, rehearsalCopy, Rehearsals } from './rehearsals.ts';

export interface ServedParts {
  /** Of the configuration. */
  readonly activities: readonly Activity[];
  readonly stores: Pick<Stores, 'admission' | 'inventory' | 'orders'>;
  readonly clock: Clock;
  /** From now on these are served, and those not any more. */
  readonly onChange: (served: readonly Activity[], gone: readonly Activity[]) => Promise<void>;
}

/** What a process has on sale: the activities of its configuration, and the rehearsals of them. */
export class ServedActivities implements ActivityDirectory {
  readonly #parts: ServedParts;
  readonly #rehearsals: Rehearsals;
  #served: readonly Activity[];
  #byId: ReadonlyMap<string, Activity>;
  #hearing: Promise<void> = Promise.resolve();

  constructor(parts: ServedParts) {
    this.#parts = parts;
    this.#rehearsals = new Rehearsals(parts.stores.admission);
    this.#served = parts.activities;
    this.#byId = byIdOf(parts.activities);
  }

  list(): readonly Activity[] {
    return this.#served;
  }

  get(activityId: string): Activity | undefined {
    return this.#byId.get(activityId);
  }

  /**
   * A copy of a sale in which a crowd can be run. Served by every process within a second, by this
   * one at once.
   * @throws RangeError for a sale that is not here, and for what {@link Rehearsals.add} refuses
   */
  async rehearse(activityId: string, plan: Parameters<Rehearsals['add']>[1]): Promise<Activity> {
    const { activities, stores, clock } = this.#parts;
    const of = activities.find((one) => one.activityId === activityId);
    if (of === undefined) {
      const ids = activities.map((one) => one.activityId).join(', ');
      throw new RangeError(`activity_id: found "${activityId}"; allowed: ${ids}`);
    }
    const copy = await this.#rehearsals.add(of, plan, clock.wallMs(), async (made) => {
      await prepareStock(stores, [made]);
    });
    await this.hear();
    return copy;
  }

  /** Serves the rehearsals that have begun, and forgets those that are long over. One at a time. */
  hear(): Promise<void> {
    const next = this.#hearing.then(() => this.#hear());
    // Whoever waits for this one is told; the next one begins all the same.
    this.#hearing = next.catch(() => undefined);
    return next;
  }

  async #hear(): Promise<void> {
    const { activities, clock, onChange } = this.#parts;
    const news = await this.#rehearsals.news();
    const before = this.#served;
    const copies =
      news?.flatMap((rehearsal) => {
        const of = activities.find(({ activityId }) => activityId === rehearsal.of);
        return of === undefined ? [] : [rehearsalCopy(of, rehearsal)];
      }) ?? before.slice(activities.length);
    const nowMs = clock.wallMs();
    const kept = copies.filter((copy) => !isOver(copy, nowMs));
    if (news === undefined && kept.length === before.length - activities.length) return;
    this.#served = [...activities, ...kept];
    this.#byId = byIdOf(this.#served);
    await onChange(
      this.#served,
      before.filter(({ activityId }) => !this.#byId.has(activityId)),
    );
  }
}

function byIdOf(activities: readonly Activity[]): ReadonlyMap<string, Activity> {
  return new Map(activities.map((activity) => [activity.activityId, activity]));
}
