import { Readable } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { AuditLog, Order, OrderState } from '../../ports/order-store.ts';
import type { AdminContext } from './context.ts';
import { csvLine, instantCell } from './csv.ts';
import { problem } from './problem.ts';
import type { OrdersDesk } from './source.ts';

/** Orders read from the store at a time. */
const pageSize = 200;
/** Audit rows of one export: the newest. */
const auditRowsMax = 50_000;

const names = ['orders', 'payments', 'refunds', 'audit'] as const;
type ExportName = (typeof names)[number];

/**
 * What leaves the house, as CSV, read page by page and written as fast as the reader takes it: an
 * export of a million orders holds two hundred of them. Each export is in the audit, because it
 * carries user ids.
 */
export function registerExportRoutes(app: FastifyInstance, context: AdminContext): void {
  const { deps } = context;
  registerDrawAudit(app, context);

  app.get<{ Params: { file: string } }>('/admin/v1/exports/:file', async (request, reply) => {
    const who = context.admit(request, reply, 'operator');
    if (who === undefined) return reply;
    const name = names.find((one) => `${one}.csv` === request.params.file);
    if (name === undefined || (name !== 'audit' && deps.orders === undefined))
      return problem(
        reply,
        404,
        'NOT_FOUND',
        `Exports here: ${names.map((one) => `${one}.csv`).join(', ')}.`,
      );
    await deps.audit.append({
      at: deps.clock.wallMs(),
      who: who.principal.name,
      what: 'export',
      why: 'asked for',
      subject: name,
    });
    const lines =
      name === 'audit' ? auditLines(deps.audit) : orderLines(deps.orders as OrdersDesk, name);
    return reply
      .header('content-type', 'text/csv; charset=utf-8; header=present')
      .header('content-disposition', `attachment; filename="${name}.csv"`)
      .send(Readable.from(lines, { encoding: 'utf8', highWaterMark: pageSize }));
  });
}

/** The draw's audit names nobody; a viewer may have it, and hand it on. */
function registerDrawAudit(app: FastifyInstance, context: AdminContext): void {
  app.get<{ Params: { activityId: string } }>(
    '/admin/v1/draws/:activityId/audit',
    async (request, reply) => {
      if (context.admit(request, reply, 'viewer') === undefined) return reply;
      const { activityId } = request.params;
      const lines = context.deps.drawAudit?.(activityId);
      if (lines === undefined)
        return problem(reply, 404, 'NOT_FOUND', `No activity "${activityId}".`);
      let first: IteratorResult<string>;
      try {
        first = await lines.next();
      } catch (error) {
        const why = error instanceof Error ? error.message : 'the draw cannot be read';
        return problem(reply, 409, 'NOT_OPEN', why);
      }
      return reply
        .header('content-type', 'application/jsonl; charset=utf-8')
        .header('content-disposition', `attachment; filename="draw-${activityId}.jsonl"`)
        .send(Readable.from(chain(first, lines), { encoding: 'utf8', highWaterMark: pageSize }));
    },
  );
}

async function* chain(
  first: IteratorResult<string>,
  rest: AsyncGenerator<string>,
): AsyncGenerator<string> {
  if (first.done === true) return;
  yield first.value;
  yield* rest;
}

async function* auditLines(audit: AuditLog): AsyncGenerator<string> {
  yield csvLine(['at', 'who', 'what', 'subject', 'why', 'detail']);
  for (const row of await audit.list(undefined, auditRowsMax))
    yield csvLine([
      instantCell(row.at),
      row.who,
      row.what,
      row.subject,
      row.why,
      row.detail === undefined ? undefined : JSON.stringify(row.detail),
    ]);
}

async function* orderLines(
  desk: OrdersDesk,
  name: Exclude<ExportName, 'audit'>,
): AsyncGenerator<string> {
  yield csvLine(name === 'payments' ? paymentHeads : orderHeads);
  const state: OrderState | undefined = name === 'refunds' ? 'REFUNDED' : undefined;
  for await (const order of allOrders(desk, state)) {
    if (name !== 'payments') {
      yield csvLine(orderCells(order));
      continue;
    }
    for (const payment of await desk.payments(order.orderId))
      yield csvLine([
        payment.paymentId,
        payment.orderId,
        payment.provider,
        payment.intentId,
        payment.state,
        payment.amountMinor,
        payment.currency,
        instantCell(payment.createdAtMs),
        instantCell(payment.updatedAtMs),
      ]);
  }
}

async function* allOrders(desk: OrdersDesk, state: OrderState | undefined): AsyncGenerator<Order> {
  let after: string | undefined;
  do {
    const page = await desk.search({
      limit: pageSize,
      ...(state === undefined ? {} : { state }),
      ...(after === undefined ? {} : { after }),
    });
    yield* page.orders;
    // A desk that gave the same place twice would never end.
    if (page.next === after) return;
    after = page.next;
  } while (after !== undefined);
}

const orderHeads = [
  'order_id',
  'request_id',
  'reservation_id',
  'activity_id',
  'sku_id',
  'user_id',
  'quantity',
  'amount_minor',
  'currency',
  'state',
  'created_at',
  'pay_before',
  'paid_at',
  'closed_at',
];

const paymentHeads = [
  'payment_id',
  'order_id',
  'provider',
  'intent_id',
  'state',
  'amount_minor',
  'currency',
  'created_at',
  'updated_at',
];

function orderCells(order: Order): readonly (string | number | undefined)[] {
  return [
    order.orderId,
    order.requestId,
    order.reservationId,
    order.activityId,
    order.skuId,
    order.userId,
    order.quantity,
    order.amountMinor,
    order.currency,
    order.state,
    instantCell(order.createdAtMs),
    instantCell(order.payBeforeMs),
    instantCell(order.paidAtMs),
    instantCell(order.closedAtMs),
  ];
}
