import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startMs } from '../../test/contract/order-store.ts';
import { type Sale, openSale, orderOf } from '../../test/support/sale.ts';
import { emptyTables } from '../../test/support/servers/orders.ts';
import { freshPgliteFolder } from '../../test/support/servers/pglite.ts';
import { systemTimers } from '../app/system.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { OrderStore } from '../ports/order-store.ts';
import type { Sql } from '../ports/sql.ts';
import { SqlError } from '../stores/postgres/errors.ts';
import { migrate } from '../stores/postgres/migrate.ts';
import { PostgresOrderStore } from '../stores/postgres/order-store.ts';
import { openPglite } from '../stores/postgres/pglite.ts';
import { ExpiryWorker } from './expiry-worker.ts';
import { OrderWorker, type OrderWorkerEvent, type OrderWorkerParts } from './order-worker.ts';

let sql: Sql;
let remove: () => void;
let orders: PostgresOrderStore;
let sale: Sale;
let events: OrderWorkerEvent[];

beforeAll(async () => {
  const fresh = await freshPgliteFolder();
  remove = fresh.remove;
  sql = await openPglite({ folder: fresh.folder, timers: systemTimers, fsync: 'os' });
  await migrate(sql, startMs);
  orders = new PostgresOrderStore(sql);
}, 180_000);
afterAll(async () => {
  await sql.close();
  remove();
});
beforeEach(async () => {
  await emptyTables(sql);
  sale = await openSale(orders, 10);
  events = [];
});

function worker(over: Partial<OrderWorkerParts> = {}): OrderWorker {
  return new OrderWorker(
    {
      queue: sale.queue,
      orders,
      inventory: sale.inventory,
      clock: sale.world,
      timers: sale.world,
      random: sale.random,
      paymentDeadlineMs: () => 900_000,
      onEvent: (event) => events.push(event),
      ...over,
    },
    { consumer: 'w1' },
  );
}

const expiryWorker = (): ExpiryWorker =>
  new ExpiryWorker(
    {
      orders,
      inventory: sale.inventory,
      clock: sale.world,
      timers: sale.world,
      random: sale.random,
    },
    { graceMs: 60_000, everyMs: 500 },
  );

/** Whatever happened: both stores tell one story, and nothing is sold twice. */
async function addsUp(expected: { ordered: number; held: number }): Promise<void> {
  const mark = await sale.inventory.mark(sale.sku);
  const stock = await orders.stock(sale.sku);
  expect(mark).toMatchObject(expected);
  expect(stock?.sold).toBe(expected.ordered);
  expect(mark && mark.available + mark.held + mark.ordered).toBe(10);
  expect(await orders.tally(sale.sku)).toMatchObject({ sold: stock?.sold, personsWrong: 0 });
}

