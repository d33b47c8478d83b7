import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { by, orderMessage, startMs } from '../../test/contract/order-store.ts';
import { type Sale, openSale, orderOf } from '../../test/support/sale.ts';
import { type CuttingProxy, openProxy } from '../../test/support/servers/cutting-proxy.ts';
import { emptyTables } from '../../test/support/servers/orders.ts';
import { type PostgresServer, startPostgres } from '../../test/support/servers/postgres.ts';
import { systemRandom, systemTimers } from '../app/system.ts';
import type { Sql } from '../ports/sql.ts';
import { migrate } from '../stores/postgres/migrate.ts';
import { PostgresOrderStore } from '../stores/postgres/order-store.ts';
import { openPool } from '../stores/postgres/pool.ts';
import { ExpiryWorker } from './expiry-worker.ts';
import { OrderWorker, type OrderWorkerEvent } from './order-worker.ts';

/** What becomes of reservations when the real server restarts, freezes, runs out, or loses an answer. */

vi.setConfig({ testTimeout: 120_000, hookTimeout: 180_000 });

let server: PostgresServer;
let proxy: CuttingProxy;
let sql: Sql;
let orders: PostgresOrderStore;
let sale: Sale;
let events: OrderWorkerEvent[];

beforeAll(async () => {
  server = await startPostgres();
  proxy = await openProxy(server.port);
  const url = await server.createDatabase();
  sql = openPool({
    url: url.replace(String(server.port), String(proxy.port)),
    timers: systemTimers,
    random: systemRandom,
    connections: 2,
    connectMs: 300,
    statementMs: 3_000,
  });
  await migrate(sql, startMs);
  orders = new PostgresOrderStore(sql);
});
afterAll(async () => {
  await sql.close();
  await proxy.close();
  await server.stop();
});
beforeEach(async () => {
  await emptyTables(sql);
  sale = await openSale(orders, 10);
  events = [];
});

const world = () => ({ clock: sale.world, timers: sale.world, random: sale.random });
const worker = (): OrderWorker =>
  new OrderWorker(
    {
      ...world(),
      queue: sale.queue,
      orders,
      inventory: sale.inventory,
      paymentDeadlineMs: () => 900_000,
      onEvent: (event) => events.push(event),
    },
    { consumer: 'w' },
  );

/** Runs passes until the queue is empty; every blocked one is followed by another. */
async function workOff(): Promise<number> {
  const one = worker();
  let blocked = 0;
  for (let tries = 0; tries < 300; tries += 1) {
    if ((await sale.queue.backlog(0)).depth === 0) return blocked;
    if ((await one.runOnce(0)).blocked) {
      blocked += 1;
      await new Promise<void>((resume) => setTimeout(resume, 50));
    }
  }
  throw new Error('the queue never became empty');
}

async function soldOnce(ids: readonly string[]): Promise<void> {
  for (const id of ids)
    expect(await orders.orderById(id)).toMatchObject({ state: 'PENDING_PAYMENT' });
  expect(await orders.stock(sale.sku)).toMatchObject({ sold: ids.length });
  expect(await orders.counts('show')).toMatchObject({ pending: ids.length, released: 0 });
  expect(await sale.inventory.mark(sale.sku)).toMatchObject({ ordered: ids.length, held: 0 });
  expect(await orders.tally(sale.sku)).toEqual({ sold: ids.length, paid: 0, personsWrong: 0 });
}

const reserveAll = async (...people: string[]): Promise<string[]> => {
  const ids: string[] = [];
  for (const who of people) ids.push(orderOf(await sale.reserve(who, { deadlineInMs: 600_000 })));
  return ids;
};

// The write is the first statement that names a reservation.
test('the answer to a batch is lost: unknown, then repeated, never doubled', async () => {
  const ids = await reserveAll('a', 'b', 'c');
  proxy.cut('to client', 'rsv_');
  expect(await workOff()).toBe(1);
  expect(events.map((event) => event.kind)).toEqual(['blocked', 'committed', 'repeated']);
  await soldOnce(ids);
});

test('the batch never arrives: the same, and it is done by the next', async () => {
  const ids = await reserveAll('a', 'b', 'c');
  proxy.cut('to server', 'rsv_');
  expect(await workOff()).toBe(1);
  expect(events.map((event) => event.kind)).toEqual(['blocked', 'committed']);
  await soldOnce(ids);
});

