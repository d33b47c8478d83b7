import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startMs } from '../../test/contract/order-store.ts';
import { type Sale, openSale, orderOf } from '../../test/support/sale.ts';
import { emptyTables } from '../../test/support/servers/orders.ts';
import { freshPgliteFolder } from '../../test/support/servers/pglite.ts';
import { systemTimers } from '../app/system.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { Order, Payment } from '../ports/order-store.ts';
import type { PaymentProvider } from '../ports/payment-provider.ts';
import type { Sql } from '../ports/sql.ts';
import { migrate } from '../stores/postgres/migrate.ts';
import { PostgresOrderStore } from '../stores/postgres/order-store.ts';
import { openPglite } from '../stores/postgres/pglite.ts';
import { DemoProvider, callbackToleranceMs, demoMethods, isDemoMethod } from './demo-provider.ts';
import { ExpiryWorker } from './expiry-worker.ts';
import { OrderWorker } from './order-worker.ts';
import { PaymentService, type PaymentServiceEvent } from './payment-service.ts';
import { PaymentWorker, type PaymentWorkerEvent } from './payment-worker.ts';

let sql: Sql;
let remove: () => void;
let orders: PostgresOrderStore;
let sale: Sale;
let demo: DemoProvider;
let service: PaymentService;
let events: (PaymentServiceEvent | PaymentWorkerEvent)[];
let due: string[];
/** Callbacks whose processing the test waits for. */
let delivered: Promise<unknown>[];

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
  due = [];
  delivered = [];
  demo = openDemo();
  service = openService([demo]);
});

function openDemo(): DemoProvider {
  return new DemoProvider({
    secret: 'a secret of the demo',
    clock: sale.world,
    timers: sale.world,
    deliver(body, headers) {
      const done = service.callback('demo', body, headers);
      delivered.push(done);
      return done.then(() => undefined);
    },
  });
}

const openService = (providers: readonly PaymentProvider[]): PaymentService =>
  new PaymentService({
    orders,
    providers,
    clock: sale.world,
    timers: sale.world,
    random: sale.random,
    onDue: (what) => due.push(what),
    onEvent: (event) => events.push(event),
  });

const openWorker = (
  providers: readonly PaymentProvider[] = [demo],
  refundAttemptsMax = 3,
): PaymentWorker =>
  new PaymentWorker(
    {
      orders,
      service,
      providers,
      clock: sale.world,
      timers: sale.world,
      random: sale.random,
      onEvent: (event) => events.push(event),
    },
    { refundAttemptsMax },
  );

const expiryWorker = (): ExpiryWorker =>
  new ExpiryWorker({
    orders,
    inventory: sale.inventory,
    clock: sale.world,
    timers: sale.world,
    random: sale.random,
  });

async function buy(who: string, deadlineMs = 900_000): Promise<Order> {
  const id = orderOf(await sale.reserve(who));
  await new OrderWorker(
    {
      queue: sale.queue,
      orders,
      inventory: sale.inventory,
      clock: sale.world,
      timers: sale.world,
      random: sale.random,
      paymentDeadlineMs: () => deadlineMs,
    },
    { consumer: 'w' },
  ).runOnce();
  return fresh(id);
}

async function fresh(orderId: string): Promise<Order> {
  const order = await orders.orderById(orderId);
  if (order === undefined) throw new Error(`no order ${orderId}`);
  return order;
}

async function onlyPayment(order: Order): Promise<Payment> {
  const [payment, ...more] = await orders.payments.ofOrder(order.orderId);
  if (payment === undefined || more.length > 0) throw new Error('not exactly one payment');
  return payment;
}

/** Lets time pass, and every callback that came in it be worked off. */
async function pass(ms: number): Promise<void> {
  await sale.world.advance(ms);
  while (delivered.length > 0) await Promise.allSettled(delivered.splice(0));
}

