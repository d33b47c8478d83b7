import type { SkuKey } from '../core/activity.ts';
import { OutcomeUnknownError, UnavailableError, UnknownSkuError } from '../ports/errors.ts';
import type { InventoryStore, RequestRecord } from '../ports/inventory-store.ts';
import type { OrderStore } from '../ports/order-store.ts';
import { outcomeOf, outcomeOfOrder, outcomeOfRecord, releasedState } from './outcomes.ts';
import type { Outcome } from './stage.ts';

/**
 * What became of a request id.
 *
 * Two stores know parts of it. The inventory store knows that units were taken, at once; PostgreSQL
 * knows, a little later and for ever, what became of them, and wins wherever it has spoken. Between
 * the two there are moments in which neither knows: a submit still on its way, a reply that was lost.
 * Those are UNKNOWN, never "failed"; and they end, because a submit that no store knows after its own
 * time limit plus a margin will never be known: then NOT_FOUND.
 *
 * How old is a request that nobody knows? Its id does not say. So the first question about it starts
 * its clock (as does a submit that ended unknown here), in a bounded table. Losing the table (a
 * restart, another gateway) starts the clock again: an answer comes later, never wrongly.
 */

/** A submit is answered within this, ms, or not at all. */
export const submitTimeoutMs = 3_000;

/** Added for clocks, queues and another gateway's last attempt, ms. */
export const unknownMarginMs = 2_000;

/** Unknown requests remembered at once; the oldest go first. About 200 bytes each. */
export const unknownTableMax = 50_000;

/** After a rebuild, how long an unknown request is answered RESERVATION_LOST, ms. */
export const lostAfterRebuildMs = 15 * 60_000;

export type StatusResult =
  | { readonly kind: 'outcome'; readonly outcome: Outcome }
  | { readonly kind: 'reservation_lost'; readonly reservationId: string | null }
  | { readonly kind: 'not_found' }
  /** A store did not answer. */
  | { readonly kind: 'unavailable'; readonly part: 'inventory' | 'orders' };

export interface RequestStatusOptions {
  readonly inventory: Pick<InventoryStore, 'find'>;
  readonly orders: Pick<OrderStore, 'fateOfRequest' | 'orderByReservation'>;
  readonly monoUs: () => number;
  readonly wallMs: () => number;
  /** When this SKU's stock was last rebuilt after a loss, if ever. */
  readonly rebuiltAtMs?: (sku: SkuKey) => number | undefined;
  readonly onError?: (part: 'inventory' | 'orders', error: unknown) => void;
}

export class RequestStatus {
  readonly #options: RequestStatusOptions;
  /** (activity, SKU, user, request id) → monotonic first sight. Insertion order is age order. */
  readonly #firstSeenUs = new Map<string, number>();

  constructor(options: RequestStatusOptions) {
    this.#options = options;
  }

  /** Questions under way; as many as there are slots for them. */
  readonly #asking = new Map<string, Promise<StatusResult>>();

  /** A submit of this request id ended here without an outcome: its time to be known starts now. */
  noteUnknown(sku: SkuKey, userId: string, requestId: string): void {
    this.#firstSight(keyOf(sku, userId, requestId));
  }

