import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock, systemRandom, systemTimers } from '../../src/app/system.ts';
import type { Sql } from '../../src/ports/sql.ts';
import { PostgresLeaderLease } from '../../src/stores/postgres/leader-lease.ts';
import { migrate } from '../../src/stores/postgres/migrate.ts';
import { openPool } from '../../src/stores/postgres/pool.ts';
import { type PostgresServer, startPostgres } from '../support/servers/postgres.ts';

let server: PostgresServer;
let sql: Sql;
beforeAll(async () => {
  server = await startPostgres({ settings: { fsync: 'off' } });
  const url = await server.createDatabase();
  sql = openPool({ url, timers: systemTimers, random: systemRandom });
  await migrate(sql, systemClock.wallMs());
});
afterAll(async () => {
  await sql.close();
  await server.stop();
});

test('of many who ask at once one holds, and each change raises the epoch', async () => {
  const lease = new PostgresLeaderLease(sql, 'race');
  const names = Array.from({ length: 20 }, (_, at) => `c${at}`);
  const replies = await Promise.all(names.map((name) => lease.renew(name, 60_000)));
  const held = names.filter((_, at) => replies[at]?.kind === 'held');
  expect(held).toHaveLength(1);
  const [holder = ''] = held;
  expect(await lease.renew(holder, 60_000)).toEqual({ kind: 'held', epoch: 1 });
  expect(await lease.renew('another', 60_000)).toEqual({ kind: 'taken', by: holder });
  await lease.release('another');
  expect(await lease.renew('another', 60_000)).toMatchObject({ kind: 'taken' });
  await lease.release(holder);
  expect(await lease.renew('another', 60_000)).toEqual({ kind: 'held', epoch: 2 });
  expect(await lease.renew(holder, 60_000)).toEqual({ kind: 'taken', by: 'another' });
});

test('a lease that has run out is anybody’s, and its holder gets it only as a new one', async () => {
  const lease = new PostgresLeaderLease(sql, 'ends');
  expect(await lease.renew('one', 1)).toEqual({ kind: 'held', epoch: 1 });
  await sleep(5);
  expect(await lease.renew('one', 1)).toEqual({ kind: 'held', epoch: 2 });
  await sleep(5);
  expect(await lease.renew('two', 60_000)).toEqual({ kind: 'held', epoch: 3 });
});
