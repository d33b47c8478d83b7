import { afterAll, beforeAll } from 'vitest';
import { systemClock, systemRandom, systemTimers } from '../../src/app/system.ts';
import type { Sql } from '../../src/ports/sql.ts';
import { PostgresLeaderLease } from '../../src/stores/postgres/leader-lease.ts';
import { migrate } from '../../src/stores/postgres/migrate.ts';
import { openPool } from '../../src/stores/postgres/pool.ts';
import { MemoryLeaderLease } from '../../src/stores/memory/leader-lease.ts';
import { type PostgresServer, startPostgres } from '../support/servers/postgres.ts';
import { leaderLeaseContract } from './leader-lease.ts';

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

leaderLeaseContract('memory', () => new MemoryLeaderLease(systemClock));
leaderLeaseContract('PostgreSQL', (name) => new PostgresLeaderLease(sql, name));
