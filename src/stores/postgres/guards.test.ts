import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  by,
  commitContext,
  orderMessage,
  ordersOf,
  sku,
  startMs,
  theOrder,
} from '../../../test/contract/order-store.ts';
import { type PostgresServer, startPostgres } from '../../../test/support/servers/postgres.ts';
import { systemRandom, systemTimers } from '../../app/system.ts';
import type { CommitFate, OrderStore } from '../../ports/order-store.ts';
import type { Sql, SqlQueries } from '../../ports/sql.ts';
import { migrate } from './migrate.ts';
import { PostgresOrderStore } from './order-store.ts';
import { openPool } from './pool.ts';

/**
 * Every guard, in the race that it is for, on a real server; and the same race with that guard taken
 * out of the statements (and its last wall out of this database), which then goes wrong. A guard
 * whose removal nothing notices guards nothing.
 */

let server: PostgresServer;
let sql: Sql;

beforeAll(async () => {
  server = await startPostgres({ settings: { fsync: 'off' } });
}, 180_000);
afterAll(async () => {
  await server.stop();
});
beforeEach(async () => {
  sql = openPool({
    url: await server.createDatabase(),
    timers: systemTimers,
    random: systemRandom,
    connections: 8,
  });
  await migrate(sql, startMs);
  return () => sql.close();
});

/** The statements without a piece of them; fails when the piece was never found. */
function without(...pieces: readonly string[]): { sql: Sql; found: () => readonly string[] } {
  const found = new Set<string>();
  const cut = (text: string): string =>
    pieces.reduce((rest, piece) => {
      if (!rest.includes(piece)) return rest;
      found.add(piece);
      return rest.replace(piece, '');
    }, text);
  const over = (queries: SqlQueries): SqlQueries => ({
    query: (text, values) => queries.query(cut(text), values),
  });
  return {
    found: () => [...found],
    sql: {
      ...over(sql),
      transaction: (work) => sql.transaction((tx) => work(over(tx))),
      close: () => sql.close(),
    },
  };
}

/** Lets every caller pass the statement that holds `words` only once `callers` of them have come. */
function meetingAfter(inner: Sql, words: string, callers: number): Sql {
  let come = 0;
  let open: () => void = () => undefined;
  const all = new Promise<void>((resolve) => {
    open = resolve;
  });
  const over = (queries: SqlQueries): SqlQueries => ({
    async query(text, values) {
      const rows = await queries.query<never>(text, values);
      if (text.includes(words) && come < callers) {
        come += 1;
        if (come === callers) open();
        await all;
      }
      return rows;
    },
  });
  return {
    ...over(inner),
    transaction: (work) => inner.transaction((tx) => work(over(tx))),
    close: () => inner.close(),
  };
}

const readsStock = 's.total, s.sold, s.generation';
const declare = (total: number): Promise<void> =>
  new PostgresOrderStore(sql).declareSku(sku, { total, generation: 1, name: 'Floor' });
const soldNow = async (): Promise<number> => {
  const [row] = await sql.query<{ n: number }>(
    "SELECT coalesce(sum(quantity), 0)::int AS n FROM orders WHERE state IN ('PENDING_PAYMENT', 'PAID')",
    [],
  );
  return row?.n ?? -1;
};

describe('stock', () => {
  const race = async (through: Sql): Promise<readonly CommitFate[]> => {
    await declare(3);
    const store = new PostgresOrderStore(meetingAfter(through, readsStock, 6));
    const batches = Array.from({ length: 6 }, (_, n) => [orderMessage(`r${n}`)]);
    const fates = await Promise.all(
      batches.map((batch) => store.commitBatch(batch, commitContext())),
    );
    return fates.flat();
  };

  test('six workers read three left, and three sell', async () => {
    const fates = await race(sql);
    expect(ordersOf(fates)).toHaveLength(3);
    expect(await soldNow()).toBe(3);
  });

  test('without the conditional update and the check behind it, it oversells', async () => {
    await sql.query('ALTER TABLE sku_stock DROP CONSTRAINT sku_stock_not_oversold');
    const open = without('AND s.sold + k.sold <= s.total');
    const fates = await race(open.sql);
    expect(open.found()).toHaveLength(1);
    expect(ordersOf(fates)).toHaveLength(6);
    expect(await soldNow()).toBe(6);
  });

  test('without the conditional update alone, the check still stands', async () => {
    const open = without('AND s.sold + k.sold <= s.total');
    await expect(race(open.sql)).rejects.toMatchObject({ constraint: 'sku_stock_not_oversold' });
    expect(await soldNow()).toBeLessThanOrEqual(3);
  });
});

describe('purchase limit', () => {
  const race = async (through: Sql): Promise<readonly CommitFate[]> => {
    await declare(10);
    const store = new PostgresOrderStore(meetingAfter(through, readsStock, 4));
    const fates = await Promise.all(
      Array.from({ length: 4 }, (_, n) =>
        store.commitBatch([orderMessage(`r${n}`, { user: 'ann' })], commitContext()),
      ),
    );
    return fates.flat();
  };

  test('one person through four workers gets one', async () => {
    expect(ordersOf(await race(sql))).toHaveLength(1);
  });

  test('without the guarded quantity, four', async () => {
    const open = without('WHERE h.units + excluded.units <= excluded.unit_limit');
    expect(ordersOf(await race(open.sql))).toHaveLength(4);
    expect(open.found()).toHaveLength(1);
  });
});

