import type { SkuKey } from '../core/activity.ts';
import type { ReleaseReason, RequestRecord } from '../ports/inventory-store.ts';
import type { Order } from '../ports/order-store.ts';
import type { NextAction, OutcomeState } from '../wire/codes.ts';
import type { Outcome } from './stage.ts';

/** What each end of a request's story is called, and what its owner should do. Pure. */

/** Pace of asking again after QUEUED or UNKNOWN, ms. Orders commit in tens of milliseconds. */
export const pollAfterMs = 500;

interface Words {
  readonly message: string;
  readonly nextAction: NextAction;
}

const words: Readonly<Record<OutcomeState, Words>> = {
  QUEUED: { message: 'Your request was taken in. The order is being made.', nextAction: 'POLL' },
  ORDERED: { message: 'You have an order. Pay before the deadline to keep it.', nextAction: 'PAY' },
  PAID: { message: 'Your order is paid.', nextAction: 'STOP' },
  REFUNDED: { message: 'Your payment was returned.', nextAction: 'STOP' },
  SOLD_OUT: {
    message: 'Sold out for now. Nothing was taken, and units may come back.',
    nextAction: 'STOP',
  },
  REJECTED: { message: 'This request did not become an order.', nextAction: 'STOP' },
  EXPIRED: {
    message: 'The order was not paid in time; its units went back.',
    nextAction: 'REJOIN',
  },
  CANCELLED: { message: 'The order was cancelled; its units went back.', nextAction: 'REJOIN' },
  UNKNOWN: { message: 'Not known yet. Ask again with the same request id.', nextAction: 'POLL' },
};

/** An outcome in this state with nothing but its ids; callers add what they know. */
export function outcomeOf(
  state: OutcomeState,
  sku: SkuKey,
  requestId: string | null,
  known: Partial<Outcome> = {},
): Outcome {
  const { message, nextAction } = words[state];
  return {
    requestId,
    activityId: sku.activityId,
    skuId: sku.skuId,
    state,
    message,
    reservationId: null,
    orderId: null,
    payBeforeMs: null,
    quantity: null,
    retryable: false,
    nextAction,
    nextPollAfterMs: nextAction === 'POLL' ? pollAfterMs : null,
    ...known,
  };
}

/** A reservation of the inventory store for which no order is known yet. */
export function outcomeOfRecord(sku: SkuKey, record: RequestRecord): Outcome {
  const state = record.state === 'released' ? releasedState(record.releaseReason) : 'QUEUED';
  return outcomeOf(state, sku, record.requestId, {
    reservationId: record.reservationId,
    quantity: record.quantity,
  });
}

const orderStates = {
  PENDING_PAYMENT: 'ORDERED',
  PAID: 'PAID',
  EXPIRED: 'EXPIRED',
  CANCELLED: 'CANCELLED',
  REFUNDED: 'REFUNDED',
} as const satisfies Record<Order['state'], OutcomeState>;

export function outcomeOfOrder(order: Order): Outcome {
  return outcomeOf(orderStates[order.state], order, order.requestId, {
    reservationId: order.reservationId,
    orderId: order.orderId,
    quantity: order.quantity,
    payBeforeMs: order.state === 'PENDING_PAYMENT' ? order.payBeforeMs : null,
  });
}

/** What a release without an order is to its buyer. `lost` is no outcome: it is RESERVATION_LOST. */
export function releasedState(reason: ReleaseReason | undefined): OutcomeState {
  switch (reason) {
    case 'expired':
    case 'deadline':
      return 'EXPIRED';
    case 'cancelled':
      return 'CANCELLED';
    case 'refunded':
      return 'REFUNDED';
    case 'refused':
    case 'lost':
    case undefined:
      return 'REJECTED';
  }
}
