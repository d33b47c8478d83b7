import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { OutcomeUnknownError, UnavailableError } from '../../src/ports/errors.ts';
import { RedisStreamsQueue } from '../../src/queues/redis-streams-queue.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { RedisInventoryStore } from '../../src/stores/redis/inventory-store.ts';
import { Keys, keyCatalogue } from '../../src/stores/redis/keys.ts';
import {
  type RedisCluster,
  type RedisServer,
  startRedis,
  startRedisCluster,
} from '../support/servers/redis.ts';
import { SeededRandom, World } from '../support/world.ts';
import {
  kinds,
  nowMs,
  otherSku,
  request,
  requests,
  reserve,
  retryOf,
  sku,
  stockOf,
} from './stock-samples.ts';

const random = new SeededRandom('redis failures');
const keys = new Keys('failures');

async function open(server: RedisServer, timeoutMs: number): Promise<RedisLink> {
  return RedisLink.open({ urls: [server.url], cluster: false, timeoutMs, timers: systemTimers });
}

/** Asks until it is answered, as a gateway's retries would; the failures on the way must be honest. */
async function untilAnswered<Value>(ask: () => Promise<Value>): Promise<Value> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await ask();
    } catch (error) {
      const honest = error instanceof UnavailableError || error instanceof OutcomeUnknownError;
      if (!honest || tries > 500) throw error;
      await sleep(20);
    }
  }
}

