import type { OrderMessage, ReleaseReason } from '../stock/model.ts';

/** Orders and payments as facts; the ports name these same types again. */

export type OrderState = 'PENDING_PAYMENT' | 'PAID' | 'EXPIRED' | 'CANCELLED' | 'REFUNDED';

export interface Order {
  readonly orderId: string;
  readonly reservationId: string;
  readonly requestId: string;
  readonly activityId: string;
  readonly skuId: string;
  readonly userId: string;
  readonly personId: string;
  readonly quantity: number;
  readonly amountMinor: number;
  readonly currency: string;
  readonly state: OrderState;
  readonly createdAtMs: number;
  readonly payBeforeMs: number;
  readonly paidAtMs?: number;
  /** The payment that paid it: the one whose refund refunds the order. */
  readonly paidBy?: string;
  readonly closedAtMs?: number;
  readonly seats?: readonly string[];
}

export type CommitFate =
  | {
      readonly reservationId: string;
      readonly fate: 'ordered';
      readonly order: Order;
      readonly fresh: boolean;
    }
  | {
      readonly reservationId: string;
      readonly fate: 'released';
      readonly reason: ReleaseReason;
      readonly fresh: boolean;
    };

export type PaymentState =
  | 'CREATED'
  | 'PROCESSING'
  | 'CONFIRMED'
  | 'FAILED'
  | 'UNKNOWN'
  | 'REFUND_DUE'
  | 'REFUNDED'
  | 'HELD';

export interface Payment {
  readonly paymentId: string;
  readonly orderId: string;
  readonly provider: string;
  readonly intentId: string;
  /** What was asked for; of a payment held for its amount, what came. */
  readonly amountMinor: number;
  readonly currency: string;
  readonly state: PaymentState;
  /** Why it is where it is, for the buyer and the operator: a word from a closed set, or ''. */
  readonly reason: string;
  /** Calls to the provider since the state was entered, so that retries stay bounded over restarts. */
  readonly attempts: number;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

/** What a provider says happened; deduplicated by (provider, event id). */
export interface PaymentEvent {
  readonly provider: string;
  readonly eventId: string;
  readonly intentId: string;
  readonly orderId: string;
  readonly outcome: 'confirmed' | 'failed' | 'refunded';
  readonly amountMinor: number;
  readonly currency: string;
}

/** What an event led to; `refund_due` says why the money goes back. */
export type PaymentEffect =
  | 'order_paid'
  | 'order_paid_late'
  | 'failed'
  | 'held_amount_mismatch'
  | 'refund_due_late'
  | 'refund_due_second_channel'
  | 'refund_due_cancelled'
  | 'refunded'
  | 'none';

/** What is known of a reservation even when its message is lost. */
export type ReleasableReservation = Pick<
  OrderMessage,
  | 'reservationId'
  | 'requestId'
  | 'activityId'
  | 'skuId'
  | 'userId'
  | 'personId'
  | 'fingerprint'
  | 'nonce'
  | 'generation'
  | 'quantity'
>;
