import { UnknownSkuError } from '../../ports/errors.ts';
import type { SkuKey } from '../../core/activity.ts';
import { openPaymentStates } from '../../core/orders/states.ts';
import type { OrderMessage } from '../../ports/order-queue.ts';
import type {
  AuditContext,
  AuditLog,
  CommitContext,
  CommitFate,
  DurableStock,
  LiveOrder,
  Order,
  OrderCounts,
  OrderSearch,
  OrderStore,
  PaymentStore,
  RequestFate,
  RestockDue,
  Tally,
  Transition,
  TransitionReply,
} from '../../ports/order-store.ts';
import type { Sql, SqlQueries } from '../../ports/sql.ts';
import { appendAudit, auditLog } from './audit.ts';
import { commitBatch, readFates, releaseUnordered } from './commit-batch.ts';
import { searchOrders } from './order-search.ts';
import { paymentStore } from './payments.ts';
import {
  type OrderRow,
  orderColumns,
  toLiveOrder,
  toOrder,
  toRequestFate,
  toRestockDue,
} from './rows.ts';
import { transitionMany } from './transitions.ts';

/**
 * Orders, payments and audit in PostgreSQL or PGlite: the same statements over either. Expects a
 * migrated schema (migrate.ts). `close` closes the connection too.
 */
