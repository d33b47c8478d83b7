import type { Activity } from '../core/activity.ts';
import type { Stores } from './embedded-stores.ts';

/**
 * Brings every SKU on sale into both stores before anybody is let in. The durable side knows the
 * total and the generation; the inventory store keeps what it has. Repeating it changes nothing, so
 * it runs at each start. Resolves to the SKUs whose inventory is gone although the durable side
 * knows of sales: those must be rebuilt, not preloaded, or sold units would be sold again.
 */
export async function prepareStock(
  stores: Pick<Stores, 'inventory' | 'orders'>,
  activities: readonly Activity[],
): Promise<readonly { readonly activityId: string; readonly skuId: string }[]> {
  const lost: { activityId: string; skuId: string }[] = [];
  for (const { activityId, skus } of activities) {
    for (const { skuId, stock, name, seats } of skus) {
      const sku = { activityId, skuId };
      await stores.orders.declareSku(sku, { total: stock, generation: 1, name });
      if ((await stores.inventory.mark(sku)) !== undefined) continue;
      const durable = await stores.orders.stock(sku);
      const begun = durable !== undefined && (durable.sold > 0 || durable.generation > 1);
      if (begun) lost.push(sku);
      else {
        await stores.inventory.preload(sku, {
          total: durable?.total ?? stock,
          generation: 1,
          stockEpoch: 0,
          ...(seats === undefined ? {} : { seats }),
        });
      }
    }
  }
  return lost;
}
