/**
 * Turns a batch of reservations into orders: read what is known, decide in memory
 * (core/orders/decide-batch.ts), write everything in one statement under the guards. The statement is
 * its own transaction, so that a batch costs two round trips however large it is, and the shared stock
 * row is held only for its end.
 *
 * Reading and writing need no transaction between them, because the guards say whether what was read
 * still holds: the primary key, that nobody has decided a reservation; the requests' key, that none has
 * become an order before; the person's row, that the limit is kept; the seats' key; the SKU's row, that
 * the units are there and the generation is the same. Where one is missed, the statement undoes itself
 * and all is read and decided anew. Each miss means that somebody else has committed, so that the runs
 * are bounded by the workers at work; past `attempts` the batch is given back as unavailable.
 *
 * For the same reason the first run reads the least it can: the stock. It supposes that the messages
 * are new and their buyers hold nothing, which in a sale they mostly are and do; a guard tells when
 * not, and then the second run reads all.
 */
import { type Decision, type Known, decideBatch } from '../../core/orders/decide-batch.ts';
import { personKey, requestKey, seatKey, skuKey } from '../../core/orders/decide-batch.ts';
import { UnavailableError, UnknownSkuError } from '../../ports/errors.ts';
import type { ReleaseReason } from '../../ports/inventory-store.ts';
import type { OrderMessage } from '../../ports/order-queue.ts';
import type {
  CommitContext,
  CommitFate,
  Order,
  ReleasableReservation,
} from '../../ports/order-store.ts';
import type { SqlQueries } from '../../ports/sql.ts';
import { SqlError, asksForRetry } from './errors.ts';
import {
  GuardMissed,
  type PersonTake,
  type SeatTake,
  type StockDelta,
  compare,
  emptyDelta,
  moveStockSql,
  personColumns,
  seatColumns,
  shiftParameters,
  stockColumns,
  takePersonsSql,
  takeSeatsSql,
  whileGuardsMiss,
} from './guards.ts';
import { type OrderRow, toFate } from './rows.ts';

const attempts = 12;

export async function commitBatch(
  sql: SqlQueries,
  messages: readonly OrderMessage[],
  context: CommitContext,
): Promise<readonly CommitFate[]> {
  if (messages.length === 0) return [];
  return underGuards(async (attempt) => {
    const known = attempt === 1 ? await readStock(sql, messages) : await readAll(sql, messages);
    const decisions = decideBatch(messages, known, context.nowMs);
    return write(sql, decisions, known, context);
  });
}

/** Decides RELEASED for what has no order; see the port. */
export async function releaseUnordered(
  sql: SqlQueries,
  reservations: readonly {
    readonly message: ReleasableReservation;
    readonly reason: ReleaseReason;
  }[],
  nowMs: number,
): Promise<readonly CommitFate[]> {
  if (reservations.length === 0) return [];
  return underGuards(async () => {
    const fates = await readFates(
      sql,
      reservations.map(({ message }) => message.reservationId),
    );
    const fresh = new Map(
      reservations
        .filter(({ message }) => !fates.has(message.reservationId))
        .map((entry) => [entry.message.reservationId, entry]),
    );
    const rows = [...fresh.values()].map(({ message, reason }) =>
      releasedRow(message, reason, nowMs),
    );
    await writeRows(sql, rows, []);
    const told = new Set<string>();
    return reservations.map(({ message, reason }) => {
      const { reservationId } = message;
      const earlier = fates.get(reservationId);
      if (earlier !== undefined) return earlier;
      const first = !told.has(reservationId);
      told.add(reservationId);
      return {
        reservationId,
        fate: 'released',
        reason: fresh.get(reservationId)?.reason ?? reason,
        fresh: first,
      };
    });
  });
}

async function underGuards<Result>(run: (attempt: number) => Promise<Result>): Promise<Result> {
  try {
    return await whileGuardsMiss(attempts, run);
  } catch (error) {
    if (!(error instanceof GuardMissed)) throw error;
    throw new UnavailableError(`batch given up after ${attempts} tries: ${error.message}`);
  }
}

const stockOfSql = `SELECT s.activity_id, s.sku_id, s.total, s.sold, s.generation
  FROM unnest($1::text[], $2::text[]) AS k (activity_id, sku_id)
  JOIN sku_stock s ON s.activity_id = k.activity_id AND s.sku_id = k.sku_id`;

async function readStock(sql: SqlQueries, messages: readonly OrderMessage[]): Promise<Known> {
  const skus = [...new Map(messages.map((message) => [skuKey(message), message])).values()];
  const rows = await sql.query<{
    activity_id: string;
    sku_id: string;
    total: number;
    sold: number;
    generation: number;
  }>(stockOfSql, [skus.map((message) => message.activityId), skus.map((message) => message.skuId)]);
  return {
    fates: new Map(),
    personUnits: new Map(),
    stock: new Map(
      rows.map((row) => [skuKey({ activityId: row.activity_id, skuId: row.sku_id }), row]),
    ),
    seats: new Set(),
    ordered: new Set(),
  };
}

