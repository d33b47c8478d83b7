import { join } from 'node:path';
import type { Clock, Timers } from '../ports/clock.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import type { BudgetStore } from '../ports/budget-store.ts';
import type { Broadcast } from '../ports/broadcast.ts';
import type { InventoryStore } from '../ports/inventory-store.ts';
import type { LeaderLease } from '../ports/leader-lease.ts';
import type { OrderQueue, OrderQueueProducer } from '../ports/order-queue.ts';
import type { OrderStore } from '../ports/order-store.ts';
import { MemoryOrderQueue } from '../queues/memory-queue.ts';
import { Journal } from '../stores/journal/journal.ts';
import { MemoryAdmissionStore } from '../stores/memory/admission-store.ts';
import { MemoryInventoryStore } from '../stores/memory/inventory-store.ts';
import { ShardedInventoryStore } from '../stores/shards/sharded-inventory.ts';
import { migrate } from '../stores/postgres/migrate.ts';
import { openPglite } from '../stores/postgres/pglite.ts';
import { PostgresOrderStore } from '../stores/postgres/order-store.ts';

/** From the inventory's outbox to a broker: what the relay of a worker needs. */
export interface RelayRoad {
  readonly outbox: OrderQueue;
  readonly broker: OrderQueueProducer;
  /** How long the outbox keeps a message for a consumer that is silent, ms. */
  readonly outboxVisibilityMs: number;
  /** Who of several workers relays; absent where there is one. */
  readonly lease?: LeaderLease;
}

/** The four stores of one deployment, however they are made. */
export interface Stores {
  /** Where several processes may be: what they tell each other. */
  readonly broadcast?: Broadcast;
  /** Where several may be: the budgets that they share. Closed by whoever uses it, or with the rest. */
  readonly budgets?: BudgetStore;
  /** Where several may be: who of them leads. */
  readonly lease?: LeaderLease;
  readonly admission: AdmissionStore;
  readonly inventory: InventoryStore;
  readonly queue: OrderQueue;
  /** Where the queue is a broker: how messages get there. */
  readonly relay?: RelayRoad;
  readonly orders: OrderStore;
  /** What has failed for good, so that only a restart helps; absent where nothing can. */
  failures?(): readonly string[];
  /** Closes all of them, the most durable one last. Idempotent per store. */
  close(): Promise<void>;
}

export interface EmbeddedStoresOptions {
  /** A data folder whose lock the caller holds. */
  readonly folder: string;
  readonly fsync: 'always' | 'os';
  readonly clock: Clock;
  readonly timers: Timers;
}

/**
 * Memory with journals, and PGlite in a thread of its own. The database's start is the slow part, so
 * the journals are replayed meanwhile.
 */
export async function openEmbeddedStores(options: EmbeddedStoresOptions): Promise<Stores> {
  const { folder, fsync, clock, timers } = options;
  const opening = openPglite({
    folder: join(folder, 'orders'),
    timers,
    fsync: fsync === 'always' ? 'disk' : 'os',
  });
  const [sql, admission, inventory] = await settleAll([
    opening,
    openAdmission(join(folder, 'admission'), fsync),
    MemoryInventoryStore.open({ folder: join(folder, 'inventory'), fsync }),
  ]);
  await migrate(sql, clock.wallMs());
  const queue = new MemoryOrderQueue(inventory.engine, { clock, timers });
  const orders = new PostgresOrderStore(sql);
  return {
    admission,
    inventory: new ShardedInventoryStore(inventory),
    queue,
    orders,
    failures() {
      const journals = { admission: admission.failure, inventory: inventory.engine.failure };
      return Object.entries(journals).flatMap(([name, failure]) =>
        failure === undefined ? [] : [`the ${name} journal has failed: ${failure.message}`],
      );
    },
    async close() {
      await queue.close();
      await admission.close();
      await inventory.close();
      await orders.close();
    },
  };
}

/** Memory, with its journal in `folder`. */
export async function openAdmission(
  folder: string,
  fsync: 'always' | 'os',
): Promise<MemoryAdmissionStore> {
  const store = new MemoryAdmissionStore();
  return store.attach(await Journal.open({ folder, fsync, ...store.replay }));
}

/** Closes what did open when a sibling did not, so that a failed start leaves no thread or file behind. */
async function settleAll<const Parts extends readonly Promise<{ close(): Promise<void> }>[]>(
  parts: Parts,
): Promise<{ -readonly [At in keyof Parts]: Awaited<Parts[At]> }> {
  const results = await Promise.allSettled(parts);
  const failed = results.find((result) => result.status === 'rejected');
  if (failed !== undefined) {
    for (const result of results) if (result.status === 'fulfilled') await result.value.close();
    throw failed.reason;
  }
  return (await Promise.all(parts)) as { -readonly [At in keyof Parts]: Awaited<Parts[At]> };
}
