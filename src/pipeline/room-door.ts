import type { Activity } from '../core/activity.ts';
import { phaseAt } from '../core/activity.ts';
import { signEntryToken, verifyEntryToken } from '../core/pass/entry-token.ts';
import type { KeyRing } from '../core/pass/key-ring.ts';
import { signPass } from '../core/pass/pass.ts';
import { nonceOf, pathIdOf } from '../core/pass/path-id.ts';
import type { Mac } from '../core/pass/path-id.ts';
import { EntryIdMaker } from '../core/room/draw.ts';
import { laneKey, normalSkus } from '../core/room/lanes.ts';
import type { RoomMeasures } from '../core/room/measures.ts';
import { spread } from '../core/room/pace.ts';
import type { Place, ReleaseView, Whereabouts } from '../core/room/standing.ts';
import type { AdmissionStore, Entry } from '../ports/admission-store.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import type { Standing } from '../wire/standing.ts';
import type { ActivityDirectory } from './activities.ts';
import type { ChallengeDesk } from './challenges.ts';
import type {
  Door,
  JoinResult,
  JoinWish,
  NotAdmitted,
  PassResult,
  Person,
  StandingResult,
} from './door.ts';
import type { ReleaseStates } from './release-states.ts';
import { ensureSecret, roomStateNames } from './room-keys.ts';

/** An entry token outlives the sale by this, so that its holder still learns how it ended, ms. */
const tokenAfterCloseMs = 24 * 3_600_000;

/** Nobody is told anything by a gateway that does not know: come back in about this long, ms. */
const holdPollMs = 5_000;

/** Groups and weights that an entitlement may name. */
const groupPattern = /^[A-Za-z0-9_-]{0,64}$/;
const weightMax = 1_000_000;

export interface RoomDoorOptions {
  readonly store: AdmissionStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly activities: Pick<ActivityDirectory, 'get'>;
  readonly states: ReleaseStates;
  readonly rings: { readonly entry: KeyRing; readonly pass: KeyRing };
  readonly pathMac: Mac;
  readonly nonceMac: Mac;
  readonly issuer: string;
  /** The deployment's submit audience. */
  readonly audience: string;
  readonly region?: string;
  /** Activities whose passes name a device. */
  readonly bindsDevice?: (activityId: string) => boolean;
  /** Needed where an activity demands a challenge. */
  readonly challenges?: ChallengeDesk;
  /**
   * Whether what this person holds leaves room for more of one of these SKUs (none: of any). Asked when
   * somebody who has bought wants to stand in line once more.
   */
  readonly mayBuyMore?: (
    activity: Activity,
    person: Person,
    skuIds: readonly string[],
  ) => Promise<boolean>;
  /** Told of every new place and pass. */
  readonly measures?: RoomMeasures;
}

/**
 * The room's door: joins, standings, passes.
 *
 * A poll with an entry token is answered from the token and the release state: no store, no memory per
 * person, nothing awaited. Everything else asks the store once; the store alone decides what a person
 * was promised, and the release state whose turn it is.
 */
export class RoomDoor implements Door {
  readonly #o: RoomDoorOptions;
  readonly #makers = new Map<string, Promise<EntryIdMaker>>();

  /** State of a small generator that spreads polls: nobody gains by guessing it. */
  #spread: number;

  constructor(options: RoomDoorOptions) {
    this.#o = options;
    this.#spread = options.random.below(0xffffffff) + 1;
  }

