/**
 * Entries, claims and passes of the room: the promises that the door makes to people. Kept apart from
 * the inventory store so that traffic at the door never slows a reservation.
 *
 * Promises every implementation keeps (test/contract/admission-store.ts proves them):
 * - One entry per (activity, entry id), however often and from wherever it is asked for.
 * - Cohort and sequence are fixed by the append to the participant log; `closeLobby` is a marker in
 *   the same log: an entry is in the lobby exactly if it stands before the marker.
 * - A result is returned only once it would survive a crash.
 */
export interface AdmissionStore {
  join(activityId: string, request: JoinRequest, nowMs: number): Promise<JoinReply>;
  findEntry(activityId: string, entryId: string): Promise<Entry | undefined>;
  /** Tombstone. Frees the place; joining again makes a later arrival. Idempotent. */
  leave(activityId: string, entryId: string, nowMs: number): Promise<boolean>;

  /** Writes the marker, once; a repeat answers what the first one did. */
  closeLobby(activityId: string, nowMs: number): Promise<LobbyMarker>;
  lobbyMarker(activityId: string): Promise<LobbyMarker | undefined>;
  /** Participants in log order from `fromSequence`; pages of at most `limit`. */
  participants(
    activityId: string,
    fromSequence: number,
    limit: number,
  ): Promise<readonly Participant[]>;
  /** Entries that left since, in the order of leaving: what the tombstone filter is built from. */
  tombstones(activityId: string, fromIndex: number, limit: number): Promise<readonly string[]>;

  /**
   * One operation: checks the claim window on the store's clock, counts the claim, and fixes attempt
   * and expiry. Asking again while the pass lives gives the same answer.
   */
  takePass(activityId: string, request: TakePassRequest, nowMs: number): Promise<TakePassReply>;
  /** The bound request has ended, or the person may buy more: the next pass is a new attempt. */
  endAttempt(activityId: string, entryId: string, skuId: string, attempt: number): Promise<void>;
  /** The admitted entry has finished (order made, given up, expired): it no longer counts as active. */
  finish(activityId: string, entryId: string, nowMs: number): Promise<void>;
  counts(activityId: string): Promise<AdmissionCounts>;
  /** Claims in the order in which they were made, for no-show accounting. */
  claims(activityId: string, fromIndex: number, limit: number): Promise<readonly Claim[]>;

  /** Small durable facts of the control role (secrets, waves): compare-and-set by version. */
  loadState(name: string): Promise<StoredState | undefined>;
  saveState(name: string, value: string, expectedVersion: number): Promise<boolean>;

  close(): Promise<void>;
}

export interface JoinRequest {
  readonly entryId: string;
  readonly userId: string;
  readonly skuIds: readonly string[];
  /** Weight or group from a signed entitlement; 1 and '' otherwise. */
  readonly weight: number;
  readonly group: string;
}

export interface JoinReply {
  readonly created: boolean;
  readonly entry: Entry;
}

export interface Entry {
  readonly entryId: string;
  readonly userId: string;
  readonly cohort: 'lobby' | 'late';
  /** Position in the participant log, from 0, gapless. */
  readonly sequence: number;
  readonly joinedAtMs: number;
  readonly skuIds: readonly string[];
  readonly weight: number;
  readonly group: string;
  readonly left: boolean;
}

export interface Participant {
  readonly entryId: string;
  readonly sequence: number;
  readonly weight: number;
  readonly group: string;
}

export interface LobbyMarker {
  /** Participants before the marker. */
  readonly lobbySize: number;
  readonly closedAtMs: number;
}

export interface TakePassRequest {
  readonly entryId: string;
  readonly skuId: string;
  /** The wave that released this entry, and until when it may claim. */
  readonly wave: number;
  readonly claimBeforeMs: number;
  readonly passLifeMs: number;
}

export type TakePassReply =
  | {
      readonly kind: 'taken';
      readonly attempt: number;
      readonly wave: number;
      readonly issuedAtMs: number;
      readonly notBeforeMs: number;
      readonly expiresAtMs: number;
      /** False when this call only repeated an earlier one. */
      readonly fresh: boolean;
    }
  | { readonly kind: 'missed' }
  | { readonly kind: 'left' }
  | { readonly kind: 'unknown_entry' };

export interface Claim {
  readonly entryId: string;
  readonly skuId: string;
  readonly wave: number;
  readonly attempt: number;
  readonly claimedAtMs: number;
  readonly expiresAtMs: number;
}

export interface AdmissionCounts {
  readonly joined: number;
  readonly lobby: number;
  readonly left: number;
  readonly claimed: number;
  readonly finished: number;
}

export interface StoredState {
  readonly value: string;
  readonly version: number;
}
