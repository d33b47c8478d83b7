import { describe, expect, test } from 'vitest';
import type { Activity } from '../core/activity.ts';
import type { StockMark } from '../core/stock/model.ts';
import type { Stores } from './embedded-stores.ts';
import { OrdersLostError, prepareStock } from './prepare-stock.ts';

const sku = { activityId: 'concert', skuId: 'front' };

interface Found {
  readonly mark?: Partial<StockMark>;
  readonly durable?: { readonly sold: number; readonly generation: number };
  /** Orders of the activity, in whatever state. */
  readonly orders?: number;
}

/** What was preloaded, or not, where the two sides stand as given. */
async function prepared({ mark, durable, orders = 0 }: Found) {
  const preloaded: unknown[] = [];
  const stores = {
    inventory: {
      mark: async () => mark && { total: 10, ordered: 0, generation: 1, ...mark },
      preload: async (_: unknown, stock: unknown) => void preloaded.push(stock),
    },
    orders: {
      declareSku: async () => undefined,
      stock: async () => ({ total: 10, sold: 0, generation: 1, ...durable }),
      search: async () => Array.from({ length: orders }, () => ({})),
    },
  } as unknown as Pick<Stores, 'inventory' | 'orders'>;
  const activity = {
    activityId: 'concert',
    skus: [{ skuId: 'front', stock: 10, name: 'Front' }],
  } as unknown as Activity;
  return { lost: await prepareStock(stores, [activity]), preloaded };
}

describe('the two sides of a stock at start', () => {
  test('a new sale is preloaded; a sale that goes on is left as it is', async () => {
    expect(await prepared({})).toMatchObject({ lost: [], preloaded: [{ total: 10 }] });
    const going = { mark: { ordered: 3 }, durable: { sold: 3, generation: 1 }, orders: 3 };
    expect(await prepared(going)).toEqual({ lost: [], preloaded: [] });
  });

  test('an inventory that is gone after sales is named, never preloaded', async () => {
    const gone = { durable: { sold: 3, generation: 1 }, orders: 3 };
    expect(await prepared(gone)).toEqual({ lost: [sku], preloaded: [] });
    const rebuilt = { durable: { sold: 0, generation: 2 } };
    expect(await prepared(rebuilt)).toEqual({ lost: [sku], preloaded: [] });
  });

  test('an inventory that a rebuild has left a generation behind is named', async () => {
    const half = { mark: { generation: 1 }, durable: { sold: 0, generation: 2 } };
    expect(await prepared(half)).toEqual({ lost: [sku], preloaded: [] });
  });

  test('orders that are gone under a living inventory stop the start', async () => {
    const deleted = prepared({ mark: { ordered: 3 } });
    await expect(deleted).rejects.toThrow(OrdersLostError);
    await expect(deleted).rejects.toThrow(/concert\/front: found 3 units in orders, and no order/);
    const older = prepared({ mark: { generation: 3 }, durable: { sold: 2, generation: 2 } });
    await expect(older).rejects.toThrow(/generation 3 of the stock, 2 of its orders/);
  });

  test('orders that were all given back are still orders', async () => {
    const givenBack = { mark: { ordered: 1 }, durable: { sold: 0, generation: 1 }, orders: 1 };
    expect(await prepared(givenBack)).toEqual({ lost: [], preloaded: [] });
  });
});