describe('the demo provider, end to end', () => {
  test('card: processing, then paid', async () => {
    const order = await buy('ann');
    const begun = await service.pay(order);
    expect(begun).toMatchObject({
      kind: 'done',
      order: { state: 'PENDING_PAYMENT' },
      payment: { state: 'PROCESSING', provider: 'demo' },
    });
    // Clicking again begins nothing new.
    expect(await service.pay(order)).toMatchObject({
      payment: { paymentId: (await onlyPayment(order)).paymentId },
    });
    await pass(800);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
    expect(await service.pay(order)).toMatchObject({ kind: 'refused', order: { state: 'PAID' } });
    expect(events).toEqual([{ kind: 'applied', effect: 'order_paid', provider: 'demo' }]);
  });

  test('declined: failed, and the buyer may try again', async () => {
    const order = await buy('ann');
    await service.pay(order, 'declined');
    await pass(800);
    expect(await onlyPayment(order)).toMatchObject({ state: 'FAILED' });
    expect(await service.pay(order, 'card')).toMatchObject({ payment: { state: 'PROCESSING' } });
    await pass(800);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
  });

  test('silent: nobody calls, the worker asks', async () => {
    const order = await buy('ann');
    await service.pay(order, 'silent');
    await pass(4_999);
    expect(await openWorker().runOnce()).toMatchObject({ asked: 0 });
    await pass(2);
    expect(await openWorker().runOnce()).toMatchObject({ asked: 1 });
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
  });

  test('timeout: the answer to the intent is lost; unknown, never failed', async () => {
    const order = await buy('ann');
    expect(await service.pay(order, 'timeout')).toMatchObject({
      kind: 'done',
      payment: { state: 'UNKNOWN', intentId: '' },
    });
    await pass(800);
    // The callback names an intent that we never learned; it finds its payment all the same.
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
    expect((await onlyPayment(order)).intentId).toMatch(/^int_/);
  });

  test('twice: the second callback changes nothing and is accepted', async () => {
    const order = await buy('ann');
    await service.pay(order, 'twice');
    await pass(800);
    expect(events).toEqual([{ kind: 'applied', effect: 'order_paid', provider: 'demo' }]);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
  });

  test('short: held for the operator, who sends back what came', async () => {
    const order = await buy('ann');
    await service.pay(order, 'short');
    await pass(800);
    const payment = await onlyPayment(order);
    expect(payment).toMatchObject({ state: 'HELD', amountMinor: 4_899 });
    expect(await service.pay(order)).toMatchObject({ kind: 'refused' });
    expect(await service.refundHeld(payment.paymentId, 'operator:eve', 'wrong amount')).toBe(true);
    expect(due).toEqual(['money']);
    await openWorker().runOnce();
    expect(await onlyPayment(order)).toMatchObject({ state: 'REFUNDED' });
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PENDING_PAYMENT' });
  });

  test('short, and the operator takes it as it is', async () => {
    const order = await buy('ann');
    await service.pay(order, 'short');
    await pass(800);
    const { paymentId } = await onlyPayment(order);
    expect(await service.acceptHeld(paymentId, 'operator:eve', 'one cent')).toBe(true);
    expect(await service.acceptHeld(paymentId, 'operator:eve', 'one cent')).toBe(false);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
  });

  test('slow, past the deadline but within the grace: paid in time', async () => {
    const order = await buy('ann', 2_000);
    await service.pay(order, 'slow');
    await pass(2_500);
    expect(await expiryWorker().runOnce()).toMatchObject({ expired: 0 });
    await pass(5_500);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
  });

  test('O14: late money for a unit that is gone is refunded, and why is on record', async () => {
    await orders.adjustTotal(sale.sku, 'one', -9, { who: 'op', why: 'x', nowMs: startMs });
    const order = await buy('ann', 2_000);
    await service.pay(order, 'silent');
    await pass(62_001);
    expect(await expiryWorker().runOnce()).toMatchObject({ expired: 1 });
    await buy('bob');
    await openWorker().runOnce();
    expect(due).toEqual(['money']);
    expect(await onlyPayment(order)).toMatchObject({
      state: 'REFUNDED',
      reason: 'refund_due_late',
    });
    expect((await orders.audit.list(order.orderId, 20)).map((row) => row.what)).toEqual([
      'payment REFUND_DUE -> REFUNDED',
      'payment PROCESSING -> REFUND_DUE',
      'order PENDING_PAYMENT -> EXPIRED',
    ]);
  });

  test('a restart of the provider loses its callbacks, not its truth', async () => {
    const order = await buy('ann');
    await service.pay(order, 'card');
    demo.close();
    demo = openDemo();
    service = openService([demo]);
    await pass(5_001);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PENDING_PAYMENT' });
    await openWorker([demo]).runOnce();
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
  });

  test('an intent that nobody knows is no money: failed, so that the buyer may go on', async () => {
    const order = await buy('ann');
    await service.pay(order, 'timeout');
    demo.close();
    demo = openDemo();
    await pass(5_001);
    await openWorker([demo]).runOnce();
    expect(await onlyPayment(order)).toMatchObject({ state: 'FAILED' });
  });
});

