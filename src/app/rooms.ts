import type { OperatorContext } from '../control/admin/source.ts';
import { RoomLoop } from '../control/room-loop.ts';
import type { Activity, SkuKey } from '../core/activity.ts';
import type { Mode } from '../core/overload/mode.ts';
import { type Mac, nonceOf } from '../core/pass/path-id.ts';
import { RoomMeasures } from '../core/room/measures.ts';
import type { RoomSignals } from '../core/room/model.ts';
import type { ReleaseState } from '../core/room/release.ts';
import type { PublicRoom } from '../gateway/deps.ts';
import { Challenges } from '../pipeline/challenges.ts';
import type { Person } from '../pipeline/door.ts';
import { ReleaseStates } from '../pipeline/release-states.ts';
import { RoomDoor } from '../pipeline/room-door.ts';
import type { AdmissionStore, FinishOutcome } from '../ports/admission-store.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { StockMark } from '../ports/inventory-store.ts';
import type { Random } from '../ports/random.ts';
import type { RoomsReading } from '../telemetry/room-metrics.ts';
import type { RoomFacts } from './console-source.ts';
import type { Keys } from './keys-folder.ts';
import type { RoomSwitches } from './operator-actions.ts';

export interface RoomsParts {
  readonly activities: readonly Activity[];
  readonly admission: AdmissionStore;
  readonly keys: Keys;
  readonly issuer: string;
  readonly audience: string;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** After the I/O that is already there: where long work of a room lets others run. */
  readonly defer: (task: () => void) => void;
  /** Stock as last seen. */
  readonly stock: (sku: SkuKey) => StockMark | undefined;
  readonly mode: () => Mode;
  /** Unacknowledged order messages ÷ their ceiling; undefined while unknown. */
  readonly backlogRatio: () => number | undefined;
  /** Smoothed round trip of the reservation step ÷ its budget; 0 when nothing is reserved. */
  readonly reserveRatio: () => number;
  /** Asked before every turn of a room; yes where nobody else could lead. */
  readonly leads?: () => boolean;
  /** Whoever led when last asked. */
  readonly leader?: () => string | undefined;
  /** A room that is led here has published its state. */
  readonly onPublished?: (state: ReleaseState) => void;
  /** Units that a person has in live orders of a SKU. */
  readonly unitsOf: (sku: SkuKey, personId: string) => Promise<number>;
  /** Who vouches for people, for rooms that ask for it. */
  readonly challengeProvider?: { readonly url: string; readonly mac: Mac };
  readonly onError: (what: string, error: unknown) => void;
}

/** A pass's attempt is found by trying: nobody comes to so many on one SKU. */
const attemptsMax = 64;

/** Every room of a deployment: its loop, its door, and what the rest of the sale tells it. */
export class Rooms implements RoomSwitches {
  readonly door: RoomDoor;
  readonly #parts: RoomsParts;
  readonly #states: ReleaseStates;
  readonly #measures = new RoomMeasures();
  /** None while another process leads. */
  #loops: ReadonlyMap<string, RoomLoop> = new Map();
  #byId: ReadonlyMap<string, Activity>;