const readSql = `SELECT
  (SELECT coalesce(json_agg(o), '[]') FROM orders o WHERE o.reservation_id = ANY($1::text[])) AS fates,
  (SELECT coalesce(json_agg(json_build_array(k.activity_id, k.sku_id, k.person_id, p.units)), '[]')
     FROM unnest($2::text[], $3::text[], $4::text[]) AS k (activity_id, sku_id, person_id)
     CROSS JOIN LATERAL (SELECT units FROM person_units p
       WHERE p.activity_id = k.activity_id AND p.sku_id = k.sku_id AND p.person_id = k.person_id
       OFFSET 0) p) AS persons,
  (SELECT coalesce(json_agg(json_build_array(s.activity_id, s.sku_id, s.total, s.sold, s.generation)), '[]')
     FROM unnest($5::text[], $6::text[]) AS k (activity_id, sku_id)
     JOIN sku_stock s ON s.activity_id = k.activity_id AND s.sku_id = k.sku_id) AS stock,
  (SELECT coalesce(json_agg(json_build_array(o.activity_id, o.sku_id, o.request_id, o.user_id)), '[]')
     FROM unnest($7::text[], $8::text[], $9::text[], $10::text[])
       AS k (activity_id, sku_id, request_id, user_id)
     JOIN orders o ON o.user_id = k.user_id AND o.request_id = k.request_id
       AND o.activity_id = k.activity_id AND o.sku_id = k.sku_id AND o.order_id IS NOT NULL) AS ordered`;

interface ReadRow {
  readonly fates: readonly OrderRow[];
  readonly persons: readonly (readonly [string, string, string, number])[];
  readonly stock: readonly (readonly [string, string, number, number, number])[];
  readonly ordered: readonly (readonly [string, string, string, string])[];
}

async function readAll(tx: SqlQueries, messages: readonly OrderMessage[]): Promise<Known> {
  const persons = [...new Map(messages.map((message) => [personKey(message), message])).values()];
  const skus = [...new Map(messages.map((message) => [skuKey(message), message])).values()];
  const [row] = await tx.query<ReadRow>(readSql, [
    messages.map((message) => message.reservationId),
    persons.map((message) => message.activityId),
    persons.map((message) => message.skuId),
    persons.map((message) => message.personId),
    skus.map((message) => message.activityId),
    skus.map((message) => message.skuId),
    messages.map((message) => message.activityId),
    messages.map((message) => message.skuId),
    messages.map((message) => message.requestId),
    messages.map((message) => message.userId),
  ]);
  if (row === undefined) throw new Error('a SELECT of subqueries answered no row');
  return {
    fates: new Map(row.fates.map((fate) => [fate.reservation_id, toFate(fate)])),
    personUnits: new Map(
      row.persons.map(([activityId, skuId, personId, units]) => [
        personKey({ activityId, skuId, personId }),
        units,
      ]),
    ),
    stock: new Map(
      row.stock.map(([activityId, skuId, total, sold, generation]) => [
        skuKey({ activityId, skuId }),
        { total, sold, generation },
      ]),
    ),
    seats: await readSeats(tx, messages),
    ordered: new Set(
      row.ordered.map(([activityId, skuId, requestId, userId]) =>
        requestKey({ activityId, skuId, requestId, userId }),
      ),
    ),
  };
}

async function readSeats(
  tx: SqlQueries,
  messages: readonly OrderMessage[],
): Promise<ReadonlySet<string>> {
  const wanted = messages.flatMap((message) =>
    (message.seats ?? []).map((seat) => ({ ...message, seat })),
  );
  if (wanted.length === 0) return new Set();
  const rows = await tx.query<{ activity_id: string; sku_id: string; seat: string }>(
    `SELECT h.activity_id, h.sku_id, h.seat FROM seat_holds h
       JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[])
               AS w (activity_id, sku_id, seat)) k
         ON h.activity_id = k.activity_id AND h.sku_id = k.sku_id AND h.seat = k.seat`,
    [
      wanted.map((seat) => seat.activityId),
      wanted.map((seat) => seat.skuId),
      wanted.map((seat) => seat.seat),
    ],
  );
  return new Set(
    rows.map((row) => seatKey({ activityId: row.activity_id, skuId: row.sku_id }, row.seat)),
  );
}

