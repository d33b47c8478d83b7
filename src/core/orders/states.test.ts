import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { orderIdOf } from './ids.ts';
import { judgePaymentEvent } from './judge-payment.ts';
import type { OrderState, PaymentEvent, PaymentState } from './model.ts';
import {
  assertOrderWays,
  assertPaymentWays,
  holdsUnits,
  mayOrder,
  mayPayment,
  orderStates,
  paymentStates,
} from './states.ts';

test('the ways of an order are those of the drawing, and no others', () => {
  const ways = orderStates.flatMap((from) =>
    orderStates.filter((to) => mayOrder(from, to)).map((to) => `${from} ${to}`),
  );
  expect(ways).toEqual([
    'PENDING_PAYMENT PAID',
    'PENDING_PAYMENT EXPIRED',
    'PENDING_PAYMENT CANCELLED',
    'PAID REFUNDED',
    'EXPIRED PAID',
  ]);
});

test('money is never forgotten: from every state before it, each state of money is reached', () => {
  for (const from of ['CREATED', 'PROCESSING', 'UNKNOWN', 'FAILED'] as const) {
    for (const to of ['CONFIRMED', 'HELD', 'REFUND_DUE'] as const) {
      expect(mayPayment(from, to)).toBe(true);
    }
  }
  expect(paymentStates.filter((to) => mayPayment('REFUNDED', to))).toEqual([]);
});

test('a wrong way quotes what was asked and what is allowed', () => {
  expect(() => assertOrderWays(['PAID'], 'EXPIRED')).toThrow(
    'no order goes from PAID to EXPIRED; allowed from PAID: REFUNDED',
  );
  expect(() => assertPaymentWays(['REFUNDED'], 'CONFIRMED')).toThrow(
    'no payment goes from REFUNDED to CONFIRMED; allowed from REFUNDED: nothing',
  );
});

const events = fc.record({
  outcome: fc.constantFrom<PaymentEvent['outcome']>('confirmed', 'failed', 'refunded'),
  amountMinor: fc.constantFrom(100, 99),
  currency: fc.constantFrom('EUR', 'USD'),
});

test('every event in every state moves only along the ways, or moves nothing', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...orderStates),
      fc.constantFrom(...paymentStates),
      fc.boolean(),
      events,
      (order, state, paidOrder, event) => {
        const judged = judgePaymentEvent(
          order,
          { state, amountMinor: 100, currency: 'EUR', paidOrder },
          event,
        );
        const moves = judged.kind === 'move' ? [judged.move] : [judged.taken, judged.gone];
        for (const move of moves) {
          if (move.payment !== undefined) expect(mayPayment(state, move.payment)).toBe(true);
          if (move.order !== undefined) expect(mayOrder(order, move.order)).toBe(true);
          if (move.order === 'PAID')
            expect(event).toMatchObject({ amountMinor: 100, currency: 'EUR' });
          if (move.effect === 'none') expect(move).toEqual({ effect: 'none' });
        }
      },
    ),
    { seed: 3, numRuns: 2_000 },
  );
});

/** One order, one payment; late money finds its unit or not. */
function run(
  sequence: readonly (typeof events extends fc.Arbitrary<infer Event> ? Event : never)[],
  startAs: OrderState,
  unitThere: boolean,
): { order: OrderState; payment: PaymentState } {
  let order = startAs;
  let payment: PaymentState = 'PROCESSING';
  let paidOrder = false;
  for (const event of sequence) {
    const judged = judgePaymentEvent(
      order,
      { state: payment, amountMinor: 100, currency: 'EUR', paidOrder },
      event,
    );
    const move = judged.kind === 'move' ? judged.move : unitThere ? judged.taken : judged.gone;
    payment = move.payment ?? payment;
    if (move.order === 'PAID') paidOrder = true;
    order = move.order ?? order;
  }
  return { order, payment };
}

test('whatever comes in whatever order: an order is paid exactly while its money is kept', () => {
  fc.assert(
    fc.property(
      fc.array(events, { maxLength: 8 }),
      fc.constantFrom<OrderState>('PENDING_PAYMENT', 'EXPIRED', 'CANCELLED'),
      fc.boolean(),
      (sequence, startAs, unitThere) => {
        const end = run(sequence, startAs, unitThere);
        expect(end.order === 'PAID').toBe(end.payment === 'CONFIRMED');
        if (end.payment === 'REFUND_DUE')
          expect(holdsUnits(end.order)).toBe(startAs === 'PENDING_PAYMENT');
      },
    ),
    { seed: 5, numRuns: 2_000 },
  );
});

test('an order id is a function of its reservation alone', () => {
  expect(orderIdOf('rsv_abc')).toBe('ord_abc');
  expect(orderIdOf('abc')).toBe('ord_abc');
});
