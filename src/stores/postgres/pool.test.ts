import { afterAll, beforeAll, expect, test } from 'vitest';
import { openProxy } from '../../../test/support/servers/cutting-proxy.ts';
import { type PostgresServer, startPostgres } from '../../../test/support/servers/postgres.ts';
import { systemRandom, systemTimers } from '../../app/system.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { Sql } from '../../ports/sql.ts';
import { SqlError } from './errors.ts';
import { type PoolOptions, openPool } from './pool.ts';

let server: PostgresServer;
let url: string;
let sql: Sql;

const open = (over: Partial<PoolOptions> = {}): Sql =>
  openPool({ url, timers: systemTimers, random: systemRandom, connections: 4, ...over });

beforeAll(async () => {
  server = await startPostgres();
  url = await server.createDatabase();
  sql = open();
  await sql.query('CREATE TABLE t (a text PRIMARY KEY, b bigint); CREATE TABLE u (a int)');
}, 180_000);
afterAll(async () => {
  await sql.close();
  await server.stop();
});

test('values go in and rows come out as the port promises', async () => {
  const rows = await sql.query(
    'SELECT $1::text AS a, $2::bigint AS b, $3::text[] AS c, $4::jsonb AS d, $5::text AS e',
    ['x', 2 ** 40, ['p', 'q"{}'], JSON.stringify({ z: 1 }), null],
  );
  expect(rows).toEqual([{ a: 'x', b: 2 ** 40, c: ['p', 'q"{}'], d: { z: 1 }, e: null }]);
  await expect(sql.query('SELECT 9007199254740993::bigint AS n', [])).rejects.toThrow(
    /9007199254740993 is past what a number holds/,
  );
});

test('a transaction is all or nothing; a failure passed over is no commit', async () => {
  const broken = sql.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1, 1)', ['gone']);
    throw new Error('changed my mind');
  });
  await expect(broken).rejects.toThrow('changed my mind');
  const passedOver = sql.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1, 1)', ['gone']);
    await tx.query('SELECT 1/0', []).catch(() => undefined);
  });
  await expect(passedOver).rejects.toMatchObject({ code: '25P02' });
  const twice = sql.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1, 1)', ['k']);
    await tx.query('INSERT INTO t VALUES ($1, 2)', ['k']);
  });
  await expect(twice).rejects.toBeInstanceOf(SqlError);
  await expect(twice).rejects.toMatchObject({ code: '23505', constraint: 't_pkey' });
  expect(await sql.query('SELECT a FROM t', [])).toEqual([]);
});

test('what the server asks to repeat is repeated as a whole, a bounded number of times', async () => {
  await sql.query('DELETE FROM u; INSERT INTO u VALUES (0)');
  let runs = 0;
  const addOne = (): Promise<void> =>
    sql.transaction(async (tx) => {
      runs += 1;
      await tx.query('SET TRANSACTION ISOLATION LEVEL SERIALIZABLE');
      const [row] = await tx.query<{ a: number }>('SELECT a FROM u, pg_sleep(0.1)', []);
      await tx.query('UPDATE u SET a = $1', [(row?.a ?? 0) + 1]);
    });
  await Promise.all([addOne(), addOne(), addOne()]);
  expect(await sql.query('SELECT a FROM u', [])).toEqual([{ a: 3 }]);
  expect(runs).toBeGreaterThan(3);

  let tries = 0;
  const never = open({ attempts: 3 });
  const hopeless = never.transaction((tx) => {
    tries += 1;
    return tx.query("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$");
  });
  await expect(hopeless).rejects.toThrow(/given up after 3 serialization failures/);
  await expect(hopeless).rejects.toBeInstanceOf(UnavailableError);
  expect(tries).toBe(3);
  await never.close();
});

test('two that lock crosswise: the server ends one, which runs again, and both are done', async () => {
  await sql.query("DELETE FROM t; INSERT INTO t VALUES ('x', 0), ('y', 0)");
  let runs = 0;
  const both = (first: string, second: string): Promise<void> =>
    sql.transaction(async (tx) => {
      runs += 1;
      await tx.query('UPDATE t SET b = b + 1 WHERE a = $1', [first]);
      await tx.query('SELECT pg_sleep(0.05)', []);
      await tx.query('UPDATE t SET b = b + 1 WHERE a = $1', [second]);
    });
  await Promise.all([both('x', 'y'), both('y', 'x')]);
  expect(await sql.query('SELECT b FROM t ORDER BY a', [])).toEqual([{ b: 2 }, { b: 2 }]);
  expect(runs).toBe(3);
  await sql.query('DELETE FROM t');
});

