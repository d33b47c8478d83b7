import type { Origin } from '../core/room/measures.ts';
import type { Standing } from '../wire/standing.ts';

/**
 * The room as the gateway sees it: no HTTP, no store types. `standing` with an entry token asks no
 * store and holds no memory per waiting person.
 */
export interface Door {
  join(activityId: string, person: Person, request: JoinWish): Promise<JoinResult>;
  /** By entry token alone: signature, token and release state; synchronous on purpose. */
  standingByToken(activityId: string, entryToken: string): StandingResult;
  /** By identity: one store read. */
  standingByPerson(activityId: string, person: Person): Promise<StandingResult>;
  leave(activityId: string, person: Person): Promise<boolean>;
  /** With an entry token of this person one store operation, without it two. */
  takePass(
    activityId: string,
    person: Person,
    skuId: string,
    entryToken?: string,
  ): Promise<PassResult>;
}

export interface Person {
  readonly userId: string;
  readonly personId: string;
  /** Bound into the pass where the activity demands it. */
  readonly deviceHash?: string;
  /** A claim of the verified user token as text: weight and group come from the ones configured. */
  readonly claim?: (name: string) => string | undefined;
  /** For the measures of fairness only. */
  readonly origin?: Origin;
}

export interface JoinWish {
  readonly skuIds: readonly string[];
  readonly challenge?: string;
}

export type JoinResult =
  | {
      readonly kind: 'joined';
      readonly created: boolean;
      readonly entryId: string;
      readonly entryToken: string;
      readonly standing: Standing;
    }
  | {
      readonly kind: 'not_open';
      readonly opensAtMs: number;
      readonly closesAtMs: number;
      readonly over: boolean;
    }
  | { readonly kind: 'unknown_activity' }
  | { readonly kind: 'unknown_sku'; readonly skuId: string; readonly allowed: readonly string[] }
  | { readonly kind: 'held' }
  | { readonly kind: 'challenge'; readonly reason: string; readonly demand: ChallengeDemand };

/** What must be answered before joining, as it is told: `challenge` of the answer's body. */
export interface ChallengeDemand {
  readonly kind: 'proof_of_work' | 'callback';
  /** Answered as `token~found`: see `bits`, or what the page at `url` hands back. */
  readonly token: string;
  /** SHA-256 of the answer must begin with as many zero bits. */
  readonly bits: number;
  readonly url: string | null;
  readonly expiresAtMs: number;
}

export type StandingResult =
  | { readonly kind: 'standing'; readonly standing: Standing; readonly entryId: string }
  | { readonly kind: 'unknown_activity' }
  | { readonly kind: 'unknown_entry' }
  | { readonly kind: 'bad_token'; readonly reason: string };

/** Why there is no pass. */
export type NotAdmitted =
  | 'not_your_turn'
  /** The claim window is over, or the pass of this turn has run out or been used. */
  | 'turn_over'
  | 'left'
  | 'other_sku'
  | 'not_drawn'
  | 'room_paused'
  /** This gateway has no release state to go by. */
  | 'room_unknown';

export type PassResult =
  | {
      readonly kind: 'pass';
      readonly pass: string;
      readonly pathId: string;
      readonly nonce: string;
      readonly notBeforeMs: number;
      readonly expiresAtMs: number;
      readonly maxQuantity: number;
    }
  | {
      readonly kind: 'not_admitted';
      readonly standing: Standing;
      /** The turn is over: only joining again can bring another. */
      readonly missed: boolean;
      readonly why: NotAdmitted;
      /** `other_sku`: what the pass that lives is for. */
      readonly skuId?: string;
    }
  | {
      readonly kind: 'not_open';
      readonly opensAtMs: number;
      readonly closesAtMs: number;
      readonly over: boolean;
    }
  | { readonly kind: 'unknown_activity' }
  | { readonly kind: 'unknown_sku'; readonly skuId: string; readonly allowed: readonly string[] }
  | { readonly kind: 'unknown_entry' };