export class PostgresOrderStore implements OrderStore {
  readonly payments: PaymentStore;
  readonly audit: AuditLog;
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
    this.payments = paymentStore(sql);
    this.audit = auditLog(sql);
  }

  async declareSku(
    sku: SkuKey,
    row: { total: number; generation: number; name: string },
  ): Promise<void> {
    await this.#sql.query(
      `INSERT INTO sku_stock AS s (activity_id, sku_id, name, total, generation)
       VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (activity_id, sku_id) DO UPDATE
         SET name = excluded.name, generation = greatest(s.generation, excluded.generation)`,
      [sku.activityId, sku.skuId, row.name, row.total, row.generation],
    );
  }

  commitBatch(
    messages: readonly OrderMessage[],
    context: CommitContext,
  ): Promise<readonly CommitFate[]> {
    return commitBatch(this.#sql, messages, context);
  }

  releaseUnordered(
    reservations: Parameters<OrderStore['releaseUnordered']>[0],
    nowMs: number,
  ): Promise<readonly CommitFate[]> {
    return releaseUnordered(this.#sql, reservations, nowMs);
  }

  async fatesOf(reservationIds: readonly string[]): Promise<readonly CommitFate[]> {
    return [...(await readFates(this.#sql, reservationIds)).values()];
  }

  async orderById(orderId: string): Promise<Order | undefined> {
    const [row] = await this.#sql.query<OrderRow>(
      `SELECT ${orderColumns} FROM orders WHERE order_id = $1`,
      [orderId],
    );
    return row === undefined ? undefined : toOrder(row);
  }

  async orderByReservation(reservationId: string): Promise<Order | undefined> {
    const [row] = await this.#sql.query<OrderRow>(
      `SELECT ${orderColumns} FROM orders WHERE reservation_id = $1`,
      [reservationId],
    );
    return row === undefined ? undefined : toOrder(row);
  }

  async fateOfRequest(
    sku: SkuKey,
    userId: string,
    requestId: string,
  ): Promise<RequestFate | undefined> {
    const [row] = await this.#sql.query<OrderRow>(
      // Two questions, because each has an index of its own.
      `SELECT ${orderColumns} FROM (
         SELECT * FROM orders WHERE user_id = $1 AND request_id = $2 AND activity_id = $3
           AND sku_id = $4 AND order_id IS NOT NULL
         UNION ALL
         SELECT * FROM orders WHERE user_id = $1 AND request_id = $2 AND activity_id = $3
           AND sku_id = $4 AND order_id IS NULL) fates
       ORDER BY order_id IS NULL, created_at_ms DESC, generation DESC, reservation_id LIMIT 1`,
      [userId, requestId, sku.activityId, sku.skuId],
    );
    return row === undefined ? undefined : toRequestFate(row);
  }

  async liveOfPerson(sku: SkuKey, personId: string): Promise<readonly Order[]> {
    const rows = await this.#sql.query<OrderRow>(
      `SELECT ${orderColumns} FROM orders
       WHERE person_id = $1 AND activity_id = $2 AND sku_id = $3
         AND state IN ('PENDING_PAYMENT', 'PAID')
       ORDER BY created_at_ms, reservation_id`,
      [personId, sku.activityId, sku.skuId],
    );
    return rows.map(toOrder).filter((order) => order !== undefined);
  }

  async transition(orderId: string, change: Transition): Promise<TransitionReply> {
    const [reply] = await transitionMany(this.#sql, [orderId], change);
    return reply ?? { kind: 'unknown' };
  }

  transitionMany(
    orderIds: readonly string[],
    change: Transition,
  ): Promise<readonly TransitionReply[]> {
    return transitionMany(this.#sql, orderIds, change);
  }

  async dueForExpiry(nowMs: number, graceMs: number, limit: number): Promise<readonly Order[]> {
    const rows = await this.#sql.query<OrderRow>(
      `SELECT ${orderColumns} FROM orders o
       WHERE state = 'PENDING_PAYMENT' AND pay_before_ms < $1
         AND (pay_before_ms < $1::bigint - $2::bigint OR NOT EXISTS (
           SELECT 1 FROM payments p WHERE p.order_id = o.order_id AND p.state = ANY($3::text[])))
       ORDER BY pay_before_ms LIMIT $4`,
      [nowMs, graceMs, openPaymentStates, limit],
    );
    return rows.map(toOrder).filter((order) => order !== undefined);
  }

  async restocksDue(limit: number): Promise<readonly RestockDue[]> {
    const rows = await this.#sql.query<OrderRow>(
      `SELECT ${orderColumns} FROM orders WHERE stock_due IS NOT NULL
       ORDER BY due_at_ms, reservation_id LIMIT $1`,
      [limit],
    );
    return rows.map(toRestockDue);
  }

  async restocksDone(
    told: readonly { readonly reservationId: string; readonly version: number }[],
  ): Promise<void> {
    if (told.length === 0) return;
    await this.#sql.query(
      `UPDATE orders o SET stock_due = NULL, due_at_ms = NULL
       FROM unnest($1::text[], $2::int[]) AS t (reservation_id, version)
       WHERE o.reservation_id = t.reservation_id AND o.due_version = t.version`,
      [told.map((entry) => entry.reservationId), told.map((entry) => entry.version)],
    );
  }

  async liveOrders(
    sku: SkuKey,
    after: string | undefined,
    limit: number,
  ): Promise<readonly LiveOrder[]> {
    const rows = await this.#sql.query<OrderRow>(
      `SELECT ${orderColumns} FROM orders
       WHERE activity_id = $1 AND sku_id = $2 AND state IN ('PENDING_PAYMENT', 'PAID')
         AND reservation_id > $3
       ORDER BY reservation_id LIMIT $4`,
      [sku.activityId, sku.skuId, after ?? '', limit],
    );
    return rows.map(toLiveOrder).filter((live) => live !== undefined);
  }

  async tally(sku: SkuKey): Promise<Tally> {
    const [row] = await this.#sql.query<{ sold: number; paid: number; persons_wrong: number }>(
      tallySql,
      [sku.activityId, sku.skuId],
    );
    return {
      sold: row?.sold ?? 0,
      paid: row?.paid ?? 0,
      personsWrong: row?.persons_wrong ?? 0,
    };
  }

  async stock(sku: SkuKey): Promise<DurableStock | undefined> {
    const [row] = await this.#sql.query<{
      total: number;
      sold: number;
      paid: number;
      generation: number;
      stopped: boolean;
    }>(
      'SELECT total, sold, paid, generation, stopped FROM sku_stock WHERE activity_id = $1 AND sku_id = $2',
      [sku.activityId, sku.skuId],
    );
    return row;
  }

  adjustTotal(
    sku: SkuKey,
    adjustmentId: string,
    delta: number,
    why: AuditContext,
  ): Promise<boolean> {
    return this.#sql.transaction((tx) => adjustTotal(tx, sku, adjustmentId, delta, why));
  }

  raiseGeneration(sku: SkuKey, generation: number, why: AuditContext): Promise<boolean> {
    return this.#sql.transaction((tx) => raiseGeneration(tx, sku, generation, why));
  }

  setStopped(sku: SkuKey, stopped: boolean, why: AuditContext): Promise<boolean> {
    return this.#sql.transaction((tx) => setStopped(tx, sku, stopped, why));
  }

  async counts(activityId?: string): Promise<OrderCounts> {
    const [row] = await this.#sql.query<{
      pending: number;
      paid: number;
      expired: number;
      cancelled: number;
      refunded: number;
      released: number;
    }>(
      `SELECT coalesce(sum(pending_orders), 0)::int AS pending,
         coalesce(sum(paid_orders), 0)::int AS paid,
         coalesce(sum(expired_orders), 0)::int AS expired,
         coalesce(sum(cancelled_orders), 0)::int AS cancelled,
         coalesce(sum(refunded_orders), 0)::int AS refunded,
         coalesce(sum(released), 0)::int AS released
       FROM sku_stock WHERE $1::text IS NULL OR activity_id = $1`,
      [activityId ?? null],
    );
    return row ?? { pending: 0, paid: 0, expired: 0, cancelled: 0, refunded: 0, released: 0 };
  }

  search(wanted: OrderSearch): Promise<readonly Order[]> {
    return searchOrders(this.#sql, wanted);
  }

  close(): Promise<void> {
    return this.#sql.close();
  }
}

