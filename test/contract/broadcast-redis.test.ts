import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
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

interface Server {
  readonly urls: readonly string[];
  readonly cluster: boolean;
}

let made = 0;

async function pair(server: Server): Promise<{
  readonly speaker: RedisBroadcast;
  readonly hearer: RedisBroadcast;
  readonly heard: string[];
  readonly close: () => Promise<void>;
}> {
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

const until = async (holds: () => boolean): Promise<void> => {
  for (let tries = 0; !holds(); tries += 1) {
    if (tries > 1_000) throw new Error('it never came to be');
    await sleep(10);
  }
};

function promises(name: string, server: () => Server): void {
  describe(name, () => {
    const word = (epoch: number, version: number, text: string, ttlMs = 60_000) => ({
      epoch,
      version,
      text,
      ttlMs,
    });

    test('a word is heard by others, and can be read by whoever was not there', async () => {
      const { speaker, hearer, heard, close } = await pair(server());
      expect(await hearer.last('a', 60_000)).toBeUndefined();
      expect(await speaker.say('a', word(1, 1, 'one\ntwo'))).toBe(true);
      await until(() => heard.length === 1);
      expect(heard).toEqual(['a: one\ntwo']);
      const last = await hearer.last('a', 60_000);
      expect(last?.text).toBe('one\ntwo');
      expect(last?.ageMs).toBeGreaterThanOrEqual(0);
      await close();
    });

    test('whoever was deposed takes nothing back, on any topic but its own', async () => {
      const { speaker, hearer, heard, close } = await pair(server());
      expect(await speaker.say('a', word(2, 1, 'new'))).toBe(true);
      expect(await speaker.say('a', word(1, 99, 'deposed'))).toBe(false);
      expect(await speaker.say('a', word(2, 1, 'again'))).toBe(false);
      expect(await speaker.say('b', word(1, 1, 'elsewhere'))).toBe(true);
      expect(await speaker.say('a', word(2, 2, 'newer'))).toBe(true);
      await until(() => heard.length === 3);
      expect(heard).toEqual(['a: new', 'b: elsewhere', 'a: newer']);
      expect((await hearer.last('a', 60_000))?.text).toBe('newer');
      await close();
    });

    test('a word goes when it is not worth reading any more; its order stays', async () => {
      const { speaker, close } = await pair(server());
      await speaker.say('a', word(5, 1, 'short', 1));
      await sleep(20);
      expect(await speaker.last('a', 1)).toBeUndefined();
      expect(await speaker.say('a', word(4, 9, 'older'))).toBe(false);
      await close();
    });
  });
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
promises('Redis', () => ({ urls: [server.url], cluster: false }));
promises('Redis Cluster', () => ({ urls: cluster.urls, cluster: true }));