  async join(activityId: string, person: Person, wish: JoinWish): Promise<JoinResult> {
    const { store, clock } = this.#o;
    const activity = this.#o.activities.get(activityId);
    if (activity === undefined) return { kind: 'unknown_activity' };
    const nowMs = clock.wallMs();
    const closed = notOpenForJoining(activity, nowMs);
    if (closed !== undefined) return closed;
    const view = this.#o.states.fresh(activityId);
    if (view === undefined) return { kind: 'held' };
    const all = activity.skus.map((sku) => sku.skuId);
    const chosen = normalSkus(wish.skuIds, all);
    if ('unknown' in chosen) return { kind: 'unknown_sku', skuId: chosen.unknown, allowed: all };

    const entryId = await this.entryIdOf(activityId, person.personId);
    const demanded = await this.#challenge(activity, person, entryId, wish.challenge, nowMs);
    if (demanded !== undefined) return demanded;
    const request = { entryId, skuIds: chosen.skuIds, ...entitlementOf(activity, person) };
    let { created, entry } = await store.join(activityId, request, nowMs);
    let at = view.whereabouts(placeOf(entry), activity, nowMs);
    if (!created && (await this.#isOver(activity, person, entry, at, view, nowMs))) {
      // Their turn has passed. Asking to join again is asking for a new place, behind the others.
      await store.leave(activityId, entryId, nowMs);
      ({ created, entry } = await store.join(activityId, request, nowMs));
      at = view.whereabouts(placeOf(entry), activity, nowMs);
    }
    if (created) {
      const arrival = arrivalOf(activity, entry.joinedAtMs);
      this.#o.measures?.joined(person.origin, person.deviceHash, arrival);
    }
    return {
      kind: 'joined',
      created,
      entryId,
      entryToken: this.#entryToken(activity, entry),
      standing: view.describe(placeOf(entry), at, activity, nowMs, this.#chance()),
    };
  }

  /** Missed; or used, its window over, and the person may buy more. */
  async #isOver(
    activity: Activity,
    person: Person,
    entry: Entry,
    at: Whereabouts,
    view: ReleaseView,
    nowMs: number,
  ): Promise<boolean> {
    if (at.kind === 'missed') return true;
    if (at.kind !== 'claimed') return false;
    if ((view.windowOf(at.wave)?.claimBeforeMs ?? 0) > nowMs) return false;
    return (await this.#o.mayBuyMore?.(activity, person, entry.skuIds)) ?? false;
  }

  standingByToken(activityId: string, entryToken: string): StandingResult {
    const activity = this.#o.activities.get(activityId);
    if (activity === undefined) return { kind: 'unknown_activity' };
    const nowMs = this.#o.clock.wallMs();
    const read = verifyEntryToken(
      this.#o.rings.entry,
      entryToken,
      { issuer: this.#o.issuer, activityId },
      nowMs,
    );
    if (read.kind === 'refused') return { kind: 'bad_token', reason: read.reason };
    const { claims } = read;
    const view = this.#o.states.fresh(activityId);
    return {
      kind: 'standing',
      entryId: claims.entryId,
      standing:
        view === undefined
          ? this.#unknown(claims, activity, nowMs)
          : view.standing(claims, activity, nowMs, this.#chance()),
    };
  }

  async standingByPerson(activityId: string, person: Person): Promise<StandingResult> {
    const activity = this.#o.activities.get(activityId);
    if (activity === undefined) return { kind: 'unknown_activity' };
    const entryId = await this.entryIdOf(activityId, person.personId);
    const entry = await this.#o.store.findEntry(activityId, entryId);
    if (entry === undefined) return { kind: 'unknown_entry' };
    const standing = this.#standingOf(activity, entry, this.#o.clock.wallMs());
    return { kind: 'standing', entryId, standing };
  }

  async leave(activityId: string, person: Person): Promise<boolean> {
    const activity = this.#o.activities.get(activityId);
    if (activity === undefined) return false;
    const entryId = await this.entryIdOf(activityId, person.personId);
    return this.#o.store.leave(activityId, entryId, this.#o.clock.wallMs());
  }

  async takePass(
    activityId: string,
    person: Person,
    skuId: string,
    entryToken?: string,
  ): Promise<PassResult> {
    const { store, clock } = this.#o;
    const activity = this.#o.activities.get(activityId);
    if (activity === undefined) return { kind: 'unknown_activity' };
    const sku = activity.skus.find((each) => each.skuId === skuId);
    if (sku === undefined) {
      return { kind: 'unknown_sku', skuId, allowed: activity.skus.map((each) => each.skuId) };
    }
    const nowMs = clock.wallMs();
    const phase = phaseAt(activity, nowMs);
    if (phase !== 'open') {
      const { opensAtMs, closesAtMs } = activity;
      return { kind: 'not_open', opensAtMs, closesAtMs, over: phase === 'closed' };
    }
    const entryId = await this.entryIdOf(activityId, person.personId);
    const place =
      this.#placeByToken(activityId, entryId, entryToken, nowMs) ??
      (await this.#placeByStore(activityId, entryId));
    if (place === undefined) return { kind: 'unknown_entry' };
    if (place.skuIds.length > 0 && !place.skuIds.includes(skuId)) {
      return { kind: 'unknown_sku', skuId, allowed: place.skuIds };
    }

    const view = this.#o.states.fresh(activityId);
    const at = view?.whereabouts(place.place, activity, nowMs);
    const turn = at === undefined ? undefined : turnOf(at, activity, view);
    if (turn === undefined) {
      const paused = view?.state.paused === true && at?.kind !== 'missed' && at?.kind !== 'left';
      return this.#notAdmitted(
        activity,
        place.place,
        at,
        nowMs,
        paused ? 'room_paused' : undefined,
      );
    }
    const reply = await store.takePass(
      activityId,
      { entryId, skuId, passLifeMs: activity.room.passLifeMs, ...turn },
      nowMs,
    );
    if (reply.kind === 'unknown_entry') return { kind: 'unknown_entry' };
    if (reply.kind !== 'taken') {
      const told: Whereabouts =
        reply.kind === 'missed'
          ? { kind: 'missed', wave: turn.wave }
          : reply.kind === 'left'
            ? { kind: 'left' }
            : { kind: 'claimed', wave: turn.wave };
      const other = reply.kind === 'other_sku' ? { skuId: reply.skuId } : {};
      const why = reply.kind === 'other_sku' ? reply.kind : undefined;
      return { ...this.#notAdmitted(activity, place.place, told, nowMs, why), ...other };
    }
    if (reply.fresh) {
      const { joinedAtMs } = place;
      const arrival = arrivalOf(activity, joinedAtMs);
      this.#o.measures?.passTaken(person.origin, arrival, reply.attempt, nowMs - joinedAtMs);
    }
    const nonce = nonceOf(this.#o.nonceMac, activityId, entryId, skuId, reply.attempt);
    const { activityVersion } = activity;
    const pathId = pathIdOf(this.#o.pathMac, { activityId, skuId }, activityVersion);
    const pass = signPass(this.#o.rings.pass, {
      issuer: this.#o.issuer,
      audience: this.#o.audience,
      activityId,
      skuId,
      userId: person.userId,
      activityVersion,
      pathId,
      maxQuantity: sku.maxPerPerson,
      wave: reply.wave,
      nonce,
      notBeforeMs: reply.notBeforeMs,
      expiresAtMs: reply.expiresAtMs,
      issuedAtMs: reply.issuedAtMs,
      ...(person.deviceHash !== undefined && this.#o.bindsDevice?.(activityId) === true
        ? { deviceHash: person.deviceHash }
        : {}),
      ...(this.#o.region === undefined ? {} : { region: this.#o.region }),
    });
    return {
      kind: 'pass',
      pass,
      pathId,
      nonce,
      notBeforeMs: reply.notBeforeMs,
      expiresAtMs: reply.expiresAtMs,
      maxQuantity: sku.maxPerPerson,
    };
  }

  /** Only a new place is worth a challenge: who has one is answered without. */
  async #challenge(
    activity: Activity,
    person: Person,
    entryId: string,
    answer: string | undefined,
    nowMs: number,
  ): Promise<JoinResult | undefined> {
    if (activity.room.challenge === undefined) return undefined;
    const { challenges, store } = this.#o;
    if (challenges === undefined) {
      throw new Error(
        `activity "${activity.activityId}" demands a challenge and nobody makes them`,
      );
    }
    const entry = await store.findEntry(activity.activityId, entryId);
    if (entry !== undefined && !entry.left) return undefined;
    const demanded = challenges.check(activity, person, answer, nowMs, entry?.joinedAtMs);
    return demanded === undefined ? undefined : { kind: 'challenge', ...demanded };
  }

  /** The person's entry id in this activity; the same on every gateway. */
  async entryIdOf(activityId: string, personId: string): Promise<string> {
    let maker = this.#makers.get(activityId);
    if (maker === undefined) {
      const name = roomStateNames.entryKey(activityId);
      maker = ensureSecret(this.#o.store, name, this.#o.random).then(
        ({ secret }) => new EntryIdMaker(secret, activityId),
      );
      this.#makers.set(activityId, maker);
      // A store that did not answer is asked again by the next person.
      maker.catch(() => this.#makers.delete(activityId));
    }
    return (await maker).idOf(personId);
  }

  /** Uniform in [0, 1); xorshift, since one draw of secure randomness costs more than the standing. */
  #chance(): number {
    let state = this.#spread;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#spread = state;
    return (state >>> 0) / 0x100000000;
  }

  #placeByToken(
    activityId: string,
    entryId: string,
    entryToken: string | undefined,
    nowMs: number,
  ): FoundPlace | undefined {
    if (entryToken === undefined) return undefined;
    const expected = { issuer: this.#o.issuer, activityId };
    const read = verifyEntryToken(this.#o.rings.entry, entryToken, expected, nowMs);
    if (read.kind === 'refused' || read.claims.entryId !== entryId) return undefined;
    const slash = read.claims.lane.indexOf('/');
    const skus = slash < 0 ? '' : read.claims.lane.slice(slash + 1);
    const { joinedAtMs } = read.claims;
    return { place: read.claims, joinedAtMs, skuIds: skus === '' ? [] : skus.split(',') };
  }

  async #placeByStore(activityId: string, entryId: string): Promise<FoundPlace | undefined> {
    const entry = await this.#o.store.findEntry(activityId, entryId);
    if (entry === undefined) return undefined;
    const { joinedAtMs, skuIds } = entry;
    return { place: placeOf(entry), joinedAtMs, skuIds };
  }

  #notAdmitted(
    activity: Activity,
    place: Place,
    at: Whereabouts | undefined,
    nowMs: number,
    why?: NotAdmitted,
  ): Extract<PassResult, { kind: 'not_admitted' }> {
    const view = this.#o.states.fresh(activity.activityId);
    if (view === undefined || at === undefined) {
      const standing = this.#unknown(place, activity, nowMs);
      return { kind: 'not_admitted', standing, missed: false, why: 'room_unknown' };
    }
    const standing = view.describe(place, at, activity, nowMs, this.#chance());
    const missed = at.kind === 'missed' || at.kind === 'left';
    return { kind: 'not_admitted', standing, missed, why: why ?? whyOf(at) };
  }

  #standingOf(activity: Activity, entry: Entry, nowMs: number): Standing {
    const place = placeOf(entry);
    const view = this.#o.states.fresh(activity.activityId);
    if (view === undefined) return this.#unknown(place, activity, nowMs);
    const chance = this.#chance();
    // The store knows at once that somebody left; the release state a moment later.
    return entry.left
      ? view.describe(place, { kind: 'left' }, activity, nowMs, chance)
      : view.standing(place, activity, nowMs, chance);
  }

  /** What is true without any release state: that they have a place, and that they should wait. */
  #unknown(place: Place, activity: Activity, nowMs: number): Standing {
    return {
      state: nowMs >= activity.closesAtMs ? 'closed' : 'waiting',
      cohort: place.cohort,
      position: null,
      ahead: null,
      eta: null,
      sell_through: 'uncertain',
      claim_before: null,
      order_rule: activity.room.mode,
      next_poll_after_ms: spread(holdPollMs, this.#chance()),
      server_time: new Date(nowMs).toISOString(),
    };
  }

  #entryToken(activity: Activity, entry: Entry): string {
    return signEntryToken(this.#o.rings.entry, {
      issuer: this.#o.issuer,
      activityId: activity.activityId,
      ...placeOf(entry),
      joinedAtMs: entry.joinedAtMs,
      expiresAtMs: activity.closesAtMs + tokenAfterCloseMs,
    });
  }
}

interface FoundPlace {
  readonly place: Place;
  readonly joinedAtMs: number;
  readonly skuIds: readonly string[];
}

/** Where in the lobby's time somebody came: 0 at its opening, 1 at the sale's. */
function arrivalOf(activity: Activity, joinedAtMs: number): number {
  const { lobbyOpensAtMs, opensAtMs } = activity;
  const lobbyMs = opensAtMs - lobbyOpensAtMs;
  return lobbyMs <= 0 ? 1 : (joinedAtMs - lobbyOpensAtMs) / lobbyMs;
}

function placeOf(entry: Entry): Place {
  const { entryId, cohort, sequence, weight } = entry;
  return { entryId, cohort, sequence, weight, lane: laneKey(entry.group, entry.skuIds) };
}

function whyOf({ kind }: Whereabouts): NotAdmitted {
  switch (kind) {
    case 'left':
    case 'not_drawn':
      return kind;
    case 'missed':
      return 'turn_over';
    default:
      return 'not_your_turn';
  }
}

/** Whose turn it is, or was: the store still knows a pass taken in a window that is over. */
function turnOf(
  at: Whereabouts,
  activity: Activity,
  view: ReleaseView | undefined,
): { wave: number; claimBeforeMs: number; renewable?: boolean } | undefined {
  if (view?.state.paused === true) return undefined;
  if (at.kind === 'admitted' && at.claimBeforeMs === null) {
    return { wave: at.wave, claimBeforeMs: activity.closesAtMs, renewable: true };
  }
  if (at.kind === 'admitted') return { wave: at.wave, claimBeforeMs: at.claimBeforeMs ?? 0 };
  if (at.kind !== 'claimed' && at.kind !== 'missed') return undefined;
  // An ended request may be followed by another pass while the window is open.
  return { wave: at.wave, claimBeforeMs: view?.windowOf(at.wave)?.claimBeforeMs ?? 0 };
}

function notOpenForJoining(activity: Activity, nowMs: number): JoinResult | undefined {
  const { opensAtMs, closesAtMs, room } = activity;
  const phase = phaseAt(activity, nowMs);
  if (phase === 'lobby' || phase === 'open') {
    if (room.mode !== 'reject') return undefined;
    return { kind: 'not_open', opensAtMs, closesAtMs, over: true };
  }
  return { kind: 'not_open', opensAtMs, closesAtMs, over: phase === 'closed' };
}

/** Weight and group, where the mode uses them, from verified claims; a weight that is none counts as 1. */
function entitlementOf(activity: Activity, person: Person): { weight: number; group: string } {
  const { mode, weightClaim, groupClaim } = activity.room;
  const claim = (name: string | undefined): string =>
    (name === undefined ? undefined : person.claim?.(name)) ?? '';
  const weight = mode === 'weighted' ? Number(claim(weightClaim) || 1) : 1;
  const group = mode === 'quota' ? claim(groupClaim) : '';
  return {
    weight: weight > 0 && weight <= weightMax ? weight : 1,
    group: groupPattern.test(group) ? group : '',
  };
}
