import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { expect } from 'vitest';
import { runRush, storyOf } from './run-rush.ts';
import type { RushRun } from './run-rush.ts';
import { type RunningCluster, until } from './running-cluster.ts';

/** The sale of examples/cluster.yaml. */
export const activity = 'harbour-lights';

export function crowd(at: RunningCluster, people: number, over: string): Promise<RushRun> {
  return runRush({
    target: at.shop,
    adminUrl: at.operator,
    adminToken: at.adminToken,
    people: String(people),
    over,
    bots: '10%',
    duplicates: '20%',
    timeouts: '5%',
  });
}

export interface StockView {
  readonly total: number;
  readonly paid: number;
  readonly pending: number;
  readonly held: number;
  readonly available: number;
}

export async function stockOf(at: RunningCluster): Promise<StockView> {
  const answer = await at.admin(`/admin/v1/stock?activity_id=${activity}`);
  const [row] = answer['skus'] as StockView[];
  if (row === undefined) throw new Error('the operator sees no stock');
  return row;
}

/** Units that somebody has: the sale is under way. */
export const taken = async (at: RunningCluster): Promise<number> => {
  const { total, available } = await stockOf(at);
  return total - available;
};

export function expectHolds(ran: RushRun, stock: number): void {
  const answers = JSON.stringify(ran.report.run?.answers);
  expect(ran.report.verdict, `${storyOf(ran)}\n${answers}`).toBe('holds');
  expect(ran.report.outcomes.unknown).toBe(0);
  const { total, sold, held, available } = ran.report.stock;
  expect(total).toBe(stock);
  expect(sold + held + (available ?? Number.NaN)).toBe(stock);
  expect(ran.report.ledger.residual).toBe(0);
}

/** Counters of its one SKU. */
export const stockKey = `sluice:{${activity}/quay}:stock`;

export const inventoryPort = (at: RunningCluster): number =>
  Number(new URL(at.environment['SLUICE_INVENTORY'] ?? '').port);

/**
 * The inventory's server dies, and its replica (`--standby`) takes its place without what was written in
 * the last second, which was acknowledged.
 */
export async function failOver(at: RunningCluster): Promise<void> {
  const { standby } = at;
  if (standby === undefined) throw new Error('the cluster was not started with --standby');
  const port = inventoryPort(at);
  const replica = Number(new URL(standby).port);
  await redisSays(replica, 'REPLICAOF', 'NO', 'ONE');
  const known = await redisSays(replica, 'HGET', stockKey, 'seq');
  await until('something is sold that the replica does not know', async () => {
    return (await redisSays(port, 'HGET', stockKey, 'seq')) !== known;
  });
  await sleep(1_000);
  process.kill(at.processes['redis-inventory'] ?? 0, 'SIGKILL');
  await until('the replica has its place', async () => {
    const reply = await redisSays(port, 'PING').catch(() => '');
    return reply.startsWith('+PONG');
  });
}

/** One command on a connection of its own; the reply as it came. */
export function redisSays(port: number, ...command: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    let reply = '';
    const parts = command.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(`*${command.length}\r\n${parts.join('')}`);
    });
    socket.setEncoding('utf8');
    socket.once('data', (text: string) => {
      reply = text;
      socket.destroy();
    });
    socket.once('error', reject);
    socket.once('close', () => resolve(reply));
  });
}

/** One statement on a connection of its own. */
export async function queryOnce<Row extends object>(
  url: string,
  text: string,
): Promise<readonly Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}

/** Every command that a server is given, as MONITOR tells it, until `end`. */
export function watchRedis(port: number): Promise<{ end(): Promise<readonly string[]> }> {
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect(port, '127.0.0.1', () => socket.write('MONITOR\r\n'));
    socket.setEncoding('utf8');
    socket.once('error', reject);
    socket.on('data', (part: string) => {
      const first = text === '';
      text += part;
      if (!first) return;
      resolve({
        end: async () => {
          // What was asked before is told before what is asked now.
          await redisSays(port, 'ECHO', 'the end of it');
          await until('all is told', () => text.includes('the end of it'));
          socket.destroy();
          return text.split('\r\n').filter((line) => line.startsWith('+1'));
        },
      });
    });
  });
}
