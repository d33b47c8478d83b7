/**
 * Guarded changes of an order's state. One transaction moves the order, gives back or takes what it
 * holds, leaves the inventory store something to be told, and writes who did it and why.
 */
import { personKey, skuKey } from '../../core/orders/decide-batch.ts';
import { assertOrderWays, holdsUnits } from '../../core/orders/states.ts';
import { UnavailableError } from '../../ports/errors.ts';
import type {
  AuditContext,
  Order,
  OrderState,
  Transition,
  TransitionReply,
} from '../../ports/order-store.ts';
import type { Sql, SqlQueries } from '../../ports/sql.ts';
import { appendAudit } from './audit.ts';
import {
  GuardMissed,
  type PersonTake,
  type StockDelta,
  emptyDelta,
  moveStock,
  returnPersons,
  returnSeats,
  takePersons,
  takeSeats,
  whileGuardsMiss,
} from './guards.ts';
import { type OrderRow, toOrder } from './rows.ts';

/** Orders in one call: bounds the transaction. */
const transitionsMax = 1_000;
const attempts = 12;

export async function transitionMany(
  sql: Sql,
  orderIds: readonly string[],
  change: Transition,
): Promise<readonly TransitionReply[]> {
  assertOrderWays(change.from, change.to);
  if (orderIds.length > transitionsMax) {
    throw new RangeError(`${orderIds.length} orders in one call, allowed: ${transitionsMax}`);
  }
  if (orderIds.length === 0) return [];
  try {
    return await whileGuardsMiss(attempts, () =>
      sql.transaction(async (tx) => {
        const found = await lockOrders(tx, orderIds);
        const moves: OrderMove[] = [];
        const replies = new Map<string, TransitionReply>();
        for (const [orderId, order] of found) {
          if (change.from.includes(order.state)) {
            const move = { order, to: change.to, atMs: change.nowMs };
            moves.push(move);
            replies.set(orderId, { kind: 'done', order: moved(move) });
          } else {
            replies.set(orderId, { kind: 'refused', order });
          }
        }
        await moveOrders(tx, moves, change);
        return orderIds.map((orderId) => replies.get(orderId) ?? { kind: 'unknown' });
      }),
    );
  } catch (error) {
    if (!(error instanceof GuardMissed)) throw error;
    throw new UnavailableError(`transition given up after ${attempts} tries: ${error.message}`);
  }
}

/** Locks and reads orders, by reservation id so that two callers cannot lock them crosswise. */
export async function lockOrders(
  tx: SqlQueries,
  orderIds: readonly string[],
): Promise<ReadonlyMap<string, Order>> {
  const rows = await tx.query<OrderRow>(
    'SELECT * FROM orders WHERE order_id = ANY($1::text[]) ORDER BY reservation_id FOR UPDATE',
    [orderIds],
  );
  const orders = rows.map(toOrder).filter((order) => order !== undefined);
  return new Map(orders.map((order) => [order.orderId, order]));
}

export interface OrderMove {
  readonly order: Order;
  readonly to: OrderState;
  readonly atMs: number;
  /** The payment that pays it, on the way to PAID. */
  readonly paidBy?: string;
}

/** The order as it stands after the move. */
export function moved(move: OrderMove): Order {
  const { order, to, atMs, paidBy } = move;
  if (to === 'PAID') {
    const { closedAtMs: _, ...open } = order;
    return { ...open, state: to, paidAtMs: atMs, ...(paidBy === undefined ? {} : { paidBy }) };
  }
  return { ...order, state: to, closedAtMs: atMs };
}

/**
 * Writes moves of locked orders. EXPIRED → PAID takes units again and throws GuardMissed where stock,
 * the person's limit or a seat no longer allows it.
 */
