import type { SkuKey } from '../core/activity.ts';
import type { ShardState } from '../core/stock/shards.ts';
import type {
  Fate,
  Preload,
  Rebuild,
  RequestRecord,
  ReserveReply,
  ReserveRequest,
  SettleReply,
  StockMark,
} from '../core/stock/model.ts';

export type { ShardState } from '../core/stock/shards.ts';
export type {
  Preload,
  StockMark,
  ReserveRequest,
  ReserveOutcome,
  ReserveReply,
  ReleaseReason,
  RequestRecord,
  Fate,
  SettleReply,
  Rebuild,
} from '../core/stock/model.ts';

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
 * - What cannot be throws and changes nothing: RangeError for numbers out of range, UnknownSkuError
 *   from `adjust` and `setPaused` for a SKU that is not loaded. `settle` of a SKU that is not loaded changes
 *   nothing and answers a mark of generation 0.
 */
export interface InventoryStore {
  /** Creates the SKU, or leaves an existing one of the same or a higher generation as it is. */
  preload(sku: SkuKey, stock: Preload): Promise<StockMark>;

  /**
   * One atomic step for a batch. `seenSequence` is the highest sequence the caller has seen from
   * this SKU; a store whose own is lower has forgotten: it pauses the SKU and answers `forgotten`, so
   * that callers who have seen less do not go on selling what is sold. At most `reserveBatchMax`.
   * O(batch size).
   */
  reserve(
    sku: SkuKey,
    batch: readonly ReserveRequest[],
    seenSequence: number,
    nowMs: number,
  ): Promise<ReserveReply>;

  /**
   * What this user's request id reserved, while the store still remembers it. `personId`, where it is
   * known, says where to look first; it decides nothing.
   */
  find(
    sku: SkuKey,
    userId: string,
    requestId: string,
    personId?: string,
  ): Promise<RequestRecord | undefined>;

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
   * `applied: false` when it would take more than is available: nothing is remembered, and the same
   * id may succeed later. RangeError for an id used before with another delta, and for a SKU with
   * seats.
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
   * Refused (returns the standing mark) unless `generation` is higher than the store's. A pause
   * stays. The epoch becomes higher than both `stockEpoch` and the store's, even or odd as the stock
   * left demands. RangeError when the live units are more than `total`.
   */
  rebuild(sku: SkuKey, state: Rebuild): Promise<StockMark>;

  /**
   * Removes everything known of a SKU whose activity is over, buried messages included. `false`, and
   * nothing is removed, while a reservation is held or a message waits in the outbox: somebody is
   * still owed an outcome. Idempotent.
   */
  forget(sku: SkuKey): Promise<boolean>;

  close(): Promise<void>;
}

/**
 * What a store must be able to do beside that, so that a SKU can be cut into shards (core/stock/shards.ts
 * says how): every shard is a SKU of its own here, under the key that `shardKey` gives it.
 */
export interface ShardStore extends InventoryStore {
  /** Undefined for a shard, or a SKU, that is not loaded. One atomic look. */
  shard(key: SkuKey): Promise<ShardState | undefined>;

  /**
   * Sends up to `units` available units towards another shard, in one atomic step: `out` of the reply
   * says how many were ever sent. Changes nothing where the shard is of another generation.
   */
  moveOut(
    key: SkuKey,
    to: number,
    units: number,
    generation: number,
  ): Promise<ShardState | undefined>;

  /**
   * Receives what the sender has sent, by the sender's counter. Idempotent: a counter that was received
   * before, or is lower, changes nothing.
   */
  moveIn(
    key: SkuKey,
    from: number,
    upTo: number,
    generation: number,
  ): Promise<ShardState | undefined>;
}
