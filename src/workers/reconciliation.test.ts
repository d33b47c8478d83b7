import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { by, startMs } from '../../test/contract/order-store.ts';
import { type Sale, openSale, orderOf } from '../../test/support/sale.ts';
import { emptyTables } from '../../test/support/servers/orders.ts';
import { freshPgliteFolder } from '../../test/support/servers/pglite.ts';
import { systemTimers } from '../app/system.ts';
import type { ReleaseReason } from '../ports/inventory-store.ts';
import type { Sql } from '../ports/sql.ts';
import { SqlError } from '../stores/postgres/errors.ts';
import { InventoryEngine } from '../stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../stores/memory/inventory-store.ts';
import { migrate } from '../stores/postgres/migrate.ts';
import { PostgresOrderStore } from '../stores/postgres/order-store.ts';
import { openPglite } from '../stores/postgres/pglite.ts';
import { ExpiryWorker } from './expiry-worker.ts';
import { OrderWorker, type OrderWorkerParts } from './order-worker.ts';
import { rebuildSku } from './rebuild.ts';
import { Reconciliation, type ReconciliationParts } from './reconciliation.ts';

let sql: Sql;
let remove: () => void;
let orders: PostgresOrderStore;
let sale: Sale;

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
});

const world = () => ({ clock: sale.world, timers: sale.world, random: sale.random });
const worker = (over: Partial<OrderWorkerParts> = {}) =>
  new OrderWorker(
    {
      ...world(),
      queue: sale.queue,
      orders,
      inventory: sale.inventory,
      paymentDeadlineMs: () => 900_000,
      ...over,
    },
    { consumer: 'w' },
  );
const reconciliation = (over: Partial<ReconciliationParts> = {}) =>
  new Reconciliation({
    ...world(),
    inventory: sale.inventory,
    queue: sale.queue,
    orders,
    skus: () => [sale.sku],
    ...over,
  });
const asked = { repair: true, who: 'operator:eve', why: 'after the power cut' };
const look = { ...asked, repair: false };