export async function moveOrders(
  tx: SqlQueries,
  moves: readonly OrderMove[],
  why: AuditContext,
): Promise<void> {
  if (moves.length === 0) return;
  const written = await tx.query(
    `UPDATE orders o SET
       state = m.state,
       paid_at_ms = m.paid_at_ms,
       paid_by = m.paid_by,
       closed_at_ms = m.closed_at_ms,
       stock_due = coalesce(m.stock_due, o.stock_due),
       due_at_ms = CASE WHEN m.stock_due IS NULL THEN o.due_at_ms ELSE $8::bigint END,
       due_version = o.due_version + CASE WHEN m.stock_due IS NULL THEN 0 ELSE 1 END
     FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::text[])
       AS m (reservation_id, was, state, paid_at_ms, paid_by, closed_at_ms, stock_due)
     WHERE o.reservation_id = m.reservation_id AND o.state = m.was
     RETURNING 1`,
    movedColumns(moves, why.nowMs),
  );
  if (written.length !== moves.length) throw new GuardMissed('an order moved meanwhile');

  const back = moves.filter((move) => holdsUnits(move.order.state) && !holdsUnits(move.to));
  const again = moves.filter((move) => !holdsUnits(move.order.state) && holdsUnits(move.to));
  await returnPersons(tx, [...personsOf(back).values()]);
  await takePersons(tx, await withLimits(tx, [...personsOf(again).values()]));
  await returnSeats(
    tx,
    back.filter((move) => move.order.seats !== undefined).map((move) => move.order.reservationId),
  );
  await takeSeats(
    tx,
    again.flatMap(({ order }) => (order.seats ?? []).map((seat) => ({ ...order, seat }))),
  );
  await appendAudit(
    tx,
    moves.map((move) => ({
      at: why.nowMs,
      who: why.who,
      what: `order ${move.order.state} -> ${move.to}`,
      why: why.why,
      subject: move.order.orderId,
      ...(move.paidBy === undefined ? {} : { detail: { payment_id: move.paidBy } }),
    })),
  );
  await moveStock(tx, deltasOf(moves));
}

function movedColumns(moves: readonly OrderMove[], nowMs: number): readonly unknown[] {
  const after = moves.map(moved);
  return [
    moves.map((move) => move.order.reservationId),
    moves.map((move) => move.order.state),
    moves.map((move) => move.to),
    after.map((order) => order.paidAtMs ?? null),
    after.map((order) => order.paidBy ?? null),
    after.map((order) => order.closedAtMs ?? null),
    moves.map(({ order, to }) => {
      if (holdsUnits(order.state) === holdsUnits(to)) return null;
      return holdsUnits(to) ? 'RETAKE' : 'RELEASE';
    }),
    nowMs,
  ];
}

function personsOf(moves: readonly OrderMove[]): ReadonlyMap<string, PersonTake> {
  const persons = new Map<string, PersonTake>();
  for (const { order } of moves) {
    const key = personKey(order);
    const entry = persons.get(key);
    if (entry !== undefined) entry.units += order.quantity;
    else {
      const { activityId, skuId, personId, quantity } = order;
      persons.set(key, { activityId, skuId, personId, units: quantity, limit: 0 });
    }
  }
  return persons;
}

/** Late money is judged by the limit that the person's newest order was made under. */
async function withLimits(
  tx: SqlQueries,
  takes: readonly PersonTake[],
): Promise<readonly PersonTake[]> {
  const limited: PersonTake[] = [];
  for (const take of takes) {
    const [row] = await tx.query<{ unit_limit: number }>(
      'SELECT unit_limit FROM person_units WHERE activity_id = $1 AND sku_id = $2 AND person_id = $3',
      [take.activityId, take.skuId, take.personId],
    );
    limited.push({ ...take, limit: row?.unit_limit ?? 0 });
  }
  return limited;
}

function deltasOf(moves: readonly OrderMove[]): readonly StockDelta[] {
  const deltas = new Map<string, StockDelta>();
  for (const { order, to } of moves) {
    const key = skuKey(order);
    const delta = deltas.get(key) ?? emptyDelta(order, undefined);
    const units = (state: OrderState): number => (holdsUnits(state) ? order.quantity : 0);
    const paid = (state: OrderState): number => (state === 'PAID' ? order.quantity : 0);
    delta.sold += units(to) - units(order.state);
    delta.paid += paid(to) - paid(order.state);
    delta.orders[order.state] -= 1;
    delta.orders[to] += 1;
    deltas.set(key, delta);
  }
  return [...deltas.values()];
}
