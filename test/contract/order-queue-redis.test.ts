import { afterAll, beforeAll, describe } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { RedisStreamsQueue } from '../../src/queues/redis-streams-queue.ts';
import { World } from '../support/world.ts';
import {
  type RedisCluster,
  type RedisServer,
  startRedis,
  startRedisCluster,
} from '../support/servers/redis.ts';
import type { QueueHarness } from './order-queue.ts';
import { orderQueueContract } from './order-queue.ts';
import type { RedisUnderTest } from './redis-inventory.ts';
import { redisInventory } from './redis-inventory.ts';
import { otherSku, sku } from './stock-samples.ts';

const durable = { appendonly: 'yes', appendfsync: 'always' };
const visibilityMs = 600_000;

async function redisQueue(server: RedisUnderTest): Promise<QueueHarness> {
  const inventory = await redisInventory(server);
  // Leases run on virtual time here; their other half, in Redis, is aged by hand.
  const world = new World();
  let instances = 0;
  const open = () =>
    new RedisStreamsQueue(inventory.link, inventory.keys, {
      clock: world,
      timers: systemTimers,
      instance: `worker-${++instances}`,
      visibilityMs,
      pollMs: 5,
    });
  let queue = open();
  return {
    get queue() {
      return queue;
    },
    get store() {
      return inventory.store;
    },
    carry: async () => undefined,
    passVisibility: async () => {
      await world.advance(visibilityMs);
      for (const key of [sku, otherSku]) {
        const stream = inventory.keys.sku(key, 'outbox');
        const pending = (await inventory.link
          .command(stream, ['XPENDING', stream, 'orders', '-', '+', '1000'])
          .catch((error: unknown) => {
            if (error instanceof Error && error.message.startsWith('NOGROUP')) return [];
            throw error;
          })) as [string, string][];
        for (const [id, consumer] of pending)
          await inventory.link.command(stream, [
            'XCLAIM',
            stream,
            'orders',
            consumer,
            '0',
            id,
            'IDLE',
            String(visibilityMs),
            'JUSTID',
          ]);
      }
    },
    crash: async () => {
      await inventory.crash();
      queue = open();
    },
    waitMs: 30,
    // Real timers poll; the virtual clock says when the wait is over.
    passWait: () => world.advance(30),
    dispose: async () => {
      await queue.close();
      await inventory.dispose();
    },
  };
}

describe('on one server', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis({ settings: durable });
  });
  afterAll(() => server.stop());
  orderQueueContract('Redis Streams', () =>
    redisQueue({ urls: [server.url], cluster: false, crash: () => server.crash() }),
  );
});

describe('on a cluster', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster(3, { settings: durable });
  });
  afterAll(() => cluster.stop());
  orderQueueContract('Redis Streams, cluster', () =>
    redisQueue({ urls: cluster.urls, cluster: true, crash: () => cluster.crash() }),
  );
});