describe('reconciliation', () => {
  test('a sound sale has no findings, in every state of its orders', async () => {
    for (const who of ['a', 'b', 'c']) await sale.reserve(who);
    expect((await reconciliation().runOnce(look)).findings).toEqual([]);
    await worker().runOnce();
    expect((await reconciliation().runOnce(look)).findings).toEqual([]);
    await sale.world.advance(100_000);
    const report = await reconciliation().runOnce(look);
    expect(report).toMatchObject({ findings: [], skus: 1, moving: 0 });
  });

  test('O9: a message lost or buried: released past its deadline, the unit is back, with an audit row', async () => {
    const reserved = await sale.reserve('ann');
    const poison = {
      commitBatch: () => Promise.reject(new SqlError({ message: 'no', code: '22021' })),
    };
    for (let attempt = 1; attempt <= 5; attempt += 1) {
      await worker({ orders: poison }).runOnce(0);
      await sale.world.advance(30_000);
    }
    const seen = await reconciliation().runOnce(look);
    expect(seen).toMatchObject({
      buried: 1,
      counts: { reservation_without_order: 1 },
      findings: [{ class: 'reservation_without_order', repair: 'release', repaired: false }],
    });
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ held: 1 });
    const repaired = await reconciliation().runOnce(asked);
    expect(repaired.findings).toMatchObject([{ repaired: true }]);
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ held: 0, available: 10 });
    const id = reserved.kind === 'reserved' ? reserved.record.reservationId : '';
    expect(await orders.audit.list(id, 10)).toMatchObject(
      [{ who: 'operator:eve', why: 'after the power cut', what: /reconciled/ }].map((row) => ({
        ...row,
        what: 'reconciled reservation_without_order by release',
      })),
    );
    expect((await reconciliation().runOnce(asked)).findings).toEqual([]);
  });

  test('a fate that nobody told is told', async () => {
    await sale.reserve('ann');
    const [delivery] = await sale.queue.receive('w', 1, 0);
    await orders.releaseUnordered(
      [{ message: delivery!.message, reason: 'deadline' satisfies ReleaseReason }],
      startMs,
    );
    await orders.restocksDone(await orders.restocksDue(10));
    await sale.queue.acknowledge([delivery!]);
    await sale.world.advance(100_000);
    const report = await reconciliation().runOnce(asked);
    expect(report.findings).toMatchObject([
      { class: 'fate_not_told', repaired: true },
      { class: 'stock_does_not_add_up', repaired: false },
    ]);
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ available: 10, held: 0 });
    expect((await reconciliation().runOnce(look)).findings).toEqual([]);
  });

  test('a live order whose units count as free takes them again', async () => {
    const id = orderOf(await sale.reserve('ann'));
    await worker().runOnce();
    const order = await orders.orderById(id);
    await sale.inventory.settle(
      sale.sku,
      [{ reservationId: order?.reservationId ?? '', fate: 'released', reason: 'expired' }],
      startMs,
    );
    await sale.world.advance(100_000);
    const report = await reconciliation().runOnce(asked);
    expect(report.findings[0]).toMatchObject({
      class: 'order_without_reservation',
      repaired: true,
    });
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ available: 9, ordered: 1 });
    expect((await reconciliation().runOnce(look)).findings).toEqual([]);
  });

  test('a restock that reached one side alone reaches the other', async () => {
    await orders.adjustTotal(sale.sku, 'more', 5, by('operator', startMs));
    expect((await reconciliation().runOnce(asked)).findings).toMatchObject([
      { class: 'total_differs', repaired: true },
    ]);
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ total: 15, available: 15 });
    expect((await reconciliation().runOnce(look)).findings).toEqual([]);
  });

  test('money without an order, and counters that lie, are for a person', async () => {
    const id = orderOf(await sale.reserve('ann'));
    await worker().runOnce();
    const event = {
      provider: 'demo',
      eventId: 'evt-stray',
      intentId: 'int-1',
      orderId: 'ord_none',
      outcome: 'confirmed',
      amountMinor: 100,
      currency: 'EUR',
    } as const;
    await orders.payments.applyEvent(event, startMs);
    await orders.payments.applyEvent(
      { ...event, eventId: 'e2', orderId: id, amountMinor: 4_900 },
      startMs,
    );
    await sql.query(
      "UPDATE orders SET state = 'PENDING_PAYMENT', paid_by = NULL WHERE order_id IS NOT NULL",
    );
    const report = await reconciliation().runOnce(asked);
    expect(report.counts).toEqual({ counters_differ: 1, paid_without_order: 2 });
    expect(report.findings.every((finding) => !finding.repaired)).toBe(true);
  });

  test('while an order expires in the middle of a look, nothing is found', async () => {
    const id = orderOf(await sale.reserve('ann'));
    await worker().runOnce();
    await sale.world.advance(900_001);
    const expiry = new ExpiryWorker({ ...world(), orders, inventory: sale.inventory });
    const interfering = Object.assign(Object.create(orders) as PostgresOrderStore, {
      payments: orders.payments,
      audit: orders.audit,
      stock: orders.stock.bind(orders),
      restocksDue: orders.restocksDue.bind(orders),
      liveOrders: orders.liveOrders.bind(orders),
      tally: orders.tally.bind(orders),
      async fatesOf(ids: readonly string[]) {
        await orders.transition(id, {
          ...by('w', startMs),
          from: ['PENDING_PAYMENT'],
          to: 'EXPIRED',
        });
        return orders.fatesOf(ids);
      },
    });
    const report = await reconciliation({ orders: interfering }).runOnce(look);
    expect(report).toMatchObject({ findings: [], moving: 1 });
    await expiry.runOnce();
    expect((await reconciliation().runOnce(look)).findings).toEqual([]);
  });
});

