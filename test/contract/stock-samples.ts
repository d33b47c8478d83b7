import type {
  InventoryStore,
  Preload,
  ReserveOutcome,
  ReserveRequest,
} from '../../src/ports/inventory-store.ts';
import type { OrderMessage } from '../../src/ports/order-queue.ts';
import type { SkuKey } from '../../src/core/activity.ts';
import { reservationIdAt } from '../../src/core/stock/shards.ts';

/** Requests and keys that read well in a failing test. */
export const nowMs = 1_800_000_000_000;

export const sku: SkuKey = { activityId: 'concert', skuId: 'floor' };
export const otherSku: SkuKey = { activityId: 'concert', skuId: 'balcony' };

export const stockOf = (total: number, more: Partial<Preload> = {}): Preload => ({
  total,
  generation: 1,
  stockEpoch: 0,
  ...more,
});

let unique = 0;

/** Every other id says where its reservation is at home, as a gateway's do. */
const idOf = (n: number, personId: string): string =>
  n % 2 === 0 ? `reservation-${n}` : reservationIdAt(personId, `${n}`.padStart(22, '0'));

/** A request of its own in every respect, but for what `more` says. */
export function request(more: Partial<ReserveRequest> = {}): ReserveRequest {
  unique += 1;
  const userId = more.userId ?? `user-${unique}`;
  return {
    requestId: `request-${unique}`,
    userId,
    personId: userId,
    fingerprint: `fingerprint-${more.quantity ?? 1}-${(more.seats ?? []).join()}`,
    nonce: `nonce-${unique}`,
    quantity: 1,
    limit: 1,
    reservationId: idOf(unique, more.personId ?? userId),
    deadlineMs: nowMs + 60_000,
    activityVersion: 3,
    unitAmountMinor: 4_200,
    currency: 'EUR',
    ...more,
  };
}

export const requests = (count: number, more: Partial<ReserveRequest> = {}): ReserveRequest[] =>
  Array.from({ length: count }, () => request(more));

/** The same intention sent once more, as a client does: other ids made by the gateway are fresh. */
export function retryOf(first: ReserveRequest): ReserveRequest {
  unique += 1;
  return { ...first, reservationId: idOf(unique, first.personId) };
}

/** Reserves one batch and gives the outcomes; throws where the store did not judge it. */
export async function reserve(
  store: InventoryStore,
  batch: readonly ReserveRequest[],
  key: SkuKey = sku,
): Promise<readonly ReserveOutcome[]> {
  const reply = await store.reserve(key, batch, 0, nowMs);
  if (reply.kind !== 'done') throw new Error(`The store answered ${reply.kind}`);
  return reply.outcomes;
}

export const kinds = (outcomes: readonly ReserveOutcome[]): string[] =>
  outcomes.map((each) => each.kind);

/** The message that a request which reserved must have put into the outbox. */
export function messageFor(wish: ReserveRequest, key: SkuKey = sku, generation = 1): OrderMessage {
  return {
    schemaVersion: 1,
    messageId: `${generation}-${wish.reservationId}`,
    activityId: key.activityId,
    skuId: key.skuId,
    activityVersion: wish.activityVersion,
    generation,
    reservationId: wish.reservationId,
    requestId: wish.requestId,
    userId: wish.userId,
    personId: wish.personId,
    fingerprint: wish.fingerprint,
    nonce: wish.nonce,
    quantity: wish.quantity,
    limit: wish.limit,
    unitAmountMinor: wish.unitAmountMinor,
    currency: wish.currency,
    ...(wish.seats === undefined ? {} : { seats: wish.seats }),
    reservedAtMs: nowMs,
    deadlineMs: wish.deadlineMs,
    ...(wish.traceparent === undefined ? {} : { traceparent: wish.traceparent }),
  };
}
