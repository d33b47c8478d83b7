import { join } from 'node:path';
import { type StoreOptions, ofOneProcess } from '../config/config.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { QueuePlace } from '../config/values.ts';
import type { OrderQueue, OrderQueueProducer } from '../ports/order-queue.ts';
import type { Random } from '../ports/random.ts';
import type { Sql } from '../ports/sql.ts';
import { MemoryOrderQueue } from '../queues/memory-queue.ts';
import { RelayedQueue } from '../queues/relayed-queue.ts';
import { RedisStreamsQueue } from '../queues/redis-streams-queue.ts';
import { RedisBudgetStore } from '../stores/limits/redis-budget-store.ts';
import { MemoryInventoryStore } from '../stores/memory/inventory-store.ts';
import { PostgresLeaderLease } from '../stores/postgres/leader-lease.ts';
import { migrate } from '../stores/postgres/migrate.ts';
import { PostgresOrderStore } from '../stores/postgres/order-store.ts';
import { openPglite } from '../stores/postgres/pglite.ts';
import { openPool } from '../stores/postgres/pool.ts';
import { RedisAdmissionStore } from '../stores/redis/admission-store.ts';
import { RedisBroadcast } from '../stores/redis/broadcast.ts';
import { RedisLink } from '../stores/redis/client.ts';
import { RedisInventoryStore } from '../stores/redis/inventory-store.ts';
import { Keys } from '../stores/redis/keys.ts';
import { ShardedInventoryStore } from '../stores/shards/sharded-inventory.ts';
import { openAdmission, openEmbeddedStores, type Stores } from './embedded-stores.ts';

export interface OpenStoresOptions {
  readonly stores: StoreOptions;
  /** Of the embedded ones; a folder whose lock the caller holds. */
  readonly folder: string;
  /** Of this process, unlike any other's. */
  readonly instance: string;
  /** Whether this process turns messages into orders. */
  readonly worker: boolean;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** How long a caller waited for a connection to the database server. */
  readonly onPoolWait?: (waitedUs: number) => void;
  /** Connections lost between two calls. */
  readonly onTrouble: (part: string, error: unknown) => void;
}

/**
 * How long a message that a worker took is not given to another, ms: longer than its commit may take
 * (a statement ends after 6 s), so that what another gets is of a worker that died or is stuck.
 */
const visibilityMs = 10_000;

/**
 * The same between outbox and broker, ms: how long the queue stands still when the relay's process has
 * died. What it had moved and not trimmed by then comes twice.
 */
const relayVisibilityMs = 5_000;

/**
 * Opens what the configuration names. Connections are never shared between admission, inventory and
 * queue: a crowd at the door, or workers that read a long backlog, must not make a reservation wait in
 * line on a socket. Whatever did open is closed again where a sibling did not.
 */