describe('callbacks', () => {
  const signed = (order: Order, over = {}) =>
    demo.signedCallback({
      eventId: 'evt-1',
      intentId: 'int-1',
      orderId: order.orderId,
      outcome: 'confirmed',
      amountMinor: order.amountMinor,
      currency: order.currency,
      ...over,
    });

  test('O15: any number of times, in any order', async () => {
    const order = await buy('ann');
    const { body, headers } = signed(order);
    const first = await Promise.all([1, 2, 3].map(() => service.callback('demo', body, headers)));
    expect(first.filter((reply) => reply.kind === 'accepted' && !reply.duplicate)).toHaveLength(1);
    expect(await service.callback('demo', body, headers)).toEqual({
      kind: 'accepted',
      duplicate: true,
    });
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
  });

  test('signature first: nothing unsigned, changed, old or foreign is believed', async () => {
    const order = await buy('ann');
    const { body, headers } = signed(order);
    const stranger = new DemoProvider({
      secret: 'another secret, long enough',
      clock: sale.world,
      timers: sale.world,
      deliver: () => Promise.resolve(),
    });
    const forged = stranger.signedCallback({
      eventId: 'e',
      intentId: 'i',
      orderId: order.orderId,
      outcome: 'confirmed',
      amountMinor: order.amountMinor,
      currency: 'EUR',
    });
    const changed = Buffer.from(Buffer.from(body).toString().replace('evt-1', 'evt-2'));
    const refused = { kind: 'bad_signature' };
    expect(await service.callback('demo', body, {})).toEqual(refused);
    expect(await service.callback('demo', body, { 'demo-signature': 't=1,v1=00' })).toEqual(
      refused,
    );
    expect(await service.callback('demo', changed, headers)).toEqual(refused);
    expect(await service.callback('demo', forged.body, forged.headers)).toEqual(refused);
    expect(await service.callback('other', body, headers)).toEqual({ kind: 'unknown_provider' });
    await pass(callbackToleranceMs + 1);
    expect(await service.callback('demo', body, headers)).toEqual(refused);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PENDING_PAYMENT' });
  });

  test('signed and malformed is refused with what is wrong', async () => {
    const order = await buy('ann');
    const bad = signed(order, { outcome: 'maybe' });
    expect(await service.callback('demo', bad.body, bad.headers)).toEqual({
      kind: 'bad_body',
      detail: 'outcome is "maybe"; allowed: confirmed, failed, refunded',
    });
    const fraction = signed(order, { amountMinor: 1.5 });
    expect(await service.callback('demo', fraction.body, fraction.headers)).toMatchObject({
      kind: 'bad_body',
    });
  });

  test('money for an order that nobody knows is remembered and told', async () => {
    const order = await buy('ann');
    const stray = signed(order, { orderId: 'ord_none' });
    expect(await service.callback('demo', stray.body, stray.headers)).toEqual({
      kind: 'unknown_order',
    });
    expect(events).toEqual([{ kind: 'unmatched', provider: 'demo' }]);
    expect(await orders.payments.unmatched(10)).toMatchObject([{ orderId: 'ord_none' }]);
  });
});

