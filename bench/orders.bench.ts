import { startPostgres } from '../test/support/servers/postgres.ts';
import { systemRandom, systemTimers } from '../src/app/system.ts';
import { orderIdOf } from '../src/core/orders/ids.ts';
import type { OrderMessage } from '../src/ports/order-queue.ts';
import { insertOrdersSql } from '../src/stores/postgres/commit-batch.ts';
import { migrate } from '../src/stores/postgres/migrate.ts';
import { PostgresOrderStore } from '../src/stores/postgres/order-store.ts';
import { openPool } from '../src/stores/postgres/pool.ts';
import {
  isMain,
  printReport,
  race,
  ResultHash,
  round3,
  smallAsked,
  versionOf,
} from './support/bench.ts';

/**
 * Durable orders per second, against a bare multi-row insert of the same order rows.
 *
 * Both in the same real PostgreSQL with fsync on, over one connection of the same pool, in turn, one
 * transaction per batch. The bare insert writes the same rows into a table of the same columns, types,
 * constraints and indexes, by its fastest form (arrays and unnest, prepared), and nothing else: no
 * read of what is known, no purchase limit, no stock. What ours does beyond it is the price of never
 * overselling. Every buyer is new and buys one unit: every guard row is written, none is refused.
 */
export interface OrdersSize {
  readonly batch: number;
  readonly batches: number;
  readonly warmups: number;
  readonly rounds: number;
}

export const largeSize: OrdersSize = { batch: 500, batches: 20, warmups: 2, rounds: 11 };
export const smallSize: OrdersSize = { batch: 32, batches: 4, warmups: 1, rounds: 3 };

const sku = { activityId: 'show', skuId: 'floor' };
const nowMs = 1_800_000_000_000;

export async function orders(size: OrdersSize): Promise<{
  report: Parameters<typeof printReport>[0];
  rows: Parameters<typeof printReport>[2];
}> {
  const server = await startPostgres({ settings: { shared_buffers: '256MB' } });
  const sql = openPool({
    url: await server.createDatabase(),
    timers: systemTimers,
    random: systemRandom,
    connections: 1,
    statementMs: 60_000,
  });
  try {
    await migrate(sql, nowMs);
    await sql.query('CREATE TABLE bare_orders (LIKE orders INCLUDING ALL)');
    const bareInsert = insertOrdersSql.replace('INSERT INTO orders', 'INSERT INTO bare_orders');
    const store = new PostgresOrderStore(sql);
    await store.declareSku(sku, { total: 100_000_000, generation: 1, name: 'Floor' });

    // Made beforehand: only the database's work is timed, and what it takes to ask for it.
    const rounds = size.warmups + size.rounds;
    const ours = batchesOf('o', rounds * size.batches, size.batch);
    const theirs = batchesOf('b', rounds * size.batches, size.batch);
    let ourCount = 0;
    let bareCount = 0;
    const perSecond = await race(
      [
        {
          name: 'sluice',
          async round() {
            for (let batch = 0; batch < size.batches; batch += 1) {
              const fates = await store.commitBatch(next(ours), {
                nowMs,
                paymentDeadlineMs: () => 900_000,
                orderId: (message) => orderIdOf(message.reservationId),
              });
              ourCount += fates.filter((fate) => fate.fate === 'ordered' && fate.fresh).length;
            }
            return size.batches * size.batch;
          },
        },
        {
          name: 'bare insert',
          async round() {
            for (let batch = 0; batch < size.batches; batch += 1) {
              const rows = next(theirs);
              await sql.query(bareInsert, bareColumns(rows));
              bareCount += rows.length;
            }
            return size.batches * size.batch;
          },
        },
      ],
      { warmups: size.warmups, rounds: size.rounds },
    );
    const hash = new ResultHash();
    hash.add(ourCount);
    for (const [text, want] of [
      ["SELECT count(*)::int AS n FROM orders WHERE state = 'PENDING_PAYMENT'", ourCount],
      ['SELECT sum(units)::int AS n FROM person_units WHERE true', ourCount],
      ['SELECT sold AS n FROM sku_stock WHERE true', ourCount],
      ['SELECT count(*)::int AS n FROM bare_orders WHERE true', bareCount],
    ] as const) {
      const [row] = await sql.query<{ n: number }>(text);
      if (row?.n !== want) throw new Error(`${text}: found ${row?.n}, expected ${want}`);
      hash.add(row.n);
    }
    const rate = (name: string): number => 1e9 / (perSecond.get(name)?.median ?? Number.NaN);
    const spread = (name: string): string =>
      `${Math.round((perSecond.get(name)?.spread ?? Number.NaN) * 100)}%`;
    const ratio = rate('sluice') / rate('bare insert');
    return {
      report: {
        bench: 'orders',
        ratio: round3(ratio),
        better: 'higher',
        peer: `bare multi-row insert, PostgreSQL ${server.version}, ${versionOf('pg')}`,
        per_s: Math.round(rate('sluice')),
        peer_per_s: Math.round(rate('bare insert')),
        batch: size.batch,
        result_hash: hash.hex,
      },
      rows: [
        ['sluice', Math.round(rate('sluice')), spread('sluice'), round3(ratio)],
        ['bare multi-row insert', Math.round(rate('bare insert')), spread('bare insert'), 1],
      ],
    };
  } finally {
    await sql.close();
    await server.stop();
  }
}

