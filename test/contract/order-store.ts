import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { orderIdOf } from '../../src/core/orders/ids.ts';
import { UnknownSkuError } from '../../src/ports/errors.ts';
import type { OrderMessage } from '../../src/ports/order-queue.ts';
import type {
  AuditContext,
  CommitContext,
  CommitFate,
  Order,
  OrderSearch,
  OrderStore,
  PaymentEvent,
} from '../../src/ports/order-store.ts';

/** Two doors to the same data: as two workers have, each with its own connection where there is one. */
export interface OrderStoreHarness {
  readonly store: OrderStore;
  readonly other: OrderStore;
  /** Empties everything. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

export const sku = { activityId: 'show', skuId: 'floor' };
export const startMs = 1_800_000_000_000;
export const deadlineMs = 900_000;

export function commitContext(nowMs = startMs): CommitContext {
  return {
    nowMs,
    paymentDeadlineMs: () => deadlineMs,
    orderId: (message) => orderIdOf(message.reservationId),
  };
}

/** A message as the inventory store would have sent it: reservation `r`, one unit, limit one. */
export function orderMessage(
  r: string,
  over: Partial<OrderMessage> & { user?: string } = {},
): OrderMessage {
  const { user = `user-${r}`, ...rest } = over;
  return {
    schemaVersion: 1,
    messageId: `msg_${r}`,
    ...sku,
    activityVersion: 1,
    generation: 1,
    reservationId: `rsv_${r}`,
    requestId: `req-${r}`,
    userId: user,
    personId: user,
    fingerprint: `print-${r}`,
    nonce: `nonce-${r}`,
    quantity: 1,
    limit: 1,
    unitAmountMinor: 4_900,
    currency: 'EUR',
    reservedAtMs: startMs - 10,
    deadlineMs: startMs + 60_000,
    ...rest,
  };
}

export const by = (who: string, nowMs: number): AuditContext => ({ who, why: 'test', nowMs });

export const ordersOf = (fates: readonly CommitFate[]): readonly Order[] =>
  fates.flatMap((fate) => (fate.fate === 'ordered' ? [fate.order] : []));

/** The order that `fate` made; fails the test when it made none. */
export function theOrder(fates: readonly CommitFate[]): Order {
  const [order] = ordersOf(fates);
  if (order === undefined) throw new Error(`no order among ${JSON.stringify(fates)}`);
  return order;
}

export function paymentEvent(order: Order, over: Partial<PaymentEvent> = {}): PaymentEvent {
  return {
    provider: 'demo',
    eventId: `evt-${order.orderId}`,
    intentId: `int-${order.orderId}`,
    orderId: order.orderId,
    outcome: 'confirmed',
    amountMinor: order.amountMinor,
    currency: order.currency,
    ...over,
  };
}

/** What every order store promises. */
export function orderStoreContract(name: string, make: () => Promise<OrderStoreHarness>): void {
  describe(`order store: ${name}`, () => {
    let harness: OrderStoreHarness;
    let store: OrderStore;

    beforeAll(async () => {
      harness = await make();
      store = harness.store;
    }, 120_000);
    afterAll(async () => {
      await harness.close();
    });
    beforeEach(async () => {
      await harness.reset();
      await declare(10);
    });

    const declare = (total: number, generation = 1): Promise<void> =>
      store.declareSku(sku, { total, generation, name: 'Floor' });
    const commit = (...messages: OrderMessage[]): Promise<readonly CommitFate[]> =>
      store.commitBatch(messages, commitContext());
    const expire = (order: Order, nowMs = startMs + deadlineMs + 1) =>
      store.transition(order.orderId, {
        ...by('worker:expiry', nowMs),
        from: ['PENDING_PAYMENT'],
        to: 'EXPIRED',
      });
    /** Counters, rows and guard rows tell one story. */
    const addsUp = async (): Promise<void> => {
      const stock = await store.stock(sku);
      const tally = await store.tally(sku);
      expect(tally).toEqual({ sold: stock?.sold, paid: stock?.paid, personsWrong: 0 });
      expect(stock?.sold).toBeLessThanOrEqual(stock?.total ?? -1);
    };

    describe('committing a batch', () => {
      test('an order carries what was reserved, and is found every way', async () => {
        const message = orderMessage('a', { quantity: 2, limit: 4, user: 'ann' });
        const fates = await commit(message);
        const order = {
          orderId: 'ord_a',
          reservationId: 'rsv_a',
          requestId: 'req-a',
          ...sku,
          userId: 'ann',
          personId: 'ann',
          quantity: 2,
          amountMinor: 9_800,
          currency: 'EUR',
          state: 'PENDING_PAYMENT',
          createdAtMs: startMs,
          payBeforeMs: startMs + deadlineMs,
        };
        expect(fates).toEqual([{ reservationId: 'rsv_a', fate: 'ordered', order, fresh: true }]);
        expect(await store.orderById('ord_a')).toEqual(order);
        expect(await store.orderByReservation('rsv_a')).toEqual(order);
        expect(await store.liveOfPerson(sku, 'ann')).toEqual([order]);
        expect(await store.fateOfRequest(sku, 'ann', 'req-a')).toEqual({
          reservationId: 'rsv_a',
          requestId: 'req-a',
          fingerprint: 'print-a',
          generation: 1,
          quantity: 2,
          order,
        });
        expect(await store.fateOfRequest(sku, 'bob', 'req-a')).toBeUndefined();
        expect(await store.liveOrders(sku, undefined, 10)).toEqual([
          { order, nonce: 'nonce-a', fingerprint: 'print-a', generation: 1 },
        ]);
        expect(await store.stock(sku)).toMatchObject({
          total: 10,
          sold: 2,
          paid: 0,
          generation: 1,
        });
        expect(await store.counts('show')).toMatchObject({ pending: 1, paid: 0, released: 0 });
        expect(await store.restocksDue(10)).toEqual([]);
        await addsUp();
      });

      test('an empty batch is no work', async () => {
        expect(await commit()).toEqual([]);
      });

      test('O6 O11 O12: a message that comes again, in this batch or a later one, changes nothing', async () => {
        const message = orderMessage('a');
        const [first, again] = await commit(message, message);
        expect(first).toMatchObject({ fate: 'ordered', fresh: true });
        expect(again).toEqual({ ...first, fresh: false });
        for (let redelivery = 0; redelivery < 3; redelivery += 1) {
          expect(await commit(message)).toEqual([{ ...first, fresh: false }]);
        }
        expect(await store.stock(sku)).toMatchObject({ sold: 1 });
        await addsUp();
      });

      test('O11: one message to two workers at once makes one order', async () => {
        for (let round = 0; round < 10; round += 1) {
          const messages = [orderMessage(`x${round}`), orderMessage(`y${round}`)];
          await declare(1_000);
          const replies = await Promise.all([
            store.commitBatch(messages, commitContext()),
            harness.other.commitBatch(messages.toReversed(), commitContext()),
          ]);
          const all = replies.flat();
          expect(new Set(ordersOf(all).map((order) => order.orderId)).size).toBe(2);
          expect(all.filter((fate) => fate.fresh)).toHaveLength(2);
          await store.adjustTotal(sku, `more-${round}`, 2, by('test', startMs));
        }
        expect(await store.stock(sku)).toMatchObject({ sold: 20 });
        await addsUp();
      });

      test('O1 O4: stock 10, 100 hits: exactly 10, and the others are told', async () => {
        const messages = Array.from({ length: 100 }, (_, n) => orderMessage(`m${n}`));
        const halves = await Promise.all([
          store.commitBatch(messages.slice(0, 50), commitContext()),
          harness.other.commitBatch(messages.slice(50), commitContext()),
        ]);
        const fates = halves.flat();
        expect(fates.filter((fate) => fate.fate === 'ordered')).toHaveLength(10);
        expect(fates.filter((fate) => fate.fate === 'released')).toHaveLength(90);
        expect(await store.stock(sku)).toMatchObject({ total: 10, sold: 10 });
        expect(await store.counts('show')).toMatchObject({ pending: 10, released: 90 });
        await addsUp();
      });

      test('O1: two left, two people want two each: one gets them, the other is told', async () => {
        await harness.reset();
        await declare(2);
        const [first, second] = await commit(
          orderMessage('a', { quantity: 2, limit: 2 }),
          orderMessage('b', { quantity: 2, limit: 2 }),
        );
        expect(first).toMatchObject({ fate: 'ordered' });
        expect(second).toMatchObject({ fate: 'released', reason: 'refused' });
        expect(await store.stock(sku)).toMatchObject({ sold: 2 });
      });

      test('a message that wants more than is left does not stop the one that wants less', async () => {
        await harness.reset();
        await declare(3);
        const fates = await commit(
          orderMessage('a', { quantity: 2, limit: 9 }),
          orderMessage('b', { quantity: 2, limit: 9 }),
          orderMessage('c', { quantity: 1, limit: 9 }),
        );
        expect(fates.map((fate) => fate.fate)).toEqual(['ordered', 'released', 'ordered']);
      });

      test('O21: batch of 64 in which the 10th and the 40th are one user: 63 orders', async () => {
        await harness.reset();
        await declare(100);
        const messages = Array.from({ length: 64 }, (_, n) =>
          orderMessage(`m${n}`, n === 10 || n === 40 ? { user: 'twice' } : {}),
        );
        const fates = await commit(...messages);
        expect(fates[10]).toMatchObject({ fate: 'ordered' });
        expect(fates[40]).toMatchObject({ fate: 'released', reason: 'refused' });
        expect(ordersOf(fates)).toHaveLength(63);
        await addsUp();
      });

      test('O20: limits are cumulative: 3, then 4 with a limit of 4 is refused, then 1 is not', async () => {
        const buy = (r: string, quantity: number) =>
          commit(orderMessage(r, { quantity, limit: 4, user: 'ann' }));
        expect(await buy('a', 3)).toMatchObject([{ fate: 'ordered' }]);
        expect(await buy('b', 4)).toMatchObject([{ fate: 'released', reason: 'refused' }]);
        expect(await buy('c', 1)).toMatchObject([{ fate: 'ordered' }]);
        expect(await store.liveOfPerson(sku, 'ann')).toHaveLength(2);
        await addsUp();
      });

      test('O5: one person through two workers at once stays within the limit', async () => {
        for (let round = 0; round < 10; round += 1) {
          const one = orderMessage(`p${round}`, { user: `same-${round}` });
          const two = orderMessage(`q${round}`, { user: `same-${round}` });
          const fates = await Promise.all([
            store.commitBatch([one], commitContext()),
            harness.other.commitBatch([two], commitContext()),
          ]);
          expect(ordersOf(fates.flat())).toHaveLength(1);
        }
        await addsUp();
      });

      test('the limit counts persons, not user ids', async () => {
        const fates = await commit(
          orderMessage('a', { user: 'phone', personId: 'id-digest' }),
          orderMessage('b', { user: 'laptop', personId: 'id-digest' }),
        );
        expect(fates.map((fate) => fate.fate)).toEqual(['ordered', 'released']);
      });

      test('a message past its deadline is released, one at its deadline is not', async () => {
        const late = orderMessage('late', { deadlineMs: startMs - 1 });
        const justInTime = orderMessage('edge', { deadlineMs: startMs });
        const fates = await commit(late, justInTime);
        expect(fates).toMatchObject([
          { fate: 'released', reason: 'deadline' },
          { fate: 'ordered' },
        ]);
      });

      test('a message of an older generation is lost, and its buyer can be told so', async () => {
        await store.raiseGeneration(sku, 2, by('control', startMs));
        const fates = await commit(
          orderMessage('old', { user: 'ann' }),
          orderMessage('new', { generation: 2 }),
        );
        expect(fates).toMatchObject([{ fate: 'released', reason: 'lost' }, { fate: 'ordered' }]);
        expect(await store.fateOfRequest(sku, 'ann', 'req-old')).toMatchObject({
          releasedReason: 'lost',
        });
        // The same request id may be submitted again and is then found by its newest fate.
        await store.commitBatch(
          [orderMessage('old2', { user: 'ann', requestId: 'req-old', generation: 2 })],
          commitContext(startMs + 5),
        );
        expect(await store.fateOfRequest(sku, 'ann', 'req-old')).toMatchObject({
          order: { orderId: 'ord_old2' },
        });
      });

      test('an order is what became of a request, whatever a later try of it came to', async () => {
        const first = await commit(orderMessage('first', { user: 'ann', requestId: 'req-twice' }));
        // The inventory had forgotten the first, and took the second; the person's limit refuses it.
        const [fate] = await store.commitBatch(
          [orderMessage('second', { user: 'ann', requestId: 'req-twice', nonce: 'nonce-first' })],
          commitContext(startMs + 5),
        );
        expect(fate).toMatchObject({ fate: 'released', reason: 'refused' });
        expect(await store.fateOfRequest(sku, 'ann', 'req-twice')).toMatchObject({
          order: { orderId: 'ord_first', state: 'PENDING_PAYMENT' },
        });
        // Its end is the order's end: nobody who was told of an order hears that none was made.
        expect(await expire(theOrder(first))).toMatchObject({ kind: 'done' });
        expect(await store.fateOfRequest(sku, 'ann', 'req-twice')).toMatchObject({
          order: { orderId: 'ord_first', state: 'EXPIRED' },
        });
      });

      test('one order per request: a retry of what was forgotten is refused, live or ended', async () => {
        const again = (r: string) =>
          orderMessage(r, { user: 'ann', requestId: 'req-once', limit: 9 });
        const released = { fate: 'released', reason: 'refused' };
        const first = await commit(again('a'), again('b'));
        expect(first).toMatchObject([{ fate: 'ordered' }, released]);
        expect(await commit(again('c'))).toMatchObject([released]);
        expect(await expire(theOrder(first))).toMatchObject({ kind: 'done' });
        expect(await commit(again('d'))).toMatchObject([released]);
        // The same id from somebody else is another request.
        const bob = orderMessage('e', { user: 'bob', requestId: 'req-once' });
        expect(await commit(bob)).toMatchObject([{ fate: 'ordered' }]);
        await addsUp();
      });

      test('two workers, one request that came twice', async () => {
        for (let round = 0; round < 5; round += 1) {
          const want = (r: string) =>
            orderMessage(`${r}${round}`, { user: 'ann', requestId: `req-${round}`, limit: 99 });
          const fates = await Promise.all([
            store.commitBatch([want('s')], commitContext()),
            store.commitBatch([want('t')], commitContext()),
          ]);
          expect(
            fates
              .flat()
              .map(({ fate }) => fate)
              .toSorted(),
          ).toEqual(['ordered', 'released']);
        }
        await addsUp();
      });

      test('a SKU that nobody declared stops its batch and leaves nothing behind', async () => {
        const stray = orderMessage('b', { skuId: 'balcony' });
        await expect(commit(orderMessage('a'), stray)).rejects.toBeInstanceOf(UnknownSkuError);
        expect(await store.orderByReservation('rsv_a')).toBeUndefined();
        expect(await store.stock(sku)).toMatchObject({ sold: 0 });
      });

      test('several SKUs in one batch, from two workers in opposite order', async () => {
        const skus = ['a', 'b', 'c', 'd'];
        for (const skuId of skus) {
          await store.declareSku(
            { activityId: 'show', skuId },
            { total: 500, generation: 1, name: skuId },
          );
        }
        const batch = (worker: string): OrderMessage[] =>
          Array.from({ length: 80 }, (_, n) =>
            orderMessage(`${worker}${n}`, { skuId: skus[n % 4]! }),
          );
        await Promise.all([
          store.commitBatch(batch('w'), commitContext()),
          harness.other.commitBatch(batch('v').toReversed(), commitContext()),
        ]);
        for (const skuId of skus) {
          expect(await store.stock({ activityId: 'show', skuId })).toMatchObject({ sold: 40 });
        }
      });

      test('text of every kind survives', async () => {
        const odd = `o'Neil "q" \\ {x,NULL} 北京 \u{1f39f}`;
        await commit(orderMessage('a', { user: odd, requestId: 'req-odd' }));
        expect(await store.liveOfPerson(sku, odd)).toMatchObject([{ userId: odd }]);
        expect(await store.fateOfRequest(sku, odd, 'req-odd')).toBeDefined();
      });
    });

    describe('seats', () => {
      test('one live hold per seat, given back with the order', async () => {
        const seated = (r: string, ...seats: string[]) =>
          orderMessage(r, { seats, quantity: seats.length, limit: 9 });
        const first = await commit(
          seated('a', 'A-1', 'A-2'),
          seated('b', 'A-2', 'A-3'),
          seated('c', 'A-3'),
        );
        expect(first.map((fate) => fate.fate)).toEqual(['ordered', 'released', 'ordered']);
        expect(theOrder(first).seats).toEqual(['A-1', 'A-2']);
        expect(await commit(seated('d', 'A-1'))).toMatchObject([{ fate: 'released' }]);
        expect(await expire(theOrder(first))).toMatchObject({ kind: 'done' });
        expect(await commit(seated('e', 'A-1'))).toMatchObject([{ fate: 'ordered' }]);
        await addsUp();
      });

      test('two workers, one seat', async () => {
        for (let round = 0; round < 5; round += 1) {
          const want = (r: string) => orderMessage(`${r}${round}`, { seats: [`R-${round}`] });
          const fates = await Promise.all([
            store.commitBatch([want('s')], commitContext()),
            harness.other.commitBatch([want('t')], commitContext()),
          ]);
          expect(ordersOf(fates.flat())).toHaveLength(1);
        }
        await addsUp();
      });
    });

    describe('releasing without an order', () => {
      test('the first decision stands, whichever it was', async () => {
        const lost = orderMessage('lost');
        const made = orderMessage('made');
        await commit(made);
        const released = await store.releaseUnordered(
          [
            { message: lost, reason: 'deadline' },
            { message: made, reason: 'deadline' },
            { message: lost, reason: 'deadline' },
          ],
          startMs,
        );
        expect(released).toMatchObject([
          { fate: 'released', reason: 'deadline', fresh: true },
          { fate: 'ordered', fresh: false },
          { fate: 'released', fresh: false },
        ]);
        expect(await commit(lost)).toEqual([
          { reservationId: 'rsv_lost', fate: 'released', reason: 'deadline', fresh: false },
        ]);
        expect(await store.stock(sku)).toMatchObject({ sold: 1 });
        expect(await store.restocksDue(10)).toMatchObject([
          { reservationId: 'rsv_lost', kind: 'release', quantity: 1, reason: 'deadline' },
        ]);
        expect(await store.fatesOf(['rsv_lost', 'rsv_made', 'rsv_none'])).toHaveLength(2);
        await addsUp();
      });

      test('the worker and the reconciler meet on one reservation: one fate', async () => {
        for (let round = 0; round < 10; round += 1) {
          const message = orderMessage(`r${round}`);
          await store.adjustTotal(sku, `one-${round}`, 1, by('test', startMs));
          const [committed, released] = await Promise.all([
            store.commitBatch([message], commitContext()),
            harness.other.releaseUnordered([{ message, reason: 'deadline' }], startMs),
          ]);
          expect(committed[0]?.fate).toBe(released[0]?.fate);
          expect([committed[0]?.fresh, released[0]?.fresh].filter(Boolean)).toHaveLength(1);
        }
        await addsUp();
      });
    });

    describe('transitions', () => {
      test('O13: an order expires once, and its unit is due back once, however often the job runs', async () => {
        const order = theOrder(await commit(orderMessage('a', { user: 'ann' })));
        const at = order.payBeforeMs + 1;
        const replies = await Promise.all([
          expire(order),
          harness.other.transition(order.orderId, {
            ...by('worker:expiry', at),
            from: ['PENDING_PAYMENT'],
            to: 'EXPIRED',
          }),
          expire(order),
        ]);
        expect(replies.filter((reply) => reply.kind === 'done')).toHaveLength(1);
        expect(replies.filter((reply) => reply.kind === 'refused')).toHaveLength(2);
        expect(await store.orderById(order.orderId)).toMatchObject({
          state: 'EXPIRED',
          closedAtMs: at,
        });
        const due = await store.restocksDue(10);
        expect(due).toMatchObject([{ kind: 'release', reservationId: 'rsv_a', reason: 'expired' }]);
        await store.restocksDone(due);
        expect(await store.restocksDue(10)).toEqual([]);
        await store.restocksDone(due);
        expect(await store.stock(sku)).toMatchObject({ sold: 0 });
        expect(await store.counts('show')).toMatchObject({ pending: 0, expired: 1 });
        // A redelivery from before the expiry must not take the unit again.
        expect(await commit(orderMessage('a', { user: 'ann' }))).toMatchObject([
          { fate: 'released', reason: 'expired', fresh: false },
        ]);
        // And a new try of the same person works.
        expect(await commit(orderMessage('b', { user: 'ann' }))).toMatchObject([
          { fate: 'ordered' },
        ]);
        await addsUp();
      });

      test('O22: cancel and expiry in the same instant: one wins, one restock', async () => {
        for (let round = 0; round < 10; round += 1) {
          const order = theOrder(await commit(orderMessage(`c${round}`)));
          const [cancelled, expired] = await Promise.all([
            store.transition(order.orderId, {
              ...by('buyer', startMs),
              from: ['PENDING_PAYMENT'],
              to: 'CANCELLED',
            }),
            harness.other.transition(order.orderId, {
              ...by('worker:expiry', startMs),
              from: ['PENDING_PAYMENT'],
              to: 'EXPIRED',
            }),
          ]);
          expect([cancelled.kind, expired.kind].toSorted()).toEqual(['done', 'refused']);
          expect(await store.restocksDue(100)).toHaveLength(round + 1);
        }
        expect(await store.stock(sku)).toMatchObject({ sold: 0 });
        await addsUp();
      });

      test('many at once: each told its own, stock moved once', async () => {
        const orders = ordersOf(await commit(...['a', 'b', 'c'].map((r) => orderMessage(r))));
        await expire(orders[1]!);
        const replies = await store.transitionMany(
          [...orders.map((order) => order.orderId), 'ord_none'],
          { ...by('operator', startMs), from: ['PENDING_PAYMENT'], to: 'CANCELLED' },
        );
        expect(replies.map((reply) => reply.kind)).toEqual(['done', 'refused', 'done', 'unknown']);
        expect(await store.counts('show')).toMatchObject({ pending: 0, expired: 1, cancelled: 2 });
        await addsUp();
      });

      test('a way that does not exist is the caller’s error', async () => {
        await expect(
          store.transition('ord_a', { ...by('x', startMs), from: ['CANCELLED'], to: 'PAID' }),
        ).rejects.toThrow(/no order goes from CANCELLED to PAID; allowed from CANCELLED: nothing/);
      });

      test('every transition leaves who, what, why and when', async () => {
        const order = theOrder(await commit(orderMessage('a')));
        await expire(order);
        expect(await store.audit.list(order.orderId, 10)).toEqual([
          {
            at: startMs + deadlineMs + 1,
            who: 'worker:expiry',
            what: 'order PENDING_PAYMENT -> EXPIRED',
            why: 'test',
            subject: order.orderId,
          },
        ]);
      });

      test('due for expiry: past the deadline; with money on its way, past the grace', async () => {
        const orders = ordersOf(await commit(orderMessage('a'), orderMessage('b')));
        const [plain, paying] = [orders[0]!, orders[1]!];
        await store.payments.begin(paying.orderId, 'demo', 'pay_b', startMs);
        await store.payments.setIntent('pay_b', 'int-b', 'PROCESSING', startMs);
        const dueAt = async (nowMs: number) =>
          (await store.dueForExpiry(nowMs, 60_000, 10)).map((order) => order.orderId);
        const deadline = plain.payBeforeMs;
        expect(await dueAt(deadline)).toEqual([]);
        expect(await dueAt(deadline + 1)).toEqual([plain.orderId]);
        expect(await dueAt(deadline + 60_000)).toEqual([plain.orderId]);
        expect((await dueAt(deadline + 60_001)).toSorted()).toEqual(
          [plain.orderId, paying.orderId].toSorted(),
        );
        await store.payments.setState('pay_b', ['PROCESSING'], 'FAILED', by('demo', startMs));
        expect(await dueAt(deadline + 1)).toHaveLength(2);
      });
    });

    describe('payments', () => {
      const buy = async (r: string, over: Parameters<typeof orderMessage>[1] = {}) =>
        theOrder(await commit(orderMessage(r, over)));
      const apply = (order: Order, over: Partial<PaymentEvent> = {}, nowMs = startMs + 1_000) =>
        store.payments.applyEvent(paymentEvent(order, over), nowMs);

      test('one open payment per provider, however often asked', async () => {
        const order = await buy('a');
        const asked = await Promise.all([
          store.payments.begin(order.orderId, 'demo', 'pay_1', startMs),
          harness.other.payments.begin(order.orderId, 'demo', 'pay_2', startMs),
        ]);
        expect(asked[0]?.paymentId).toBe(asked[1]?.paymentId);
        expect(asked[0]).toMatchObject({ state: 'CREATED', amountMinor: 4_900, currency: 'EUR' });
        expect(await store.payments.begin(order.orderId, 'other', 'pay_3', startMs)).toMatchObject({
          paymentId: 'pay_3',
        });
        expect(await store.payments.ofOrder(order.orderId)).toHaveLength(2);
        expect(await store.payments.begin('ord_none', 'demo', 'pay_4', startMs)).toBeUndefined();
        const late = order.payBeforeMs + 1;
        expect(await store.payments.begin(order.orderId, 'third', 'pay_5', late)).toBeUndefined();
      });

      test('a confirmed payment pays the order, once', async () => {
        const order = await buy('a', { quantity: 2, limit: 2 });
        await store.payments.begin(order.orderId, 'demo', 'pay_1', startMs);
        await store.payments.setIntent('pay_1', `int-${order.orderId}`, 'PROCESSING', startMs);
        const reply = await apply(order);
        expect(reply).toMatchObject({
          kind: 'applied',
          effect: 'order_paid',
          order: { state: 'PAID', paidAtMs: startMs + 1_000, paidBy: 'pay_1' },
          payment: { paymentId: 'pay_1', state: 'CONFIRMED', reason: 'order_paid' },
        });
        expect(await store.orderById(order.orderId)).toMatchObject({
          state: 'PAID',
          paidBy: 'pay_1',
        });
        expect(await store.stock(sku)).toMatchObject({ sold: 2, paid: 2 });
        expect(await store.counts('show')).toMatchObject({ pending: 0, paid: 1 });
        // O15: the provider replays it, under the same id or another.
        expect(await apply(order)).toEqual({ kind: 'duplicate' });
        expect(await apply(order, { eventId: 'evt-again' })).toMatchObject({ effect: 'none' });
        expect(await expire(order)).toMatchObject({ kind: 'refused', order: { state: 'PAID' } });
        expect(await store.audit.list(order.orderId, 10)).toMatchObject([
          { what: 'order PENDING_PAYMENT -> PAID', who: 'provider:demo', why: 'order_paid' },
          { what: 'payment PROCESSING -> CONFIRMED' },
        ]);
        await addsUp();
      });

      test('a callback that is faster than our own note of the intent finds its payment', async () => {
        const order = await buy('a');
        await store.payments.begin(order.orderId, 'demo', 'pay_1', startMs);
        expect(await apply(order)).toMatchObject({
          effect: 'order_paid',
          payment: { paymentId: 'pay_1' },
        });
        await store.payments.setIntent(
          'pay_1',
          `int-${order.orderId}`,
          'PROCESSING',
          startMs + 2_000,
        );
        expect(await store.payments.byId('pay_1')).toMatchObject({
          state: 'CONFIRMED',
          intentId: `int-${order.orderId}`,
        });
      });

      test('O14: late money, unit resold: refund, and why', async () => {
        await harness.reset();
        await declare(1);
        const order = await buy('a');
        await expire(order);
        await buy('b');
        const reply = await apply(order, {}, order.payBeforeMs + 60_000);
        expect(reply).toMatchObject({
          effect: 'refund_due_late',
          order: { state: 'EXPIRED' },
          payment: { state: 'REFUND_DUE', reason: 'refund_due_late' },
        });
        expect(await store.stock(sku)).toMatchObject({ sold: 1, paid: 0 });
        await addsUp();
      });

      test('late money, unit still there: paid, and the inventory store is to take it again', async () => {
        const order = await buy('a', { user: 'ann' });
        await expire(order);
        const released = await store.restocksDue(10);
        const reply = await apply(order, {}, order.payBeforeMs + 60_000);
        expect(reply).toMatchObject({ effect: 'order_paid_late', order: { state: 'PAID' } });
        expect(await store.orderById(order.orderId)).not.toHaveProperty('closedAtMs');
        // What was told before of the release does not swallow the retake.
        await store.restocksDone(released);
        const due = await store.restocksDue(10);
        expect(due).toMatchObject([
          { kind: 'retake', reservationId: 'rsv_a', userId: 'ann', requestId: 'req-a' },
        ]);
        expect(await store.stock(sku)).toMatchObject({ sold: 1, paid: 1 });
        expect(await store.counts('show')).toMatchObject({ expired: 0, paid: 1 });
        await addsUp();
      });

      test('O17: late money passes the same check of the person as a new order', async () => {
        const first = await buy('a', { user: 'ann' });
        await expire(first);
        await buy('b', { user: 'ann' });
        expect(await apply(first, {}, first.payBeforeMs + 5)).toMatchObject({
          effect: 'refund_due_late',
        });
        await addsUp();
      });

      test('O2: A holds 5 of 20, B takes the rest, A expires and pays late: never oversold', async () => {
        await harness.reset();
        await declare(20);
        const held = await buy('a', { quantity: 5, limit: 20 });
        const rest = orderMessage('b', { quantity: 20, limit: 20 });
        expect(await commit(rest)).toMatchObject([{ fate: 'released' }]);
        await buy('c', { quantity: 15, limit: 20 });
        await expire(held);
        await buy('d', { quantity: 5, limit: 20 });
        expect(await apply(held, {}, held.payBeforeMs + 5)).toMatchObject({
          effect: 'refund_due_late',
        });
        expect(await store.stock(sku)).toMatchObject({ total: 20, sold: 20 });
      });

      test('late money and the next buyer race for the last unit: one gets it', async () => {
        for (let round = 0; round < 10; round += 1) {
          await harness.reset();
          await declare(1);
          const order = await buy(`l${round}`);
          await expire(order);
          const [reply, fates] = await Promise.all([
            apply(order, {}, order.payBeforeMs + 5),
            harness.other.commitBatch([orderMessage(`n${round}`)], commitContext()),
          ]);
          const paid = reply.kind === 'applied' && reply.effect === 'order_paid_late';
          expect(paid).toBe(fates[0]?.fate === 'released');
          expect(await store.stock(sku)).toMatchObject({ total: 1, sold: 1 });
          await addsUp();
        }
      });

      test('O16: a second channel pays too: the first is kept, the second is due back', async () => {
        const order = await buy('a');
        await apply(order);
        const second = await apply(order, {
          provider: 'other',
          eventId: 'evt-o',
          intentId: 'int-o',
        });
        expect(second).toMatchObject({
          effect: 'refund_due_second_channel',
          order: { state: 'PAID' },
          payment: { provider: 'other', state: 'REFUND_DUE' },
        });
        const refunded = await apply(order, {
          provider: 'other',
          eventId: 'evt-r',
          intentId: 'int-o',
          outcome: 'refunded',
        });
        // Only the money that paid the order refunds the order.
        expect(refunded).toMatchObject({ effect: 'refunded', order: { state: 'PAID' } });
        expect(await store.stock(sku)).toMatchObject({ sold: 1, paid: 1 });
      });

      test('two channels confirm in the same instant: one pays', async () => {
        for (let round = 0; round < 5; round += 1) {
          const order = await buy(`z${round}`);
          const replies = await Promise.all([
            apply(order),
            harness.other.payments.applyEvent(
              paymentEvent(order, { provider: 'other', intentId: `o-${round}` }),
              startMs,
            ),
          ]);
          const effects = replies.map((reply) => (reply.kind === 'applied' ? reply.effect : ''));
          expect(effects.toSorted()).toEqual(['order_paid', 'refund_due_second_channel']);
        }
        await addsUp();
      });

      test('money for a cancelled order goes back', async () => {
        const order = await buy('a');
        await store.transition(order.orderId, {
          ...by('buyer', startMs),
          from: ['PENDING_PAYMENT'],
          to: 'CANCELLED',
        });
        expect(await apply(order)).toMatchObject({
          effect: 'refund_due_cancelled',
          order: { state: 'CANCELLED' },
        });
      });

      test('another amount or currency is held for the operator', async () => {
        const order = await buy('a');
        expect(await apply(order, { amountMinor: 1 })).toMatchObject({
          effect: 'held_amount_mismatch',
          order: { state: 'PENDING_PAYMENT' },
          payment: { state: 'HELD', amountMinor: 1 },
        });
        expect(await apply(order, { eventId: 'evt-2' })).toMatchObject({ effect: 'none' });
        expect(
          await store.payments.begin(order.orderId, 'demo', 'pay_again', startMs),
        ).toMatchObject({ state: 'HELD' });
        const other = await buy('b');
        expect(await apply(other, { currency: 'USD' })).toMatchObject({
          effect: 'held_amount_mismatch',
        });
        expect(await store.payments.inState(['HELD'], startMs + 9_999, 10)).toHaveLength(2);
      });

      test('held money that an operator takes as it is pays, once, where it still can', async () => {
        const hold = async (r: string): Promise<{ order: Order; id: string }> => {
          const order = await buy(r);
          const reply = await apply(order, { amountMinor: 4_899 });
          return { order, id: reply.kind === 'applied' ? reply.payment.paymentId : '' };
        };
        const eve = by('operator:eve', startMs + 2_000);
        const pending = await hold('a');
        expect(await store.payments.accept(pending.id, eve)).toMatchObject({
          effect: 'order_paid',
          order: { state: 'PAID', paidBy: pending.id },
          payment: { state: 'CONFIRMED', amountMinor: 4_899 },
        });
        expect(await store.payments.accept(pending.id, eve)).toEqual({ kind: 'duplicate' });
        expect(await store.payments.accept('pay_none', eve)).toEqual({ kind: 'unknown_order' });
        expect(await store.audit.list(pending.order.orderId, 1)).toMatchObject([
          { who: 'operator:eve', why: 'test', what: 'order PENDING_PAYMENT -> PAID' },
        ]);
        const second = await hold('b');
        await apply(second.order, { provider: 'other', intentId: 'o', eventId: 'e' });
        expect(await store.payments.accept(second.id, eve)).toMatchObject({
          effect: 'refund_due_second_channel',
          payment: { state: 'REFUND_DUE' },
        });
        const late = await hold('c');
        await expire(late.order);
        expect(await store.payments.accept(late.id, eve)).toMatchObject({
          effect: 'order_paid_late',
        });
        await addsUp();
      });

      test('failed, then confirmed: the money is believed; confirmed, then failed: too', async () => {
        const one = await buy('a');
        expect(await apply(one, { eventId: 'f', outcome: 'failed' })).toMatchObject({
          effect: 'failed',
          order: { state: 'PENDING_PAYMENT' },
        });
        expect(await apply(one, { eventId: 'c' })).toMatchObject({ effect: 'order_paid' });
        expect(await apply(one, { eventId: 'f2', outcome: 'failed' })).toMatchObject({
          effect: 'none',
          order: { state: 'PAID' },
        });
      });

      test('a failed payment leaves room for another try', async () => {
        const order = await buy('a');
        await store.payments.begin(order.orderId, 'demo', 'pay_1', startMs);
        await store.payments.setIntent('pay_1', 'int-1', 'FAILED', startMs);
        expect(await store.payments.begin(order.orderId, 'demo', 'pay_2', startMs)).toMatchObject({
          paymentId: 'pay_2',
          state: 'CREATED',
        });
      });

      test('a refund of the paying money refunds the order and gives the unit back', async () => {
        const order = await buy('a');
        const paid = await apply(order);
        if (paid.kind !== 'applied') throw new Error('not applied');
        const due = by('operator:eve', startMs + 2_000);
        const id = paid.payment.paymentId;
        expect(await store.payments.setState(id, ['CONFIRMED'], 'REFUND_DUE', due)).toBe(true);
        expect(await store.payments.setState(id, ['CONFIRMED'], 'REFUND_DUE', due)).toBe(false);
        const reply = await apply(
          order,
          { eventId: 'evt-r', outcome: 'refunded' },
          startMs + 3_000,
        );
        expect(reply).toMatchObject({
          effect: 'refunded',
          order: { state: 'REFUNDED', closedAtMs: startMs + 3_000 },
          payment: { state: 'REFUNDED' },
        });
        expect(await store.restocksDue(10)).toMatchObject([
          { kind: 'release', reason: 'refunded' },
        ]);
        expect(await store.stock(sku)).toMatchObject({ sold: 0, paid: 0 });
        await addsUp();
      });

      test('money without an order is remembered, and applied should the order appear', async () => {
        const event = paymentEvent(await buy('a'), { orderId: 'ord_later', eventId: 'evt-early' });
        expect(await store.payments.applyEvent(event, startMs)).toEqual({ kind: 'unknown_order' });
        expect(await store.payments.applyEvent(event, startMs)).toEqual({ kind: 'unknown_order' });
        expect(await store.payments.unmatched(10)).toEqual([event]);
        await buy('later');
        expect(await store.payments.applyEvent(event, startMs)).toMatchObject({
          effect: 'order_paid',
        });
        expect(await store.payments.unmatched(10)).toEqual([]);
      });

      test('an intent that belongs to another order is nobody’s money until somebody looks', async () => {
        const one = await buy('a');
        const two = await buy('b');
        await apply(one);
        const crossed = paymentEvent(two, { intentId: `int-${one.orderId}`, eventId: 'evt-x' });
        expect(await store.payments.applyEvent(crossed, startMs)).toEqual({
          kind: 'unknown_order',
        });
        expect(await store.orderById(two.orderId)).toMatchObject({ state: 'PENDING_PAYMENT' });
      });

      test('calls to the provider are counted until the state changes', async () => {
        const order = await buy('a');
        await store.payments.begin(order.orderId, 'demo', 'pay_1', startMs);
        expect(await store.payments.noteAttempt('pay_1', startMs + 1)).toBe(1);
        expect(await store.payments.noteAttempt('pay_1', startMs + 2)).toBe(2);
        await store.payments.setState('pay_1', ['CREATED'], 'UNKNOWN', by('w', startMs + 3));
        expect(await store.payments.byId('pay_1')).toMatchObject({ attempts: 0, state: 'UNKNOWN' });
        expect(await store.payments.inState(['UNKNOWN'], startMs + 3, 10)).toEqual([]);
        expect(await store.payments.inState(['UNKNOWN'], startMs + 4, 10)).toHaveLength(1);
      });
    });

    describe('stock', () => {
      test('declaring again keeps total and generation', async () => {
        await store.adjustTotal(sku, 'more', 5, by('operator', startMs));
        await store.raiseGeneration(sku, 3, by('control', startMs));
        await store.declareSku(sku, { total: 10, generation: 1, name: 'New name' });
        expect(await store.stock(sku)).toEqual({
          total: 15,
          sold: 0,
          paid: 0,
          generation: 3,
          stopped: false,
        });
        expect(await store.raiseGeneration(sku, 3, by('control', startMs))).toBe(false);
        expect(await store.stock({ activityId: 'show', skuId: 'none' })).toBeUndefined();
      });

      test('a stop is kept through declarations and generations, with an audit row for each', async () => {
        expect(await store.setStopped(sku, true, by('operator', startMs))).toBe(true);
        expect(await store.setStopped(sku, true, by('operator', startMs))).toBe(false);
        await store.declareSku(sku, { total: 10, generation: 1, name: 'Again' });
        await store.raiseGeneration(sku, 2, by('control', startMs));
        expect(await store.stock(sku)).toMatchObject({ stopped: true, generation: 2 });
        // What was reserved before is still turned into an order.
        expect(await commit(orderMessage('late', { generation: 2 }))).toMatchObject([
          { fate: 'ordered' },
        ]);
        expect(await store.setStopped(sku, false, by('operator', startMs))).toBe(true);
        expect(await store.stock(sku)).toMatchObject({ stopped: false });
        const said = (await store.audit.list(sku.activityId, 10)).map(({ what }) => what);
        expect(said.filter((what) => what.startsWith('sale '))).toEqual([
          'sale reopened',
          'sale stopped',
        ]);
        const nowhere = { activityId: 'show', skuId: 'none' };
        expect(await store.setStopped(nowhere, true, by('operator', startMs))).toBe(false);
      });

      test('an adjustment counts once, and never below what is sold', async () => {
        await commit(...Array.from({ length: 8 }, (_, n) => orderMessage(`m${n}`)));
        const adjust = (id: string, delta: number) =>
          store.adjustTotal(sku, id, delta, by('operator', startMs));
        expect(await adjust('less', -3)).toBe(false);
        expect(await adjust('less', -2)).toBe(true);
        expect(await adjust('less', -2)).toBe(true);
        await expect(adjust('less', -1)).rejects.toThrow(/was made before with -2, found -1/);
        expect(await store.stock(sku)).toMatchObject({ total: 8, sold: 8 });
        await expect(
          store.adjustTotal({ activityId: 'show', skuId: 'none' }, 'x', 1, by('o', startMs)),
        ).rejects.toBeInstanceOf(UnknownSkuError);
      });

      test('an operator finds orders by whole values, in pages', async () => {
        const orders = ordersOf(
          await commit(...['d', 'a', 'c', 'b'].map((r) => orderMessage(r, { user: `u-${r}` }))),
        );
        const byId = orders.toSorted((x, y) => (x.orderId < y.orderId ? -1 : 1));
        await store.payments.applyEvent(paymentEvent(byId[0]!), startMs);
        const ids = async (wanted: Partial<OrderSearch>): Promise<readonly string[]> =>
          (await store.search({ limit: 10, ...wanted })).map((order) => order.orderId);
        expect(await ids({})).toEqual(['ord_a', 'ord_b', 'ord_c', 'ord_d']);
        expect(await ids({ limit: 2, after: 'ord_a' })).toEqual(['ord_b', 'ord_c']);
        expect(await ids({ state: 'PAID' })).toEqual(['ord_a']);
        expect(await ids({ text: 'u-c' })).toEqual(['ord_c']);
        expect(await ids({ text: 'rsv_d' })).toEqual(['ord_d']);
        expect(await ids({ text: 'u-' })).toEqual([]);
        expect(await ids({ activityId: 'other' })).toEqual([]);
        expect(await ids({ overdueAtMs: startMs + deadlineMs })).toEqual([]);
        expect(await ids({ overdueAtMs: startMs + deadlineMs + 1 })).toHaveLength(3);
      });

      test('live orders come in pages, each once', async () => {
        await commit(...['d', 'a', 'c', 'b', 'e'].map((r) => orderMessage(r)));
        await expire(theOrder(await store.commitBatch([orderMessage('c')], commitContext())));
        const seen: string[] = [];
        for (let after: string | undefined; ; ) {
          const page = await store.liveOrders(sku, after, 2);
          if (page.length === 0) break;
          seen.push(...page.map((live) => live.order.reservationId));
          after = seen.at(-1);
        }
        expect(seen).toEqual(['rsv_a', 'rsv_b', 'rsv_d', 'rsv_e']);
      });
    });
  });
}