describe('order worker', () => {
  test('a reservation becomes an order, the unit is settled, the message forgotten', async () => {
    const id = orderOf(await sale.reserve('ann'));
    expect(await worker().runOnce()).toMatchObject({ received: 1, ordered: 1, blocked: false });
    expect(await orders.orderById(id)).toMatchObject({
      userId: 'ann',
      state: 'PENDING_PAYMENT',
      amountMinor: 4_900,
      payBeforeMs: sale.world.wallMs() + 900_000,
    });
    await addsUp({ ordered: 1, held: 0 });
    expect(await sale.queue.backlog(0)).toMatchObject({ depth: 0, acknowledgedTotal: 1 });
    expect(events).toEqual([{ kind: 'committed', ordered: 1, released: 0 }]);
  });

  test('killed between commit and answer: redelivery decides, one order', async () => {
    const id = orderOf(await sale.reserve('ann'));
    const lostAnswer: Pick<OrderStore, 'commitBatch'> = {
      async commitBatch(...args) {
        await orders.commitBatch(...args);
        throw new OutcomeUnknownError('the connection broke');
      },
    };
    expect(await worker({ orders: lostAnswer }).runOnce()).toMatchObject({ blocked: true });
    expect(await sale.queue.backlog(0)).toMatchObject({ depth: 1 });
    expect(await worker().runOnce()).toMatchObject({ received: 1, ordered: 0 });
    expect(events.at(-1)).toEqual({ kind: 'repeated', count: 1 });
    expect(await orders.orderById(id)).toBeDefined();
    await addsUp({ ordered: 1, held: 0 });
  });

  test('inventory store away after the commit: not acknowledged, told next time', async () => {
    await sale.reserve('ann');
    const away = { settle: () => Promise.reject(new UnavailableError('away')) };
    expect(await worker({ inventory: away }).runOnce()).toMatchObject({ blocked: true });
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ held: 1, ordered: 0 });
    expect(await worker().runOnce()).toMatchObject({ received: 1, blocked: false });
    await addsUp({ ordered: 1, held: 0 });
  });

  test('acknowledgement lost: the message comes again and changes nothing', async () => {
    await sale.reserve('ann');
    const deaf = Object.assign(Object.create(sale.queue) as typeof sale.queue, {
      receive: sale.queue.receive.bind(sale.queue),
      acknowledge: () => Promise.reject(new UnavailableError('away')),
    });
    expect(await worker({ queue: deaf }).runOnce()).toMatchObject({ ordered: 1, blocked: true });
    await sale.world.advance(30_000);
    expect(await worker().runOnce()).toMatchObject({ received: 1, ordered: 0 });
    expect(await sale.queue.backlog(0)).toMatchObject({ depth: 0 });
    await addsUp({ ordered: 1, held: 0 });
  });

  test('one poisonous message: its neighbours go on, it is buried after five tries, its unit comes back', async () => {
    for (const who of ['a', 'b', 'poison', 'c', 'd']) await sale.reserve(who);
    let transactions = 0;
    const allergic: Pick<OrderStore, 'commitBatch'> = {
      commitBatch(messages, context) {
        transactions += 1;
        if (messages.some((message) => message.userId === 'poison')) {
          return Promise.reject(new SqlError({ message: 'invalid byte sequence', code: '22021' }));
        }
        return orders.commitBatch(messages, context);
      },
    };
    const sick = worker({ orders: allergic });
    expect(await sick.runOnce()).toMatchObject({ received: 5, ordered: 4, left: 1, buried: 0 });
    expect(transactions).toBeLessThanOrEqual(7);
    for (let attempt = 2; attempt <= 5; attempt += 1) {
      expect(await sick.runOnce(0)).toMatchObject({ received: 0 });
      await sale.world.advance(30_000);
      expect(await sick.runOnce(0)).toMatchObject({ received: 1, buried: attempt === 5 ? 1 : 0 });
    }
    expect(await sale.queue.buried(10)).toMatchObject([
      { message: { userId: 'poison' }, reason: 'invalid byte sequence' },
    ]);
    await addsUp({ ordered: 4, held: 1 });
  });

  test('past its deadline a reservation is released, and its unit is back', async () => {
    const reserved = await sale.reserve('ann', { deadlineInMs: 5_000 });
    await sale.world.advance(5_001);
    expect(await worker().runOnce()).toMatchObject({ ordered: 0, released: 1 });
    await addsUp({ ordered: 0, held: 0 });
    expect(
      reserved.kind === 'reserved' && (await orders.fatesOf([reserved.record.reservationId])),
    ).toMatchObject([{ fate: 'released', reason: 'deadline' }]);
  });

  test('the durable side refuses what would oversell, whatever the inventory store says', async () => {
    await orders.adjustTotal(sale.sku, 'shrunk', -9, { who: 'op', why: 'x', nowMs: startMs });
    await sale.reserve('ann');
    await sale.reserve('bob');
    expect(await worker().runOnce()).toMatchObject({ ordered: 1, released: 1 });
    expect(await orders.stock(sale.sku)).toMatchObject({ total: 1, sold: 1 });
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({
      ordered: 1,
      held: 0,
      available: 9,
    });
  });

  test('a backlog replays at its bounded rate', async () => {
    for (let n = 0; n < 10; n += 1) await sale.reserve(`u${n}`, { deadlineInMs: 600_000 });
    const paced = new OrderWorker(
      {
        queue: sale.queue,
        orders,
        inventory: sale.inventory,
        clock: sale.world,
        timers: sale.world,
        random: sale.random,
        paymentDeadlineMs: () => 900_000,
      },
      { consumer: 'w', batchMax: 2, messagesPerSecond: 4 },
    );
    const depth = async (): Promise<number> => (await sale.queue.backlog(0)).depth;
    paced.start();
    // Two at once, and two more every half second: never more than the rate allows.
    for (const expected of [8, 6, 4, 2, 0]) {
      await until(async () => (await depth()) === expected);
      await sale.world.advance(499);
      expect(await depth()).toBe(expected);
      await sale.world.advance(1);
    }
    const stopped = paced.stop();
    await sale.world.advance(2_000);
    await stopped;
    await addsUp({ ordered: 10, held: 0 });
  });

  test('while the database is away the loop backs off, and catches up when it is there', async () => {
    for (const who of ['a', 'b', 'c']) await sale.reserve(who, { deadlineInMs: 600_000 });
    let away = true;
    let tries = 0;
    const flaky: Pick<OrderStore, 'commitBatch'> = {
      commitBatch(messages, context) {
        tries += 1;
        return away
          ? Promise.reject(new UnavailableError('away'))
          : orders.commitBatch(messages, context);
      },
    };
    const loop = worker({ orders: flaky });
    loop.start();
    await sale.world.advance(60_000);
    // 50 ms doubling to 5 s, each at least halved: 60 s hold at most 7 + 24 tries.
    expect(tries).toBeGreaterThan(10);
    expect(tries).toBeLessThan(35);
    away = false;
    await until(async () => {
      await sale.world.advance(1_000);
      return (await sale.queue.backlog(0)).depth === 0;
    });
    const stopped = loop.stop();
    await sale.world.advance(1_000);
    await stopped;
    await addsUp({ ordered: 3, held: 0 });
  });
});