function batchesOf(prefix: string, count: number, size: number): OrderMessage[][] {
  return Array.from({ length: count }, (_, n) => messages(prefix, n * size, size));
}

function next(batches: OrderMessage[][]): OrderMessage[] {
  const batch = batches.pop();
  if (batch === undefined) throw new Error('more batches were asked for than were made');
  return batch;
}

function messages(prefix: string, from: number, count: number): OrderMessage[] {
  return Array.from({ length: count }, (_, n) => {
    // Spread over the index as random ids are, and the same in every run.
    const id = Math.imul(from + n + 1, 2_654_435_761) >>> 0;
    const name = `${prefix}${id.toString(36)}${'x'.repeat(14)}`;
    return {
      schemaVersion: 1,
      messageId: `msg_${name}`,
      ...sku,
      activityVersion: 1,
      generation: 1,
      reservationId: `rsv_${name}`,
      requestId: `req_${name}`,
      userId: `user_${name}`,
      personId: `user_${name}`,
      fingerprint: id.toString(16).padStart(64, '0'),
      nonce: `n_${name}`,
      quantity: 1,
      limit: 1,
      unitAmountMinor: 4_900,
      currency: 'EUR',
      reservedAtMs: nowMs,
      deadlineMs: nowMs + 60_000,
    };
  });
}

/** The columns that the store itself writes for these messages. */
function bareColumns(batch: readonly OrderMessage[]): readonly unknown[] {
  return [
    batch.map((message) => message.reservationId),
    batch.map((message) => orderIdOf(message.reservationId)),
    batch.map(() => 'PENDING_PAYMENT'),
    batch.map((message) => message.activityId),
    batch.map((message) => message.skuId),
    batch.map((message) => message.userId),
    batch.map((message) => message.personId),
    batch.map((message) => message.requestId),
    batch.map((message) => message.fingerprint),
    batch.map((message) => message.nonce),
    batch.map((message) => message.generation),
    batch.map((message) => message.quantity),
    batch.map((message) => message.unitAmountMinor),
    batch.map((message) => message.currency),
    batch.map(() => null),
    nowMs,
    batch.map(() => nowMs + 900_000),
    batch.map(() => null),
  ];
}

if (isMain(import.meta.url)) {
  const { report, rows } = await orders(smallAsked() ? smallSize : largeSize);
  printReport(report, ['contender', 'durable orders/s', 'spread', 'ratio'], rows, !smallAsked());
}
