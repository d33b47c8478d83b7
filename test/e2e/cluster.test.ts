import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';
import {
  activity,
  crowd,
  expectHolds,
  failOver,
  inventoryPort,
  redisSays,
  stockKey,
  taken,
} from '../support/cluster-crowd.ts';
import { type RunningCluster, startCluster, until } from '../support/running-cluster.ts';

/**
 * A deployment of many processes on real Redis and PostgreSQL, as `npm run cluster` starts it, with a
 * crowd at its door, while parts of it are killed, frozen, or forget.
 */
let cluster: RunningCluster | undefined;
afterEach(async () => {
  await cluster?.stop();
  cluster = undefined;
});

/** Everything in one sale; or, in the long run, a crowd of twenty thousand for each. */
const long = process.env['SLUICE_LONG'] === '1';
const size = long
  ? { people: 20_000, over: '40s', stock: 2_000, opensIn: '45s' }
  : { people: 90, over: '3s', stock: 100, opensIn: '4s' };
interface Sale {
  readonly what: string;
  readonly kill?: boolean;
  readonly forget?: boolean;
  readonly restart?: boolean;
}
const sales: readonly Sale[] = long
  ? [
      { what: 'nothing' },
      { what: 'a gateway, a worker and connections', kill: true },
      { what: 'the last second of the inventory', forget: true },
      { what: 'PostgreSQL', restart: true },
    ]
  : [
      {
        what: 'a gateway, a worker, connections, PostgreSQL, and the last second',
        kill: true,
        forget: true,
        restart: true,
      },
    ];

describe('a cluster', () => {
  test.each(sales)(
    'sells to a crowd, and in mid-sale loses $what',
    async ({ kill = false, forget = false, restart = false }) => {
      const sizes = ['--stock', String(size.stock), '--open-in', size.opensIn];
      cluster = await startCluster(...sizes, ...(forget ? ['--standby'] : []));
      const running = cluster;
      const ran = crowd(running, size.people, size.over);
      const isTaken = (share: number): Promise<void> =>
        until(`${share} is taken`, async () => (await taken(running)) >= size.stock * share);
      await isTaken(0.1);
      if (kill) {
        const before = running.gateways();
        expect(before).toHaveLength(2);
        process.kill(before[0] ?? 0, 'SIGKILL');
        process.kill(running.processes['worker-1'] ?? 0, 'SIGKILL');
        await redisSays(inventoryPort(running), 'CLIENT', 'KILL', 'TYPE', 'normal');
        await until('another gateway has its place', () => {
          const after = running.gateways();
          return after.length === 2 && !after.includes(before[0] ?? 0);
        });
      }
      if (restart) {
        await isTaken(0.15);
        // All of it, and started again.
        const before = running.processes['postgres'];
        process.kill(before ?? 0, 'SIGINT');
        await until('PostgreSQL runs again', () => running.processes['postgres'] !== before);
      }
      if (forget) {
        await isTaken(0.2);
        await failOver(running);
        await until('it is rebuilt as a new generation', async () => {
          const reply = await redisSays(inventoryPort(running), 'HGET', stockKey, 'gen');
          return reply.trim().endsWith('2');
        });
        expect(running.said).toContain('stock_forgotten');
      }
      expectHolds(await ran, size.stock);
      expect(await running.stop()).toBe(0);
      cluster = undefined;
    },
    long ? 900_000 : 300_000,
  );

  test('a frozen leader is followed by another, and changes nothing when it wakes', async () => {
    cluster = await startCluster('--open-in', '1h', '--workers', '1', '--gateways', '1');
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
    // Whoever stands by says who leads.
    expect(await hold(operator, 'who')).toContain(
      `another process leads the rooms (control-${first}_`,
    );
    expect(await (await fetch(`${operator}/readyz`)).json()).toMatchObject({
      ready: true,
      leads: false,
      leader: expect.stringMatching(new RegExp(`^control-${first}_`)),
    });
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
