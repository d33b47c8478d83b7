/**
 * The facts of stock: what is asked of it, what it answers, what it remembers and what it sends on.
 * The ports name these same types again, so that everybody outside `core` finds them at the port.
 */

export interface Preload {
  readonly total: number;
  readonly generation: number;
  readonly stockEpoch: number;
  /**
   * Names of the units, best first; as many as `total`. Neighbours in the list sit beside each other,
   * unless the part before their last `-` differs (`A-1`, `A-2` are a row; `B-1` begins another).
   * Such a SKU's total never changes.
   */
  readonly seats?: readonly string[];
  /** Parts that the SKU is cut into, 2 to 16; 1 when absent. Fixed once it is loaded. Not with seats. */
  readonly shards?: number;
}

/** Everything that orders a SKU's changes against each other. */
export interface StockMark {
  readonly total: number;
  readonly available: number;
  /** Units reserved, no order yet. */
  readonly held: number;
  /** Units of live orders (pending or paid). */
  readonly ordered: number;
  /**
   * Grows by one at each changing step. A generation `g` begins above `(g - 1) * 2^32`, so that no
   * caller has ever seen a number as high of an older generation.
   */
  readonly sequence: number;
  readonly generation: number;
  /** Grows each time the SKU sells out or reopens; even is open, odd is sold out. */
  readonly stockEpoch: number;
  readonly paused: boolean;
}

export interface ReserveRequest {
  readonly requestId: string;
  readonly userId: string;
  readonly personId: string;
  /** SHA-256 over activity, SKU, person, quantity, seats; hex. */
  readonly fingerprint: string;
  /** The pass's `jti`. */
  readonly nonce: string;
  readonly quantity: number;
  /** The person's limit of live units. */
  readonly limit: number;
  /** Used when the request is the first: made by the caller, unique. */
  readonly reservationId: string;
  /** When it must have become an order. */
  readonly deadlineMs: number;
  /** As many as `quantity`. Absent on a SKU with seats: the best that are beside each other. */
  readonly seats?: readonly string[];
  readonly activityVersion: number;
  readonly unitAmountMinor: number;
  readonly currency: string;
  /** W3C trace context, so that an order's trace starts at its submit. */
  readonly traceparent?: string;
}

export type ReserveOutcome =
  | { readonly kind: 'reserved'; readonly record: RequestRecord }
  | { readonly kind: 'existing'; readonly record: RequestRecord }
  | { readonly kind: 'conflict' }
  | { readonly kind: 'nonce_used' }
  /** The person's live records, in no particular order. */
  | { readonly kind: 'limit_reached'; readonly live: readonly RequestRecord[] }
  /** These are not to be had; none named: no `quantity` free seats are beside each other. */
  | { readonly kind: 'seat_taken'; readonly seats: readonly string[] }
  | { readonly kind: 'sold_out' };

export type ReserveReply =
  | {
      readonly kind: 'done';
      readonly outcomes: readonly ReserveOutcome[];
      readonly mark: StockMark;
    }
  | { readonly kind: 'paused'; readonly mark: StockMark }
  | { readonly kind: 'forgotten'; readonly mark: StockMark }
  | { readonly kind: 'unknown_sku' };

/**
 * Why units went back. `refused`: the durable side found no stock or no room in the person's limit.
 * `lost`: the reservation belonged to a generation that is gone; the buyer is told RESERVATION_LOST.
 */
export type ReleaseReason = 'expired' | 'cancelled' | 'deadline' | 'refused' | 'refunded' | 'lost';

/** One request id that reserved, and where its reservation stands. */
export interface RequestRecord {
  readonly requestId: string;
  readonly userId: string;
  readonly personId: string;
  readonly fingerprint: string;
  readonly nonce: string;
  readonly reservationId: string;
  readonly quantity: number;
  readonly seats?: readonly string[];
  readonly reservedAtMs: number;
  readonly deadlineMs: number;
  readonly generation: number;
  readonly state: 'held' | 'ordered' | 'released';
  readonly releaseReason?: ReleaseReason;
}

export interface Fate {
  readonly reservationId: string;
  readonly fate: 'ordered' | 'released' | 'retaken';
  readonly reason?: ReleaseReason;
}

export interface SettleReply {
  readonly mark: StockMark;
  /** How many of the fates changed something. */
  readonly changed: number;
}

export interface Rebuild {
  readonly total: number;
  readonly generation: number;
  readonly stockEpoch: number;
  readonly live: readonly RequestRecord[];
  /** As in Preload; what was known before stays where these are left out. */
  readonly seats?: readonly string[];
  readonly shards?: number;
}

export interface OrderMessage {
  readonly schemaVersion: 1;
  readonly messageId: string;
  readonly activityId: string;
  readonly skuId: string;
  readonly activityVersion: number;
  readonly generation: number;
  readonly reservationId: string;
  readonly requestId: string;
  readonly userId: string;
  readonly personId: string;
  readonly fingerprint: string;
  readonly nonce: string;
  readonly quantity: number;
  readonly limit: number;
  readonly unitAmountMinor: number;
  readonly currency: string;
  readonly seats?: readonly string[];
  readonly reservedAtMs: number;
  readonly deadlineMs: number;
  readonly traceparent?: string;
}
