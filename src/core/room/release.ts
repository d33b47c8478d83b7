import type { RoomMode } from '../activity.ts';
import type { Sketch } from './line.ts';
import type { SequenceSet } from './sequence-set.ts';

/**
 * The release state: small, the same for everybody, published by control every few hundred
 * milliseconds. With it and an entry token alone, a gateway tells any waiting person where they
 * stand, without asking a store and without remembering anybody.
 */
export interface ReleaseState {
  readonly schemaVersion: 1;
  readonly activityId: string;
  readonly activityVersion: number;
  /** Grows with every leader; together with `version` it orders publications. */
  readonly epoch: number;
  readonly version: number;
  readonly publishedAtMs: number;
  readonly mode: RoomMode;
  readonly stage: RoomStage;
  /** Nobody is released; those released before go on. */
  readonly held: boolean;
  /** The whole sale stands still: no passes either. */
  readonly paused: boolean;
  /** Hex SHA-256 of the draw secret and of the entry key. */
  readonly commitment: string;
  readonly entryCommitment: string;
  /** Binds the decisions so far: see checkpoint.ts. */
  readonly checkpoint: string;
  /** Named beforehand; its value once known. */
  readonly beacon: { readonly source: string; readonly value: string | null } | null;
  /** The draw, once it is done: hex secret and root, and the beacon's bytes in hex ('' for none). */
  readonly draw: DrawFacts | null;
  /** Entries before the marker, once the lobby is closed. */
  readonly lobbySize: number | null;
  /** Participants that control has placed: a sequence at or past it is not in any line yet. */
  readonly placed: number;
  readonly waves: readonly WaveWindow[];
  readonly lanes: readonly LaneState[];
  readonly left: SequenceSet;
  /** Those who took their pass and have not become a no-show since. */
  readonly claimed: SequenceSet;
  /** Those who did become one while their claim window was still open: their turn is over. */
  readonly lapsed: SequenceSet;
  /** Let in past the order by an operator: sequence and wave. Each is in the audit. */
  readonly bypassed: readonly (readonly [sequence: number, wave: number])[];
  readonly revoked: Revocations;
  readonly counts: RoomCounts;
  readonly pace: Pace;
}

/**
 * `before` the lobby, `lobby`, `drawing` (closed, order not known yet), `open`, `over`.
 */
export type RoomStage = 'before' | 'lobby' | 'drawing' | 'open' | 'over';

export interface DrawFacts {
  readonly secret: string;
  readonly root: string;
  readonly beacon: string;
}

/** A wave whose passes may still live. */
export interface WaveWindow {
  readonly wave: number;
  readonly releasedAtMs: number;
  readonly claimBeforeMs: number;
}

/** A place in a lane: cohort, then key, then id where keys are equal. */
export interface Bound {
  /** 0 lobby, 1 late. */
  readonly cohort: 0 | 1;
  readonly key: number;
  /** Only where several entries share the key: the last id that is inside. */
  readonly tie?: string;
}

/** Entries of a lane up to and including `upTo` (from the range before it) and their wave. */
export interface ReleasedRange {
  readonly upTo: Bound;
  /** 0: released by a wave that was revoked, and waiting again, first in line. */
  readonly wave: number;
}

export interface LaneState {
  readonly lane: string;
  /** Ascending and contiguous; what is behind the last one has not been released. */
  readonly released: readonly ReleasedRange[];
  readonly lobby: Sketch;
  readonly late: Sketch;
  /** Living entries of each line that the lane's front has passed. */
  readonly lobbyPassed: number;
  readonly latePassed: number;
  /** Living entries that wait again before the front. */
  readonly again: number;
  /** False while none of the lane's SKUs has stock, or its group's places are used. */
  readonly open: boolean;
  /** Some stock of the lane is held and may yet come back. */
  readonly mayReopen: boolean;
  /** In a lottery: living lobby entries up to this place are drawn; null while nothing is announced. */
  readonly drawnUpTo: number | null;
  readonly forecast: LaneForecast;
}

/** What the lane has been doing, and how well that foretold what it did: see forecast.ts. */
export interface LaneForecast {
  /** Entries the front passes per second, lately and over a longer while; null without history. */
  readonly shortPerSecond: number | null;
  readonly longPerSecond: number | null;
  /** For each horizon: what the plain estimate is multiplied with at either end. */
  readonly ranges: readonly { readonly low: number; readonly high: number }[];
  /** Share of past ranges that held, or null without history. */
  readonly heldRatio: number | null;
  /** Places ahead of which stock is likely to reach, and past which it is unlikely. */
  readonly likelyPlaces: number;
  readonly unlikelyPlaces: number;
}

export interface Revocations {
  readonly waves: readonly number[];
  /** Key ids of any token type. */
  readonly keys: readonly string[];
}

export interface RoomCounts {
  readonly joined: number;
  readonly waiting: number;
  readonly left: number;
  readonly released: number;
  /** Released and not finished: the cap counts these. */
  readonly active: number;
  readonly claimed: number;
  readonly missed: number;
  readonly finished: number;
}

/** How often to ask again; see pace.ts. */
export interface Pace {
  readonly baseMs: number;
  /** Added for each place ahead, in microseconds: the room's poll budget sets it. */
  readonly perPlaceUs: number;
  readonly maxMs: number;
  /** For those without a place: lobby, sold out, stale. */
  readonly flatMs: number;
}

/** Does a place stand at or before a bound? */
export function within(bound: Bound, cohort: 0 | 1, key: number, entryId: string): boolean {
  if (cohort !== bound.cohort) return cohort < bound.cohort;
  if (key !== bound.key) return key < bound.key;
  return bound.tie === undefined || entryId <= bound.tie;
}

/** The range a place falls into, or undefined where it is behind the front. O(log ranges). */
export function rangeOf(
  released: readonly ReleasedRange[],
  cohort: 0 | 1,
  key: number,
  entryId: string,
): ReleasedRange | undefined {
  let low = 0;
  let high = released.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const range = released[middle];
    if (range !== undefined && within(range.upTo, cohort, key, entryId)) high = middle;
    else low = middle + 1;
  }
  return released[low];
}
