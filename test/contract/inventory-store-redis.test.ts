import { afterAll, beforeAll, describe } from 'vitest';
import {
  type RedisCluster,
  type RedisServer,
  startRedis,
  startRedisCluster,
} from '../support/servers/redis.ts';
import { inventoryStoreContract } from './inventory-store.ts';
import { redisInventory } from './redis-inventory.ts';
import { sharded } from './sharded-inventory.ts';

const durable = { appendonly: 'yes', appendfsync: 'always' };

describe('on one server', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis({ settings: durable });
  });
  afterAll(() => server.stop());
  inventoryStoreContract(
    'Redis',
    () => redisInventory({ urls: [server.url], cluster: false, crash: () => server.crash() }),
    { modelRuns: 40 },
  );
  inventoryStoreContract(
    'Redis, in 3 shards',
    () =>
      sharded(
        redisInventory({ urls: [server.url], cluster: false, crash: () => server.crash() }),
        3,
      ),
    { modelRuns: 10 },
  );
});

describe('on a cluster', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster(3, { settings: durable });
  });
  afterAll(() => cluster.stop());
  inventoryStoreContract(
    'Redis Cluster',
    () =>
      redisInventory({
        urls: cluster.urls,
        cluster: true,
        crash: () => cluster.crash(),
      }),
    // A cluster takes seconds to find itself again, so its histories have no crashes.
    { modelRuns: 30, modelCrashes: false },
  );
  inventoryStoreContract(
    'Redis Cluster, in 3 shards',
    () =>
      sharded(
        redisInventory({ urls: cluster.urls, cluster: true, crash: () => cluster.crash() }),
        3,
      ),
    { modelRuns: 10, modelCrashes: false },
  );
});
