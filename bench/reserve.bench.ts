import { setTimeout as sleep } from 'node:timers/promises';
import { systemRandom, systemTimers } from '../src/app/system.ts';
import type { ReserveRequest } from '../src/ports/inventory-store.ts';
import { RedisLink } from '../src/stores/redis/client.ts';
import { RedisInventoryStore } from '../src/stores/redis/inventory-store.ts';
import { Keys } from '../src/stores/redis/keys.ts';
import { ShardedInventoryStore } from '../src/stores/shards/sharded-inventory.ts';
import { type RedisServer, startRedis } from '../test/support/servers/redis.ts';
import {
  isMain,
  printReport,
  type Report,
  ResultHash,
  type Row,
  round3,
  type Sample,
  sample,
  smallAsked,
  versionOf,
} from './support/bench.ts';
import {
  batched,
  hotSku,
  makeRequests,
  oneByOne,
  type Reserver,
  usual,
} from './support/reserve-peers.ts';

/**
 * Reservations of one hot SKU in Redis: requests gathered into batches against one script call per
 * request, over the same connection to the same server, in turns.
 *
 * Peers are two: our own script called with each request alone, and a script written for one request,
 * which need not unpack or loop. Each ratio is against the better of the two in that very measure and
 * round, and the median over rounds. Every request is of another person and reserves; the server must
 * hold as many reservations as were asked for, or the run throws.
 *
 *   throughput   a closed load: so many requests in flight, the next when one is answered
 *   Redis CPU    user and system time of the server from INFO, over the same load
 *   shards       the closed load again, the SKU in four parts against one, as gateways reserve in it: on
 *                one server, so it shows what parts cost, not what several servers would give
 *   p99          an open load at a rate that the slower peer can just sustain (60% of what it reached
 *                closed), from when a request was due to when it was answered
 */
export interface ReserveSize {
  readonly requests: number;
  readonly inFlight: number;
  readonly rounds: number;
  readonly openMs: number;
}

export const largeSize: ReserveSize = {
  requests: 60_000,
  inFlight: 1_024,
  rounds: 7,
  openMs: 3_000,
};
export const smallSize: ReserveSize = { requests: 1_500, inFlight: 128, rounds: 2, openMs: 200 };

/** Parts of the SKU that are compared. */
const shardCounts = [1, 4] as const;

/** Gateway processes whose batches meet at the store. */
const gateways = 2;

interface Measures {
  readonly perSecond: number[];
  readonly cpuUs: number[];
  readonly p99Ms: number[];
}

export async function reserve(
  size: ReserveSize,
): Promise<{ readonly report: Report; readonly header: Row; readonly rows: readonly Row[] }> {
  const server = await startRedis({ settings: { appendonly: 'yes', appendfsync: 'everysec' } });
  const link = await RedisLink.open({
    urls: [server.url],
    cluster: false,
    timeoutMs: 30_000,
    timers: systemTimers,
  });
  try {
    return await measure(size, server, link);
  } finally {
    await link.close();
    await server.stop();
  }
}

