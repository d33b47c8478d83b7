import type { FastifyInstance } from 'fastify';
import { idPattern } from '../../core/bounds.ts';
import type { Order, OrderState } from '../../ports/order-store.ts';
import { problem } from './problem.ts';
import type { AdminContext } from './context.ts';
import type { OrderQuery } from './source.ts';
import { toWire } from './wire.ts';

const states: readonly OrderState[] = [
  'PENDING_PAYMENT',
  'PAID',
  'EXPIRED',
  'CANCELLED',
  'REFUNDED',
];
const pageMax = 200;
const pageDefault = 50;
/** Audit rows of one order: its whole life many times over. */
const historyMax = 200;
const textMax = 255;

/** Orders: search, and one order's whole history. */
export function registerOrderRoutes(app: FastifyInstance, context: AdminContext): void {
  const { deps } = context;
  const { orders } = deps;

  app.get<{ Querystring: Readonly<Record<string, unknown>> }>(
    '/admin/v1/orders',
    async (request, reply) => {
      if (context.admit(request, reply, 'viewer') === undefined) return reply;
      if (orders === undefined) return problem(reply, 404, 'NOT_FOUND', 'No orders here.');
      const query = readQuery(request.query);
      if (typeof query === 'string') return problem(reply, 400, 'INVALID_ARGUMENT', query);
      const page = await orders.search(query);
      return reply.send({ orders: page.orders.map(orderToWire), next: page.next ?? null });
    },
  );

  app.get<{ Params: { orderId: string } }>('/admin/v1/orders/:orderId', async (request, reply) => {
    if (context.admit(request, reply, 'viewer') === undefined) return reply;
    const { orderId } = request.params;
    const order =
      orders !== undefined && idPattern.test(orderId) ? await orders.find(orderId) : undefined;
    if (orders === undefined || order === undefined)
      return problem(reply, 404, 'NOT_FOUND', 'No such order.');
    const [payments, audit] = await Promise.all([
      orders.payments(orderId),
      deps.audit.list(orderId, historyMax),
    ]);
    return reply.send({
      order: orderToWire(order),
      payments: toWire(payments),
      history: audit.map(({ at, ...row }) => ({ at: new Date(at).toISOString(), ...row })),
    });
  });
}

function orderToWire(order: Order): unknown {
  return toWire(order);
}

function readQuery(found: Readonly<Record<string, unknown>>): OrderQuery | string {
  const { activity_id: activityId, state, text, after, limit, overdue } = found;
  const isId = (value: unknown): value is string =>
    typeof value === 'string' && idPattern.test(value);
  if (activityId !== undefined && !isId(activityId))
    return `activity_id: found ${JSON.stringify(activityId)}, allowed: ${idPattern.source}`;
  if (state !== undefined && !states.includes(state as OrderState))
    return `state: found ${JSON.stringify(state)}, allowed: ${states.join(', ')}`;
  if (text !== undefined && (typeof text !== 'string' || text === '' || text.length > textMax))
    return `text: allowed: 1 to ${textMax} characters`;
  if (after !== undefined && (typeof after !== 'string' || after.length > textMax))
    return `after: allowed: what the page before gave as next`;
  const wanted = limit === undefined ? pageDefault : Number(limit);
  if (!Number.isInteger(wanted) || wanted < 1 || wanted > pageMax)
    return `limit: found ${JSON.stringify(limit)}, allowed: an integer from 1 to ${pageMax}`;
  return {
    limit: wanted,
    ...(activityId === undefined ? {} : { activityId }),
    ...(state === undefined ? {} : { state: state as OrderState }),
    ...(typeof text === 'string' ? { text } : {}),
    ...(typeof after === 'string' ? { after } : {}),
    ...(overdue === 'true' ? { overdue: true } : {}),
  };
}