export async function readFates(
  tx: SqlQueries,
  reservationIds: readonly string[],
): Promise<Map<string, CommitFate>> {
  const rows = await tx.query<OrderRow>(
    'SELECT * FROM orders WHERE reservation_id = ANY($1::text[])',
    [reservationIds],
  );
  return new Map(rows.map((row) => [row.reservation_id, toFate(row)]));
}

/** A row to be written: an order, or the fate of a reservation that became none. */
interface NewRow {
  readonly message: ReleasableReservation;
  readonly order: Order | undefined;
  readonly reason: ReleaseReason | undefined;
  readonly atMs: number;
  /** The stock row's generation that the decision was made by; undefined: it did not matter. */
  readonly stockGeneration: number | undefined;
}

function releasedRow(
  message: ReleasableReservation,
  reason: ReleaseReason,
  atMs: number,
  stockGeneration?: number,
): NewRow {
  return { message, order: undefined, reason, atMs, stockGeneration };
}

async function write(
  tx: SqlQueries,
  decisions: readonly Decision[],
  known: Known,
  context: CommitContext,
): Promise<readonly CommitFate[]> {
  const rows: NewRow[] = [];
  const takes: OrderMessage[] = [];
  const fresh = new Map<string, CommitFate>();
  const fates = decisions.map((decision): CommitFate => {
    switch (decision.kind) {
      case 'unknown_sku':
        throw new UnknownSkuError(decision.message.activityId, decision.message.skuId);
      case 'repeat':
        return decision.fate;
      case 'same_as': {
        const fate = fresh.get(decision.reservationId);
        if (fate === undefined) throw new Error('a repeated message precedes its first');
        return { ...fate, fresh: false };
      }
      case 'order':
      case 'release': {
        const { message } = decision;
        const { reservationId } = message;
        const generation = known.stock.get(skuKey(message))?.generation;
        let fate: CommitFate;
        if (decision.kind === 'order') {
          const order = newOrder(message, context);
          rows.push({
            message,
            order,
            reason: undefined,
            atMs: context.nowMs,
            stockGeneration: generation,
          });
          takes.push(message);
          fate = { reservationId, fate: 'ordered', order, fresh: true };
        } else {
          rows.push(releasedRow(message, decision.reason, context.nowMs, generation));
          fate = { reservationId, fate: 'released', reason: decision.reason, fresh: true };
        }
        fresh.set(reservationId, fate);
        return fate;
      }
    }
  });
  await writeRows(tx, rows, takes);
  return fates;
}

function newOrder(message: OrderMessage, context: CommitContext): Order {
  return {
    orderId: context.orderId(message),
    reservationId: message.reservationId,
    requestId: message.requestId,
    activityId: message.activityId,
    skuId: message.skuId,
    userId: message.userId,
    personId: message.personId,
    quantity: message.quantity,
    amountMinor: message.unitAmountMinor * message.quantity,
    currency: message.currency,
    state: 'PENDING_PAYMENT',
    createdAtMs: context.nowMs,
    payBeforeMs: context.nowMs + context.paymentDeadlineMs(message.activityId),
    ...(message.seats === undefined ? {} : { seats: message.seats }),
  };
}

async function writeRows(
  sql: SqlQueries,
  rows: readonly NewRow[],
  takes: readonly OrderMessage[],
): Promise<void> {
  if (rows.length === 0) return;
  const persons = [...personsOf(takes).values()];
  const seats = seatsOf(takes);
  const deltas = deltasOf(rows);
  const statement = seats.length === 0 ? writeSql : writeWithSeatsSql;
  try {
    await sql.query(statement, [
      ...orderColumns(
        rows.toSorted((a, b) => compare(a.message.reservationId, b.message.reservationId)),
      ),
      ...personColumns(persons),
      persons.length,
      ...stockColumns(deltas),
      deltas.length,
      ...(seats.length === 0 ? [] : [...seatColumns(seats), seats.length]),
    ]);
  } catch (error) {
    if (error instanceof SqlError && missesGuard(error)) throw new GuardMissed(error.message);
    throw error;
  }
}

/** Two of the guards are keys of the table. */
const keys: readonly (string | undefined)[] = ['orders_pkey', 'orders_one_of_request'];

/** A reservation decided by somebody else, any guard of ours, or a deadlock: somebody was faster. */
function missesGuard(error: SqlError): boolean {
  return error.code === 'SL001' || keys.includes(error.constraint) || asksForRetry(error);
}

function personsOf(takes: readonly OrderMessage[]): ReadonlyMap<string, PersonTake> {
  const persons = new Map<string, PersonTake>();
  for (const message of takes) {
    const key = personKey(message);
    const take = persons.get(key);
    if (take === undefined) {
      const { activityId, skuId, personId, quantity, limit } = message;
      persons.set(key, { activityId, skuId, personId, units: quantity, limit });
    } else {
      take.units += message.quantity;
      take.limit = message.limit;
    }
  }
  return persons;
}

