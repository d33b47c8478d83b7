/**
 * Entries, claims and passes of the room: the promises that the door makes to people. Kept apart from
 * the inventory store so that traffic at the door never slows a reservation. It knows entry ids only:
 * who stands behind one is not written down here.
 *
 * Promises every implementation keeps (test/contract/admission-store.ts proves them):
 * - One entry per (activity, entry id), however often and from wherever it is asked for.
 * - Cohort and sequence are fixed by the append to the participant log; `closeLobby` is a marker in
 *   the same log: an entry is in the lobby exactly if it stands before the marker.
 * - What happened to entries later (left, claimed, ended, finished) is a log of its own, in one order.
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
  /** What happened to entries since, in one order, from `fromIndex` (gapless from 0). */
  changes(activityId: string, fromIndex: number, limit: number): Promise<readonly EntryChange[]>;

  /**
   * One operation: checks the claim window on the store's clock, counts the claim, and fixes attempt
   * and expiry (rounded up to a whole second, which is what a pass can say). Asking again while the
   * pass lives gives the same answer, even past the claim window. An attempt number is never given
   * out twice for an entry and SKU, even if the entry leaves and joins again.
   */
  takePass(activityId: string, request: TakePassRequest, nowMs: number): Promise<TakePassReply>;
  /** The bound request has ended, or the person may buy more: the next pass is a new attempt. */
  endAttempt(
    activityId: string,
    entryId: string,
    skuId: string,
    attempt: number,
    nowMs: number,
  ): Promise<boolean>;
  /**
   * The admitted entry has finished, once: it no longer counts as active. `bought` has a reservation,
   * `gave_up` will not have one, `failed` could not through no fault of its own.
   */
  finish(
    activityId: string,
    entryId: string,
    outcome: FinishOutcome,
    nowMs: number,
  ): Promise<boolean>;
  counts(activityId: string): Promise<AdmissionCounts>;

  /** Small durable facts of the control role (secrets, waves): compare-and-set by version. */
  loadState(name: string): Promise<StoredState | undefined>;
  /**
   * False, and nothing is written, where the version is another. With a fence also where that other
   * fact has another version by now: whoever was deposed writes nothing, not even what nobody else
   * has written. Both names begin with the same two parts (`room/ACTIVITY/…`).
   */
  saveState(
    name: string,
    value: string,
    expectedVersion: number,
    fence?: StateFence,
  ): Promise<boolean>;

  close(): Promise<void>;
}

export interface JoinRequest {
  /** 128 bits, base64url: HMAC over activity and person. */
  readonly entryId: string;
  /** In the activity's order; empty means any. */
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
  readonly cohort: 'lobby' | 'late';
  /** Position in the participant log, from 0, gapless. */
  readonly sequence: number;
  readonly joinedAtMs: number;
  readonly skuIds: readonly string[];
  readonly weight: number;
  readonly group: string;
  readonly left: boolean;
}

/** A line of the participant log; whether it left later is told by the changes. */
export interface Participant {
  readonly entryId: string;
  readonly sequence: number;
  readonly skuIds: readonly string[];
  readonly weight: number;
  readonly group: string;
}

export type FinishOutcome = 'bought' | 'gave_up' | 'failed';

export type EntryChange =
  | {
      readonly kind: 'left';
      readonly entryId: string;
      readonly sequence: number;
      readonly atMs: number;
    }
  | {
      readonly kind: 'claimed';
      readonly entryId: string;
      readonly sequence: number;
      readonly skuId: string;
      readonly wave: number;
      readonly attempt: number;
      readonly atMs: number;
      readonly expiresAtMs: number;
    }
  | {
      readonly kind: 'ended';
      readonly entryId: string;
      readonly sequence: number;
      readonly skuId: string;
      readonly attempt: number;
      readonly atMs: number;
    }
  | {
      readonly kind: 'finished';
      readonly entryId: string;
      readonly sequence: number;
      readonly outcome: FinishOutcome;
      readonly atMs: number;
    };

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
  /** Where everybody is let in there are no waves: an expired pass may be followed by another. */
  readonly renewable?: boolean;
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
  /** The claim window has passed, or the pass of this release has expired. */
  | { readonly kind: 'missed' }
  /** This release's pass is for another SKU, and it still lives. */
  | { readonly kind: 'other_sku'; readonly skuId: string }
  | { readonly kind: 'left' }
  | { readonly kind: 'unknown_entry' };

export interface AdmissionCounts {
  readonly joined: number;
  readonly lobby: number;
  readonly left: number;
  readonly claimed: number;
  readonly finished: number;
}

/** A fact that must still have this version for another to be written. */
export interface StateFence {
  readonly name: string;
  readonly version: number;
}

export interface StoredState {
  readonly value: string;
  readonly version: number;
}