describe('one server', () => {
  let server: RedisServer;
  let link: RedisLink;
  let store: RedisInventoryStore;
  beforeEach(async () => {
    server = await startRedis({ settings: { appendonly: 'yes', appendfsync: 'always' } });
    link = await open(server, 5_000);
    store = new RedisInventoryStore(link, keys, random);
    await store.preload(sku, stockOf(10));
  });
  afterEach(async () => {
    await link.close();
    await server.stop();
  });

  it('loads a script again where the server has forgotten it, and only that once', async () => {
    await reserve(store, [request()]);
    await server.ask('SCRIPT', 'FLUSH');
    await server.ask('CONFIG', 'RESETSTAT');
    expect(kinds(await reserve(store, [request()]))).toEqual(['reserved']);
    expect(kinds(await reserve(store, [request()]))).toEqual(['reserved']);
    const stats = await server.ask('INFO', 'commandstats');
    expect(stats).toMatch(/cmdstat_eval:calls=1,/);
    expect(stats).toMatch(/cmdstat_evalsha:calls=2,.*failed_calls=1/);
    expect(await store.mark(sku)).toMatchObject({ held: 3 });
  });

  it('is unknown when a server takes a call and does not answer in time', async () => {
    const hasty = await open(server, 150);
    const impatient = new RedisInventoryStore(hasty, keys, random);
    // The server knows the script from here on.
    await reserve(impatient, [request()]);
    const wish = request();
    server.pause();
    await expect(reserve(impatient, [wish])).rejects.toThrow(OutcomeUnknownError);
    // A read that was not answered did nothing.
    await expect(impatient.find(sku, wish.userId, wish.requestId)).rejects.toThrow(
      UnavailableError,
    );
    server.resume();
    await untilAnswered(async () => {
      if ((await store.mark(sku))?.held !== 2) throw new UnavailableError('not yet');
    });
    // It had been done after all: asking for the same request id finds out.
    expect(kinds(await untilAnswered(() => reserve(store, [retryOf(wish)])))).toEqual(['existing']);
    expect(await store.mark(sku)).toMatchObject({ held: 2 });
    await hasty.close();
  });

  it('is unknown when the connection breaks under a call, and resends nothing', async () => {
    server.pause();
    const wish = request();
    const broken = expect(reserve(store, [wish])).rejects.toThrow(OutcomeUnknownError);
    // Long enough to be written; a frozen server has done nothing with it.
    await sleep(50);
    await server.kill();
    await broken;
    await server.start();
    expect(await untilAnswered(() => store.mark(sku))).toMatchObject({ held: 0, available: 10 });
  });

  it('is unavailable without a connection, at once, and back when the server is', async () => {
    await server.kill();
    // Until the client has noticed, a call may still be written to the dead connection.
    for (;;) {
      const failure: unknown = await store.mark(sku).catch((error: unknown) => error);
      if ((failure as Error).message === 'No connection to Redis') break;
    }
    const wish = request();
    await expect(reserve(store, [wish])).rejects.toThrow(UnavailableError);
    await server.start();
    expect(await untilAnswered(() => store.mark(sku))).toMatchObject({ held: 0 });
    expect(kinds(await untilAnswered(() => reserve(store, [wish])))).toEqual(['reserved']);
  });

  it('refuses to open where nobody listens', async () => {
    await server.kill();
    await expect(open(server, 500)).rejects.toThrow(UnavailableError);
    await server.start();
    // And tries no more behind our back: only the link of this test comes back.
    await untilAnswered(() => store.mark(sku));
    const clients = await server.ask('CLIENT', 'LIST', 'TYPE', 'normal');
    expect(clients.match(/^id=|\nid=/gm)).toHaveLength(2);
  });

  it('refuses after close', async () => {
    const second = await open(server, 500);
    await second.close();
    await second.close();
    await expect(second.command(undefined, ['PING'])).rejects.toThrow(UnavailableError);
  });

  it('has done nothing when memory is full, and says so', async () => {
    await server.ask('CONFIG', 'SET', 'maxmemory', '1');
    await expect(reserve(store, [request()])).rejects.toThrow(UnavailableError);
    await server.ask('CONFIG', 'SET', 'maxmemory', '0');
    expect(await store.mark(sku)).toMatchObject({ held: 0 });
    expect(kinds(await reserve(store, [request()]))).toEqual(['reserved']);
  });

  it('notices a server that comes back empty-handed', async () => {
    await reserve(store, requests(4));
    const { sequence } = (await store.mark(sku))!;
    await server.ask('FLUSHALL');
    expect(await store.reserve(sku, [request()], sequence, nowMs)).toEqual({ kind: 'unknown_sku' });
  });

  it('throws what is a fault of ours as it is, having done nothing twice', async () => {
    await server.ask('SET', keys.sku(otherSku, 'stock'), 'not a hash');
    await expect(reserve(store, [request()], otherSku)).rejects.toThrow(/WRONGTYPE/);
  });

  it('writes only keys of the catalogue, with the types that it says', async () => {
    const world = new World();
    const queue = new RedisStreamsQueue(link, keys, {
      clock: world,
      timers: systemTimers,
      instance: 'w',
    });
    await store.preload(otherSku, stockOf(3, { seats: ['A-1', 'A-2', 'B-1'] }));
    await reserve(store, [...requests(3), request({ quantity: 2, limit: 2 })]);
    await reserve(store, [request({ quantity: 2, limit: 2 })], otherSku);
    await store.adjust(sku, 'more', 1, nowMs);
    const given = await queue.receive('w', 10, 0);
    await queue.acknowledge(given.slice(0, 1));
    await queue.bury(given[1]!, 'bad');
    const live = await store.live(sku, undefined, 10);
    await store.rebuild(sku, { total: 10, generation: 2, stockEpoch: 0, live });
    const names = (await server.ask('KEYS', '*'))
      .split('\r\n')
      .filter((line) => /^\w+:/.test(line));
    const found = new Set<string>();
    for (const name of names) {
      const last = name.split(':').at(-1);
      const spec = Object.values(keyCatalogue).find((each) => each.name === last);
      expect(spec, `${name} is not in the catalogue`).toBeDefined();
      expect(await server.ask('TYPE', name)).toBe(`+${spec!.type}\r\n`);
      expect(await server.ask('TTL', name)).toBe(':-1\r\n');
      found.add(last!);
    }
    // Staged keys live for the length of a rebuild; those of other owners are not written here.
    const expected = Object.entries(keyCatalogue)
      .filter(([name, spec]) => name !== 'staged' && ['inventory', 'outbox'].includes(spec.owner))
      .map(([, spec]) => spec.name);
    expect([...found].sort()).toEqual([...expected].sort());
    await queue.close();
  });

  it('leaves nothing behind once a SKU is forgotten', async () => {
    const queue = new RedisStreamsQueue(link, keys, {
      clock: new World(),
      timers: systemTimers,
      instance: 'w',
    });
    const wish = request();
    await reserve(store, [wish]);
    await queue.acknowledge(await queue.receive('w', 10, 0));
    await store.settle(sku, [{ reservationId: wish.reservationId, fate: 'ordered' }], nowMs);
    expect(await store.forget(sku)).toBe(true);
    expect(await server.ask('DBSIZE')).toBe(':0\r\n');
    await queue.close();
  });
});