function seatsOf(takes: readonly OrderMessage[]): readonly SeatTake[] {
  return takes.flatMap(({ activityId, skuId, reservationId, seats }) =>
    (seats ?? []).map((seat) => ({ activityId, skuId, seat, reservationId })),
  );
}

function deltasOf(rows: readonly NewRow[]): readonly StockDelta[] {
  const deltas = new Map<string, StockDelta>();
  for (const row of rows) {
    const key = skuKey(row.message);
    const delta = deltas.get(key) ?? emptyDelta(row.message, row.stockGeneration);
    if (row.order === undefined) {
      delta.orders.RELEASED += 1;
    } else {
      delta.orders.PENDING_PAYMENT += 1;
      delta.sold += row.order.quantity;
    }
    deltas.set(key, delta);
  }
  return [...deltas.values()];
}

/** Seats travel as one text each (their array literal): unnest of a two-dimensional array is flat. */
export const insertOrdersSql = `INSERT INTO orders (reservation_id, order_id, state, activity_id,
  sku_id, user_id, person_id, request_id, fingerprint, nonce, generation, quantity, amount_minor,
  currency, seats, created_at_ms, pay_before_ms, closed_at_ms, release_reason, stock_due, due_at_ms,
  due_version)
SELECT r, o, s, a, k, u, p, q, f, n, g, c, m, y, t::text[], $16::bigint, b,
  CASE WHEN o IS NULL THEN $16::bigint END, e,
  CASE WHEN o IS NULL THEN 'RELEASE' END, CASE WHEN o IS NULL THEN $16::bigint END,
  CASE WHEN o IS NULL THEN 1 ELSE 0 END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
  $8::text[], $9::text[], $10::text[], $11::int[], $12::int[], $13::bigint[], $14::text[],
  $15::text[], $17::bigint[], $18::text[])
  AS i (r, o, s, a, k, u, p, q, f, n, g, c, m, y, t, b, e)`;

/** Parameters of the statements within the one that writes a batch, one after another. */
const personsAt = 18;
const stockAt = personsAt + 6;
const seatsAt = stockAt + 12;

/**
 * Everything a batch writes. The guards stand in the order in which they are to be run: the stock row
 * last, because all buyers of a SKU wait for it.
 */
const writeSql = batchSql(false);
const writeWithSeatsSql = batchSql(true);

function batchSql(withSeats: boolean): string {
  const counted = (name: string, parameter: number, guard: string): string =>
    `sluice_require((SELECT count(*) FROM ${name}) = $${parameter}::int, '${guard}')`;
  return `WITH
    new_orders AS (${insertOrdersSql} RETURNING 1),
    persons AS (${shiftParameters(takePersonsSql, personsAt)}),
    ${withSeats ? `seats AS (${shiftParameters(takeSeatsSql, seatsAt)}),` : ''}
    stock AS (${shiftParameters(moveStockSql, stockAt)})
  SELECT (SELECT count(*) FROM new_orders) AS n,
    ${counted('persons', personsAt + 6, 'purchase limit')} AS p,
    ${withSeats ? `${counted('seats', seatsAt + 5, 'seat')} AS t,` : ''}
    ${counted('stock', stockAt + 12, 'stock or generation')} AS s`;
}

function orderColumns(rows: readonly NewRow[]): readonly unknown[] {
  return [
    rows.map((row) => row.message.reservationId),
    rows.map((row) => row.order?.orderId ?? null),
    rows.map((row) => row.order?.state ?? 'RELEASED'),
    rows.map((row) => row.message.activityId),
    rows.map((row) => row.message.skuId),
    rows.map((row) => row.message.userId),
    rows.map((row) => row.message.personId),
    rows.map((row) => row.message.requestId),
    rows.map((row) => row.message.fingerprint),
    rows.map((row) => row.message.nonce),
    rows.map((row) => row.message.generation),
    rows.map((row) => row.message.quantity),
    rows.map((row) => row.order?.amountMinor ?? 0),
    rows.map((row) => row.order?.currency ?? ''),
    rows.map((row) => arrayLiteral(row.order?.seats)),
    rows[0]?.atMs ?? 0,
    rows.map((row) => row.order?.payBeforeMs ?? row.atMs),
    rows.map((row) => row.reason ?? null),
  ];
}

/** `{"A-1","A-2"}`, as PostgreSQL reads an array from text. */
function arrayLiteral(items: readonly string[] | undefined): string | null {
  if (items === undefined) return null;
  return `{${items.map((item) => `"${item.replace(/["\\]/g, '\\$&')}"`).join(',')}}`;
}
