import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { homeShard, shardKey } from '../../src/core/stock/shards.ts';
import { UnavailableError } from '../../src/ports/errors.ts';
import type { RequestRecord } from '../../src/ports/inventory-store.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { RedisInventoryStore } from '../../src/stores/redis/inventory-store.ts';
import { Keys } from '../../src/stores/redis/keys.ts';
import { ShardedInventoryStore } from '../../src/stores/shards/sharded-inventory.ts';
import { type RedisServer, startRedis } from '../support/servers/redis.ts';
import { SeededRandom } from '../support/world.ts';
import { kinds, nowMs, request, reserve, sku } from './stock-samples.ts';

/** What the others do when one shard of a SKU is gone, has forgotten, or was loaded by halves. */
const shards = 3;
const stock = { total: 12, generation: 1, stockEpoch: 0, shards };

describe('one shard of three', () => {
  let server: RedisServer;
  let link: RedisLink;
  let made = 0;
  beforeAll(async () => {
    server = await startRedis();
    link = await RedisLink.open({
      urls: [server.url],
      cluster: false,
      timers: systemTimers,
      timeoutMs: 20_000,
    });
  });
  afterAll(async () => {
    await link.close();
    await server.stop();
  });

  /** Keys of its own, and as many processes over them as are asked for. */
  function scene() {
    made += 1;
    const keys = new Keys(`shards-${made}`);
    const store = (): ShardedInventoryStore =>
      new ShardedInventoryStore(new RedisInventoryStore(link, keys, new SeededRandom('shards')));
    const stockOf = (shard: number): string => keys.sku(shardKey(sku, shard), 'stock');
    return { store, stockOf };
  }
  /** Somebody whose home is this shard. */
  const at = (shard: number) => {
    for (;;) {
      const one = request();
      if (homeShard(one.personId, shards) === shard) return one;
    }
  };

  test('is gone: nobody sells until all of them are rebuilt, and then exactly what is left', async () => {
    const { store, stockOf } = scene();
    await store().preload(sku, stock);
    const wishes = [0, 1, 2, 0, 1, 2].map(at);
    expect(new Set(kinds(await reserve(store(), wishes)))).toEqual(new Set(['reserved']));
    const live: RequestRecord[] = [];
    for (const { userId, requestId } of wishes) {
      const record = await store().find(sku, userId, requestId);
      if (record !== undefined) live.push({ ...record, state: 'ordered', generation: 2 });
    }
    await server.ask('DEL', stockOf(1));
    const other = store();
    expect(await other.mark(sku)).toBeUndefined();
    expect(await other.reserve(sku, [at(0)], 0, nowMs)).toEqual({ kind: 'unknown_sku' });
    await expect(other.preload(sku, stock)).rejects.toThrow(/1 of 3 shards are gone.*recover/);
    const rebuilt = { total: 12, generation: 2, stockEpoch: 0, live, shards };
    expect(await other.rebuild(sku, rebuilt)).toMatchObject({ paused: false, available: 6 });
    const late = Array.from({ length: 10 }, () => request());
    const said = kinds(await reserve(store(), late));
    expect(said.filter((kind) => kind === 'reserved')).toHaveLength(6);
    expect(said.filter((kind) => kind === 'sold_out')).toHaveLength(4);
  });

  test('has forgotten: who saw more notices, and all of them stop', async () => {
    const { store, stockOf } = scene();
    const one = store();
    await one.preload(sku, stock);
    await reserve(one, [at(2)]);
    const known = (await one.mark(sku))?.sequence ?? 0;
    await server.ask('HINCRBY', stockOf(2), 'seq', '-1');
    const said = await one.reserve(sku, [at(2)], known, nowMs);
    expect(said).toMatchObject({ kind: 'forgotten', mark: { paused: true } });
    // Those that have forgotten nothing wait for it all the same.
    expect(await one.reserve(sku, [at(0)], 0, nowMs)).toMatchObject({ kind: 'paused' });
    expect(await store().reserve(sku, [at(1)], 0, nowMs)).toMatchObject({ kind: 'paused' });
  });

  test('a first load that died half-way is ended by loading again', async () => {
    const { store, stockOf } = scene();
    await store().preload(sku, stock);
    await server.ask('DEL', stockOf(2));
    expect(await store().mark(sku)).toBeUndefined();
    expect(await store().preload(sku, stock)).toMatchObject({ total: 12, available: 12 });
    expect(await store().preload(sku, { ...stock, total: 99 })).toMatchObject({ total: 12 });
  });

  test('a SKU keeps the shards that it was loaded in, whatever is said later', async () => {
    const { store } = scene();
    await store().preload(sku, stock);
    const again = await store().preload(sku, { ...stock, generation: 2, shards: 7 });
    expect(again).toMatchObject({ total: 12, generation: 2 });
    const wish = at(1);
    await reserve(store(), [wish]);
    expect(await store().find(sku, wish.userId, wish.requestId)).toBeDefined();
    await expect(store().preload(sku, { ...stock, shards: 17 })).rejects.toThrow(/17.*1 to 16/);
  });

  test('away: nothing is done, and said so', async () => {
    const { store } = scene();
    await store().preload(sku, stock);
    const one = store();
    await server.ask('CONFIG', 'SET', 'maxmemory', '1');
    await expect(one.reserve(sku, [at(0)], 0, nowMs)).rejects.toThrow(UnavailableError);
    await server.ask('CONFIG', 'SET', 'maxmemory', '0');
    expect(await one.mark(sku)).toMatchObject({ available: 12, held: 0 });
  });
});
