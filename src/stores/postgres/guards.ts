/**
 * The statements that guard stock, purchase limits and seats. Every path that takes or gives back a
 * unit runs these and no others.
 *
 * Rows are locked in one order everywhere: orders (by reservation id), persons, seats, stock. Whoever
 * holds one may only wait for a later one, so that no two transactions wait for each other; the stock
 * row, which all buyers of a SKU share, is held for the shortest time, from here to the commit.
 */
import type { SqlQueries } from '../../ports/sql.ts';
import type { OrderState } from '../../ports/order-store.ts';

/**
 * A guard did not hold: somebody was faster. Nothing is wrong; the transaction is rolled back, and
 * everything is read and decided anew.
 */
export class GuardMissed extends Error {
  override readonly name = 'GuardMissed';
}

/** What one transaction changes of one SKU's row. */
export interface StockDelta {
  readonly activityId: string;
  readonly skuId: string;
  /** Must still be the row's when it is written; undefined: any. */
  readonly generation: number | undefined;
  sold: number;
  paid: number;
  readonly orders: Record<OrderState | 'RELEASED', number>;
}

export function emptyDelta(
  sku: { readonly activityId: string; readonly skuId: string },
  generation: number | undefined,
): StockDelta {
  return {
    activityId: sku.activityId,
    skuId: sku.skuId,
    generation,
    sold: 0,
    paid: 0,
    orders: { PENDING_PAYMENT: 0, PAID: 0, EXPIRED: 0, CANCELLED: 0, REFUNDED: 0, RELEASED: 0 },
  };
}

/**
 * Moves SKU rows; parameters $1 to $11. The rows are locked in order first, so that two callers with
 * several SKUs cannot lock them crosswise. Its conditions
 * are the guard: nothing is sold that is not there, and nothing by a generation that is gone.
 */
export const moveStockSql = `UPDATE sku_stock s SET
    sold = s.sold + k.sold,
    paid = s.paid + k.paid,
    pending_orders = s.pending_orders + k.pending,
    paid_orders = s.paid_orders + k.paid_orders,
    expired_orders = s.expired_orders + k.expired,
    cancelled_orders = s.cancelled_orders + k.cancelled,
    refunded_orders = s.refunded_orders + k.refunded,
    released = s.released + k.released
  FROM (SELECT d.* FROM sku_stock l
    JOIN unnest($1::text[], $2::text[], $3::int[], $4::int[], $5::int[], $6::int[], $7::int[],
                $8::int[], $9::int[], $10::int[], $11::int[])
      AS d (activity_id, sku_id, generation, sold, paid, pending, paid_orders, expired, cancelled,
            refunded, released)
      ON l.activity_id = d.activity_id AND l.sku_id = d.sku_id
    ORDER BY l.activity_id, l.sku_id FOR UPDATE OF l) k
  WHERE s.activity_id = k.activity_id AND s.sku_id = k.sku_id
    AND s.sold + k.sold <= s.total
    AND (k.generation IS NULL OR s.generation = k.generation)
  RETURNING 1`;

/** The values of moveStockSql. */
export function stockColumns(deltas: readonly StockDelta[]): readonly unknown[] {
  return [
    deltas.map((delta) => delta.activityId),
    deltas.map((delta) => delta.skuId),
    deltas.map((delta) => delta.generation ?? null),
    deltas.map((delta) => delta.sold),
    deltas.map((delta) => delta.paid),
    deltas.map((delta) => delta.orders.PENDING_PAYMENT),
    deltas.map((delta) => delta.orders.PAID),
    deltas.map((delta) => delta.orders.EXPIRED),
    deltas.map((delta) => delta.orders.CANCELLED),
    deltas.map((delta) => delta.orders.REFUNDED),
    deltas.map((delta) => delta.orders.RELEASED),
  ];
}

/** Last in its transaction. Throws GuardMissed unless every row could take its delta. */
export async function moveStock(tx: SqlQueries, deltas: readonly StockDelta[]): Promise<void> {
  if (deltas.length === 0) return;
  const moved = await tx.query(moveStockSql, stockColumns(deltas));
  if (moved.length !== deltas.length) throw new GuardMissed('stock or generation moved');
}

export interface PersonTake {
  readonly activityId: string;
  readonly skuId: string;
  readonly personId: string;
  units: number;
  limit: number;
}

/** What becomes of a person who has a guard row: more units within the limit, or no row back. */
export const keepLimitSql = `ON CONFLICT (person_id, sku_id, activity_id) DO UPDATE
    SET units = h.units + excluded.units, unit_limit = excluded.unit_limit
    WHERE h.units + excluded.units <= excluded.unit_limit
  RETURNING 1`;

/** Adds to guard rows; parameters $1 to $5. */
export const takePersonsSql = `INSERT INTO person_units AS h (activity_id, sku_id, person_id, units, unit_limit)
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::int[])
  ${keepLimitSql}`;

