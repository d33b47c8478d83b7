import type { SkuKey } from '../core/activity.ts';
import { UnknownSkuError } from '../ports/errors.ts';
import type { InventoryStore, RequestRecord, StockMark } from '../ports/inventory-store.ts';
import type { LiveOrder, OrderStore } from '../ports/order-store.ts';
import type { Clock } from '../ports/clock.ts';
import { fateOf } from './settle.ts';

/**
 * Builds a SKU's stock in the inventory store anew from what the durable side knows, after the store
 * has lost some or all of it.
 *
 *     pause ─► work off the queue that survives ─► raise the durable generation ─► rebuild ─► resume,
 *                                                            unless an operator has stopped the sale
 *
 * Raising the generation is the point of no return: from then on the durable side refuses every older
 * message, so that nothing that the rebuilt stock does not know can still become an order. Died after
 * it, the inventory store is paused and a generation behind; running this again, or the
 * reconciliation, which sees that, ends it.
 *
 * Two at once, in one process or in several, do no harm: each has a generation of its own, or the same,
 * which is built once; and only the newest reopens.
 */
export interface RebuildParts {
  readonly inventory: Pick<InventoryStore, 'mark' | 'setPaused' | 'rebuild' | 'settle'>;
  readonly orders: Pick<OrderStore, 'stock' | 'raiseGeneration' | 'liveOrders' | 'fatesOf'>;
  readonly clock: Clock;
  /** Works off what the queue still holds of this SKU, for a bounded time. */
  readonly drain?: (sku: SkuKey) => Promise<void>;
  /** Names of the SKU's seats, where it has some and the store may have forgotten them. */
  readonly seats?: (sku: SkuKey) => readonly string[] | undefined;
  /** Parts that its stock lies in, where the store may have forgotten that. */
  readonly shards?: (sku: SkuKey) => number | undefined;
}

export interface RebuildReason {
  readonly who: string;
  readonly why: string;
}

/** Orders in one page of the durable side. */
const page = 1_000;

/** Epochs of one generation: none of an older one is ever as high. */
const epochsPerGeneration = 2 ** 20;

/** Resolves to the new mark. Rejects with UnknownSkuError where the durable side has no such SKU. */
export async function rebuildSku(
  parts: RebuildParts,
  sku: SkuKey,
  reason: RebuildReason,
): Promise<StockMark> {
  const { inventory, orders, clock } = parts;
  const before = await inventory.mark(sku);
  if (before !== undefined) await inventory.setPaused(sku, true);
  await parts.drain?.(sku);

  const durable = await orders.stock(sku);
  if (durable === undefined) throw new UnknownSkuError(sku.activityId, sku.skuId);
  const generation = Math.max(durable.generation, before?.generation ?? 0) + 1;
  await orders.raiseGeneration(sku, generation, { ...reason, nowMs: clock.wallMs() });
  // Another rebuild may have ended since we paused, and reopened: what were reserved now would be lost.
  if (before !== undefined) await inventory.setPaused(sku, true);

  const live: RequestRecord[] = [];
  for (let after: string | undefined; ; ) {
    const orderPage = await orders.liveOrders(sku, after, page);
    for (const entry of orderPage) live.push(recordOf(entry, generation));
    after = orderPage.at(-1)?.order.reservationId;
    if (orderPage.length < page) break;
  }
  const now = await orders.stock(sku);
  const seats = parts.seats?.(sku);
  const shards = parts.shards?.(sku);
  const rebuilt = await inventory.rebuild(sku, {
    total: now?.total ?? durable.total,
    generation,
    stockEpoch: Math.max(before?.stockEpoch ?? 0, generation * epochsPerGeneration),
    live,
    ...(seats === undefined ? {} : { seats }),
    ...(shards === undefined ? {} : { shards }),
  });
  await settleEnded(parts, sku, live);
  // What an operator has stopped stays so. Asked again after reopening: whoever stopped it in between
  // said so to the durable side first, and may have told the inventory before us.
  const standing = await orders.stock(sku);
  if (standing?.stopped === true) return inventory.setPaused(sku, true);
  if (standing !== undefined && standing.generation > generation) {
    // Somebody has begun another rebuild: what would be sold until it ends is refused by the durable
    // side already. Whoever began it reopens.
    return (await inventory.mark(sku)) ?? rebuilt;
  }
  const reopened = await inventory.setPaused(sku, false);
  if ((await orders.stock(sku))?.stopped !== true) return reopened;
  return inventory.setPaused(sku, true);
}

/**
 * An order that ended after it was read here was told to the stock of before, which is gone, and is not
 * told again: so those that have ended by now are.
 */
async function settleEnded(
  { inventory, orders, clock }: RebuildParts,
  sku: SkuKey,
  live: readonly RequestRecord[],
): Promise<void> {
  for (let at = 0; at < live.length; at += page) {
    const ids = live.slice(at, at + page).map(({ reservationId }) => reservationId);
    const ended = (await orders.fatesOf(ids)).filter(({ fate }) => fate === 'released');
    if (ended.length > 0) await inventory.settle(sku, ended.map(fateOf), clock.wallMs());
  }
}

function recordOf({ order, nonce, fingerprint }: LiveOrder, generation: number): RequestRecord {
  return {
    requestId: order.requestId,
    userId: order.userId,
    personId: order.personId,
    fingerprint,
    nonce,
    reservationId: order.reservationId,
    quantity: order.quantity,
    ...(order.seats === undefined ? {} : { seats: order.seats }),
    reservedAtMs: order.createdAtMs,
    deadlineMs: order.payBeforeMs,
    generation,
    state: 'ordered',
  };
}
