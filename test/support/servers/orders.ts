import type { Sql } from '../../../src/ports/sql.ts';

/** Empties every table of the order store, keeping the schema. */
export async function emptyTables(sql: Sql): Promise<void> {
  await sql.query(
    `TRUNCATE sku_stock, stock_adjustments, orders, person_units, seat_holds, payments,
       payment_events, audit_log RESTART IDENTITY`,
  );
}
