/**
 * Payments beside orders. Whoever touches both locks the order first, so that a callback, the
 * deadline and a buyer who cancels meet in one order of events, whichever comes first.
 */
import { createHash } from 'node:crypto';
import {
  type Judgement,
  type Move,
  judgeAcceptance,
  judgePaymentEvent,
} from '../../core/orders/judge-payment.ts';
import {
  assertPaymentWays,
  mayPayment,
  openPaymentStates,
  paymentStates,
} from '../../core/orders/states.ts';
import type {
  AuditContext,
  Order,
  Payment,
  PaymentEvent,
  PaymentEventReply,
  PaymentState,
  PaymentStore,
} from '../../ports/order-store.ts';
import type { Sql, SqlQueries } from '../../ports/sql.ts';
import { appendAudit } from './audit.ts';
import { GuardMissed } from './guards.ts';
import { type PaymentRow, paymentColumns, toPayment } from './rows.ts';
import { lockOrders, moveOrders, moved } from './transitions.ts';

export function paymentStore(sql: Sql): PaymentStore {
  return {
    begin: (orderId, provider, paymentId, nowMs) =>
      sql.transaction((tx) => begin(tx, orderId, provider, paymentId, nowMs)),
    setIntent: (paymentId, intentId, state, nowMs) =>
      sql.transaction((tx) => setIntent(tx, paymentId, intentId, state, nowMs)),
    async noteAttempt(paymentId, nowMs) {
      const [row] = await sql.query<{ attempts: number }>(
        `UPDATE payments SET attempts = attempts + 1, updated_at_ms = $2 WHERE payment_id = $1
         RETURNING attempts`,
        [paymentId, nowMs],
      );
      return row?.attempts ?? 0;
    },
    setState: (paymentId, from, to, why) =>
      sql.transaction((tx) => setState(tx, paymentId, from, to, why)),
    applyEvent: (event, nowMs) => applyEvent(sql, event, nowMs),
    accept: (paymentId, why) =>
      retakingIfThere(sql, (tx, mayRetake) => acceptOnce(tx, paymentId, why, mayRetake)),
    async inState(states, updatedBeforeMs, limit) {
      const rows = await sql.query<PaymentRow>(
        `SELECT ${paymentColumns} FROM payments
         WHERE state = ANY($1::text[]) AND updated_at_ms < $2 ORDER BY updated_at_ms LIMIT $3`,
        [states, updatedBeforeMs, limit],
      );
      return rows.map(toPayment);
    },
    async startedBefore(states, createdBeforeMs, limit) {
      const rows = await sql.query<PaymentRow>(
        `SELECT ${paymentColumns} FROM payments
         WHERE state = ANY($1::text[]) AND created_at_ms < $2 ORDER BY created_at_ms LIMIT $3`,
        [states, createdBeforeMs, limit],
      );
      return rows.map(toPayment);
    },
    async ofOrder(orderId) {
      const rows = await sql.query<PaymentRow>(
        `SELECT ${paymentColumns} FROM payments WHERE order_id = $1 ORDER BY created_at_ms, payment_id`,
        [orderId],
      );
      return rows.map(toPayment);
    },
    async byId(paymentId) {
      const [row] = await sql.query<PaymentRow>(
        `SELECT ${paymentColumns} FROM payments WHERE payment_id = $1`,
        [paymentId],
      );
      return row === undefined ? undefined : toPayment(row);
    },
    async misplaced(limit) {
      const rows = await sql.query<PaymentRow>(
        `SELECT ${paymentColumns} FROM payments p WHERE state = 'CONFIRMED' AND NOT EXISTS (
           SELECT 1 FROM orders o
           WHERE o.order_id = p.order_id AND o.state = 'PAID' AND o.paid_by = p.payment_id)
         ORDER BY created_at_ms LIMIT $1`,
        [limit],
      );
      return rows.map(toPayment);
    },
    async unmatched(limit) {
      const rows = await sql.query<EventRow>(
        `SELECT provider, event_id, intent_id, order_id, outcome, amount_minor, currency
         FROM payment_events WHERE NOT applied ORDER BY at_ms LIMIT $1`,
        [limit],
      );
      return rows.map((row) => ({
        provider: row.provider,
        eventId: row.event_id,
        intentId: row.intent_id,
        orderId: row.order_id,
        outcome: row.outcome,
        amountMinor: row.amount_minor,
        currency: row.currency,
      }));
    },
  };
}

interface EventRow {
  readonly provider: string;
  readonly event_id: string;
  readonly intent_id: string;
  readonly order_id: string;
  readonly outcome: PaymentEvent['outcome'];
  readonly amount_minor: number;
  readonly currency: string;
}