const tallySql = `WITH live AS (
  SELECT person_id, sum(quantity) AS units, sum(quantity) FILTER (WHERE state = 'PAID') AS paid
  FROM orders
  WHERE activity_id = $1 AND sku_id = $2 AND state IN ('PENDING_PAYMENT', 'PAID')
  GROUP BY person_id)
SELECT
  (SELECT coalesce(sum(units), 0)::int FROM live) AS sold,
  (SELECT coalesce(sum(paid), 0)::int FROM live) AS paid,
  (SELECT count(*)::int FROM live
     FULL JOIN (SELECT person_id, units FROM person_units WHERE activity_id = $1 AND sku_id = $2) p
       ON p.person_id = live.person_id
   WHERE coalesce(live.units, 0) <> coalesce(p.units, 0)) AS persons_wrong`;

async function adjustTotal(
  tx: SqlQueries,
  sku: SkuKey,
  adjustmentId: string,
  delta: number,
  why: AuditContext,
): Promise<boolean> {
  const fresh = await tx.query(
    `INSERT INTO stock_adjustments (adjustment_id, activity_id, sku_id, delta, at_ms)
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (adjustment_id) DO NOTHING RETURNING 1`,
    [adjustmentId, sku.activityId, sku.skuId, delta, why.nowMs],
  );
  if (fresh.length === 0) {
    const [earlier] = await tx.query<{ delta: number }>(
      'SELECT delta FROM stock_adjustments WHERE adjustment_id = $1',
      [adjustmentId],
    );
    if (earlier?.delta !== delta) {
      throw new RangeError(
        `adjustment ${adjustmentId} was made before with ${earlier?.delta}, found ${delta}`,
      );
    }
    return true;
  }
  const applied = await tx.query(
    `UPDATE sku_stock SET total = total + $3
     WHERE activity_id = $1 AND sku_id = $2 AND total + $3 >= sold RETURNING 1`,
    [sku.activityId, sku.skuId, delta],
  );
  if (applied.length === 0) {
    const known = await tx.query('SELECT 1 FROM sku_stock WHERE activity_id = $1 AND sku_id = $2', [
      sku.activityId,
      sku.skuId,
    ]);
    if (known.length === 0) throw new UnknownSkuError(sku.activityId, sku.skuId);
    // Not remembered, so that the same id may succeed once units have come back.
    await tx.query('DELETE FROM stock_adjustments WHERE adjustment_id = $1', [adjustmentId]);
    return false;
  }
  await appendAudit(tx, [
    {
      at: why.nowMs,
      who: why.who,
      what: 'stock adjusted',
      why: why.why,
      subject: sku.activityId,
      detail: { sku_id: sku.skuId, delta, adjustment_id: adjustmentId },
    },
  ]);
  return true;
}

async function raiseGeneration(
  tx: SqlQueries,
  sku: SkuKey,
  generation: number,
  why: AuditContext,
): Promise<boolean> {
  const raised = await tx.query(
    `UPDATE sku_stock SET generation = $3
     WHERE activity_id = $1 AND sku_id = $2 AND generation < $3 RETURNING 1`,
    [sku.activityId, sku.skuId, generation],
  );
  if (raised.length === 0) return false;
  await appendAudit(tx, [
    {
      at: why.nowMs,
      who: why.who,
      what: 'generation raised',
      why: why.why,
      subject: sku.activityId,
      detail: { sku_id: sku.skuId, generation },
    },
  ]);
  return true;
}

async function setStopped(
  tx: SqlQueries,
  sku: SkuKey,
  stopped: boolean,
  why: AuditContext,
): Promise<boolean> {
  const changed = await tx.query(
    `UPDATE sku_stock SET stopped = $3
     WHERE activity_id = $1 AND sku_id = $2 AND stopped <> $3 RETURNING 1`,
    [sku.activityId, sku.skuId, stopped],
  );
  if (changed.length === 0) return false;
  await appendAudit(tx, [
    {
      at: why.nowMs,
      who: why.who,
      what: stopped ? 'sale stopped' : 'sale reopened',
      why: why.why,
      subject: sku.activityId,
      detail: { sku_id: sku.skuId },
    },
  ]);
  return true;
}
