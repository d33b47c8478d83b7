import { systemTimers } from '../../src/app/system.ts';
import type { SkuKey } from '../../src/core/activity.ts';
import type { OrderMessage } from '../../src/ports/order-queue.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { RedisInventoryStore } from '../../src/stores/redis/inventory-store.ts';
import { Keys } from '../../src/stores/redis/keys.ts';
import { messageOf } from '../../src/stores/redis/records.ts';
import { SeededRandom } from '../support/world.ts';
import type { InventoryHarness } from './inventory-store.ts';

export interface RedisUnderTest {
  readonly urls: readonly string[];
  readonly cluster: boolean;
  /** Kills every server without warning and starts it again. */
  crash(): Promise<void>;
}

export interface RedisHarness extends InventoryHarness {
  readonly store: RedisInventoryStore;
  readonly link: RedisLink;
  readonly keys: Keys;
}

let made = 0;

/** A store with keys of its own on servers that many tests share. */
export async function redisInventory(server: RedisUnderTest): Promise<RedisHarness> {
  made += 1;
  const keys = new Keys(`test-${process.pid}-${made}`);
  const random = new SeededRandom(keys.prefix);
  const open = () =>
    RedisLink.open({
      urls: server.urls,
      cluster: server.cluster,
      // A loaded machine may be slow; nothing here waits for this.
      timeoutMs: 20_000,
      timers: systemTimers,
    });
  let link = await open();
  let store = new RedisInventoryStore(link, keys, random);
  const messagesOf = async (key: SkuKey): Promise<[number, OrderMessage][]> => {
    const stream = keys.sku(key, 'outbox');
    const entries = (await link.command(stream, ['XRANGE', stream, '-', '+'])) as [
      string,
      string[],
    ][];
    const all: [number, OrderMessage][] = [];
    for (const [id, pairs] of entries) {
      const named = new Map<string, string>();
      for (let at = 0; at < pairs.length; at += 2) named.set(pairs[at]!, pairs[at + 1]!);
      const seats = JSON.parse(named.get('s') ?? '[]') as string[][];
      const [ms = 0, step = 0] = id.split('-').map(Number);
      const fields = named.get('f')!.split('\n');
      const orphaned = keys.sku(key, 'orphaned');
      const kept = (await link.command(orphaned, ['HGET', orphaned, id])) as string | null;
      const requests = keys.sku(key, 'requests');
      const texts =
        kept?.split('\n') ??
        ((await link.command(requests, ['HMGET', requests, ...fields])) as string[]);
      for (const [at, field] of fields.entries())
        all.push([
          ms * 1_000 + step,
          messageOf(key, field, texts[at]!, Number(named.get('g')), seats[at]),
        ]);
    }
    return all;
  };
  return {
    get store() {
      return store;
    },
    get link() {
      return link;
    },
    keys,
    messages: async () => {
      const skus = keys.deployment('skus');
      const names = (await link.command(skus, ['SMEMBERS', skus])) as string[];
      const all: [number, OrderMessage][] = [];
      for (const name of names) {
        const [activityId = '', skuId = ''] = name.split('/');
        all.push(...(await messagesOf({ activityId, skuId })));
      }
      return all.sort(([a], [b]) => a - b).map(([, message]) => message);
    },
    crash: async () => {
      await link.close();
      await server.crash();
      link = await open();
      store = new RedisInventoryStore(link, keys, random);
    },
    dispose: () => link.close(),
  };
}
