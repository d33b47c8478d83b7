import { afterAll, beforeAll, expect, test } from 'vitest';
import { startMs } from '../../test/contract/order-store.ts';
import { openSale, orderOf } from '../../test/support/sale.ts';
import { type PostgresServer, startPostgres } from '../../test/support/servers/postgres.ts';
import { SeededRandom } from '../../test/support/world.ts';
import { systemRandom, systemTimers } from '../app/system.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { Fate } from '../ports/inventory-store.ts';
import type { Sql } from '../ports/sql.ts';
import { migrate } from '../stores/postgres/migrate.ts';
import { PostgresOrderStore } from '../stores/postgres/order-store.ts';
import { openPool } from '../stores/postgres/pool.ts';
import { ExpiryWorker } from './expiry-worker.ts';
import { OrderWorker } from './order-worker.ts';

/**
 * One order a thousand times: two workers at once, each dying at any of its steps, the message
 * delivered again and again; then the deadline, by two workers that die as well. Always one order,
 * and its unit back once.
 */
const races = 1_000;

let server: PostgresServer;
let sql: Sql;

beforeAll(async () => {
  server = await startPostgres({ settings: { fsync: 'off' } });
  sql = openPool({
    url: await server.createDatabase(),
    timers: systemTimers,
    random: systemRandom,
    connections: 4,
  });
  await migrate(sql, startMs);
}, 180_000);
afterAll(async () => {
  await sql.close();
  await server.stop();
});

test('1,000 crash and redelivery races on one order: one order, one restock', async () => {
  const orders = new PostgresOrderStore(sql);
  const sale = await openSale(orders, 5);
  const dice = new SeededRandom('crash-races');
  const told = new Map<string, number>();
  let deaths = 0;
  let repeats = 0;

  /** Runs a step, or dies before it, or after it with its answer lost. */
  const perhaps = async <Result>(step: () => Promise<Result>): Promise<Result> => {
    const fate = dice.below(4);
    if (fate === 0) {
      deaths += 1;
      throw new UnavailableError('died before');
    }
    const result = await step();
    if (fate === 1) {
      deaths += 1;
      throw new OutcomeUnknownError('died after');
    }
    return result;
  };
  const settle = (...[sku, fates, nowMs]: Parameters<typeof sale.inventory.settle>) =>
    perhaps(async () => {
      const reply = await sale.inventory.settle(sku, fates, nowMs);
      if (reply.changed > 0) {
        for (const fate of fates.filter(isRelease)) {
          told.set(fate.reservationId, (told.get(fate.reservationId) ?? 0) + 1);
        }
      }
      return reply;
    });
  const world = { clock: sale.world, timers: sale.world, random: sale.random };
  const inventory = { settle, find: sale.inventory.find.bind(sale.inventory) };
  // A message under way belongs to one consumer: the second worker has a copy, as after a pause
  // longer than the visibility time.
  const worker = () =>
    new OrderWorker(
      {
        ...world,
        queue: Object.assign(Object.create(sale.queue) as typeof sale.queue, {
          receive: sale.queue.receive.bind(sale.queue),
          giveBack: sale.queue.giveBack.bind(sale.queue),
          acknowledge: (...args: Parameters<typeof sale.queue.acknowledge>) =>
            perhaps(() => sale.queue.acknowledge(...args)),
        }),
        orders: {
          commitBatch: (...args) => perhaps(() => orders.commitBatch(...args)),
        },
        inventory,
        paymentDeadlineMs: () => 1_000,
        onEvent: (event) => {
          if (event.kind === 'repeated') repeats += event.count;
        },
      },
      { consumer: 'w' },
    );
  const expiry = () =>
    new ExpiryWorker({
      ...world,
      orders: {
        dueForExpiry: orders.dueForExpiry.bind(orders),
        transitionMany: (...args) => perhaps(() => orders.transitionMany(...args)),
        restocksDue: orders.restocksDue.bind(orders),
        restocksDone: (...args) => perhaps(() => orders.restocksDone(...args)),
      },
      inventory,
    });

  for (let race = 0; race < races; race += 1) {
    const reserved = await sale.reserve('ann', { deadlineInMs: 600_000 });
    const id = orderOf(reserved);
    const [delivery] = await sale.queue.receive('first', 1, 0);
    if (delivery === undefined) throw new Error('the message is gone');
    const twin = orders.commitBatch([delivery.message], {
      nowMs: sale.world.wallMs(),
      paymentDeadlineMs: () => 1_000,
      orderId: () => id,
    });
    await sale.queue.giveBack([delivery]);
    await Promise.all([worker().runOnce(0), twin]);
    for (let tries = 0; (await sale.queue.backlog(0)).depth > 0; tries += 1) {
      if (tries > 100) throw new Error('the message never came to an end');
      await sale.world.advance(30_000);
      await worker().runOnce(0);
    }
    await sale.world.advance(70_000);
    for (let tries = 0; ; tries += 1) {
      if (tries > 100) throw new Error('the order never came to an end');
      await Promise.allSettled([expiry().runOnce(), expiry().runOnce()]);
      const mark = await sale.inventory.mark(sale.sku);
      if (mark?.available === 5 && (await orders.restocksDue(1)).length === 0) break;
    }
    if (reserved.kind === 'reserved') expect(told.get(reserved.record.reservationId)).toBe(1);
  }

  const [rows] = await sql.query<{ n: number; ids: number }>(
    'SELECT count(*)::int AS n, count(DISTINCT order_id)::int AS ids FROM orders WHERE true',
    [],
  );
  expect(rows).toEqual({ n: races, ids: races });
  expect(await orders.counts('show')).toMatchObject({ pending: 0, expired: races, released: 0 });
  expect(await orders.stock(sale.sku)).toMatchObject({ total: 5, sold: 0 });
  expect(await orders.tally(sale.sku)).toEqual({ sold: 0, paid: 0, personsWrong: 0 });
  // The faults were there.
  expect(deaths).toBeGreaterThan(races);
  expect(repeats).toBeGreaterThan(races / 2);
}, 180_000);

function isRelease(fate: Fate): boolean {
  return fate.fate === 'released';
}