describe('cancel and refund', () => {
  test('O22: cancel beside the deadline: one wins, one unit back', async () => {
    const order = await buy('ann', 1_000);
    await pass(1_001);
    const [cancelled, expiry] = await Promise.all([
      service.cancel(order),
      expiryWorker().runOnce(),
    ]);
    expect(Number(cancelled.kind === 'done') + expiry.expired).toBe(1);
    await expiryWorker().runOnce();
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ available: 10, ordered: 0 });
  });

  test('a cancelled order cannot be paid, and money that comes anyway goes back', async () => {
    const order = await buy('ann');
    await service.pay(order, 'card');
    expect(await service.cancel(order)).toMatchObject({
      kind: 'done',
      order: { state: 'CANCELLED' },
    });
    expect(due).toEqual(['units']);
    expect(await service.cancel(order)).toMatchObject({ kind: 'refused' });
    await pass(800);
    expect(await onlyPayment(order)).toMatchObject({ state: 'REFUND_DUE' });
    await openWorker().runOnce();
    expect(await onlyPayment(order)).toMatchObject({ state: 'REFUNDED' });
  });

  test('an operator refunds a paid order: money back first, then order and unit', async () => {
    const order = await buy('ann');
    expect(await service.refund(order.orderId, 'operator:eve', 'goodwill')).toBe(false);
    await service.pay(order);
    await pass(800);
    expect(await service.refund(order.orderId, 'operator:eve', 'goodwill')).toBe(true);
    expect(await service.refund(order.orderId, 'operator:eve', 'goodwill')).toBe(false);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
    await openWorker().runOnce();
    expect(await fresh(order.orderId)).toMatchObject({ state: 'REFUNDED' });
    await expiryWorker().runOnce();
    expect(await sale.inventory.mark(sale.sku)).toMatchObject({ available: 10, ordered: 0 });
  });

  test('a refund the provider does not answer is tried a bounded number of times, then held', async () => {
    const order = await buy('ann');
    await service.pay(order);
    await pass(800);
    await service.refund(order.orderId, 'operator:eve', 'goodwill');
    let tries = 0;
    const deaf: PaymentProvider = {
      name: 'demo',
      createIntent: demo.createIntent.bind(demo),
      verifyCallback: demo.verifyCallback.bind(demo),
      query: demo.query.bind(demo),
      refund: () => {
        tries += 1;
        return Promise.reject(new OutcomeUnknownError('no answer'));
      },
    };
    const worker = openWorker([deaf], 3);
    for (let look = 0; look < 30; look += 1) {
      await worker.runOnce();
      await pass(5_000);
    }
    expect(tries).toBe(3);
    expect(await onlyPayment(order)).toMatchObject({ state: 'HELD' });
    expect(await worker.stuck(60_000, 10)).toHaveLength(1);
    expect(await fresh(order.orderId)).toMatchObject({ state: 'PAID' });
  });
});

describe('a provider that is away', () => {
  const away = (error: Error): PaymentProvider => ({
    name: 'demo',
    createIntent: () => Promise.reject(error),
    verifyCallback: () => ({ kind: 'bad_signature', detail: 'away' }),
    query: () => Promise.reject(error),
    refund: () => Promise.reject(error),
  });

  test('surely did nothing: the same intent is asked for by the same key next time', async () => {
    const order = await buy('ann');
    service = openService([away(new UnavailableError('refused'))]);
    await expect(service.pay(order)).rejects.toBeInstanceOf(UnavailableError);
    const asked = await onlyPayment(order);
    expect(asked).toMatchObject({ state: 'CREATED' });
    service = openService([demo]);
    expect(await service.pay(order)).toMatchObject({ payment: { paymentId: asked.paymentId } });
  });

  test('no answer at all: unknown after the time limit, then asked at growing intervals', async () => {
    const order = await buy('ann');
    const silent = {
      ...away(new Error()),
      createIntent: () => new Promise<never>(() => undefined),
    };
    service = openService([silent]);
    const paying = service.pay(order);
    await until(async () => {
      await sale.world.advance(1_000);
      return (await onlyPayment(order)).state === 'UNKNOWN';
    });
    expect(await paying).toMatchObject({ kind: 'done', payment: { state: 'UNKNOWN' } });
    const worker = openWorker([away(new UnavailableError('away'))]);
    let asked = 0;
    for (let second = 0; second < 600; second += 5) {
      asked += (await worker.runOnce()).asked;
      await sale.world.advance(5_000);
    }
    // 5 s doubling to 300 s: about 7 in ten minutes, against 120 looks.
    expect(asked).toBeGreaterThan(4);
    expect(asked).toBeLessThan(9);
    expect(await onlyPayment(order)).toMatchObject({ state: 'UNKNOWN' });
    expect(await worker.stuck(60_000, 10)).toMatchObject([{ orderId: order.orderId }]);
  });
});

test('methods are those of the table, and a short secret is refused', () => {
  expect(Object.keys(demoMethods).every(isDemoMethod)).toBe(true);
  expect(isDemoMethod('toString')).toBe(false);
  expect(
    () =>
      new DemoProvider({
        secret: 'short',
        clock: sale.world,
        timers: sale.world,
        deliver: () => Promise.resolve(),
      }),
  ).toThrow(/has 5 bytes, allowed: 16 or more/);
});

async function until(holds: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 200; tries += 1) {
    if (await holds()) return;
    await new Promise<void>((resume) => setTimeout(resume, 2));
  }
  throw new Error('it never held');
}
