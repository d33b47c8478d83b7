import { afterEach, describe, expect, test } from 'vitest';
import { systemClock, systemTimers } from '../../src/app/system.ts';
import type { OrderQueue } from '../../src/ports/order-queue.ts';
import { openKafkaQueue } from '../../src/queues/kafka-queue.ts';
import { openNatsQueue } from '../../src/queues/nats-queue.ts';
import {
  crowd,
  expectHolds,
  queryOnce,
  redisSays,
  stockKey,
  taken,
} from '../support/cluster-crowd.ts';
import { type RunningCluster, startClusterWith, until } from '../support/running-cluster.ts';
import { startKafka } from '../support/servers/kafka.ts';
import { startNats } from '../support/servers/nats.ts';

/**
 * Many processes whose order messages go over a broker, which is killed in mid-sale and comes back. In
 * the long run the worker whose turn it is to move messages there is killed too, and another takes the
 * turn.
 */
const long = process.env['SLUICE_LONG'] === '1';
const stock = 60;
let cluster: RunningCluster | undefined;
let broker: { crash(): Promise<void>; stop(): Promise<void>; readonly url: string } | undefined;
afterEach(async () => {
  await cluster?.stop();
  cluster = undefined;
  await broker?.stop();
  broker = undefined;
});

const world = { clock: systemClock, timers: systemTimers };
const brokers = [
  {
    name: 'NATS JetStream',
    start: () => startNats(),
    watch: (url: string): Promise<OrderQueue> =>
      // The same visibility as the deployment's own: opening sets it.
      openNatsQueue({ urls: [url], visibilityMs: 10_000, ...world }),
  },
  {
    name: 'Kafka',
    start: () => startKafka(),
    watch: (url: string): Promise<OrderQueue> =>
      openKafkaQueue({ urls: [url], joins: false, timeoutMs: 20_000, ...world }),
  },
];

// Kafka's restart takes half a minute; what its queue has to do is in the contract all queues pass.
describe.each(long ? brokers : brokers.slice(0, 1))(
  'a cluster whose queue is $name',
  ({ start, watch }) => {
    test('sells while the broker restarts', async () => {
      broker = await start();
      const { url } = broker;
      const flags = long ? ['--open-in', '5s'] : ['--open-in', '1s', '--workers', '1'];
      cluster = await startClusterWith({ SLUICE_QUEUE: url }, '--stock', String(stock), ...flags);
      const running = cluster;
      const ran = crowd(running, long ? 200 : 50, long ? '4s' : '2s');
      await until('a tenth is taken', async () => (await taken(running)) >= stock / 10);
      const relay = await relayOf(running);
      expect(Object.entries(running.processes)).toContainEqual([
        expect.stringMatching(/^worker-/),
        relay,
      ]);
      if (long) process.kill(relay, 'SIGKILL');
      await broker.crash();
      const ended = await ran;
      expectHolds(ended, stock);
      const { sold } = ended.report.stock;
      if (long) expect(await relayOf(running)).not.toBe(relay);

      const queue = await watch(url);
      try {
        // An acknowledgement that the broker forgot when it was killed brings its message once more.
        if (long)
          await until('all is done', async () => (await queue.backlog(Date.now())).depth === 0);
        const { producedTotal, buried } = await queue.backlog(Date.now());
        expect(buried).toBe(0);
        // Each reservation once at least; what the dead relay had moved and not trimmed, twice.
        expect(sold).toBeGreaterThan(0);
        expect(producedTotal).toBeGreaterThanOrEqual(sold);
      } finally {
        await queue.close();
      }
      const { port } = new URL(running.environment['SLUICE_INVENTORY'] ?? '');
      const outbox = stockKey.replace(/stock$/, 'outbox');
      expect(await redisSays(Number(port), 'XLEN', outbox)).toBe(':0\r\n');
      expect(await running.stop()).toBe(0);
      cluster = undefined;
    }, 300_000);
  },
);

/** Process that has the turn to move messages. */
async function relayOf(running: RunningCluster): Promise<number> {
  const [row] = await queryOnce<{ holder: string }>(
    running.environment['SLUICE_ORDERS'] ?? '',
    `SELECT holder FROM leader_leases WHERE name = 'relay'`,
  );
  // worker-PID_…
  return Number(/^worker-(\d+)/.exec(row?.holder ?? '')?.[1]);
}