test('pool exhausted: a bounded wait, a bounded line, and nothing done', async () => {
  const small = open({ connections: 1, connectMs: 200, queueMax: 2 });
  let letGo: () => void = () => undefined;
  const holder = small.transaction(async (tx) => {
    await tx.query('SELECT 1', []);
    await new Promise<void>((resume) => {
      letGo = resume;
    });
  });
  await until(() => letGo.name !== '');
  const waiting = [small.query('SELECT 1', []), small.query('SELECT 2', [])];
  const refused = waiting.map((one) => expect(one).rejects.toBeInstanceOf(UnavailableError));
  await expect(small.query('SELECT 3', [])).rejects.toThrow(/2 callers wait, allowed: 2/);
  await Promise.all(refused);
  letGo();
  await holder;
  expect(await small.query('SELECT 4 AS a', [])).toEqual([{ a: 4 }]);
  await small.close();
  await expect(small.query('SELECT 5', [])).rejects.toBeInstanceOf(UnavailableError);
});

test('a statement past its time is ended by the server, and did nothing', async () => {
  const hasty = open({ statementMs: 100 });
  const slow = hasty.query("INSERT INTO t SELECT 'slow', 1 FROM pg_sleep(5)", []);
  await expect(slow).rejects.toBeInstanceOf(UnavailableError);
  expect(await hasty.query('SELECT a FROM t', [])).toEqual([]);
  await hasty.close();
});

test('killed inside a transaction: surely nothing; between two statements: the same', async () => {
  const killed = sql.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1, 1)', ['ghost']);
    const [row] = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid', []);
    await sql.query('SELECT pg_terminate_backend($1::int, 2000)', [row?.pid]);
    await tx.query('SELECT 1', []);
  });
  await expect(killed).rejects.toBeInstanceOf(UnavailableError);
  expect(await sql.query('SELECT a FROM t', [])).toEqual([]);
});

test('the connection dies under COMMIT: unknown, and both ends of it happen', async () => {
  const proxy = await openProxy(server.port);
  const broken: Error[] = [];
  const throughProxy = open({
    url: url.replace(String(server.port), String(proxy.port)),
    onBrokenConnection: (error) => broken.push(error),
  });
  // The COMMIT never arrives.
  const lostOnTheWay = throughProxy.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1, 1)', ['never']);
    proxy.cut('to server', 'COMMIT');
  });
  await expect(lostOnTheWay).rejects.toBeInstanceOf(OutcomeUnknownError);
  // The COMMIT is done, and its answer never arrives.
  const lostOnTheWayBack = throughProxy.transaction(async (tx) => {
    await tx.query('INSERT INTO t VALUES ($1, 1)', ['done']);
    proxy.cut('to client', 'COMMIT');
  });
  await expect(lostOnTheWayBack).rejects.toBeInstanceOf(OutcomeUnknownError);
  await until(async () => (await sql.query('SELECT a FROM t', [])).length > 0);
  expect(await sql.query('SELECT a FROM t', [])).toEqual([{ a: 'done' }]);
  // The same for a statement of its own.
  proxy.cut('to client', 'INSERT');
  await expect(throughProxy.query("INSERT INTO t VALUES ('alone', 1)", [])).rejects.toBeInstanceOf(
    OutcomeUnknownError,
  );
  expect(await throughProxy.query('SELECT 1 AS a', [])).toEqual([{ a: 1 }]);
  await throughProxy.close();
  await proxy.close();
  await sql.query('DELETE FROM t');
});

test('the server restarts: refused while away, back by itself, the process unharmed', async () => {
  await sql.query('SELECT 1', []);
  const restarting = server.restart('immediate');
  await expect(
    (async () => {
      for (;;) await sql.query('SELECT 1', []);
    })(),
  ).rejects.toSatisfy(
    (error) => error instanceof UnavailableError || error instanceof OutcomeUnknownError,
  );
  await restarting;
  await until(async () => {
    try {
      return (await sql.query('SELECT 1 AS a', [])).length === 1;
    } catch (error) {
      if (error instanceof UnavailableError || error instanceof OutcomeUnknownError) return false;
      throw error;
    }
  });
});

test('a server that freezes: the client’s own limit ends the wait, unknown', async () => {
  const patient = open({ statementMs: 200, connectMs: 500 });
  await patient.query('SELECT 1', []);
  server.pause();
  try {
    await expect(patient.query("INSERT INTO t VALUES ('frozen', 1)", [])).rejects.toBeInstanceOf(
      OutcomeUnknownError,
    );
    await expect(patient.query('SELECT 1', [])).rejects.toBeInstanceOf(UnavailableError);
  } finally {
    server.resume();
  }
  await patient.close();
});

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 400; tries += 1) {
    if (await holds()) return;
    await new Promise<void>((resume) => setTimeout(resume, 25));
  }
  throw new Error('it never held');
}
