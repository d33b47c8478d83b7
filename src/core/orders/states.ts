/**
 * The states of an order and of a payment, and the only ways between them.
 *
 *     order    PENDING_PAYMENT ──► PAID ──► REFUNDED
 *                   │    │          ▲
 *                   │    └► EXPIRED ┘   late money, stock retaken
 *                   └► CANCELLED
 *
 *     payment  CREATED ─► PROCESSING ─► CONFIRMED ─► REFUND_DUE ─► REFUNDED
 *                             └► FAILED | UNKNOWN        HELD: an operator decides
 *
 * A payment follows the money: whatever we believed before, a provider that says "confirmed" is
 * believed, from FAILED and UNKNOWN too.
 */
import type { OrderState, PaymentState } from './model.ts';

const orderWays: Readonly<Record<OrderState, readonly OrderState[]>> = {
  PENDING_PAYMENT: ['PAID', 'EXPIRED', 'CANCELLED'],
  PAID: ['REFUNDED'],
  EXPIRED: ['PAID'],
  CANCELLED: [],
  REFUNDED: [],
};

const moneyCame: readonly PaymentState[] = ['CONFIRMED', 'HELD', 'REFUND_DUE'];

const paymentWays: Readonly<Record<PaymentState, readonly PaymentState[]>> = {
  CREATED: ['PROCESSING', 'FAILED', 'UNKNOWN', ...moneyCame],
  PROCESSING: ['FAILED', 'UNKNOWN', ...moneyCame],
  UNKNOWN: ['PROCESSING', 'FAILED', ...moneyCame],
  FAILED: moneyCame,
  CONFIRMED: ['REFUND_DUE', 'REFUNDED'],
  REFUND_DUE: ['REFUNDED', 'HELD'],
  HELD: ['CONFIRMED', 'REFUND_DUE', 'REFUNDED', 'FAILED'],
  REFUNDED: [],
};

export const orderStates = Object.keys(orderWays) as readonly OrderState[];
export const paymentStates = Object.keys(paymentWays) as readonly PaymentState[];

/** Payments that may still bring money by themselves: an order with one gets the grace. */
export const openPaymentStates: readonly PaymentState[] = ['CREATED', 'PROCESSING', 'UNKNOWN'];

export function mayOrder(from: OrderState, to: OrderState): boolean {
  return orderWays[from].includes(to);
}

export function mayPayment(from: PaymentState, to: PaymentState): boolean {
  return paymentWays[from].includes(to);
}

/** Does an order in this state hold its units, its person's limit and its seats? */
export function holdsUnits(state: OrderState): boolean {
  return state === 'PENDING_PAYMENT' || state === 'PAID';
}

/** Throws on a way that is not drawn above: a caller that asks for one is wrong, whatever the data. */
export function assertOrderWays(from: readonly OrderState[], to: OrderState): void {
  for (const state of from) {
    if (!mayOrder(state, to)) {
      throw new RangeError(
        `no order goes from ${state} to ${to}; allowed from ${state}: ${orderWays[state].join(', ') || 'nothing'}`,
      );
    }
  }
}

export function assertPaymentWays(from: readonly PaymentState[], to: PaymentState): void {
  for (const state of from) {
    if (!mayPayment(state, to)) {
      throw new RangeError(
        `no payment goes from ${state} to ${to}; allowed from ${state}: ${paymentWays[state].join(', ') || 'nothing'}`,
      );
    }
  }
}
