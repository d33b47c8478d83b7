import type { Activity, SkuKey } from '../core/activity.ts';
import type { Stores } from './embedded-stores.ts';

/** The inventory knows of sales that the durable side does not: its orders were deleted, or are older. */
export class OrdersLostError extends Error {
  override readonly name = 'OrdersLostError';
}

/**
 * Brings every SKU on sale into both stores before anybody is let in. The durable side knows the
 * total and the generation; the inventory store keeps what it has. Repeating it changes nothing, so
 * it runs at each start. Resolves to the SKUs whose inventory is gone although the durable side
 * knows of sales, or is of an older generation than it: those must be rebuilt, not preloaded, or sold units would be sold again. The other
 * way round nothing can be rebuilt, and reconciliation would take every sold unit for unsold:
 * {@link OrdersLostError}.
 */
export async function prepareStock(
  stores: Pick<Stores, 'inventory' | 'orders'>,
  activities: readonly Activity[],
): Promise<readonly { readonly activityId: string; readonly skuId: string }[]> {
  const lost: { activityId: string; skuId: string }[] = [];
  for (const { activityId, skus } of activities) {
    for (const { skuId, stock, name, seats, shards } of skus) {
      const sku = { activityId, skuId };
      await stores.orders.declareSku(sku, { total: stock, generation: 1, name });
      const mark = await stores.inventory.mark(sku);
      const durable = await stores.orders.stock(sku);
      if (mark !== undefined) {
        const known = durable?.generation ?? 0;
        if (mark.generation > known) {
          const found = `generation ${mark.generation} of the stock, ${known} of its orders`;
          throw ordersLost(sku, found);
        }
        // An order is made before the inventory is told of it, and its row stays for ever.
        if (mark.ordered > 0 && durable?.sold === 0 && (await neverOrdered(stores, activityId))) {
          throw ordersLost(sku, `${mark.ordered} units in orders, and no order`);
        }
        // A rebuild died half-way: whatever is reserved now could never become an order.
        if (mark.generation < known) lost.push(sku);
        continue;
      }
      const begun = durable !== undefined && (durable.sold > 0 || durable.generation > 1);
      if (begun) lost.push(sku);
      else {
        await stores.inventory.preload(sku, {
          total: durable?.total ?? stock,
          generation: 1,
          stockEpoch: 0,
          ...(seats === undefined ? {} : { seats }),
          ...(shards === undefined ? {} : { shards }),
        });
        if (durable?.stopped === true) await stores.inventory.setPaused(sku, true);
      }
    }
  }
  return lost;
}

async function neverOrdered(
  { orders }: Pick<Stores, 'orders'>,
  activityId: string,
): Promise<boolean> {
  return (await orders.search({ activityId, limit: 1 })).length === 0;
}

function ordersLost({ activityId, skuId }: SkuKey, found: string): OrdersLostError {
  return new OrdersLostError(
    `stock of ${activityId}/${skuId}: found ${found}; allowed is the database of orders that belongs to ` +
      'this inventory. Bring it back from its backup, or begin a new sale with an empty inventory',
  );
}