/**
 * The values of takePersonsSql. Each person once, sorted, so that two batches with the same persons
 * cannot lock them crosswise.
 */
export function personColumns(takes: readonly PersonTake[]): readonly unknown[] {
  const sorted = takes.toSorted(byPerson);
  return [
    sorted.map((take) => take.activityId),
    sorted.map((take) => take.skuId),
    sorted.map((take) => take.personId),
    sorted.map((take) => take.units),
    sorted.map((take) => take.limit),
  ];
}

/** Adds to what persons hold. Throws GuardMissed unless all stay within their limits. */
export async function takePersons(tx: SqlQueries, takes: readonly PersonTake[]): Promise<void> {
  if (takes.length === 0) return;
  const taken = await tx.query(takePersonsSql, personColumns(takes));
  if (taken.length !== takes.length) throw new GuardMissed('a person bought meanwhile');
}

const returnPersonsSql = `WITH locked AS (
  SELECT p.activity_id, p.sku_id, p.person_id, k.units FROM person_units p
  JOIN unnest($1::text[], $2::text[], $3::text[], $4::int[]) AS k (activity_id, sku_id, person_id, units)
    ON p.activity_id = k.activity_id AND p.sku_id = k.sku_id AND p.person_id = k.person_id
  ORDER BY p.activity_id, p.sku_id, p.person_id FOR UPDATE OF p),
moved AS (
  UPDATE person_units p SET units = p.units - k.units FROM locked k
  WHERE p.activity_id = k.activity_id AND p.sku_id = k.sku_id AND p.person_id = k.person_id
  RETURNING 1)
SELECT count(*)::int AS n FROM moved`;

/** Gives back what persons held. */
export async function returnPersons(
  tx: SqlQueries,
  returns: readonly Omit<PersonTake, 'limit'>[],
): Promise<void> {
  if (returns.length === 0) return;
  const sorted = returns.toSorted(byPerson);
  const [row] = await tx.query<{ n: number }>(returnPersonsSql, [
    sorted.map((entry) => entry.activityId),
    sorted.map((entry) => entry.skuId),
    sorted.map((entry) => entry.personId),
    sorted.map((entry) => entry.units),
  ]);
  if (row?.n !== returns.length) {
    throw new Error(
      `units of ${returns.length} persons come back, found rows of ${row?.n ?? 0}: the guard rows are damaged`,
    );
  }
}

export interface SeatTake {
  readonly activityId: string;
  readonly skuId: string;
  readonly seat: string;
  readonly reservationId: string;
}

/** Takes seats; parameters $1 to $4. */
export const takeSeatsSql = `INSERT INTO seat_holds (activity_id, sku_id, seat, reservation_id)
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
  ON CONFLICT (activity_id, sku_id, seat) DO NOTHING
  RETURNING 1`;

/** The values of takeSeatsSql, sorted for the same reason. */
export function seatColumns(takes: readonly SeatTake[]): readonly unknown[] {
  const sorted = takes.toSorted(
    (a, b) =>
      compare(a.activityId, b.activityId) || compare(a.skuId, b.skuId) || compare(a.seat, b.seat),
  );
  return [
    sorted.map((take) => take.activityId),
    sorted.map((take) => take.skuId),
    sorted.map((take) => take.seat),
    sorted.map((take) => take.reservationId),
  ];
}

/** Throws GuardMissed unless all were free. */
export async function takeSeats(tx: SqlQueries, takes: readonly SeatTake[]): Promise<void> {
  if (takes.length === 0) return;
  const taken = await tx.query(takeSeatsSql, seatColumns(takes));
  if (taken.length !== takes.length) throw new GuardMissed('a seat was taken meanwhile');
}

export async function returnSeats(
  tx: SqlQueries,
  reservationIds: readonly string[],
): Promise<void> {
  if (reservationIds.length === 0) return;
  await tx.query('DELETE FROM seat_holds WHERE reservation_id = ANY($1::text[])', [reservationIds]);
}

type PersonKey = Pick<PersonTake, 'activityId' | 'skuId' | 'personId'>;

function byPerson(a: PersonKey, b: PersonKey): number {
  return (
    compare(a.activityId, b.activityId) ||
    compare(a.skuId, b.skuId) ||
    compare(a.personId, b.personId)
  );
}

export function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/**
 * Moves a statement's parameters up by `by`, so that several fit into one: `$1` becomes `$4` for 3.
 */
export function shiftParameters(text: string, by: number): string {
  return text.replaceAll(/\$(\d+)/g, (_, number: string) => `$${Number(number) + by}`);
}

/** Runs work again, from its reads on, while guards are missed; at most `attempts` times. */
export async function whileGuardsMiss<Result>(
  attempts: number,
  run: (attempt: number) => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await run(attempt);
    } catch (error) {
      if (!(error instanceof GuardMissed) || attempt >= attempts) throw error;
    }
  }
}