async function begin(
  tx: SqlQueries,
  orderId: string,
  provider: string,
  paymentId: string,
  nowMs: number,
): Promise<Payment | undefined> {
  const order = (await lockOrders(tx, [orderId])).get(orderId);
  if (order === undefined) return undefined;
  // One that holds money for the operator counts as open too: paying again would pay twice.
  const [open] = await tx.query<PaymentRow>(
    `SELECT ${paymentColumns} FROM payments
     WHERE order_id = $1 AND provider = $2 AND state = ANY($3::text[])`,
    [orderId, provider, [...openPaymentStates, 'HELD']],
  );
  if (open !== undefined) return toPayment(open);
  if (order.state !== 'PENDING_PAYMENT' || nowMs > order.payBeforeMs) return undefined;
  return insertPayment(tx, order, provider, paymentId, '', nowMs);
}

async function insertPayment(
  tx: SqlQueries,
  order: Order,
  provider: string,
  paymentId: string,
  intentId: string,
  nowMs: number,
): Promise<Payment> {
  const [row] = await tx.query<PaymentRow>(
    `INSERT INTO payments (payment_id, order_id, provider, intent_id, amount_minor, currency, state,
       created_at_ms, updated_at_ms)
     VALUES ($1, $2, $3, $4, $5, $6, 'CREATED', $7, $7) RETURNING ${paymentColumns}`,
    [paymentId, order.orderId, provider, intentId, order.amountMinor, order.currency, nowMs],
  );
  if (row === undefined) throw new Error('an INSERT with RETURNING answered no row');
  return toPayment(row);
}

async function setIntent(
  tx: SqlQueries,
  paymentId: string,
  intentId: string,
  state: PaymentState,
  nowMs: number,
): Promise<void> {
  const allowed = paymentStates.filter((from) => mayPayment(from, state));
  await tx.query(
    `UPDATE payments SET
       intent_id = CASE WHEN intent_id = '' THEN $2 ELSE intent_id END,
       attempts = CASE WHEN state = ANY($4::text[]) THEN 0 ELSE attempts END,
       state = CASE WHEN state = ANY($4::text[]) THEN $3 ELSE state END,
       updated_at_ms = $5
     WHERE payment_id = $1`,
    [paymentId, intentId, state, allowed, nowMs],
  );
}

async function setState(
  tx: SqlQueries,
  paymentId: string,
  from: readonly PaymentState[],
  to: PaymentState,
  why: AuditContext,
): Promise<boolean> {
  assertPaymentWays(from, to);
  const [row] = await tx.query<{ order_id: string; was: string }>(
    `UPDATE payments p SET state = $3, reason = $4, attempts = 0, updated_at_ms = $5
     FROM (SELECT payment_id, state AS was FROM payments WHERE payment_id = $1 FOR UPDATE) old
     WHERE p.payment_id = old.payment_id AND old.was = ANY($2::text[])
     RETURNING p.order_id, old.was`,
    [paymentId, from, to, why.why, why.nowMs],
  );
  if (row === undefined) return false;
  await appendAudit(tx, [paymentAudit(row.order_id, paymentId, row.was, to, why)]);
  return true;
}

function paymentAudit(
  orderId: string,
  paymentId: string,
  from: string,
  to: string,
  why: AuditContext,
): Parameters<typeof appendAudit>[1][number] {
  return {
    at: why.nowMs,
    who: why.who,
    what: `payment ${from} -> ${to}`,
    why: why.why,
    subject: orderId,
    detail: { payment_id: paymentId },
  };
}

async function applyEvent(
  sql: Sql,
  event: PaymentEvent,
  nowMs: number,
): Promise<PaymentEventReply> {
  return retakingIfThere(sql, (tx, mayRetake) => applyOnce(tx, event, nowMs, mayRetake));
}

/**
 * Late money takes units again if they are there. Whether they are, only the guards can say: they are
 * asked by trying, and where one says no, the first transaction has undone itself and the second
 * leaves the money due back.
 */
async function retakingIfThere<Result>(
  sql: Sql,
  work: (tx: SqlQueries, mayRetake: boolean) => Promise<Result>,
): Promise<Result> {
  try {
    return await sql.transaction((tx) => work(tx, true));
  } catch (error) {
    if (!(error instanceof GuardMissed)) throw error;
    return sql.transaction((tx) => work(tx, false));
  }
}

async function applyOnce(
  tx: SqlQueries,
  event: PaymentEvent,
  nowMs: number,
  mayRetake: boolean,
): Promise<PaymentEventReply> {
  const order = (await lockOrders(tx, [event.orderId])).get(event.orderId);
  const payment = order === undefined ? undefined : await paymentOfEvent(tx, order, event, nowMs);
  if (order === undefined || payment === undefined) {
    await rememberEvent(tx, event, nowMs, false, '');
    return { kind: 'unknown_order' };
  }
  const paidOrder = order.paidBy === payment.paymentId;
  const judgement = judgePaymentEvent(order.state, { ...payment, paidOrder }, event);
  const decided = moveOf(judgement, mayRetake);
  if (!(await rememberEvent(tx, event, nowMs, true, decided.effect))) return { kind: 'duplicate' };
  const why = { who: `provider:${event.provider}`, why: decided.effect, nowMs };
  // What came is what can go back, whatever was asked for; the order keeps its own amount.
  const came = decided.payment === 'HELD' ? event : payment;
  return applyMove(tx, order, { ...payment, ...amountOf(came) }, decided, why);
}