async function measure(
  size: ReserveSize,
  server: RedisServer,
  link: RedisLink,
): Promise<{ readonly report: Report; readonly header: Row; readonly rows: readonly Row[] }> {
  const keys = new Keys('bench');
  const store = new RedisInventoryStore(link, keys, systemRandom);
  const reservers = [batched(store, gateways), oneByOne(store), await usual(link, keys)];
  const measures = new Map<string, Measures>(
    reservers.map(({ name }) => [name, { perSecond: [], cpuUs: [], p99Ms: [] }]),
  );
  const requests = makeRequests(size.requests);
  const hash = new ResultHash();

  let generation = 0;
  const fresh = async (): Promise<void> => {
    await server.ask('FLUSHALL', 'SYNC');
    // A generation of its own each time, or the gateways would notice that the store has forgotten.
    generation += 1;
    await store.preload(hotSku, { total: size.requests * 2, generation, stockEpoch: 0 });
  };

  // The first round warms up.
  for (let round = 0; round <= size.rounds; round += 1)
    for (let turn = 0; turn < reservers.length; turn += 1) {
      const reserver = reservers[(round + turn) % reservers.length];
      const into = measures.get(reserver?.name ?? '');
      if (reserver === undefined || into === undefined) continue;
      await fresh();
      const before = await cpuUsOf(server);
      const started = performance.now();
      await closedLoad(reserver, requests, size.inFlight);
      const elapsedMs = performance.now() - started;
      const cpuUs = (await cpuUsOf(server)) - before;
      const mark = await store.mark(hotSku);
      if (mark?.held !== requests.length)
        throw new Error(`${reserver.name}: ${mark?.held} held of ${requests.length}`);
      hash.add(mark.held);
      hash.add(mark.available);
      if (round === 0) continue;
      into.perSecond.push((requests.length / elapsedMs) * 1_000);
      into.cpuUs.push(cpuUs / requests.length);
    }

  const medianOf = (name: string, pick: (of: Measures) => number[]): number =>
    sample(pick(measures.get(name) ?? { perSecond: [], cpuUs: [], p99Ms: [] })).median;
  const [ours, ...peers] = reservers.map(({ name }) => name);
  const slowest = Math.min(...peers.map((name) => medianOf(name, (of) => of.perSecond)));
  const perSecond = slowest * 0.6;
  for (let round = 0; round < size.rounds; round += 1)
    for (let turn = 0; turn < reservers.length; turn += 1) {
      const reserver = reservers[(round + turn) % reservers.length];
      if (reserver === undefined) continue;
      await fresh();
      const latencies = await openLoad(reserver, requests, perSecond, size.openMs);
      latencies.sort((a, b) => a - b);
      measures
        .get(reserver.name)
        ?.p99Ms.push(latencies[Math.floor(latencies.length * 0.99)] ?? Number.NaN);
    }

  const parts = await inShards(size, server, link, keys, requests, ++generation);
  for (const count of parts.held) hash.add(count);

  const mine = ours ?? '';
  const roundsOf = (name: string, pick: (of: Measures) => number[]): number[] =>
    pick(measures.get(name) ?? { perSecond: [], cpuUs: [], p99Ms: [] });
  // Round by round, so that a slow moment of the machine, which falls on all of a round, cancels out.
  const ratioTo = (
    best: (...values: number[]) => number,
    pick: (of: Measures) => number[],
  ): number =>
    round3(
      sample(
        roundsOf(mine, pick).map(
          (value, round) =>
            value / best(...peers.map((name) => roundsOf(name, pick)[round] ?? Number.NaN)),
        ),
      ).median,
    );
  const report: Report = {
    bench: 'reserve',
    ratio: ratioTo(Math.max, (m) => m.perSecond),
    better: 'higher',
    peer: 'one script call per request',
    redis_cpu_ratio: ratioTo(Math.min, (m) => m.cpuUs),
    p99_ratio: ratioTo(Math.min, (m) => m.p99Ms),
    per_s: Math.round(medianOf(mine, (m) => m.perSecond)),
    open_per_s: Math.round(perSecond),
    shards: parts.report,
    redis: /redis_version:(\S+)/.exec(await server.ask('INFO', 'server'))?.[1],
    client: versionOf('@redis/client'),
    result_hash: hash.hex,
  };
  const cell = (one: Sample): string => `${round3(one.median)} ± ${Math.round(one.spread * 100)}%`;
  const rows = reservers.map(({ name }): Row => {
    const m = measures.get(name) ?? { perSecond: [], cpuUs: [], p99Ms: [] };
    return [name, cell(sample(m.perSecond)), cell(sample(m.cpuUs)), cell(sample(m.p99Ms))];
  });
  return {
    report,
    header: ['', 'reservations/s', 'Redis CPU µs each', 'p99 ms at equal load'],
    rows,
  };
}

interface InShards {
  readonly report: Readonly<Record<string, number>>;
  readonly held: readonly number[];
}

