import type { SkuKey } from '../../src/core/activity.ts';
import { wholeSku } from '../../src/core/stock/shards.ts';
import type { InventoryStore, ShardStore } from '../../src/ports/inventory-store.ts';
import { ShardedInventoryStore } from '../../src/stores/shards/sharded-inventory.ts';
import type { InventoryHarness } from './inventory-store.ts';

/** Every SKU in so many shards, but for those with seats, over another harness's store. */
export async function sharded(
  inner: Promise<InventoryHarness & { readonly store: ShardStore }>,
  shards: number,
): Promise<InventoryHarness> {
  const harness = await inner;
  let store = cut(new ShardedInventoryStore(harness.store), shards);
  return {
    inParts: true,
    get store() {
      return store;
    },
    messages: async () => (await harness.messages()).map(wholeSku),
    crash: async () => {
      await harness.crash();
      store = cut(new ShardedInventoryStore(harness.store), shards);
    },
    dispose: () => harness.dispose(),
  };
}

/** The same store, loading what it is given in shards. */
function cut(store: InventoryStore, shards: number): InventoryStore {
  const of = (seats: readonly string[] | undefined): { shards?: number } =>
    seats === undefined ? { shards } : {};
  const preload: InventoryStore['preload'] = (sku: SkuKey, stock) =>
    preloadOf(sku, { ...stock, ...of(stock.seats) });
  const rebuild: InventoryStore['rebuild'] = (sku, state) =>
    rebuildOf(sku, { ...state, ...of(state.seats) });
  const preloadOf = store.preload.bind(store);
  const rebuildOf = store.rebuild.bind(store);
  return Object.assign(store, { preload, rebuild });
}
