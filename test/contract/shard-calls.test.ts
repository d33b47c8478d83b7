import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { homeShard, reservationIdAt, shardOfReservation } from '../../src/core/stock/shards.ts';
import type { ReserveRequest, ShardStore } from '../../src/ports/inventory-store.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { RedisInventoryStore } from '../../src/stores/redis/inventory-store.ts';
import { Keys } from '../../src/stores/redis/keys.ts';
import { ShardedInventoryStore } from '../../src/stores/shards/sharded-inventory.ts';
import { fc } from '../support/property.ts';
import { type RedisServer, startRedis } from '../support/servers/redis.ts';
import { SeededRandom } from '../support/world.ts';
import { journaled } from './memory-inventory.ts';
import { nowMs, request, reserve, sku } from './stock-samples.ts';

/** Who is asked: of a SKU in four shards, the one that knows. */
const shards = 4;
const stock = { total: 40, generation: 1, stockEpoch: 0, shards };

let server: RedisServer;
let link: RedisLink;
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

describe.each<[string, () => Promise<ShardStore>]>([
  ['memory', async () => (await journaled(0)).store],
  [
    'Redis',
    async () => new RedisInventoryStore(link, new Keys('calls'), new SeededRandom('calls')),
  ],
])('calls to shards in %s', (_name, open) => {
  let calls: string[] = [];
  let store: ShardedInventoryStore;
  beforeAll(async () => {
    store = new ShardedInventoryStore(counted(await open(), calls));
    await store.preload(sku, stock);
  });

  /** What a step asks of which parts of the SKU. */
  async function asked(step: () => Promise<unknown>): Promise<readonly string[]> {
    calls.length = 0;
    await step();
    return [...calls];
  }

  const settled = (ids: readonly string[], fate: 'ordered' | 'released' = 'ordered') => {
    const reason = fate === 'released' ? ({ reason: 'expired' } as const) : {};
    return store.settle(
      sku,
      ids.map((reservationId) => ({ reservationId, fate, ...reason })),
      nowMs,
    );
  };

  test('a reservation is settled, and found, at its home alone', async () => {
    for (let n = 0; n < 6; n += 1) {
      const one = withHome(request(), n);
      await reserve(store, [one]);
      const home = `floor~${homeShard(one.personId, shards)}`;
      expect(await asked(() => store.find(sku, one.userId, one.requestId))).toEqual([
        `find ${home}`,
      ]);
      expect(await asked(() => settled([one.reservationId]))).toEqual([`settle ${home}`]);
      expect(await store.find(sku, one.userId, one.requestId)).toMatchObject({ state: 'ordered' });
      // Said twice it is one call again, and changes nothing.
      expect(await settled([one.reservationId])).toMatchObject({ changed: 0 });
      expect(await asked(() => settled([one.reservationId], 'released'))).toHaveLength(1);
    }
  });

  test('a batch is one call to each home in it', async () => {
    const batch = Array.from({ length: 8 }, (_, n) => withHome(request(), 100 + n));
    await reserve(store, batch);
    const homes = new Set(batch.map(({ personId }) => homeShard(personId, shards)));
    const ids = batch.map(({ reservationId }) => reservationId);
    expect(await asked(() => settled(ids))).toHaveLength(homes.size);
    expect(await settled(ids, 'released')).toMatchObject({ changed: 8 });
  });

  test('an id that does not say its home, as of an older version, is told to all of them', async () => {
    const old = { ...request(), reservationId: 'rsv_0123456789abcdefghijkl' };
    await reserve(store, [old]);
    expect(await asked(() => settled([old.reservationId]))).toHaveLength(shards);
    expect(await store.find(sku, old.userId, old.requestId)).toMatchObject({ state: 'ordered' });
    expect(await settled([old.reservationId], 'released')).toMatchObject({ changed: 1 });
  });

  test('a person who is not the user is found with their name at once, and without it later', async () => {
    const personId = ['a', 'b', 'c', 'd', 'e'].find(
      (name) => homeShard(name, shards) !== homeShard('account-1', shards),
    );
    const one = request({ userId: 'account-1', personId: personId ?? '' });
    await reserve(store, [one]);
    const find = (person?: string) => store.find(sku, one.userId, one.requestId, person);
    expect(await asked(() => find(personId))).toHaveLength(1);
    expect(await asked(() => find())).toHaveLength(shards);
    expect(await find()).toMatchObject({ personId });
  });
});

describe('the home in a reservation id', () => {
  test('is the home of its person, among however many shards', () => {
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 1, max: 16 }), (personId, count) => {
        const id = reservationIdAt(personId, 'abcdefghijkl0123456789');
        expect(id).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
        expect(shardOfReservation(id, count)).toBe(homeShard(personId, count));
      }),
    );
  });

  test('is not seen in ids without one, whatever they begin with', () => {
    for (const id of [
      '',
      'rsv_1',
      'rsv_p0000_0123456789abcdef',
      'rsv_abcdefghijkl0123456789',
      'p0000_',
    ])
      expect(shardOfReservation(id, 4), id).toBeUndefined();
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), (bytes) => {
        const old = `rsv_${Buffer.from(bytes).toString('base64url')}`;
        expect(shardOfReservation(old, 4)).toBeUndefined();
      }),
    );
  });
});

function withHome(one: ReserveRequest, n: number): ReserveRequest {
  return { ...one, reservationId: reservationIdAt(one.personId, `${n}`.padStart(22, 'x')) };
}

/** Writes down each call, by name and part. */
function counted(store: ShardStore, calls: string[]): ShardStore {
  return new Proxy(store, {
    get(of, name) {
      const value: unknown = Reflect.get(of, name, of);
      if (typeof value !== 'function') return value;
      return (...args: readonly [{ readonly skuId: string }, ...unknown[]]) => {
        calls.push(`${String(name)} ${args[0].skuId}`);
        return Reflect.apply(value, of, args) as unknown;
      };
    },
  });
}