describe('expiry worker', () => {
  test('O13 O19: unpaid units return once, however often and by how many it runs', async () => {
    for (const who of ['a', 'b', 'c']) await sale.reserve(who);
    await worker().runOnce();
    const expiry = expiryWorker();
    expect(await expiry.runOnce()).toEqual({ expired: 0, told: 0, waiting: 0 });
    await sale.world.advance(900_001);
    const passes = await Promise.all([expiry.runOnce(), expiryWorker().runOnce()]);
    expect(passes.reduce((sum, pass) => sum + pass.expired, 0)).toBe(3);
    expect(await expiry.runOnce()).toEqual({ expired: 0, told: 0, waiting: 0 });
    await addsUp({ ordered: 0, held: 0 });
    expect(await orders.counts('show')).toMatchObject({ expired: 3, pending: 0 });
  });

  test('killed between telling and noting that it told: told again, nothing moves', async () => {
    await sale.reserve('ann');
    await worker().runOnce();
    await sale.world.advance(900_001);
    const forgetful = new ExpiryWorker({
      orders: Object.assign(Object.create(orders) as PostgresOrderStore, {
        dueForExpiry: orders.dueForExpiry.bind(orders),
        transitionMany: orders.transitionMany.bind(orders),
        restocksDue: orders.restocksDue.bind(orders),
        restocksDone: () => Promise.reject(new UnavailableError('away')),
      }),
      inventory: sale.inventory,
      clock: sale.world,
      timers: sale.world,
      random: sale.random,
    });
    await expect(forgetful.runOnce()).rejects.toBeInstanceOf(UnavailableError);
    await addsUp({ ordered: 0, held: 0 });
    expect(await expiryWorker().runOnce()).toMatchObject({ expired: 0, told: 1 });
    await addsUp({ ordered: 0, held: 0 });
  });

  test('a wall clock that leaps an hour ahead for a minute expires and releases nothing', async () => {
    const told: string[] = [];
    const expiry = new ExpiryWorker({
      orders,
      inventory: sale.inventory,
      clock: sale.world,
      timers: sale.world,
      random: sale.random,
      onEvent: (event) => told.push(event.kind),
    });
    const orderer = worker();
    await sale.reserve('ann');
    await orderer.runOnce();
    await sale.reserve('bob');
    sale.world.jumpWall(3_600_000);
    expect(await orderer.runOnce()).toMatchObject({ ordered: 1, released: 0 });
    expect(await expiry.runOnce()).toMatchObject({ expired: 0 });
    await sale.world.advance(60_000);
    sale.world.jumpWall(-3_600_000);
    expect(await expiry.runOnce()).toMatchObject({ expired: 0 });
    expect(told).toEqual(['clock_leapt']);
    await addsUp({ ordered: 2, held: 0 });
    await sale.world.advance(900_000);
    expect(await expiry.runOnce()).toMatchObject({ expired: 2 });
  });

  test('late money takes the unit again; while somebody else holds it, it waits for them', async () => {
    const id = orderOf(await sale.reserve('late', { quantity: 10, limit: 10 }));
    await worker().runOnce();
    await sale.world.advance(900_001);
    const expiry = expiryWorker();
    await expiry.runOnce();
    const other = await sale.reserve('other', { quantity: 5, limit: 5 });
    const order = await orders.orderById(id);
    await orders.payments.applyEvent(
      {
        provider: 'demo',
        eventId: 'e',
        intentId: 'i',
        orderId: id,
        outcome: 'confirmed',
        amountMinor: order?.amountMinor ?? 0,
        currency: 'EUR',
      },
      sale.world.wallMs(),
    );
    expect(await expiry.runOnce()).toMatchObject({ told: 0, waiting: 1 });
    // The durable side has given the units away: the other buyer is told, and the late payer has them.
    expect(await worker().runOnce()).toMatchObject({ ordered: 0, released: 1 });
    expect(other.kind).toBe('reserved');
    expect((await expiry.runOnce()).waiting).toBe(0);
    await addsUp({ ordered: 10, held: 0 });
  });
});

async function until(holds: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 200; tries += 1) {
    if (await holds()) return;
    await new Promise<void>((resume) => setTimeout(resume, 5));
  }
  throw new Error('it never held');
}
