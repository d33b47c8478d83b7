import { orderIdOf } from '../../src/core/orders/ids.ts';
import type { OrderStore } from '../../src/ports/order-store.ts';
import type { ReserveOutcome } from '../../src/ports/inventory-store.ts';
import { MemoryOrderQueue } from '../../src/queues/memory-queue.ts';
import { InventoryEngine } from '../../src/stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../../src/stores/memory/inventory-store.ts';
import { SeededRandom, World } from './world.ts';

/**
 * A small sale in virtual time: the real inventory store and queue in memory, beside an order store
 * that the test brings along.
 */
export interface Sale {
  readonly world: World;
  readonly random: SeededRandom;
  readonly inventory: MemoryInventoryStore;
  readonly queue: MemoryOrderQueue;
  readonly sku: { readonly activityId: string; readonly skuId: string };
  /** Reserves; each call is a new request, person, nonce unless said otherwise. */
  reserve(who: string, over?: Partial<ReserveWish>): Promise<ReserveOutcome>;
}

export interface ReserveWish {
  readonly requestId: string;
  readonly personId: string;
  readonly quantity: number;
  readonly limit: number;
  readonly deadlineInMs: number;
}

export async function openSale(
  orders: Pick<OrderStore, 'declareSku'>,
  stock: number,
): Promise<Sale> {
  const world = new World();
  const random = new SeededRandom('sale');
  const engine = InventoryEngine.over();
  const inventory = new MemoryInventoryStore(engine);
  const queue = new MemoryOrderQueue(engine, { clock: world, timers: world, visibilityMs: 30_000 });
  const sku = { activityId: 'show', skuId: 'floor' };
  await orders.declareSku(sku, { total: stock, generation: 1, name: 'Floor' });
  await inventory.preload(sku, { total: stock, generation: 1, stockEpoch: 0 });
  let count = 0;
  return {
    world,
    random,
    inventory,
    queue,
    sku,
    async reserve(who, over = {}) {
      count += 1;
      const nowMs = world.wallMs();
      const reply = await inventory.reserve(
        sku,
        [
          {
            requestId: over.requestId ?? `req-${count}`,
            userId: who,
            personId: over.personId ?? who,
            fingerprint: `print-${who}-${over.quantity ?? 1}`,
            nonce: `nonce-${count}`,
            quantity: over.quantity ?? 1,
            limit: over.limit ?? 1,
            reservationId: `rsv_${who}${count}`,
            deadlineMs: nowMs + (over.deadlineInMs ?? 60_000),
            activityVersion: 1,
            unitAmountMinor: 4_900,
            currency: 'EUR',
          },
        ],
        0,
        nowMs,
      );
      if (reply.kind !== 'done') throw new Error(`reserve answered ${reply.kind}`);
      const [outcome] = reply.outcomes;
      if (outcome === undefined) throw new Error('reserve answered nothing');
      return outcome;
    },
  };
}

/** The order that a reservation becomes. */
export function orderOf(outcome: ReserveOutcome): string {
  if (outcome.kind !== 'reserved') throw new Error(`reserve answered ${outcome.kind}`);
  return orderIdOf(outcome.record.reservationId);
}