  constructor(parts: RoomsParts) {
    this.#parts = parts;
    const { clock, random, admission, keys } = parts;
    this.#byId = new Map(parts.activities.map((activity) => [activity.activityId, activity]));
    this.#states = new ReleaseStates(clock, (kids) => {
      for (const ring of Object.values(keys.rings)) ring.setRevoked(kids);
    });
    this.door = new RoomDoor({
      store: admission,
      clock,
      random,
      activities: { get: (id) => this.#byId.get(id) },
      states: this.#states,
      rings: keys.rings,
      pathMac: keys.pathMac,
      nonceMac: keys.nonceMac,
      issuer: parts.issuer,
      audience: parts.audience,
      bindsDevice: (id) => this.#byId.get(id)?.room.bindDevice === true,
      measures: this.#measures,
      mayBuyMore: (activity, person, skuIds) => this.#mayBuyMore(activity, person, skuIds),
      challenges: new Challenges({
        ring: keys.rings.challenge,
        issuer: parts.issuer,
        random,
        ...(parts.challengeProvider === undefined ? {} : { callback: parts.challengeProvider }),
      }),
    });
  }

  /** This process runs the rooms. Resolves when every room has a release state, or has said why not. */
  async lead(): Promise<void> {
    // New loops each time: what an earlier term knew may be long out of date.
    this.#loops = new Map(
      [...this.#byId].map(([activityId, activity]) => [activityId, this.#loopOf(activity)]),
    );
    await Promise.all([...this.#loops].map(([activityId, loop]) => this.#begin(activityId, loop)));
  }

  /** These activities from now on: rooms of new ones open here, rooms of gone ones end. */
  async serve(activities: readonly Activity[]): Promise<void> {
    this.#byId = new Map(activities.map((activity) => [activity.activityId, activity]));
    const { leads } = this;
    const [kept, ended] = [new Map<string, RoomLoop>(), [] as RoomLoop[]];
    for (const [activityId, loop] of this.#loops) {
      if (this.#byId.has(activityId)) kept.set(activityId, loop);
      else ended.push(loop);
    }
    const begun = new Map<string, RoomLoop>();
    if (leads) {
      for (const [activityId, activity] of this.#byId) {
        if (!kept.has(activityId)) begun.set(activityId, this.#loopOf(activity));
      }
    }
    this.#loops = new Map([...kept, ...begun]);
    await Promise.all(ended.map((loop) => loop.stop()));
    await Promise.all([...begun].map(([activityId, loop]) => this.#begin(activityId, loop)));
  }

  #loopOf(activity: Activity): RoomLoop {
    const { admission, clock, timers, random, defer, leads, onError } = this.#parts;
    return new RoomLoop({
      store: admission,
      clock,
      timers,
      random,
      activity: () => activity,
      signals: () => this.#signalsOf(activity),
      publish: (state) => {
        this.#states.accept(state);
        this.#parts.onPublished?.(state);
      },
      ...(leads === undefined ? {} : { leads }),
      breathe: () => new Promise((resolve) => defer(resolve)),
      onError: (error) => onError(`room ${activity.activityId}`, error),
    });
  }

  async #begin(activityId: string, loop: RoomLoop): Promise<void> {
    try {
      await loop.runOnce();
    } catch (error) {
      this.#parts.onError(`room ${activityId}`, error);
    }
    // Meanwhile another process may have taken over, or the rehearsal be gone.
    if (this.#loops.get(activityId) === loop) loop.start();
  }

  /** Another process runs them, or none. Resolves once the turns under way have ended. */
  async stop(): Promise<void> {
    const loops = [...this.#loops.values()];
    this.#loops = new Map();
    await Promise.all(loops.map((loop) => loop.stop()));
  }

  /** A release state that another process published, so long ago. */
  hear(state: ReleaseState, ageMs: number): void {
    if (this.#byId.has(state.activityId)) this.#states.accept(state, ageMs);
  }

  get leads(): boolean {
    return this.#loops.size > 0;
  }

  get leader(): string | undefined {
    return this.#parts.leader?.();
  }

  /** Rooms of the configuration without a release state to act on, in words. */
  unready(): readonly string[] {
    return this.#parts.activities
      .filter(({ activityId }) => this.#states.fresh(activityId) === undefined)
      .map(({ activityId }) => `room ${activityId} has no fresh release state`);
  }

  isWaveRevoked(activityId: string, wave: number): boolean {
    return this.#states.isWaveRevoked(activityId, wave);
  }

  publicRoom(activityId: string): PublicRoom {
    const state = this.#states.latest(activityId)?.state;
    return {
      commitment: state?.commitment ?? null,
      ...(state === undefined || state.beacon === null ? {} : { beacon: state.beacon.source }),
      ...(state?.held === true || state?.paused === true ? { halted: true } : {}),
      ...(state === undefined || state.lobbySize === null ? {} : { checkpoint: state.checkpoint }),
    };
  }

  /** For metrics: fairness of the doors here, and what the release states say. */
  reading(): RoomsReading {
    const states = [...this.#byId.keys()].flatMap((activityId) => {
      const view = this.#states.latest(activityId);
      return view === undefined ? [] : [view.state];
    });
    const total = (of: (state: ReleaseState) => number): number =>
      states.reduce((all, state) => all + of(state), 0);
    return {
      measures: this.#measures.snapshot(),
      heldRatios: states.flatMap((state) =>
        state.lanes.flatMap(({ forecast }) => forecast.heldRatio ?? []),
      ),
      released: total((state) => state.counts.released),
      waiting: total((state) => state.counts.waiting),
      active: total((state) => state.counts.active),
      missed: total((state) => state.counts.missed),
    };
  }

  facts(activityId: string): RoomFacts {
    const state = this.#states.latest(activityId)?.state;
    if (state === undefined) return { state: 'stopped', released: 0, waves: 0 };
    return {
      state: state.paused ? 'paused' : state.held ? 'hold' : 'running',
      released: state.counts.released,
      waves: state.waves.at(-1)?.wave ?? 0,
    };
  }

  async pause(activityId: string, { who, why }: OperatorContext): Promise<boolean> {
    return (await this.#loops.get(activityId)?.pause(who, why)) ?? false;
  }

  async resume(activityId: string, { who, why }: OperatorContext): Promise<boolean> {
    const loop = this.#loops.get(activityId);
    if (loop === undefined) return false;
    const resumed = await loop.resume(who, why);
    const released = await loop.unhold(who, why);
    return resumed || released;
  }

  async hold(activityId: string, { who, why }: OperatorContext): Promise<boolean> {
    return (await this.#loops.get(activityId)?.hold(who, why)) ?? false;
  }

  /** See `RoomLoop.announceBeacon`. False too where this process does not run the room. */
  async announceBeacon(activityId: string, value: string): Promise<boolean> {
    return (await this.#loops.get(activityId)?.announceBeacon(value)) ?? false;
  }

  async revokeWave(
    activityId: string,
    wave: number,
    { who, why }: OperatorContext,
  ): Promise<boolean> {
    return (await this.#loops.get(activityId)?.revokeWave(wave, who, why)) ?? false;
  }

  /** Tokens under the key are refused in every process that follows this room. */
  async revokeKey(
    activityId: string,
    kid: string,
    { who, why }: OperatorContext,
  ): Promise<boolean> {
    return (await this.#loops.get(activityId)?.revokeKey(kid, who, why)) ?? false;
  }

  async bypass(
    activityId: string,
    entryId: string,
    { who, why }: OperatorContext,
  ): Promise<boolean> {
    return (await this.#loops.get(activityId)?.bypass(entryId, who, why)) ?? false;
  }

  /** This person is done in the room: somebody else may be let in. Repeating it changes nothing. */
  async finish(activityId: string, personId: string, outcome: FinishOutcome): Promise<void> {
    const entryId = await this.door.entryIdOf(activityId, personId);
    await this.#parts.admission.finish(activityId, entryId, outcome, this.#parts.clock.wallMs());
  }

  /** What this pass was used for has ended: its holder's next pass is a new attempt. */
  async endAttempt(sku: SkuKey, personId: string, nonce: string): Promise<void> {
    const { admission, keys, clock } = this.#parts;
    const { activityId, skuId } = sku;
    const entryId = await this.door.entryIdOf(activityId, personId);
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      if (nonceOf(keys.nonceMac, activityId, entryId, skuId, attempt) !== nonce) continue;
      await admission.endAttempt(activityId, entryId, skuId, attempt, clock.wallMs());
      return;
    }
  }

  async #mayBuyMore(
    { activityId, skus }: Activity,
    { personId }: Person,
    skuIds: readonly string[],
  ): Promise<boolean> {
    const wanted = skus.filter(({ skuId }) => skuIds.length === 0 || skuIds.includes(skuId));
    const left = await Promise.all(
      wanted.map(async ({ skuId, maxPerPerson }) => {
        const units = await this.#parts.unitsOf({ activityId, skuId }, personId);
        return units < maxPerPerson;
      }),
    );
    return left.includes(true);
  }

  #signalsOf({ activityId, skus }: Activity): RoomSignals | undefined {
    const { stock, mode, backlogRatio, reserveRatio } = this.#parts;
    const backlog = backlogRatio();
    if (backlog === undefined) return undefined;
    const marks = skus.map(({ skuId }) => ({ skuId, mark: stock({ activityId, skuId }) }));
    if (marks.some(({ mark }) => mark === undefined)) return undefined;
    return {
      skus: marks.map(({ skuId, mark }) => ({
        skuId,
        available: mark === undefined || mark.paused ? 0 : mark.available,
        held: mark?.held ?? 0,
        total: mark?.total ?? 0,
      })),
      mode: mode(),
      backlogRatio: backlog,
      reserveRatio: reserveRatio(),
      unitsPerBuyer: 1,
    };
  }
}