/** One part against four, in turns, the first round to warm up. */
async function inShards(
  { rounds, inFlight }: ReserveSize,
  server: RedisServer,
  link: RedisLink,
  keys: Keys,
  requests: readonly ReserveRequest[],
  firstGeneration: number,
): Promise<InShards> {
  const perSecond = new Map<number, number[]>(shardCounts.map((shards) => [shards, []]));
  const cpuUs = new Map<number, number[]>(shardCounts.map((shards) => [shards, []]));
  const heldEach: number[] = [];
  let generation = firstGeneration;
  for (let round = 0; round <= rounds; round += 1)
    for (const shards of shardCounts) {
      await server.ask('FLUSHALL', 'SYNC');
      generation += 1;
      const store = new ShardedInventoryStore(new RedisInventoryStore(link, keys, systemRandom));
      const total = requests.length * 2;
      await store.preload(hotSku, { total, generation, stockEpoch: 0, shards });
      const before = await cpuUsOf(server);
      const started = performance.now();
      await closedLoad(batched(store, gateways, shards), requests, inFlight);
      const elapsedMs = performance.now() - started;
      const spentUs = (await cpuUsOf(server)) - before;
      const held = (await store.mark(hotSku))?.held ?? 0;
      if (held !== requests.length) throw new Error(`${shards} shards: ${held} held`);
      heldEach.push(held);
      if (round === 0) continue;
      perSecond.get(shards)?.push((requests.length / elapsedMs) * 1_000);
      cpuUs.get(shards)?.push(spentUs / requests.length);
    }
  const [one, four] = shardCounts.map((shards) => perSecond.get(shards) ?? []);
  const [cpuOne, cpuFour] = shardCounts.map((shards) => cpuUs.get(shards) ?? []);
  const ratioOf = (those: readonly number[] = [], these: readonly number[] = []): number =>
    round3(sample(those.map((value, at) => value / (these[at] ?? Number.NaN))).median);
  return {
    report: {
      in_one_per_s: Math.round(sample(one ?? []).median),
      in_four_per_s: Math.round(sample(four ?? []).median),
      ratio: ratioOf(four, one),
      redis_cpu_ratio: ratioOf(cpuFour, cpuOne),
    },
    held: heldEach,
  };
}

async function closedLoad(
  reserver: Reserver,
  requests: readonly ReserveRequest[],
  inFlight: number,
): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: inFlight }, async () => {
      for (;;) {
        const request = requests[next];
        next += 1;
        if (request === undefined) return;
        if (!(await reserver.reserve(request))) throw new Error(`${reserver.name} did not reserve`);
      }
    }),
  );
}

/** Sends what is due every turn of the event loop; latencies in ms from the moment each was due. */
async function openLoad(
  reserver: Reserver,
  requests: readonly ReserveRequest[],
  perSecond: number,
  forMs: number,
): Promise<number[]> {
  const count = Math.min(requests.length, Math.floor((perSecond * forMs) / 1_000));
  const latencies: number[] = [];
  const waits: Promise<void>[] = [];
  const started = performance.now();
  for (let sent = 0; sent < count; ) {
    const due = Math.min(count, Math.floor(((performance.now() - started) * perSecond) / 1_000));
    for (; sent < due; sent += 1) {
      const request = requests[sent];
      if (request === undefined) break;
      const dueAt = started + (sent * 1_000) / perSecond;
      waits.push(
        reserver.reserve(request).then((reserved) => {
          if (!reserved) throw new Error(`${reserver.name} did not reserve`);
          latencies.push(performance.now() - dueAt);
        }),
      );
    }
    await sleep(0);
  }
  await Promise.all(waits);
  return latencies;
}

async function cpuUsOf(server: RedisServer): Promise<number> {
  const info = await server.ask('INFO', 'cpu');
  const read = (field: string): number =>
    Number(new RegExp(`${field}:([\\d.]+)`).exec(info)?.[1] ?? Number.NaN);
  return (read('used_cpu_sys') + read('used_cpu_user')) * 1e6;
}

if (isMain(import.meta.url)) {
  const small = smallAsked();
  const { report, header, rows } = await reserve(small ? smallSize : largeSize);
  printReport(report, header, rows, !small);
}