describe('rebuilding', () => {
  test('O10: after total loss: what is sold stays sold, old messages are lost, the sale goes on', async () => {
    const kept = orderOf(await sale.reserve('kept', { quantity: 2, limit: 3 }));
    await worker().runOnce();
    await sale.reserve('undecided');
    const [message] = await sale.queue.receive('w', 1, 0);

    // The store comes back empty, as a failover without its data does.
    const engine = InventoryEngine.over();
    const empty = new MemoryInventoryStore(engine);
    await empty.preload(sale.sku, { total: 10, generation: 1, stockEpoch: 0 });
    await sale.world.advance(100_000);
    const found = await reconciliation({ inventory: empty }).runOnce(asked);
    expect(found.findings[0]).toMatchObject({ class: 'inventory_forgot', repaired: false });

    const mark = await rebuildSku({ inventory: empty, orders, clock: sale.world }, sale.sku, {
      who: 'operator:eve',
      why: 'failover',
    });
    expect(mark).toMatchObject({
      total: 10,
      available: 8,
      ordered: 2,
      generation: 2,
      paused: false,
    });
    expect(mark.stockEpoch).toBeGreaterThan(2 ** 20);
    expect(await orders.stock(sale.sku)).toMatchObject({ generation: 2, sold: 2 });
    // The winner asks again and hears that they won; their nonce is still theirs.
    expect(await empty.find(sale.sku, 'kept', 'req-1')).toMatchObject({
      state: 'ordered',
      nonce: 'nonce-1',
      reservationId: kept.replace('ord_', 'rsv_'),
    });
    // The reservation that did not survive is refused, and its buyer is told so.
    const late = await orders.commitBatch([message!.message], {
      nowMs: startMs,
      paymentDeadlineMs: () => 900_000,
      orderId: () => 'ord_never',
    });
    expect(late).toMatchObject([{ fate: 'released', reason: 'lost' }]);
    expect((await reconciliation({ inventory: empty }).runOnce(look)).findings).toEqual([]);
    expect(await orders.audit.list('show', 10)).toMatchObject([{ what: 'generation raised' }]);
  });

  test('died after the generation was raised: seen, and ended by the next reconciliation', async () => {
    await sale.reserve('ann');
    await worker().runOnce();
    const dies = {
      mark: sale.inventory.mark.bind(sale.inventory),
      setPaused: sale.inventory.setPaused.bind(sale.inventory),
      settle: sale.inventory.settle.bind(sale.inventory),
      rebuild: () => Promise.reject(new Error('killed')),
    };
    const reason = { who: 'control', why: 'failover' };
    await expect(
      rebuildSku({ inventory: dies, orders, clock: sale.world }, sale.sku, reason),
    ).rejects.toThrow('killed');
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ paused: true, generation: 1 });
    const report = await reconciliation().runOnce({ ...asked, rebuild: true });
    expect(report.findings).toMatchObject([{ class: 'generation_behind', repaired: true }]);
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({
      paused: false,
      generation: 3,
      ordered: 1,
      available: 9,
    });
  });

  test('died before it reopened: paused, and nobody has stopped it; seen once that lasts, and ended', async () => {
    const inventory = {
      mark: sale.inventory.mark.bind(sale.inventory),
      settle: sale.inventory.settle.bind(sale.inventory),
      rebuild: sale.inventory.rebuild.bind(sale.inventory),
      setPaused: (...[sku, paused]: Parameters<typeof sale.inventory.setPaused>) =>
        paused ? sale.inventory.setPaused(sku, true) : Promise.reject(new Error('killed')),
    };
    const reason = { who: 'control', why: 'failover' };
    await expect(
      rebuildSku({ inventory, orders, clock: sale.world }, sale.sku, reason),
    ).rejects.toThrow('killed');
    const compare = reconciliation();
    const pass = async () => (await compare.runOnce({ ...asked, rebuild: true })).findings;
    expect(await pass(), 'it may be at work').toEqual([]);
    await sale.world.advance(31_000);
    expect(await pass()).toMatchObject([{ class: 'paused_alone', repaired: true }]);
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ paused: false, generation: 3 });
    expect(await pass()).toEqual([]);

    // What an operator has stopped is no fault, however long.
    await orders.setStopped(sale.sku, true, { who: 'eve', why: 'rain', nowMs: startMs });
    await sale.inventory.setPaused(sale.sku, true);
    expect(await pass()).toEqual([]);
    await sale.world.advance(31_000);
    expect(await pass()).toEqual([]);
  });

  test('two at once: nothing is sold that the later one would lose, and it is open in the end', async () => {
    const reason = { who: 'eve', why: 'twice at once' };
    await sale.reserve('ann');
    await worker().runOnce();
    const parts = { inventory: sale.inventory, orders, clock: sale.world };
    const [raised, goOn] = [latch(), latch()];
    // The later one raises the generation while the first is about to reopen, and takes its time.
    const slowly = {
      stock: orders.stock.bind(orders),
      raiseGeneration: orders.raiseGeneration.bind(orders),
      fatesOf: orders.fatesOf.bind(orders),
      liveOrders: async (...of: Parameters<typeof orders.liveOrders>) => {
        raised.open();
        await goOn.opened;
        return orders.liveOrders(...of);
      },
    };
    let later: Promise<unknown> | undefined;
    const inventory = {
      mark: sale.inventory.mark.bind(sale.inventory),
      setPaused: sale.inventory.setPaused.bind(sale.inventory),
      settle: sale.inventory.settle.bind(sale.inventory),
      rebuild: async (...of: Parameters<typeof sale.inventory.rebuild>) => {
        const mark = await sale.inventory.rebuild(...of);
        later = rebuildSku({ ...parts, orders: slowly }, sale.sku, reason);
        await raised.opened;
        return mark;
      },
    };
    const ended = await rebuildSku({ ...parts, inventory }, sale.sku, reason);
    expect(ended).toMatchObject({ paused: true, generation: 2 });
    await expect(sale.reserve('ben')).rejects.toThrow('reserve answered paused');
    goOn.open();
    expect(await later).toMatchObject({ paused: false, generation: 3, available: 9 });
    expect(await orders.stock(sale.sku)).toMatchObject({ generation: 3, sold: 1 });
  });

  test('an order that expires while it is rebuilt gives its unit back all the same', async () => {
    await sale.reserve('ann');
    await worker().runOnce();
    const expiry = new ExpiryWorker({ ...world(), orders, inventory: sale.inventory });
    const inventory = {
      mark: sale.inventory.mark.bind(sale.inventory),
      setPaused: sale.inventory.setPaused.bind(sale.inventory),
      settle: sale.inventory.settle.bind(sale.inventory),
      // It was read as live; before the stock is replaced, the old one is told that it has ended.
      rebuild: async (...of: Parameters<typeof sale.inventory.rebuild>) => {
        await sale.world.advance(1_000_000);
        await expiry.runOnce();
        expect(await orders.restocksDue(10)).toEqual([]);
        return sale.inventory.rebuild(...of);
      },
    };
    const parts = { inventory, orders, clock: sale.world };
    const mark = await rebuildSku(parts, sale.sku, { who: 'eve', why: 'just then' });
    expect(mark).toMatchObject({ paused: false, available: 10, ordered: 0 });
    expect(await orders.stock(sale.sku)).toMatchObject({ sold: 0 });
  });

  test('what an operator has stopped stays stopped, whenever they did', async () => {
    const reason = { who: 'control', why: 'failover' };
    const stop = async (stopped: boolean): Promise<void> => {
      await orders.setStopped(sale.sku, stopped, { who: 'eve', why: 'rain', nowMs: startMs });
      await sale.inventory.setPaused(sale.sku, stopped);
    };
    const parts = { inventory: sale.inventory, orders, clock: sale.world };
    await stop(true);
    expect(await rebuildSku(parts, sale.sku, reason)).toMatchObject({ paused: true });
    await expect(sale.reserve('ann')).rejects.toThrow('reserve answered paused');
    await stop(false);
    expect(await rebuildSku(parts, sale.sku, reason)).toMatchObject({ paused: false });
    // While it is being rebuilt: before the last look at the durable side, or right after it.
    for (const moment of ['before', 'after']) {
      const inventory = {
        mark: sale.inventory.mark.bind(sale.inventory),
        rebuild: sale.inventory.rebuild.bind(sale.inventory),
        settle: sale.inventory.settle.bind(sale.inventory),
        setPaused: async (...[sku, paused]: Parameters<typeof sale.inventory.setPaused>) => {
          if (!paused && moment === 'before') await stop(true);
          const mark = await sale.inventory.setPaused(sku, paused);
          if (!paused && moment === 'after') await stop(true);
          return mark;
        },
      };
      await rebuildSku({ ...parts, inventory }, sale.sku, reason);
      expect(await sale.inventory.mark(sale.sku), moment).toMatchObject({ paused: true });
      await stop(false);
    }
  });
});

/** Something to wait for, and to let happen. */
function latch(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}