describe('a replica promoted without the tail', () => {
  it('is noticed by the sequence, sells nothing, and reopens after a rebuild', async () => {
    const primary = await startRedis();
    const replica = await startRedis();
    const first = await open(primary, 5_000);
    const before = new RedisInventoryStore(first, keys, random);
    await before.preload(sku, stockOf(10));
    const early = requests(3);
    await reserve(before, early);
    await replica.ask('REPLICAOF', '127.0.0.1', String(primary.port));
    await untilAnswered(async () => {
      const state = await replica.ask('INFO', 'replication');
      if (!state.includes('master_link_status:up')) throw new UnavailableError('not yet');
    });
    // The replica is cut off; what is acknowledged from here on it never sees.
    await replica.ask('REPLICAOF', 'NO', 'ONE');
    const late = requests(4);
    await reserve(before, late);
    const lost = (await before.mark(sku))!;
    expect(lost).toMatchObject({ held: 7 });
    await first.close();
    await primary.stop();

    const second = await open(replica, 5_000);
    const after = new RedisInventoryStore(second, keys, random);
    expect(await after.reserve(sku, requests(5), lost.sequence, nowMs)).toMatchObject({
      kind: 'forgotten',
      mark: { paused: true, held: 3, generation: 1 },
    });
    // A gateway that has seen nothing is stopped too.
    expect(await after.reserve(sku, requests(5), 0, nowMs)).toMatchObject({ kind: 'paused' });
    // Two of the late ones had reached the orders.
    const ordered = late.slice(0, 2).map((wish) => ({
      requestId: wish.requestId,
      userId: wish.userId,
      personId: wish.personId,
      fingerprint: wish.fingerprint,
      nonce: wish.nonce,
      reservationId: wish.reservationId,
      quantity: 1,
      reservedAtMs: nowMs,
      deadlineMs: wish.deadlineMs,
      generation: 1,
      state: 'ordered' as const,
    }));
    const held = await after.live(sku, undefined, 100);
    const mark = await after.rebuild(sku, {
      total: 10,
      generation: 2,
      stockEpoch: lost.stockEpoch,
      live: [...held, ...ordered],
    });
    expect(mark).toMatchObject({ available: 5, held: 3, ordered: 2, paused: true, generation: 2 });
    expect(mark.sequence).toBeGreaterThan(lost.sequence);
    await after.setPaused(sku, false);
    expect(kinds(await reserve(after, [retryOf(late[0]!)]))).toEqual(['existing']);
    expect(await after.find(sku, late[3]!.userId, late[3]!.requestId)).toBeUndefined();
    const outcomes = await after.reserve(sku, requests(9), lost.sequence, nowMs);
    expect(outcomes).toMatchObject({ kind: 'done', mark: { available: 0, held: 8, ordered: 2 } });
    await second.close();
    await replica.stop();
  });

  it('a primary that turns read-only did nothing, and the connection is made anew', async () => {
    const primary = await startRedis();
    const other = await startRedis();
    const link = await open(primary, 5_000);
    const store = new RedisInventoryStore(link, keys, random);
    await store.preload(sku, stockOf(2));
    const connections = async (): Promise<number> =>
      Number(
        /total_connections_received:(\d+)/.exec(await primary.ask('INFO', 'stats'))?.[1] ?? '0',
      );
    await primary.ask('REPLICAOF', '127.0.0.1', String(other.port));
    const before = await connections();
    await expect(reserve(store, [request()])).rejects.toThrow(UnavailableError);
    await untilAnswered(async () => {
      // Its own connection counts as one.
      if ((await connections()) < before + 2) throw new UnavailableError('not yet');
    });
    await primary.ask('REPLICAOF', 'NO', 'ONE');
    expect(await untilAnswered(() => store.preload(sku, stockOf(2)))).toBeDefined();
    await link.close();
    await primary.stop();
    await other.stop();
  });
});