async function acceptOnce(
  tx: SqlQueries,
  paymentId: string,
  why: AuditContext,
  mayRetake: boolean,
): Promise<PaymentEventReply> {
  const [row] = await tx.query<PaymentRow>(
    `SELECT ${paymentColumns} FROM payments WHERE payment_id = $1`,
    [paymentId],
  );
  if (row === undefined) return { kind: 'unknown_order' };
  const order = (await lockOrders(tx, [row.order_id])).get(row.order_id);
  const [held] = await tx.query<PaymentRow>(
    `SELECT ${paymentColumns} FROM payments WHERE payment_id = $1 AND state = 'HELD' FOR UPDATE`,
    [paymentId],
  );
  if (order === undefined || held === undefined) return { kind: 'duplicate' };
  const payment = toPayment(held);
  const decided = moveOf(judgeAcceptance(order.state), mayRetake);
  return applyMove(tx, order, payment, decided, why);
}

function moveOf(judgement: Judgement, mayRetake: boolean): Move {
  if (judgement.kind === 'move') return judgement.move;
  return mayRetake ? judgement.taken : judgement.gone;
}

const amountOf = ({ amountMinor, currency }: Pick<Payment, 'amountMinor' | 'currency'>) => ({
  amountMinor,
  currency,
});

/** Writes what was decided of a locked order and its payment. */
async function applyMove(
  tx: SqlQueries,
  order: Order,
  payment: Payment,
  decided: Move,
  why: AuditContext,
): Promise<PaymentEventReply> {
  const { effect } = decided;
  let after = payment;
  if (decided.payment !== undefined) {
    assertPaymentWays([payment.state], decided.payment);
    after = {
      ...payment,
      state: decided.payment,
      // A refund done keeps the reason for which it was due: the buyer is to be told.
      reason: decided.payment === 'REFUNDED' ? payment.reason : effect,
      attempts: 0,
      updatedAtMs: why.nowMs,
    };
    await tx.query(
      `UPDATE payments SET state = $2, reason = $3, attempts = 0, updated_at_ms = $4,
         amount_minor = $5, currency = $6
       WHERE payment_id = $1`,
      [payment.paymentId, after.state, after.reason, why.nowMs, after.amountMinor, after.currency],
    );
    await appendAudit(tx, [
      paymentAudit(order.orderId, payment.paymentId, payment.state, after.state, why),
    ]);
  }
  if (decided.order === undefined) return { kind: 'applied', payment: after, order, effect };
  const move = {
    order,
    to: decided.order,
    atMs: why.nowMs,
    ...(decided.order === 'PAID' ? { paidBy: payment.paymentId } : {}),
  };
  await moveOrders(tx, [move], why);
  return { kind: 'applied', payment: after, order: moved(move), effect };
}

/** False when the event was applied before. */
async function rememberEvent(
  tx: SqlQueries,
  event: PaymentEvent,
  nowMs: number,
  applied: boolean,
  effect: string,
): Promise<boolean> {
  const rows = await tx.query(
    `INSERT INTO payment_events AS e (provider, event_id, intent_id, order_id, outcome, amount_minor,
       currency, effect, applied, at_ms)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
     ON CONFLICT (provider, event_id) DO UPDATE SET applied = excluded.applied, effect = excluded.effect
       WHERE NOT e.applied
     RETURNING 1`,
    [
      event.provider,
      event.eventId,
      event.intentId,
      event.orderId,
      event.outcome,
      event.amountMinor,
      event.currency,
      effect,
      applied,
      nowMs,
    ],
  );
  return rows.length > 0;
}

/**
 * The payment that an event speaks of: by its intent; else the open one whose intent we never got to
 * keep (we died between asking for it and writing it down); else one made now, because money that
 * came is never without a record. Undefined when the intent belongs to another order: the provider
 * contradicts itself, and the operator is to look.
 */
async function paymentOfEvent(
  tx: SqlQueries,
  order: Order,
  event: PaymentEvent,
  nowMs: number,
): Promise<Payment | undefined> {
  const [known] = await tx.query<PaymentRow>(
    `SELECT ${paymentColumns} FROM payments WHERE provider = $1 AND intent_id = $2 FOR UPDATE`,
    [event.provider, event.intentId],
  );
  if (known !== undefined) return known.order_id === order.orderId ? toPayment(known) : undefined;
  const [nameless] = await tx.query<PaymentRow>(
    `UPDATE payments SET intent_id = $3 WHERE payment_id = (
       SELECT payment_id FROM payments WHERE order_id = $1 AND provider = $2 AND intent_id = ''
       ORDER BY created_at_ms DESC, payment_id LIMIT 1)
     RETURNING ${paymentColumns}`,
    [order.orderId, event.provider, event.intentId],
  );
  if (nameless !== undefined) return toPayment(nameless);
  const digest = createHash('sha256').update(`${event.provider} ${event.intentId}`).digest('hex');
  return insertPayment(
    tx,
    order,
    event.provider,
    `pay_${digest.slice(0, 32)}`,
    event.intentId,
    nowMs,
  );
}
