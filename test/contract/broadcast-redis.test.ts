import { afterAll, beforeAll } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { RedisBroadcast } from '../../src/stores/redis/broadcast.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { Keys } from '../../src/stores/redis/keys.ts';
import {
  type RedisCluster,
  type RedisServer,
  startRedis,
  startRedisCluster,
} from '../support/servers/redis.ts';
import { type BroadcastPair, broadcastContract } from './broadcast.ts';

interface Server {
  readonly urls: readonly string[];
  readonly cluster: boolean;
}

let made = 0;

async function pair(server: Server): Promise<BroadcastPair> {
  made += 1;
  const keys = new Keys(`words-${process.pid}-${made}`);
  const links = await Promise.all(
    [0, 1].map(() => RedisLink.open({ ...server, timeoutMs: 20_000, timers: systemTimers })),
  );
  const [speaker, hearer] = links.map((link) => new RedisBroadcast({ link, keys, ...server }));
  const heard: string[] = [];
  await hearer!.listen((topic, text) => heard.push(`${topic}: ${text}`));
  return {
    speaker: speaker!,
    hearer: hearer!,
    heard,
    close: async () => {
      await hearer!.close();
      for (const link of links) await link.close();
    },
  };
}

let server: RedisServer;
let cluster: RedisCluster;
beforeAll(async () => {
  [server, cluster] = await Promise.all([startRedis(), startRedisCluster(3)]);
});
afterAll(async () => {
  await server.stop();
  await cluster.stop();
});
broadcastContract('Redis', () => pair({ urls: [server.url], cluster: false }));
broadcastContract('Redis Cluster', () => pair({ urls: cluster.urls, cluster: true }));
