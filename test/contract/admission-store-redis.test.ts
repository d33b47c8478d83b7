import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { RedisAdmissionStore } from '../../src/stores/redis/admission-store.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { Keys, keyCatalogue } from '../../src/stores/redis/keys.ts';
import {
  type RedisCluster,
  type RedisServer,
  startRedis,
  startRedisCluster,
} from '../support/servers/redis.ts';
import { admissionStoreContract, entryIdFor } from './admission-store.ts';
import type { AdmissionStoreUnderTest } from './admission-store.ts';

const durable = { appendonly: 'yes', appendfsync: 'always' };
let made = 0;

interface Server {
  readonly urls: readonly string[];
  readonly cluster: boolean;
  crash(): Promise<void>;
}

const openLink = ({ urls, cluster }: Server): Promise<RedisLink> =>
  // A loaded machine may be slow; nothing here waits for this.
  RedisLink.open({ urls, cluster, timeoutMs: 20_000, timers: systemTimers });

async function admission(server: Server): Promise<AdmissionStoreUnderTest> {
  made += 1;
  const keys = new Keys(`test-${process.pid}-${made}`);
  const open = async (): Promise<RedisAdmissionStore> =>
    new RedisAdmissionStore({ link: await openLink(server), keys, clock: 'caller' });
  const opened = [await open()];
  return {
    store: opened[0]!,
    reopen: async () => {
      for (const store of opened.splice(0)) await store.close();
      await server.crash();
      const next = await open();
      opened.push(next);
      return next;
    },
    dispose: async () => {
      for (const store of opened) await store.close();
    },
  };
}

describe('on one server', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis({ settings: durable });
  });
  afterAll(() => server.stop());
  const under = (): Server => ({
    urls: [server.url],
    cluster: false,
    crash: () => server.crash(),
  });
  admissionStoreContract('Redis', () => admission(under()));

  test('the clock that decides is the server’s, whatever the caller believes', async () => {
    const link = await openLink(under());
    const store = new RedisAdmissionStore({ link, keys: new Keys('clock') });
    const entryId = entryIdFor('a');
    const wish = { entryId, skuIds: [], weight: 1, group: '' };
    const { entry } = await store.join('a', wish, 1_000);
    expect(entry.joinedAtMs).toBeGreaterThan(1_700_000_000_000);
    const turn = { entryId, skuId: 's', wave: 1, passLifeMs: 1_000 };
    // A caller whose clock is years behind cannot claim in a window that is over.
    const over = { ...turn, claimBeforeMs: entry.joinedAtMs };
    expect(await store.takePass('a', over, 1_000)).toEqual({ kind: 'missed' });
    const open = { ...turn, claimBeforeMs: entry.joinedAtMs + 3_600_000 };
    expect(await store.takePass('a', open, 9e15)).toMatchObject({ kind: 'taken', attempt: 1 });
    await store.close();
  });

  test('every key that it writes is in the catalogue, of the type said there', async () => {
    const link = await openLink(under());
    const store = new RedisAdmissionStore({ link, keys: new Keys('catalogue') });
    const entryId = entryIdFor('a');
    await store.join('a', { entryId, skuIds: ['s'], weight: 1, group: '' }, 0);
    await store.closeLobby('a', 0);
    const claimBeforeMs = 9e15;
    await store.takePass('a', { entryId, skuId: 's', wave: 1, claimBeforeMs, passLifeMs: 1 }, 0);
    await store.saveState('room/a/secret', 'x', 0);
    const names = (await link.command(undefined, ['KEYS', 'catalogue:*'])) as string[];
    const found = new Set<string>();
    for (const name of names) {
      const last = name.split(':').at(-1)!;
      const spec = Object.values(keyCatalogue).find((each) => each.name === last);
      expect(spec, `${name} is not in the catalogue`).toBeDefined();
      expect(await link.command(name, ['TYPE', name])).toBe(spec!.type);
      found.add(last);
    }
    const expected = Object.values(keyCatalogue)
      .filter(({ owner }) => owner === 'admission')
      .map(({ name }) => name);
    expect([...found].sort()).toEqual([...expected].sort());
    await store.close();
  });

  test('an id that is not 16 bytes, or a word that would break a line, is refused', async () => {
    const link = await openLink(under());
    const store = new RedisAdmissionStore({ link, keys: new Keys('words') });
    const wish = { entryId: entryIdFor('a'), skuIds: [], weight: 1, group: '' };
    await expect(store.join('a', { ...wish, entryId: 'short' }, 0)).rejects.toThrow(/"short"/);
    await expect(store.join('a', { ...wish, group: 'a|b' }, 0)).rejects.toThrow(/"a\|b"/);
    await expect(store.join('a', { ...wish, skuIds: ['a,b'] }, 0)).rejects.toThrow(/"a,b"/);
    const fence = { name: 'room/b/epoch', version: 0 };
    await expect(store.saveState('room/a/e/1', '', 0, fence)).rejects.toThrow(RangeError);
    await store.close();
  });
});

describe('on a cluster', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster(3, { settings: durable });
  });
  afterAll(() => cluster.stop());
  admissionStoreContract('Redis Cluster', () =>
    admission({ urls: cluster.urls, cluster: true, crash: () => cluster.crash() }),
  );
});
