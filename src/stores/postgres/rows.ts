import { holdsUnits } from '../../core/orders/states.ts';
import type {
  CommitFate,
  LiveOrder,
  Order,
  OrderState,
  Payment,
  PaymentState,
  RequestFate,
  RestockDue,
} from '../../ports/order-store.ts';
import type { ReleaseReason } from '../../ports/inventory-store.ts';

/** Rows as the database gives them (SQL names), and the values that the ports speak of. */

export interface OrderRow {
  readonly reservation_id: string;
  readonly order_id: string | null;
  readonly state: OrderState | 'RELEASED';
  readonly activity_id: string;
  readonly sku_id: string;
  readonly user_id: string;
  readonly person_id: string;
  readonly request_id: string;
  readonly fingerprint: string;
  readonly nonce: string;
  readonly generation: number;
  readonly quantity: number;
  readonly amount_minor: number;
  readonly currency: string;
  readonly seats: readonly string[] | null;
  readonly created_at_ms: number;
  readonly pay_before_ms: number;
  readonly paid_at_ms: number | null;
  readonly paid_by: string | null;
  readonly closed_at_ms: number | null;
  readonly release_reason: ReleaseReason | null;
  readonly stock_due: 'RELEASE' | 'RETAKE' | null;
  readonly due_version: number;
}

export interface PaymentRow {
  readonly payment_id: string;
  readonly order_id: string;
  readonly provider: string;
  readonly intent_id: string;
  readonly amount_minor: number;
  readonly currency: string;
  readonly state: PaymentState;
  readonly reason: string;
  readonly attempts: number;
  readonly created_at_ms: number;
  readonly updated_at_ms: number;
}

export const orderColumns = `reservation_id, order_id, state, activity_id, sku_id, user_id, person_id,
  request_id, fingerprint, nonce, generation, quantity, amount_minor, currency, seats, created_at_ms,
  pay_before_ms, paid_at_ms, paid_by, closed_at_ms, release_reason, stock_due, due_version`;

export const paymentColumns = `payment_id, order_id, provider, intent_id, amount_minor, currency,
  state, reason, attempts, created_at_ms, updated_at_ms`;

/** Undefined for a reservation that never became an order. */
export function toOrder(row: OrderRow): Order | undefined {
  if (row.order_id === null || row.state === 'RELEASED') return undefined;
  return {
    orderId: row.order_id,
    reservationId: row.reservation_id,
    requestId: row.request_id,
    activityId: row.activity_id,
    skuId: row.sku_id,
    userId: row.user_id,
    personId: row.person_id,
    quantity: row.quantity,
    amountMinor: row.amount_minor,
    currency: row.currency,
    state: row.state,
    createdAtMs: row.created_at_ms,
    payBeforeMs: row.pay_before_ms,
    ...(row.paid_at_ms === null ? {} : { paidAtMs: row.paid_at_ms }),
    ...(row.paid_by === null ? {} : { paidBy: row.paid_by }),
    ...(row.closed_at_ms === null ? {} : { closedAtMs: row.closed_at_ms }),
    ...(row.seats === null ? {} : { seats: row.seats }),
  };
}

/**
 * What a redelivered message is told. An order that no longer holds its units is a release to the
 * inventory store, so that a message from before the expiry cannot take them again.
 */
export function toFate(row: OrderRow): CommitFate {
  const order = toOrder(row);
  if (order !== undefined && holdsUnits(order.state)) {
    return { reservationId: row.reservation_id, fate: 'ordered', order, fresh: false };
  }
  return {
    reservationId: row.reservation_id,
    fate: 'released',
    reason: releaseReasonOf(row),
    fresh: false,
  };
}

export function releaseReasonOf(row: Pick<OrderRow, 'state' | 'release_reason'>): ReleaseReason {
  switch (row.state) {
    case 'EXPIRED':
      return 'expired';
    case 'CANCELLED':
      return 'cancelled';
    case 'REFUNDED':
      return 'refunded';
    case 'RELEASED':
    case 'PENDING_PAYMENT':
    case 'PAID':
      return row.release_reason ?? 'refused';
  }
}

export function toRequestFate(row: OrderRow): RequestFate {
  const order = toOrder(row);
  return {
    reservationId: row.reservation_id,
    requestId: row.request_id,
    fingerprint: row.fingerprint,
    generation: row.generation,
    quantity: row.quantity,
    ...(order === undefined ? { releasedReason: releaseReasonOf(row) } : { order }),
  };
}

export function toLiveOrder(row: OrderRow): LiveOrder | undefined {
  const order = toOrder(row);
  if (order === undefined) return undefined;
  return { order, nonce: row.nonce, fingerprint: row.fingerprint, generation: row.generation };
}

export function toRestockDue(row: OrderRow): RestockDue {
  return {
    kind: row.stock_due === 'RETAKE' ? 'retake' : 'release',
    version: row.due_version,
    reservationId: row.reservation_id,
    activityId: row.activity_id,
    skuId: row.sku_id,
    userId: row.user_id,
    requestId: row.request_id,
    quantity: row.quantity,
    reason: releaseReasonOf(row),
  };
}

export function toPayment(row: PaymentRow): Payment {
  return {
    paymentId: row.payment_id,
    orderId: row.order_id,
    provider: row.provider,
    intentId: row.intent_id,
    amountMinor: row.amount_minor,
    currency: row.currency,
    state: row.state,
    reason: row.reason,
    attempts: row.attempts,
    createdAtMs: row.created_at_ms,
    updatedAtMs: row.updated_at_ms,
  };
}