  /** Two reads side by side, shared by all who ask the same at the same time. Never rejects. */
  ask(sku: SkuKey, userId: string, requestId: string, personId = userId): Promise<StatusResult> {
    const key = keyOf(sku, userId, requestId);
    const flying = this.#asking.get(key);
    if (flying !== undefined) {
      // "Nobody knows" may have become untrue since that question left: it is asked again.
      return flying.then((said) =>
        said.kind === 'outcome' && said.outcome.state !== 'UNKNOWN'
          ? said
          : this.#ask(sku, userId, requestId, personId),
      );
    }
    const asking = this.#ask(sku, userId, requestId, personId).finally(() =>
      this.#asking.delete(key),
    );
    this.#asking.set(key, asking);
    return asking;
  }

  async #ask(
    sku: SkuKey,
    userId: string,
    requestId: string,
    personId: string,
  ): Promise<StatusResult> {
    const known = await this.askStores(sku, userId, requestId, personId);
    return known ?? this.#ofNobody(sku, userId, requestId);
  }

  /** What the stores know; `undefined` when both answered and neither knows. Never rejects. */
  async askStores(
    sku: SkuKey,
    userId: string,
    requestId: string,
    personId = userId,
  ): Promise<StatusResult | undefined> {
    const [record, fate] = await Promise.all([
      this.#read('inventory', () => this.#options.inventory.find(sku, userId, requestId, personId)),
      this.#read('orders', () => this.#options.orders.fateOfRequest(sku, userId, requestId)),
    ]);
    // PostgreSQL's word is final, whatever else did not answer.
    if (fate !== 'unavailable' && fate !== undefined) {
      const newer = record !== 'unavailable' && record !== undefined && isNewerTry(record, fate);
      if (!newer) {
        if (fate.order !== undefined) return found(outcomeOfOrder(fate.order));
        if (fate.releasedReason === 'lost') {
          return { kind: 'reservation_lost', reservationId: fate.reservationId };
        }
        return found(
          outcomeOf(releasedState(fate.releasedReason), sku, requestId, {
            reservationId: fate.reservationId,
            quantity: fate.quantity,
          }),
        );
      }
    }
    if (record === 'unavailable') return { kind: 'unavailable', part: 'inventory' };
    // An order that the fate above does not speak of: the fate is that of another try.
    if (record?.state === 'ordered' && fate !== 'unavailable' && fate !== undefined) {
      return this.askRecord(sku, record);
    }
    if (record !== undefined) return this.#ofRecord(sku, record, fate === 'unavailable');
    return fate === 'unavailable' ? { kind: 'unavailable', part: 'orders' } : undefined;
  }

  /** The same, for a record that the reservation step has just returned. */
  async askRecord(sku: SkuKey, record: RequestRecord): Promise<StatusResult> {
    const order = await this.#read('orders', () =>
      this.#options.orders.orderByReservation(record.reservationId),
    );
    if (order === 'unavailable') return this.#ofRecord(sku, record, true);
    if (order !== undefined) return found(outcomeOfOrder(order));
    return this.#ofRecord(sku, record, false);
  }

  /** Unknown requests remembered now. */
  get remembered(): number {
    return this.#firstSeenUs.size;
  }

  #ofRecord(sku: SkuKey, record: RequestRecord, ordersSilent: boolean): StatusResult {
    if (record.state === 'released') {
      return record.releaseReason === 'lost'
        ? { kind: 'reservation_lost', reservationId: record.reservationId }
        : found(outcomeOfRecord(sku, record));
    }
    // "ordered" means that a committed order exists; without the order store its state is not known.
    if (record.state === 'ordered' && ordersSilent) return { kind: 'unavailable', part: 'orders' };
    return found(outcomeOfRecord(sku, record));
  }

  #ofNobody(sku: SkuKey, userId: string, requestId: string): StatusResult {
    const rebuilt = this.#options.rebuiltAtMs?.(sku);
    if (rebuilt !== undefined && this.#options.wallMs() - rebuilt < lostAfterRebuildMs) {
      return { kind: 'reservation_lost', reservationId: null };
    }
    const key = keyOf(sku, userId, requestId);
    const sinceUs = this.#options.monoUs() - this.#firstSight(key);
    if (sinceUs < (submitTimeoutMs + unknownMarginMs) * 1000) {
      return found(outcomeOf('UNKNOWN', sku, requestId));
    }
    return { kind: 'not_found' };
  }

  #firstSight(key: string): number {
    const known = this.#firstSeenUs.get(key);
    if (known !== undefined) return known;
    const nowUs = this.#options.monoUs();
    this.#forgetOld(nowUs);
    this.#firstSeenUs.set(key, nowUs);
    return nowUs;
  }

  /** Drops what is long past its time, and the oldest when the table is full. Amortised O(1). */
  #forgetOld(nowUs: number): void {
    const horizonUs = nowUs - 60 * (submitTimeoutMs + unknownMarginMs) * 1000;
    let checked = 0;
    for (const [key, seenUs] of this.#firstSeenUs) {
      const full = this.#firstSeenUs.size >= unknownTableMax;
      if (!full && (seenUs >= horizonUs || checked >= 8)) return;
      this.#firstSeenUs.delete(key);
      checked += 1;
    }
  }

  async #read<Value>(
    part: 'inventory' | 'orders',
    read: () => Promise<Value | undefined>,
  ): Promise<Value | undefined | 'unavailable'> {
    try {
      return await read();
    } catch (error) {
      // A store without this SKU knows nothing of the request, which is an answer.
      if (error instanceof UnknownSkuError) return undefined;
      if (!(error instanceof UnavailableError || error instanceof OutcomeUnknownError)) {
        this.#options.onError?.(part, error);
      }
      return 'unavailable';
    }
  }
}

/**
 * The same request id may be submitted again after its reservation was lost: then the inventory
 * store's live record is a new reservation, and the old fate speaks of the old one.
 */
function isNewerTry(record: RequestRecord, fate: { readonly reservationId: string }): boolean {
  return record.state !== 'released' && record.reservationId !== fate.reservationId;
}

function keyOf(sku: SkuKey, userId: string, requestId: string): string {
  // Ids cannot contain a space, and the user id comes last: no two tuples share a key.
  return `${sku.activityId} ${sku.skuId} ${requestId} ${userId}`;
}

function found(outcome: Outcome): StatusResult {
  return { kind: 'outcome', outcome };
}
