import type { RoomEvent } from '../core/room/events.ts';
import { roomStateNames } from '../pipeline/room-keys.ts';
import type { AdmissionStore, StateFence } from '../ports/admission-store.ts';

/** Another control has decided this room's next step: this one knows less than it thought. */
export class DeposedError extends Error {
  override readonly name = 'DeposedError';
}

/** Events asked for at once when a room's log is read: few at first, since most logs are short. */
const readAheadFirst = 16;
const readAheadMax = 512;

/**
 * The numbered log of one room's decisions. An event is written only if its number is free and the
 * room's epoch is still the writer's, so of two controls that both believe they lead, only the later
 * one gets through and the other learns that it was deposed.
 */
export class RoomLog {
  readonly #store: Pick<AdmissionStore, 'loadState' | 'saveState'>;
  readonly #activityId: string;
  readonly #fence: StateFence | undefined;
  #next = 1;

  /** `epoch` is the writer's own; a log that is only read has none. */
  constructor(
    store: Pick<AdmissionStore, 'loadState' | 'saveState'>,
    activityId: string,
    epoch?: number,
  ) {
    this.#store = store;
    this.#activityId = activityId;
    this.#fence =
      epoch === undefined ? undefined : { name: roomStateNames.epoch(activityId), version: epoch };
  }

  /** Every event so far, in order; the next append follows them. */
  async load(): Promise<readonly RoomEvent[]> {
    const events: RoomEvent[] = [];
    for (let ahead = readAheadFirst; ; ahead = Math.min(2 * ahead, readAheadMax)) {
      const from = events.length + 1;
      const page = await Promise.all(
        Array.from({ length: ahead }, (_, at) =>
          this.#store.loadState(roomStateNames.event(this.#activityId, from + at)),
        ),
      );
      for (const stored of page) {
        if (stored === undefined) {
          this.#next = events.length + 1;
          return events;
        }
        events.push(JSON.parse(stored.value) as RoomEvent);
      }
    }
  }

  /**
   * Durable when this returns. Throws {@link DeposedError} if the number is taken. After an outcome
   * that is unknown the log must be loaded again before anything else is decided.
   */
  async append(event: RoomEvent): Promise<void> {
    const name = roomStateNames.event(this.#activityId, this.#next);
    if (!(await this.#store.saveState(name, JSON.stringify(event), 0, this.#fence))) {
      throw new DeposedError(
        `event ${this.#next} of room "${this.#activityId}" is there already, or another leader's to write`,
      );
    }
    this.#next += 1;
  }
}
