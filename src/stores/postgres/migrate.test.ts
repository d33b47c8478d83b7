import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresServer, startPostgres } from '../../../test/support/servers/postgres.ts';
import { systemRandom, systemTimers } from '../../app/system.ts';
import type { Sql } from '../../ports/sql.ts';
import { type Migration, migrate, ownMigrations } from './migrate.ts';
import { openPool } from './pool.ts';

let server: PostgresServer;
let url: string;
const pools: Sql[] = [];

beforeAll(async () => {
  server = await startPostgres({ settings: { fsync: 'off' } });
}, 180_000);
afterAll(async () => {
  await Promise.all(pools.map((pool) => pool.close()));
  await server.stop();
});

function pool(): Sql {
  const sql = openPool({ url, timers: systemTimers, random: systemRandom, connections: 2 });
  pools.push(sql);
  return sql;
}

const one: Migration = {
  name: '0001_one',
  text: 'CREATE TABLE one (a int); INSERT INTO one VALUES (1)',
};
const two: Migration = { name: '0002_two', text: 'INSERT INTO one VALUES (2)' };

test('six processes at once: each migration is applied once', async () => {
  url = await server.createDatabase();
  const applied = await Promise.all(
    Array.from({ length: 6 }, () => migrate(pool(), 5, [one, two])),
  );
  expect(applied.filter((names) => names.length === 2)).toHaveLength(1);
  expect(applied.filter((names) => names.length === 0)).toHaveLength(5);
  expect(await pool().query('SELECT a FROM one ORDER BY a', [])).toEqual([{ a: 1 }, { a: 2 }]);
});

test('forward only: what is there stays, what is new is added, and a repeat does nothing', async () => {
  url = await server.createDatabase();
  const sql = pool();
  expect(await migrate(sql, 5, [one])).toEqual(['0001_one']);
  expect(await migrate(sql, 6, [one, two])).toEqual(['0002_two']);
  expect(await migrate(sql, 7, [one, two])).toEqual([]);
  expect(
    await sql.query('SELECT name, applied_at_ms FROM schema_migrations ORDER BY name', []),
  ).toEqual([
    { name: '0001_one', applied_at_ms: 5 },
    { name: '0002_two', applied_at_ms: 6 },
  ]);
});

test('one that fails leaves nothing of its run behind', async () => {
  url = await server.createDatabase();
  const sql = pool();
  const broken: Migration = { name: '0002_broken', text: 'CREATE TABLE half (a int); SELECT 1/0' };
  await expect(migrate(sql, 5, [one, broken])).rejects.toThrow('division by zero');
  expect(
    await sql.query("SELECT to_regclass('one') AS one, to_regclass('half') AS half", []),
  ).toEqual([{ one: null, half: null }]);
  expect(await migrate(sql, 6, [one, two])).toHaveLength(2);
});

test('a changed migration and a newer database are refused in words', async () => {
  url = await server.createDatabase();
  const sql = pool();
  await migrate(sql, 5, [one, two]);
  await expect(migrate(sql, 6, [{ ...one, text: `${one.text} ` }, two])).rejects.toThrow(
    /migration 0001_one has changed since it was applied: found checksum \w+, allowed \w+/,
  );
  await expect(migrate(sql, 6, [one])).rejects.toThrow(
    /the database has migration 0002_two, this program knows up to 0001_one/,
  );
});

test('our own are named in order and apply to an empty database', async () => {
  url = await server.createDatabase();
  const names = ownMigrations().map((migration) => migration.name);
  expect(names).toEqual(names.toSorted());
  expect(names.every((name, at) => name.startsWith(String(at + 1).padStart(4, '0')))).toBe(true);
  expect(await migrate(pool(), 5)).toEqual(names);
});
