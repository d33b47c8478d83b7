import type { SkuKey } from '../core/activity.ts';

/**
 * Stock, requests, nonces, reservations and the outbox of one SKU, changed only in atomic steps.
 *
 * Promises every implementation keeps (test/contract/inventory-store.ts proves them):
 * - `reserve` judges a batch in order: request id seen → nonce → person's limit → stock → take.
 * - Only what reserved is remembered; a sold-out answer stores nothing and binds no nonce.
 * - A reservation and its outbox message appear together or not at all.
 * - `available` never goes below zero; available + live units = total, always.
 * - A result is returned only once it would survive a crash of the store's process.
 * - A call whose fate is unknown throws OutcomeUnknownError; one that surely did nothing,
 *   UnavailableError.
 */
export interface InventoryStore {
  /** Creates the SKU, or leaves an existing one of the same or a higher generation as it is. */
  preload(sku: SkuKey, stock: Preload): Promise<StockMark>;

  /**
   * One atomic step for a batch. `seenSequence` is the highest sequence the caller has seen from
   * this SKU; a store whose own is lower has forgotten, and answers `forgotten`.
   * O(batch size).
   */
  reserve(
    sku: SkuKey,
    batch: readonly ReserveRequest[],
    seenSequence: number,
    nowMs: number,
  ): Promise<ReserveReply>;

  /** What this user's request id reserved, while the store still remembers it. */
  find(sku: SkuKey, userId: string, requestId: string): Promise<RequestRecord | undefined>;

  /**
   * Settles reservations whose fate PostgreSQL has decided. `ordered` keeps the units taken;
   * `released` gives them back, once, however often it is said. `retaken` (late money for an expired
   * order) takes the units of a released reservation again, as ordered, where that many are
   * available; otherwise it changes nothing and is said again later. A late `ordered` never undoes a
   * `released`. Unknown reservations are ignored: they belong to a generation that is gone.
   */
  settle(sku: SkuKey, fates: readonly Fate[], nowMs: number): Promise<SettleReply>;

  /**
   * Adds or removes available units (an operator's restock). Idempotent by `adjustmentId`.
   * `applied: false` when it would take more than is available.
   */
  adjust(
    sku: SkuKey,
    adjustmentId: string,
    delta: number,
    nowMs: number,
  ): Promise<{ readonly applied: boolean; readonly mark: StockMark }>;

  /** Stops (`true`) or resumes reservations of a SKU. Raises nothing. */
  setPaused(sku: SkuKey, paused: boolean): Promise<StockMark>;

  mark(sku: SkuKey): Promise<StockMark | undefined>;

  /** Persons with live units, for the sold-out snapshot's filter; in no particular order. */
  holders(sku: SkuKey): Promise<readonly string[]>;

  /** Live reservations, oldest first, for reconciliation; pages by reservation id. */
  live(sku: SkuKey, after: string | undefined, limit: number): Promise<readonly RequestRecord[]>;

  /**
   * Replaces everything known of a SKU by what the durable side says: `available` and live records.
   * Refused (returns the standing mark) unless `generation` is higher than the store's.
   */
  rebuild(sku: SkuKey, state: Rebuild): Promise<StockMark>;

  close(): Promise<void>;
}

export interface Preload {
  readonly total: number;
  readonly generation: number;
  readonly stockEpoch: number;
}

/** Everything that orders a SKU's changes against each other. */
export interface StockMark {
  readonly total: number;
  readonly available: number;
  /** Units reserved, no order yet. */
  readonly held: number;
  /** Units of live orders (pending or paid). */
  readonly ordered: number;
  /** Grows by one at each changing step. */
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
  | { readonly kind: 'limit_reached'; readonly live: readonly RequestRecord[] }
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
}
