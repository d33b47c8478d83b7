import { type FixedRefusal, type Refusal, refuse } from '../../core/decision.ts';
import type { Order } from '../../ports/order-store.ts';
import type { NextAction } from '../../wire/codes.ts';
import {
  CallbackBody,
  EmptyBody,
  OrderBody,
  OrderParams,
  PayRequestBody,
  ProviderParams,
} from '../../wire/schemas.ts';
import { bodyOf, type Call, param, personOf, type RouteReply, type RouteSpec } from '../route.ts';
import { invalidBody } from '../submission.ts';

/** An order, its payment, its end. */

const noSuchOrder: FixedRefusal = {
  decision: 'reject',
  stage: 'identify',
  code: 'NOT_FOUND',
  reason: 'order',
  // The same words for an order of somebody else: whose it is, is nobody's business.
  detail: 'no order of yours with this id',
};

const noDemoProvider: FixedRefusal = {
  ...noSuchOrder,
  reason: 'no_demo_provider',
  detail: 'this deployment takes payments elsewhere',
};

const noSuchProvider: FixedRefusal = {
  ...noSuchOrder,
  reason: 'provider',
  detail: 'no such payment provider',
};

const badSignature: FixedRefusal = {
  decision: 'reject',
  stage: 'identify',
  code: 'UNAUTHENTICATED',
  scope: 'user',
  reason: 'callback_signature',
  detail: 'the signature of this callback does not hold',
  nextAction: 'STOP',
};

const noPaymentSlot: FixedRefusal = {
  decision: 'reject',
  stage: 'slot',
  code: 'SYSTEM_OVERLOADED',
  scope: 'system',
  reason: 'slots',
  detail: 'as many payments are in progress as may be',
};

const nextActions: Readonly<Record<Order['state'], NextAction>> = {
  PENDING_PAYMENT: 'PAY',
  PAID: 'STOP',
  EXPIRED: 'REJOIN',
  CANCELLED: 'REJOIN',
  REFUNDED: 'STOP',
};

export const orderRoutes: readonly RouteSpec[] = [
  {
    method: 'GET',
    path: '/v1/orders/{order_id}',
    operationId: 'getOrder',
    summary: 'Your order',
    limits: 'order',
    priority: 0,
    params: OrderParams,
    auth: 'user',
    answers: { 200: OrderBody },
    handle: async (call) => {
      const order = await ownOrder(call);
      return 'decision' in order ? order : orderReply(call, order);
    },
  },
  {
    method: 'DELETE',
    path: '/v1/orders/{order_id}',
    operationId: 'cancelOrder',
    summary: 'Cancel before payment',
    limits: 'cancel',
    priority: 0,
    params: OrderParams,
    auth: 'user',
    answers: { 200: OrderBody },
    handle: async (call) => {
      const { payments } = call.context.deps;
      const order = await ownOrder(call);
      if ('decision' in order) return order;
      return inPaymentSlot(call, async () => {
        const change = await payments.cancel(order);
        if (change.kind === 'done' || change.order.state === 'CANCELLED') {
          return orderReply(call, change.order);
        }
        return orderState(change.order, 'cancel');
      });
    },
  },
  {
    method: 'POST',
    path: '/v1/orders/{order_id}/pay',
    operationId: 'payOrder',
    summary: 'Pay at the built-in demo provider',
    limits: 'pay',
    priority: 0,
    params: OrderParams,
    body: PayRequestBody,
    bodyOptional: true,
    auth: 'user',
    answers: { 200: OrderBody },
    handle: async (call) => {
      const { payments } = call.context.deps;
      if (!payments.demo) return refuse(noDemoProvider);
      const order = await ownOrder(call);
      if ('decision' in order) return order;
      const { method } = bodyOf(call, PayRequestBody);
      return inPaymentSlot(call, async () => {
        const change = await payments.pay(order, method);
        if (change.kind === 'done' || change.order.state === 'PAID') {
          return orderReply(call, change.order);
        }
        return orderState(change.order, 'pay');
      });
    },
  },
  {
    method: 'POST',
    path: '/v1/payments/{provider}/callback',
    operationId: 'paymentCallback',
    summary: "A payment provider's signed word; deduplicated",
    limits: 'callback',
    priority: 0,
    params: ProviderParams,
    body: EmptyBody,
    rawBody: true,
    auth: 'none',
    answers: { 200: CallbackBody },
    handle: callback,
  },
];

async function ownOrder(call: Call): Promise<Order | Refusal> {
  const order = await call.context.deps.orders.orderById(param(call, 'order_id'));
  return order !== undefined && order.userId === personOf(call).userId
    ? order
    : refuse(noSuchOrder);
}

/** Payments have their own slots: a rush of submits never takes one. */
async function inPaymentSlot(call: Call, work: () => Promise<RouteReply>): Promise<RouteReply> {
  const slots = call.context.deps.health.slots.payment;
  if (!slots.tryTake()) return refuse(noPaymentSlot, 1_000);
  let how: 'success' | 'dropped' = 'dropped';
  try {
    const reply = await work();
    how = 'success';
    return reply;
  } finally {
    slots.release(how);
  }
}

async function callback(call: Call): Promise<RouteReply> {
  const { payments } = call.context.deps;
  return inPaymentSlot(call, async () => {
    const headers = Object.fromEntries(
      Object.entries(call.request.headers).map(([name, value]) => [
        name,
        Array.isArray(value) ? value.join(', ') : value,
      ]),
    );
    const result = await payments.callback(param(call, 'provider'), call.rawBody, headers);
    switch (result.kind) {
      case 'accepted':
        return { status: 200, body: { received: true, duplicate: result.duplicate } };
      case 'unknown_provider':
        return refuse(noSuchProvider);
      case 'bad_signature':
        return refuse(badSignature);
      case 'bad_body':
        return invalidBody(
          [{ path: '', found: result.detail, allowed: "the provider's own format" }],
          'receive',
        );
      case 'unknown_order':
        return refuse(noSuchOrder);
    }
  });
}

function orderReply(call: Call, order: Order): RouteReply {
  return { status: 200, body: orderBody(order, call.context.renderer.serverTime(call.nowMs)) };
}

export function orderBody(order: Order, serverTime: string): object {
  const instant = (ms: number | undefined): string | null =>
    ms === undefined ? null : new Date(ms).toISOString();
  return {
    order_id: order.orderId,
    reservation_id: order.reservationId,
    request_id: order.requestId,
    activity_id: order.activityId,
    sku_id: order.skuId,
    quantity: order.quantity,
    amount: { amount_minor: order.amountMinor, currency: order.currency },
    state: order.state,
    created_at: instant(order.createdAtMs),
    pay_before: order.state === 'PENDING_PAYMENT' ? instant(order.payBeforeMs) : null,
    paid_at: instant(order.paidAtMs),
    closed_at: instant(order.closedAtMs),
    ...(order.seats === undefined ? {} : { seats: order.seats }),
    next_action: nextActions[order.state],
    server_time: serverTime,
  };
}

function orderState(order: Order, wanted: string): Refusal {
  return {
    decision: 'reject',
    stage: 'reserve',
    code: 'ORDER_STATE',
    scope: 'user',
    reason: `order_${order.state.toLowerCase()}`,
    detail: `cannot ${wanted} an order that is ${order.state}`,
    nextAction: nextActions[order.state],
    extra: { order_id: order.orderId, state: order.state },
  };
}
