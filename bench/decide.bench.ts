import { createRequire } from 'node:module';
import { RateLimiterMemory } from 'rate-limiter-flexible';
import { systemClock } from '../src/app/system.ts';
import { KeyedLimiter } from '../src/core/limit/keyed-limiter.ts';
import { parseRate } from '../src/core/limit/rate.ts';
import {
  isMain,
  printReport,
  race,
  ResultHash,
  round3,
  sample,
  settledBytes,
  smallAsked,
  versionOf,
} from './support/bench.ts';

/**
 * One decision of the keyed limiter against the in-memory stores people use today.
 *
 * Same work on each side: one decision for one of 10,000 callers in random order, the key built from
 * its two parts as a request does (the route and an address that the request brought as a fresh
 * string), the clock read once per decision, nobody refused. Peers are called at their own fastest
 * entry point: the store's `incr` for `@fastify/rate-limit`, `consume` for `rate-limiter-flexible`.
 *
 * Then one million keys: bytes for each, and the longest slice while all of them expire.
 */
export interface DecideSize {
  readonly keys: number;
  readonly decisions: number;
  readonly rounds: number;
  readonly millionKeys: number;
  readonly repeats: number;
}

export const largeSize: DecideSize = {
  keys: 10_000,
  decisions: 200_000,
  rounds: 15,
  millionKeys: 1_000_000,
  repeats: 3,
};
export const smallSize: DecideSize = {
  keys: 1_000,
  decisions: 5_000,
  rounds: 3,
  millionKeys: 20_000,
  repeats: 2,
};

interface FastifyStore {
  incr(
    key: string,
    done: (error: Error | null, result: { current: number; ttl: number }) => void,
    timeWindow: number,
    max: number,
  ): void;
}

type FastifyStoreClass = new (
  continueExceeding: boolean,
  exponentialBackoff: boolean,
  cache: number,
) => FastifyStore;

const sliceBudget = 2_000;

/** Addresses as a socket would hand them over: bytes turned into a string that nobody has hashed yet. */
function freshAddresses(count: number, decisions: number): string[] {
  const order = new Uint32Array(decisions);
  let state = 12_345;
  for (let at = 0; at < decisions; at += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    order[at] = state % count;
  }
  return Array.from(order, (key) =>
    Buffer.from(`10.${key >> 16}.${(key >> 8) & 255}.${key & 255}`, 'latin1').toString('latin1'),
  );
}

const overflow = { rate: parseRate('100/s'), burstMilli: 200_000 };
const hashSeed = [0x9e3779b9, 0x7f4a7c15];

