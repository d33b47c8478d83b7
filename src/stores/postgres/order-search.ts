import type { Order, OrderSearch } from '../../ports/order-store.ts';
import type { SqlQueries } from '../../ports/sql.ts';
import { type OrderRow, orderColumns, toOrder } from './rows.ts';

/** Orders in one answer. */
const pageMax = 1_000;

/**
 * Finds orders for an operator. Each condition is a whole value, never a pattern. O(matches) by index
 * where an id, a person or a deadline is given, else O(orders of the page's range).
 */
export async function searchOrders(
  sql: SqlQueries,
  wanted: OrderSearch,
): Promise<readonly Order[]> {
  const values: unknown[] = [];
  const where = ['order_id IS NOT NULL'];
  const add = (condition: (place: string) => string, value: unknown): void => {
    values.push(value);
    where.push(condition(`$${values.length}`));
  };
  if (wanted.activityId !== undefined) add((at) => `activity_id = ${at}`, wanted.activityId);
  if (wanted.state !== undefined) add((at) => `state = ${at}`, wanted.state);
  if (wanted.after !== undefined) add((at) => `order_id > ${at}`, wanted.after);
  if (wanted.text !== undefined) {
    add(
      (at) =>
        `(order_id = ${at} OR reservation_id = ${at} OR request_id = ${at} OR user_id = ${at})`,
      wanted.text,
    );
  }
  if (wanted.overdueAtMs !== undefined) {
    where.push("state = 'PENDING_PAYMENT'");
    add((at) => `pay_before_ms < ${at}`, wanted.overdueAtMs);
  }
  values.push(Math.min(pageMax, Math.max(1, Math.floor(wanted.limit))));
  const rows = await sql.query<OrderRow>(
    `SELECT ${orderColumns} FROM orders WHERE ${where.join(' AND ')}
     ORDER BY order_id LIMIT $${values.length}`,
    values,
  );
  return rows.flatMap((row) => toOrder(row) ?? []);
}
