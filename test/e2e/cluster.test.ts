import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';
import {
  activity,
  crowd,
  expectHolds,
  redisSays,
  stockKey,
  taken,
} from '../support/cluster-crowd.ts';
import { type RunningCluster, startCluster, until } from '../support/running-cluster.ts';
import { type RedisServer, startRedis } from '../support/servers/redis.ts';

/**
 * A deployment of many processes on real Redis and PostgreSQL, as `npm run cluster` starts it, with a
 * crowd at its door, while parts of it are killed, frozen, or forget.
 */
let cluster: RunningCluster | undefined;
const replicas: RedisServer[] = [];
afterEach(async () => {
  await cluster?.stop();
  cluster = undefined;
  for (const replica of replicas.splice(0)) await replica.stop();
});

describe('a cluster', () => {
  test('sells to a crowd; a gateway, a worker and connections are killed in mid-sale', async () => {
    cluster = await startCluster('--stock', '150', '--open-in', '8s');
    const running = cluster;
    const ran = crowd(running, 500, '6s');
    await until('a tenth is taken', async () => (await taken(running)) >= 15);
    const before = running.gateways();
    expect(before).toHaveLength(2);
    process.kill(before[0] ?? 0, 'SIGKILL');
    process.kill(running.processes['worker-1'] ?? 0, 'SIGKILL');
    const inventory = new URL(running.environment['SLUICE_INVENTORY'] ?? '');
    await redisSays(Number(inventory.port), 'CLIENT', 'KILL', 'TYPE', 'normal');
    expectHolds(await ran, 150);
    // Another gateway has taken the place of the one that was killed.
    const after = running.gateways();
    expect(after).toHaveLength(2);
    expect(after).not.toContain(before[0]);
    expect(await running.stop()).toBe(0);
    cluster = undefined;
  }, 300_000);

  test('the inventory fails over and forgets its last second: rebuilt, nobody sold twice', async () => {
    cluster = await startCluster('--stock', '150', '--open-in', '8s');
    const running = cluster;
    const port = Number(new URL(running.environment['SLUICE_INVENTORY'] ?? '').port);
    const replica = await startRedis();
    replicas.push(replica);
    await replica.ask('REPLICAOF', '127.0.0.1', String(port));
    await until('the replica is in step', async () =>
      (await replica.ask('INFO', 'replication')).includes('master_link_status:up'),
    );
    const ran = crowd(running, 500, '6s');
    await until('a tenth is taken', async () => (await taken(running)) >= 15);
    await replica.ask('REPLICAOF', 'NO', 'ONE');
    const known = await redisSays(port, 'HGET', stockKey, 'seq');
    await until('more is sold, which the replica does not know', async () => {
      return (await redisSays(port, 'HGET', stockKey, 'seq')) !== known;
    });
    await sleep(1_000);
    process.kill(running.processes['redis-inventory'] ?? 0, 'SIGKILL');
    // The replica answers where the primary did, as behind a name that was moved.
    await until('the replica has its place', async () => {
      const reply = await redisSays(replica.port, 'CONFIG', 'SET', 'port', String(port));
      return reply.startsWith('+OK');
    });
    await until('it is rebuilt as a new generation', async () => {
      const reply = await redisSays(port, 'HGET', stockKey, 'gen');
      return reply.trim().endsWith('2');
    });
    expectHolds(await ran, 150);
    expect(running.said).toContain('stock_forgotten');
  }, 300_000);

  test('a frozen leader is followed by another, and changes nothing when it wakes', async () => {
    cluster = await startCluster('--stock', '20', '--open-in', '1h');
    const running = cluster;
    const second = await running.another('--role', 'control', '--admin-port', '0');
    const { operator = '' } = second.urls;
    const hold = (of: string, id: string): Promise<string> =>
      running
        .admin(
          '/admin/v1/actions',
          { action: 'hold', activity_id: activity, action_id: id, reason: 'a test of the leader' },
          of,
        )
        .then(
          () => 'done',
          (error: Error) => error.message,
        );
    const leads = async (of: string): Promise<boolean> => {
      const answer = await hold(of, 'probe');
      return !answer.includes('another process leads');
    };
    expect(await leads(running.operator)).toBe(true);
    expect(await leads(operator)).toBe(false);
    const first = running.processes['control'] ?? 0;
    process.kill(first, 'SIGSTOP');
    await until('the second one leads', () => leads(operator));
    // Gateways act on the release states of the new leader; none has gone without one for long.
    await until('gateways are ready', async () => (await fetch(`${running.shop}/readyz`)).ok);
    process.kill(first, 'SIGCONT');
    await until('the first one knows', async () => !(await leads(running.operator)));
    for (let look = 0; look < 20; look += 1) {
      await sleep(100);
      expect(await leads(operator)).toBe(true);
      expect(await leads(running.operator)).toBe(false);
    }
    // Stopped gently it gives the lease back: the other need not wait for its end.
    expect(await second.stop()).toBe(0);
    await until('the first one leads again', () => leads(running.operator));
  }, 300_000);
});
