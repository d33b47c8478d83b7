import type { SkuKey } from '../core/activity.ts';
import { skuKey } from '../core/orders/decide-batch.ts';
import type { Fate, InventoryStore } from '../ports/inventory-store.ts';
import type { CommitFate, OrderStore, RestockDue } from '../ports/order-store.ts';

/**
 * Tells the inventory store what the durable side has decided. The durable side remembers what it has
 * yet to tell until it was told, and the inventory store changes nothing when told twice: a crash
 * between any two lines here repeats, and never loses or doubles.
 */

/** Items of one SKU together, in their order. */
export function bySku<Item extends SkuKey>(
  items: readonly Item[],
): readonly { readonly sku: SkuKey; readonly items: readonly Item[] }[] {
  const groups = new Map<string, { sku: SkuKey; items: Item[] }>();
  for (const item of items) {
    const key = skuKey(item);
    const group = groups.get(key);
    if (group !== undefined) group.items.push(item);
    else {
      const sku = { activityId: item.activityId, skuId: item.skuId };
      groups.set(key, { sku, items: [item] });
    }
  }
  return [...groups.values()];
}

export function fateOf(fate: CommitFate): Fate {
  return fate.fate === 'ordered'
    ? { reservationId: fate.reservationId, fate: 'ordered' }
    : { reservationId: fate.reservationId, fate: 'released', reason: fate.reason };
}

export interface SettledDue {
  /** Told now, and off the list. */
  readonly told: number;
  /** Units to take again that are not there: somebody reserved them. Asked again later. */
  readonly waiting: number;
  /** Those of the told whose units went back. */
  readonly returned: readonly RestockDue[];
}

/** Tells up to `limit` of what is due. Rejects when either store does not answer; nothing is lost. */
export async function settleDue(
  orders: Pick<OrderStore, 'restocksDue' | 'restocksDone'>,
  inventory: Pick<InventoryStore, 'settle' | 'find'>,
  nowMs: number,
  limit: number,
): Promise<SettledDue> {
  const due = await orders.restocksDue(limit);
  let told = 0;
  let waiting = 0;
  const returned: RestockDue[] = [];
  for (const { sku, items } of bySku(due)) {
    const releases = items.filter((item) => item.kind === 'release');
    if (releases.length > 0) {
      const fates = releases.map(
        ({ reservationId, reason }): Fate => ({ reservationId, fate: 'released', reason }),
      );
      await inventory.settle(sku, fates, nowMs);
    }
    returned.push(...releases);
    const done: RestockDue[] = [...releases];
    for (const item of items.filter(({ kind }) => kind === 'retake')) {
      if (await retake(inventory, sku, item, nowMs)) done.push(item);
      else waiting += 1;
    }
    await orders.restocksDone(done);
    told += done.length;
  }
  return { told, waiting, returned };
}

/** True once the inventory store counts the units as ordered, or knows nothing of them any more. */
async function retake(
  inventory: Pick<InventoryStore, 'settle' | 'find'>,
  sku: SkuKey,
  item: RestockDue,
  nowMs: number,
): Promise<boolean> {
  const { reservationId } = item;
  const reply = await inventory.settle(sku, [{ reservationId, fate: 'retaken' }], nowMs);
  if (reply.changed > 0) return true;
  const record = await inventory.find(sku, item.userId, item.requestId);
  return (
    record === undefined || record.reservationId !== reservationId || record.state === 'ordered'
  );
}