describe('one fate per reservation', () => {
  const race = async (): Promise<readonly CommitFate[]> => {
    await declare(10);
    const store = new PostgresOrderStore(meetingAfter(sql, readsStock, 3));
    const fates = await Promise.all(
      [1, 2, 3].map(() => store.commitBatch([orderMessage('same', { limit: 5 })], commitContext())),
    );
    return fates.flat();
  };

  test('one message at three workers makes one order', async () => {
    const fates = await race();
    expect(fates.filter((fate) => fate.fresh)).toHaveLength(1);
    expect(await soldNow()).toBe(1);
  });

  test('without the primary key, three', async () => {
    await sql.query(
      `ALTER TABLE orders DROP CONSTRAINT orders_pkey;
       ALTER TABLE orders DROP CONSTRAINT orders_order_id_key CASCADE;
       DROP INDEX orders_one_of_request`,
    );
    const fates = await race();
    expect(fates.filter((fate) => fate.fresh)).toHaveLength(3);
    expect(await soldNow()).toBe(3);
  });
});

describe('one order per request', () => {
  const race = async (): Promise<readonly CommitFate[]> => {
    await declare(10);
    const store = new PostgresOrderStore(meetingAfter(sql, readsStock, 3));
    const fates = await Promise.all(
      ['a', 'b', 'c'].map((r) =>
        store.commitBatch(
          [orderMessage(r, { user: 'ann', requestId: 'req', limit: 5 })],
          commitContext(),
        ),
      ),
    );
    return fates.flat();
  };

  test('one request that was reserved three times, at three workers, makes one order', async () => {
    expect(ordersOf(await race())).toHaveLength(1);
    expect(await soldNow()).toBe(1);
  });

  test('without the key of requests, three', async () => {
    await sql.query('DROP INDEX orders_one_of_request');
    expect(ordersOf(await race())).toHaveLength(3);
  });
});

describe('generation', () => {
  const race = async (through: Sql): Promise<readonly CommitFate[]> => {
    await declare(10);
    const raising: Sql = {
      ...through,
      async query(text, values) {
        const rows = await through.query<never>(text, values);
        if (text.includes(readsStock)) {
          await new PostgresOrderStore(sql).raiseGeneration(sku, 2, by('control', startMs));
        }
        return rows;
      },
    };
    return new PostgresOrderStore(raising).commitBatch([orderMessage('old')], commitContext());
  };

  test('raised between our look and our write: the old message is lost', async () => {
    expect(await race(sql)).toMatchObject([{ fate: 'released', reason: 'lost' }]);
  });

  test('without the guard it becomes an order that the rebuilt stock knows nothing of', async () => {
    const open = without('AND (k.generation IS NULL OR s.generation = k.generation)');
    expect(await race(open.sql)).toMatchObject([{ fate: 'ordered' }]);
    expect(open.found()).toHaveLength(1);
  });
});

describe('seats', () => {
  const race = async (): Promise<readonly CommitFate[]> => {
    await declare(10);
    const store = new PostgresOrderStore(meetingAfter(sql, readsStock, 3));
    const fates = await Promise.all(
      [1, 2, 3].map((n) =>
        store.commitBatch([orderMessage(`s${n}`, { seats: ['A-1'] })], commitContext()),
      ),
    );
    return fates.flat();
  };

  test('three workers, one seat: one order', async () => {
    expect(ordersOf(await race())).toHaveLength(1);
  });

  test('without the seat’s key, three', async () => {
    await sql.query(
      `ALTER TABLE seat_holds DROP CONSTRAINT seat_holds_pkey;
       ALTER TABLE seat_holds ADD PRIMARY KEY (activity_id, sku_id, seat, reservation_id)`,
    );
    const open = without('ON CONFLICT (activity_id, sku_id, seat) DO NOTHING');
    await declare(10);
    const store = new PostgresOrderStore(meetingAfter(open.sql, readsStock, 3));
    const fates = await Promise.all(
      [1, 2, 3].map((n) =>
        store.commitBatch([orderMessage(`s${n}`, { seats: ['A-1'] })], commitContext()),
      ),
    );
    expect(open.found()).toHaveLength(1);
    expect(ordersOf(fates.flat())).toHaveLength(3);
  });
});

describe('transitions', () => {
  const race = async (through: Sql): Promise<number> => {
    await declare(10);
    const plain = new PostgresOrderStore(sql);
    await plain.commitBatch(
      ['x', 'y', 'z'].map((r) => orderMessage(r)),
      commitContext(),
    );
    const order = theOrder(await plain.commitBatch([orderMessage('x')], commitContext()));
    const store = new PostgresOrderStore(through);
    const end = (to: 'EXPIRED' | 'CANCELLED'): ReturnType<OrderStore['transition']> =>
      store.transition(order.orderId, { ...by('w', startMs), from: ['PENDING_PAYMENT'], to });
    const replies = await Promise.all([end('EXPIRED'), end('CANCELLED')]);
    return replies.filter((reply) => reply.kind === 'done').length;
  };
  const locks = 'ORDER BY reservation_id FOR UPDATE';

  test('deadline and buyer in the same instant: one ends the order', async () => {
    expect(await race(sql)).toBe(1);
    expect(await new PostgresOrderStore(sql).stock(sku)).toMatchObject({ sold: 2 });
  });

  test('without lock and guard both do, and a unit comes back twice', async () => {
    await sql.query('ALTER TABLE person_units DROP CONSTRAINT person_units_units_check');
    const open = without(locks, 'AND o.state = m.was');
    expect(await race(meetingAfter(open.sql, 'WHERE order_id = ANY', 2))).toBe(2);
    expect(open.found()).toHaveLength(2);
    expect(await new PostgresOrderStore(sql).stock(sku)).toMatchObject({ sold: 1 });
  });
});