export async function decide(size: DecideSize): Promise<{
  readonly report: Parameters<typeof printReport>[0];
  readonly rows: Parameters<typeof printReport>[2];
}> {
  const require = createRequire(import.meta.url);
  const LocalStore = require('@fastify/rate-limit/store/LocalStore') as FastifyStoreClass;
  const limiter = new KeyedLimiter({
    ruleId: 'per-address',
    rate: parseRate('1000000/s'),
    burstMilli: 1_000_000_000,
    maxKeys: size.keys,
    overflow,
    hashSeed,
  });
  const fastify = new LocalStore(false, false, size.keys);
  const flexible = new RateLimiterMemory({ points: 1e9, duration: 3600 });

  let addresses: string[] = [];
  let hash = new ResultHash();
  const hashes = new Map<string, Set<string>>();
  const finish = (name: string): number => {
    const seen = hashes.get(name) ?? new Set<string>();
    hashes.set(name, seen.add(hash.hex));
    hash = new ResultHash();
    return size.decisions;
  };
  let current = 0;
  const onIncr = (_error: Error | null, result: { current: number }): void => {
    current = result.current;
  };

  const fill = (): void => {
    addresses = freshAddresses(size.keys, size.decisions);
  };
  const contenders = [
    {
      name: 'sluice',
      round: (): number => {
        let admitted = 0;
        for (const address of addresses) {
          if (limiter.take(address, 'submit', 1000, systemClock.monoUs()) === 0) admitted += 1;
        }
        hash.add(admitted);
        return finish('sluice');
      },
    },
    {
      name: '@fastify/rate-limit',
      round: (): number => {
        let admitted = 0;
        for (const address of addresses) {
          fastify.incr(`submit:${address}`, onIncr, 3_600_000, 1e9);
          if (current <= 1e9) admitted += 1;
        }
        hash.add(admitted);
        return finish('@fastify/rate-limit');
      },
    },
    {
      name: 'rate-limiter-flexible',
      round: async (): Promise<number> => {
        let admitted = 0;
        for (const address of addresses) {
          const result = await flexible.consume(`submit:${address}`);
          if (result.remainingPoints > 0) admitted += 1;
        }
        hash.add(admitted);
        return finish('rate-limiter-flexible');
      },
    },
  ];
  // The strings are made anew before each round, outside the measured time: every contender meets
  // strings whose hash the engine has not cached.
  const times = new Map<string, number[]>(contenders.map(({ name }) => [name, []]));
  for (let round = 0; round < size.rounds + 2; round += 1) {
    for (let turn = 0; turn < contenders.length; turn += 1) {
      const contender = contenders[(turn + round) % contenders.length];
      if (contender === undefined) continue;
      fill();
      const one = await race([contender], { warmups: 0, rounds: 1 });
      if (round >= 2) times.get(contender.name)?.push(one.get(contender.name)?.median ?? 0);
    }
  }

  const [ours, theirs, flex] = contenders.map(({ name }) => sample(times.get(name) ?? []));
  if (ours === undefined || theirs === undefined || flex === undefined) {
    throw new Error('three contenders give three samples');
  }
  const million = expireMany(size.millionKeys, size.repeats);
  const resultHash = [...hashes.values()].map((seen) => [...seen].join('/')).join(' ');
  const report = {
    bench: 'decide',
    ratio: round3(ours.median / theirs.median),
    better: 'lower' as const,
    peer: versionOf('@fastify/rate-limit'),
    vs_rate_limiter_flexible: round3(ours.median / flex.median),
    ns: {
      sluice: round3(ours.median),
      fastify_rate_limit: round3(theirs.median),
      rate_limiter_flexible: round3(flex.median),
    },
    spread: round3(ours.spread),
    ...million,
    keys: size.keys,
    million_keys: size.millionKeys,
    result_hash: resultHash,
  };
  const line = (name: string, one: typeof ours): (string | number)[] => [
    name,
    round3(one.median),
    `${Math.round(one.spread * 100)}%`,
    round3(ours.median / one.median),
  ];
  const rows = [
    line('sluice', ours),
    line(versionOf('@fastify/rate-limit'), theirs),
    line(versionOf('rate-limiter-flexible'), flex),
    ['bytes per key at a million keys', round3(million.bytes_per_key), '', ''],
    ['longest slice of expiry, ms of work', round3(million.max_slice_ms), '', ''],
  ];
  return { report, rows };
}

/**
 * Fills a limiter, lets every key expire, and times each slice. The whole is done a few times and the
 * shortest time of each slice is kept: the work of slice n is the same each time, and what is longer
 * is another process or the collector. The longest of these is the work; the longest seen at all is
 * reported beside it.
 */
function expireMany(
  keys: number,
  repeats: number,
): { bytes_per_key: number; max_slice_ms: number; max_slice_wall_ms: number; slices: number } {
  const shortest: number[] = [];
  let bytesPerKey = 0;
  let longestWall = 0;
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    const before = settledBytes();
    const limiter = new KeyedLimiter({
      ruleId: 'many',
      rate: parseRate('5/s'),
      burstMilli: 5_000,
      maxKeys: keys,
      overflow,
      hashSeed,
    });
    for (let key = 0; key < keys; key += 1) limiter.take(`u_${key}`, 'submit', 1000, 0);
    if (limiter.entries !== keys) throw new Error(`found ${limiter.entries} entries of ${keys}`);
    bytesPerKey = (settledBytes() - before) / keys;
    for (let slice = 0; limiter.entries > 0; slice += 1) {
      if (slice > keys) throw new Error(`${limiter.entries} keys never expired`);
      const start = process.hrtime.bigint();
      limiter.sweep(10_000_000, sliceBudget);
      const spent = Number(process.hrtime.bigint() - start) / 1e6;
      shortest[slice] = Math.min(shortest[slice] ?? Infinity, spent);
      longestWall = Math.max(longestWall, spent);
    }
  }
  return {
    bytes_per_key: round3(bytesPerKey),
    max_slice_ms: round3(Math.max(...shortest)),
    max_slice_wall_ms: round3(longestWall),
    slices: shortest.length,
  };
}

if (isMain(import.meta.url)) {
  const { report, rows } = await decide(smallAsked() ? smallSize : largeSize);
  printReport(report, ['contender', 'ns per decision', 'spread', 'ratio'], rows, !smallAsked());
  // Peers keep timers of their own.
  process.exit(0);
}
