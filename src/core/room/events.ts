import type { RoomMode } from '../activity.ts';
import type { SaleMode } from './sizing.ts';
import type { Bound } from './release.ts';

/**
 * What the control role decided about a room, in one numbered log. It is written before it takes
 * effect, by compare-and-set on the number, so two controls cannot both decide the same step; the room
 * after a restart is the fold of this log over the participants and what happened to them. The audit
 * file is the same log again.
 */
export type RoomEvent = Numbered & RoomEventBody;

export interface Numbered {
  readonly atMs: number;
  /**
   * How many changes of entries control had taken in when it decided: a restart takes in as many
   * before it applies this, and so finds the same room.
   */
  readonly seen: number;
}

export type RoomEventBody =
  /** The lobby is closed: how many were in it, and the root over them. */
  | {
      readonly e: 'closed';
      readonly lobbySize: number;
      readonly root: string;
    }
  /** The order exists: `beacon` is the hex of its bytes, '' without one. */
  | { readonly e: 'drawn'; readonly beacon: string; readonly mode: RoomMode }
  | WaveEvent
  | ({ readonly e: 'revoked'; readonly wave: number } & Reason)
  | ({ readonly e: 'key_revoked'; readonly kid: string } & Reason)
  /**
   * Held: nobody is released. Paused: nobody gets or uses a pass either; who was let in and has not
   * finished waits again, first in line, and is released again after `resumed`.
   */
  | ({ readonly e: 'held' | 'unheld' | 'paused' | 'resumed' } & Reason)
  | ({
      readonly e: 'bypassed';
      readonly wave: number;
      readonly claimBeforeMs: number;
      readonly sequence: number;
      readonly entryId: string;
      readonly lane: string;
    } & Reason)
  /** The sale has closed: how many late arrivals there were, and the root over them. */
  | { readonly e: 'over'; readonly late: number; readonly lateRoot: string }
  | {
      readonly e: 'rate';
      readonly perSecond: number;
      readonly mode: SaleMode;
    };

export interface WaveEvent {
  readonly e: 'wave';
  readonly wave: number;
  readonly claimBeforeMs: number;
  readonly lanes: readonly WaveLane[];
}

export interface WaveLane {
  readonly lane: string;
  /** Living entries released from behind the front, and up to where (absent: none). */
  readonly count: number;
  readonly upTo?: Bound;
  /** The same of those who wait again before the front. */
  readonly again: number;
  readonly againUpTo?: Bound;
}

export interface Reason {
  readonly who: string;
  readonly why: string;
}

export const wavePeople = (wave: WaveEvent): number =>
  wave.lanes.reduce((sum, lane) => sum + lane.count + lane.again, 0);
