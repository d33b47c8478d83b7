import { systemRandom, systemTimers } from '../../src/app/system.ts';
import type { OrderStore } from '../../src/ports/order-store.ts';
import { migrate } from '../../src/stores/postgres/migrate.ts';
import { PostgresOrderStore } from '../../src/stores/postgres/order-store.ts';
import { openPglite } from '../../src/stores/postgres/pglite.ts';
import { openPool } from '../../src/stores/postgres/pool.ts';
import { MemoryOrderStore } from '../../src/stores/memory/order-store.ts';
import { freshPgliteFolder } from '../support/servers/pglite.ts';
import { emptyTables } from '../support/servers/orders.ts';
import { startPostgres } from '../support/servers/postgres.ts';
import { orderStoreContract, startMs } from './order-store.ts';

orderStoreContract('reference model', async () => {
  let model = new MemoryOrderStore();
  const current = new Proxy({} as OrderStore, {
    get(_, name) {
      const value: unknown = Reflect.get(model, name, model);
      return typeof value === 'function' ? value.bind(model) : value;
    },
  });
  return {
    store: current,
    other: current,
    async reset() {
      model = new MemoryOrderStore();
    },
    close: () => Promise.resolve(),
  };
});

orderStoreContract('PGlite in its thread', async () => {
  const { folder, remove } = await freshPgliteFolder();
  const sql = await openPglite({ folder, timers: systemTimers, fsync: 'os' });
  await migrate(sql, startMs);
  const store = new PostgresOrderStore(sql);
  return {
    store,
    // One process owns the folder: its second worker shares the connection.
    other: new PostgresOrderStore(sql),
    reset: () => emptyTables(sql),
    async close() {
      await store.close();
      remove();
    },
  };
});

orderStoreContract('PostgreSQL', async () => {
  const server = await startPostgres({ settings: { fsync: 'off' } });
  const url = await server.createDatabase();
  const pool = () => openPool({ url, timers: systemTimers, random: systemRandom, connections: 4 });
  const [sql, otherSql] = [pool(), pool()];
  await migrate(sql, startMs);
  const store = new PostgresOrderStore(sql);
  const other = new PostgresOrderStore(otherSql);
  return {
    store,
    other,
    reset: () => emptyTables(sql),
    async close() {
      await Promise.all([store.close(), other.close()]);
      await server.stop();
    },
  };
});