test('the server crashes and comes back: nothing is lost, nothing is doubled', async () => {
  const ids = await reserveAll('a', 'b', 'c', 'd');
  const working = workOff();
  await server.restart('immediate');
  await working;
  await soldOnce(ids);
});

test('the answer to an expiry is lost: expired once, one unit back', async () => {
  const [id] = await reserveAll('a');
  await workOff();
  await sale.world.advance(900_001);
  const expiry = new ExpiryWorker({ ...world(), orders, inventory: sale.inventory });
  proxy.cut('to client', 'COMMIT');
  await expect(expiry.runOnce()).rejects.toThrow(/may have been done/);
  await expiry.runOnce();
  expect(await orders.orderById(id ?? '')).toMatchObject({ state: 'EXPIRED' });
  expect(await orders.counts('show')).toMatchObject({ expired: 1 });
  expect(await sale.inventory.mark(sale.sku)).toMatchObject({ available: 10, ordered: 0, held: 0 });
  expect(await orders.audit.list(id, 10)).toHaveLength(1);
});

test('the answer to a callback is lost: the provider’s next one changes nothing', async () => {
  const [id = ''] = await reserveAll('a');
  await workOff();
  const event = {
    provider: 'demo',
    eventId: 'evt',
    intentId: 'int',
    orderId: id,
    outcome: 'confirmed',
    amountMinor: 4_900,
    currency: 'EUR',
  } as const;
  proxy.cut('to client', 'COMMIT');
  await expect(orders.payments.applyEvent(event, startMs)).rejects.toThrow(/may have been done/);
  expect(await orders.payments.applyEvent(event, startMs)).toEqual({ kind: 'duplicate' });
  expect(await orders.orderById(id)).toMatchObject({ state: 'PAID' });
});

test('every connection is taken: refused in bounded time, done when one is free', async () => {
  const ids = await reserveAll('a', 'b');
  let letGo: () => void = () => undefined;
  const free = new Promise<void>((resume) => {
    letGo = resume;
  });
  const holders = [1, 2].map(() =>
    sql.transaction(async (tx) => {
      await tx.query('SELECT 1', []);
      await free;
    }),
  );
  await new Promise<void>((resume) => setTimeout(resume, 100));
  expect(await worker().runOnce(0)).toMatchObject({ received: 2, blocked: true });
  letGo();
  await Promise.all(holders);
  await workOff();
  await soldOnce(ids);
});

test('frozen in the middle of a batch: unknown here, and whatever it was, one order each', async () => {
  const ids = await reserveAll('a', 'b', 'c');
  server.pause();
  try {
    expect(await worker().runOnce(0)).toMatchObject({ blocked: true });
  } finally {
    server.resume();
  }
  await workOff();
  await soldOnce(ids);
});

test('a batch that the server cannot read is one bad message, and not the end of the others', async () => {
  const ids = await reserveAll('a', 'b');
  const [good, bad] = await sale.queue.receive('w', 2, 0);
  await sale.queue.giveBack([good!, bad!]);
  // A zero byte is text to us and nothing to PostgreSQL.
  const poisoned = Object.assign(Object.create(sale.queue) as typeof sale.queue, {
    acknowledge: sale.queue.acknowledge.bind(sale.queue),
    giveBack: sale.queue.giveBack.bind(sale.queue),
    bury: sale.queue.bury.bind(sale.queue),
    async receive(...args: Parameters<typeof sale.queue.receive>) {
      const deliveries = await sale.queue.receive(...args);
      return deliveries.map((delivery) =>
        delivery.message.userId === 'b'
          ? { ...delivery, message: orderMessage('b', { requestId: 'zero\u0000byte' }) }
          : delivery,
      );
    },
  });
  const sick = new OrderWorker(
    {
      ...world(),
      queue: poisoned,
      orders,
      inventory: sale.inventory,
      paymentDeadlineMs: () => 900_000,
      onEvent: (event) => events.push(event),
    },
    { consumer: 'w' },
  );
  expect(await sick.runOnce(0)).toMatchObject({ ordered: 1, left: 1, blocked: false });
  expect(events.some((event) => event.kind === 'refused')).toBe(true);
  expect(await orders.orderById(ids[0] ?? '')).toBeDefined();
  expect(
    await orders.transition(ids[1] ?? '', {
      ...by('x', startMs),
      from: ['PENDING_PAYMENT'],
      to: 'CANCELLED',
    }),
  ).toEqual({ kind: 'unknown' });
});