export async function openStores(options: OpenStoresOptions): Promise<Stores> {
  const { stores, folder, clock, timers } = options;
  const { admission, inventory, orders, fsync } = stores;
  if (admission.kind === 'memory' && inventory.kind === 'memory' && orders.kind === 'pglite') {
    return openEmbeddedStores({ folder, fsync, clock, timers });
  }
  const closers: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const end of closers.splice(0).toReversed()) await end();
  };
  const opened = <Part extends { close(): Promise<void> }>(part: Part): Part => {
    closers.push(() => part.close());
    return part;
  };
  try {
    const sql = opened(await openSql(options));
    const orderStore = new PostgresOrderStore(sql);
    const door = await openDoor(options, opened);
    const stock = await openStock(options, opened, sql);
    return {
      ...door,
      ...stock,
      orders: orderStore,
      ...(orders.kind === 'postgres' ? { lease: new PostgresLeaderLease(sql) } : {}),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

type Opened = <Part extends { close(): Promise<void> }>(part: Part) => Part;

async function openSql(options: OpenStoresOptions): Promise<Sql> {
  const { stores, folder, clock, timers, random, onTrouble } = options;
  const sql =
    stores.orders.kind === 'postgres'
      ? openPool({
          url: stores.orders.url,
          timers,
          random,
          ...(options.onPoolWait === undefined
            ? {}
            : { waits: { monoUs: () => clock.monoUs(), told: options.onPoolWait } }),
          onBrokenConnection: (error) => onTrouble('orders', error),
        })
      : await openPglite({
          folder: join(folder, 'orders'),
          timers,
          fsync: stores.fsync === 'always' ? 'disk' : 'os',
        });
  try {
    await migrate(sql, clock.wallMs());
    return sql;
  } catch (error) {
    await sql.close();
    throw error;
  }
}

async function openDoor(
  options: OpenStoresOptions,
  opened: Opened,
): Promise<Pick<Stores, 'admission' | 'broadcast' | 'budgets'>> {
  const { stores, folder, timers, onTrouble } = options;
  const { admission, fsync, prefix } = stores;
  if (admission.kind === 'memory') {
    return { admission: opened(await openAdmission(join(folder, 'admission'), fsync)) };
  }
  const { urls, cluster } = admission;
  const trouble = (error: unknown): void => onTrouble('admission', error);
  const keys = new Keys(prefix);
  const link = await RedisLink.open({ urls, cluster, timers, onTrouble: trouble });
  const store = opened(new RedisAdmissionStore({ link, keys }));
  // Alone in its process, nobody is there to be told anything.
  if (ofOneProcess(stores) !== undefined) return { admission: store };
  const words = await RedisLink.open({ urls, cluster, timers, onTrouble: trouble });
  opened(words);
  const broadcast = new RedisBroadcast({
    link: words,
    keys,
    urls,
    cluster,
    onTrouble: trouble,
  });
  const limits = await RedisLink.open({ urls, cluster, timers, onTrouble: trouble });
  const budgets = new RedisBudgetStore({ link: limits, keys, onTrouble: trouble });
  return { admission: store, broadcast: opened(broadcast), budgets: opened(budgets) };
}

async function openStock(
  options: OpenStoresOptions,
  opened: Opened,
  sql: Sql,
): Promise<Pick<Stores, 'inventory' | 'queue' | 'relay'>> {
  const { stores, folder, clock, timers, random, instance, onTrouble } = options;
  const { inventory, fsync, prefix } = stores;
  if (inventory.kind === 'memory') {
    const store = opened(
      await MemoryInventoryStore.open({ folder: join(folder, 'inventory'), fsync }),
    );
    return {
      inventory: new ShardedInventoryStore(store),
      queue: opened(new MemoryOrderQueue(store.engine, { clock, timers })),
    };
  }
  const { urls, cluster } = inventory;
  const keys = new Keys(prefix);
  const open = (part: string): Promise<RedisLink> =>
    RedisLink.open({ urls, cluster, timers, onTrouble: (error) => onTrouble(part, error) });
  const store = new ShardedInventoryStore(
    opened(new RedisInventoryStore(await open('inventory'), keys, random)),
  );
  const link = opened(await open('queue'));
  const outboxAs = (keptForMs: number): RedisStreamsQueue =>
    opened(new RedisStreamsQueue(link, keys, { clock, timers, instance, visibilityMs: keptForMs }));
  if (stores.queue.kind === 'memory' || stores.queue.kind === 'redis-streams')
    return { inventory: store, queue: outboxAs(visibilityMs) };
  const outbox = outboxAs(relayVisibilityMs);
  const broker = await openBroker(options, stores.queue);
  return {
    inventory: store,
    // Closes the broker's side.
    queue: opened(new RelayedQueue(outbox, broker)),
    relay: {
      outbox,
      broker,
      outboxVisibilityMs: relayVisibilityMs,
      ...(stores.orders.kind === 'postgres'
        ? { lease: new PostgresLeaderLease(sql, 'relay') }
        : {}),
    },
  };
}

/** Loaded only where it is used: a start without a broker does not pay for its client. */
async function openBroker(
  { stores: { prefix }, clock, timers, worker }: OpenStoresOptions,
  { kind, urls, replicas }: Extract<QueuePlace, { readonly urls: readonly string[] }>,
): Promise<OrderQueue & OrderQueueProducer> {
  const common = { urls, replicas, clock, timers, prefix, visibilityMs };
  if (kind === 'nats') {
    const { openNatsQueue } = await import('../queues/nats-queue.ts');
    return openNatsQueue(common);
  }
  const { openKafkaQueue } = await import('../queues/kafka-queue.ts');
  return openKafkaQueue({ ...common, joins: worker });
}