describe('a cluster', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster(3);
  });
  afterAll(() => cluster.stop());

  it('never names keys of two slots, and follows a slot that moves', async () => {
    const link = await RedisLink.open({
      urls: [cluster.urls[0]!],
      cluster: true,
      timeoutMs: 5_000,
      timers: systemTimers,
    });
    const store = new RedisInventoryStore(link, keys, random);
    const skus = Array.from({ length: 12 }, (_, at) => ({ activityId: 'a', skuId: `s${at}` }));
    for (const key of skus) {
      await store.preload(key, stockOf(5));
      await reserve(store, [request()], key);
    }
    const owners = await Promise.all(
      cluster.nodes.map(async (node) => (await node.ask('DBSIZE')) !== ':0\r\n'),
    );
    expect(owners).toEqual([true, true, true]);

    // The slot of one SKU moves to another node while nobody tells the client.
    const key = skus[0]!;
    const slot = (await cluster.nodes[0]!.ask('CLUSTER', 'KEYSLOT', keys.sku(key, 'stock'))).slice(
      1,
      -2,
    );
    const from = (
      await Promise.all(
        cluster.nodes.map(async (node) => ({
          node,
          has: (await node.ask('CLUSTER', 'COUNTKEYSINSLOT', slot)) !== ':0\r\n',
        })),
      )
    ).find((each) => each.has)!.node;
    const to = cluster.nodes.find((node) => node !== from)!;
    const idOf = async (node: RedisServer): Promise<string> =>
      (await node.ask('CLUSTER', 'MYID')).split('\r\n')[1]!;
    await to.ask('CLUSTER', 'SETSLOT', slot, 'IMPORTING', await idOf(from));
    await from.ask('CLUSTER', 'SETSLOT', slot, 'MIGRATING', await idOf(to));
    const names = (await from.ask('CLUSTER', 'GETKEYSINSLOT', slot, '100'))
      .split('\r\n')
      .filter((line) => line.startsWith('failures:'));
    await from.ask('MIGRATE', '127.0.0.1', String(to.port), '', '0', '5000', 'KEYS', ...names);
    for (const node of cluster.nodes)
      await node.ask('CLUSTER', 'SETSLOT', slot, 'NODE', await idOf(to));
    expect(kinds(await untilAnswered(() => reserve(store, [request()], key)))).toEqual([
      'reserved',
    ]);
    expect(await store.mark(key)).toMatchObject({ held: 2, available: 3 });
    await link.close();
  });
});

describe('two processes on one queue', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.stop());

  it('share entries, take over from the silent, and give only what is left of an entry', async () => {
    const link = await open(server, 5_000);
    const store = new RedisInventoryStore(link, keys, random);
    const [clockA, clockB] = [new World(), new World()];
    const make = (instance: string, clock: World): RedisStreamsQueue =>
      new RedisStreamsQueue(link, keys, {
        clock,
        timers: systemTimers,
        instance,
        visibilityMs: 60_000,
      });
    const [a, b] = [make('a', clockA), make('b', clockB)];
    await store.preload(sku, stockOf(100));
    const [first, second] = [requests(6), requests(6)];
    await reserve(store, first);
    await reserve(store, second);
    // A takes the first entry whole, though it hands out only a part.
    const fromA = await a.receive('x', 2, 0);
    expect(fromA.map((each) => each.message.requestId)).toEqual(
      first.slice(0, 2).map((each) => each.requestId),
    );
    const fromB = await b.receive('x', 100, 0);
    expect(fromB.map((each) => each.message.requestId)).toEqual(
      second.map((each) => each.requestId),
    );
    expect(await b.receive('x', 100, 0)).toEqual([]);
    await a.acknowledge(fromA.slice(0, 1));
    // A falls silent for longer than its lease.
    const stream = keys.sku(sku, 'outbox');
    const pending = (await link.command(stream, [
      'XPENDING',
      stream,
      'orders',
      '-',
      '+',
      '10',
      'a',
    ])) as [string][];
    for (const [id] of pending)
      await link.command(stream, [
        'XCLAIM',
        stream,
        'orders',
        'a',
        '0',
        id,
        'IDLE',
        '60000',
        'JUSTID',
      ]);
    const taken = await b.receive('x', 100, 0);
    expect(taken.map((each) => [each.message.requestId, each.attempt])).toEqual(
      first.slice(1).map((each) => [each.requestId, 2]),
    );
    // A comes back: what it still had in hand is no longer its own to give, nor to give back.
    await clockA.advance(60_000);
    expect(await a.receive('x', 100, 0)).toEqual([]);
    await a.giveBack(fromA);
    expect(await a.receive('x', 100, 0)).toEqual([]);
    await b.acknowledge([...taken, ...fromB]);
    expect(await b.backlog(nowMs)).toMatchObject({ depth: 0, acknowledgedTotal: 12 });

    // A process that stops properly hands over at once what it has not handed out.
    await reserve(store, requests(3));
    const [one] = await a.receive('x', 1, 0);
    await a.giveBack([one!]);
    await a.close();
    expect(await b.receive('x', 100, 0)).toHaveLength(3);
    await b.close();
    await link.close();
  });
});
