/**
 * What a provider's event does to a payment and its order.
 *
 * Events come in any order and any number, from several providers, before or after the deadline. The
 * answer depends only on where payment and order stand now, never on which event we expected. Money
 * that came is always accounted for: it pays the order, or it is due back, or an operator holds it.
 */
import type { OrderState, PaymentEffect, PaymentEvent, PaymentState } from './model.ts';

export interface PaymentFacts {
  readonly state: PaymentState;
  readonly amountMinor: number;
  readonly currency: string;
  /** This is the payment that paid the order. */
  readonly paidOrder: boolean;
}

export interface Move {
  readonly effect: PaymentEffect;
  readonly payment?: PaymentState;
  readonly order?: OrderState;
}

export type Judgement =
  | { readonly kind: 'move'; readonly move: Move }
  /** Late money: pays the order if its units can be taken again, and is due back if not. */
  | { readonly kind: 'retake'; readonly taken: Move; readonly gone: Move };

export function judgePaymentEvent(
  order: OrderState,
  payment: PaymentFacts,
  event: Pick<PaymentEvent, 'outcome' | 'amountMinor' | 'currency'>,
): Judgement {
  switch (event.outcome) {
    case 'confirmed':
      return judgeConfirmed(order, payment, event);
    case 'failed':
      return judgeFailed(payment);
    case 'refunded':
      return judgeRefunded(order, payment);
  }
}

const move = (effect: PaymentEffect, payment?: PaymentState, order?: OrderState): Judgement => ({
  kind: 'move',
  move: {
    effect,
    ...(payment === undefined ? {} : { payment }),
    ...(order === undefined ? {} : { order }),
  },
});

function judgeConfirmed(
  order: OrderState,
  payment: PaymentFacts,
  event: Pick<PaymentEvent, 'amountMinor' | 'currency'>,
): Judgement {
  switch (payment.state) {
    case 'CONFIRMED':
    case 'REFUND_DUE':
    case 'REFUNDED':
    case 'HELD':
      return move('none');
    case 'CREATED':
    case 'PROCESSING':
    case 'UNKNOWN':
    case 'FAILED':
      break;
  }
  if (event.amountMinor !== payment.amountMinor || event.currency !== payment.currency) {
    return move('held_amount_mismatch', 'HELD');
  }
  return judgeAcceptance(order);
}

/** Money that is as it should be, or that an operator takes as it is. */
export function judgeAcceptance(order: OrderState): Judgement {
  switch (order) {
    case 'PENDING_PAYMENT':
      return move('order_paid', 'CONFIRMED', 'PAID');
    case 'PAID':
    case 'REFUNDED':
      return move('refund_due_second_channel', 'REFUND_DUE');
    case 'CANCELLED':
      return move('refund_due_cancelled', 'REFUND_DUE');
    case 'EXPIRED':
      return {
        kind: 'retake',
        taken: { effect: 'order_paid_late', payment: 'CONFIRMED', order: 'PAID' },
        gone: { effect: 'refund_due_late', payment: 'REFUND_DUE' },
      };
  }
}

function judgeFailed(payment: PaymentFacts): Judgement {
  switch (payment.state) {
    case 'CREATED':
    case 'PROCESSING':
    case 'UNKNOWN':
      return move('failed', 'FAILED');
    // Money is where it is: a late "failed" takes nothing back.
    case 'FAILED':
    case 'CONFIRMED':
    case 'REFUND_DUE':
    case 'REFUNDED':
    case 'HELD':
      return move('none');
  }
}

function judgeRefunded(order: OrderState, payment: PaymentFacts): Judgement {
  switch (payment.state) {
    case 'CONFIRMED':
    case 'REFUND_DUE':
    case 'HELD':
      return payment.paidOrder && order === 'PAID'
        ? move('refunded', 'REFUNDED', 'REFUNDED')
        : move('refunded', 'REFUNDED');
    // "Refunded" for money that we never saw come: the order has none of it either way.
    case 'CREATED':
    case 'PROCESSING':
    case 'UNKNOWN':
      return move('failed', 'FAILED');
    case 'FAILED':
    case 'REFUNDED':
      return move('none');
  }
}
