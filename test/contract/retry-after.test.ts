import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { RuleEngine } from '../../src/core/rules/engine.ts';
import { readRules } from '../../src/core/rules/read.ts';
import { LimitedCall } from '../../src/pipeline/limited-request.ts';
import { RuleLimits } from '../../src/pipeline/rule-limits.ts';
import type { BudgetStore } from '../../src/ports/budget-store.ts';
import { MemoryBudgetStore } from '../../src/stores/limits/memory-budget-store.ts';
import { RedisBudgetStore } from '../../src/stores/limits/redis-budget-store.ts';
import { SharedBudgets } from '../../src/stores/limits/shared-budgets.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { Keys } from '../../src/stores/redis/keys.ts';
import { type RedisServer, startRedis, startRedisCluster } from '../support/servers/redis.ts';
import { SeededRandom, World } from '../support/world.ts';

/**
 * What a refused caller is told is a promise: refused one millisecond before, admitted at it. For every
 * algorithm that has to do with time, in this process and asked of every store, through the engine and
 * the words that the path sends.
 */
const limits: readonly (readonly [name: string, limit: object])[] = [
  ['token_bucket', { rate: '7/s', burst: 3 }],
  ['token_bucket, slow', { rate: '1/30d', burst: 1 }],
  ['token_bucket, thirds', { rate: '3/10s', burst: 2 }],
  ['fixed_window', { algorithm: 'fixed_window', limit: 3, window: '1900ms' }],
  ['sliding_window', { algorithm: 'sliding_window', limit: 5, window: '10s' }],
  ['sliding_log', { algorithm: 'sliding_log', limit: 4, window: '60s' }],
  ['leaky_bucket', { algorithm: 'leaky_bucket', rate: '3/s' }],
  ['warm_up', { algorithm: 'warm_up', rate: '5/s', burst: 2, warm_up: '30s' }],
];

/** Whole milliseconds are told: an odd microsecond must not make one of them a lie. */
const startUs = 1_700_000_000_123_457;

interface Scene {
  readonly store: BudgetStore;
  setNowUs(nowUs: number): void;
}

class Clock {
  nowUs = startUs;
  readonly monoUs = (): number => this.nowUs;
  readonly wallMs = (): number => Math.floor(this.nowUs / 1000);
}

async function told(scope: 'instance' | 'exact', limit: object, scene: Scene): Promise<void> {
  const clock = new Clock();
  const shared = new SharedBudgets({
    store: scene.store,
    clock,
    timers: new World(),
    random: new SeededRandom('told'),
    ledger: {
      arm: () => Promise.resolve(),
      spend: () => Promise.resolve(false),
      rearm: () => Promise.resolve(),
    },
    emergencyTokens: 0,
    onTrouble: (error) => {
      throw error;
    },
  });
  const engine = new RuleEngine({ hashSeed: [1, 2], shared }, clock.nowUs);
  // Another rule each time: a store remembers what an earlier test counted.
  const id = `r${(made += 1)}`;
  const { set, problems } = readRules([{ id, key: ['user'], scope, limit }]);
  expect(problems).toEqual([]);
  engine.apply(set, clock.nowUs);
  const path = new RuleLimits({ engine, clock, random: new SeededRandom('spread') });
  const askAt = async (nowUs: number) => {
    clock.nowUs = nowUs;
    scene.setNowUs(nowUs);
    const facts = {
      route: 'join',
      method: 'POST',
      arrivedUs: nowUs,
      nowMs: clock.wallMs(),
      address: '192.0.2.7',
      fromTrustedProxy: false,
      p0: false,
      header: () => undefined,
    } as const;
    const request = new LimitedCall(facts, path);
    request.user = 'ann';
    return path.person(request) ?? (await path.budget(request));
  };

  let nowUs = startUs;
  for (let round = 0; round < 4; round += 1) {
    let refusal = await askAt(nowUs);
    for (let n = 0; refusal === undefined && n < 50; n += 1) refusal = await askAt(nowUs);
    if (refusal === undefined) throw new Error('nothing was refused');
    expect(refusal).toMatchObject({ scope: 'user', ruleId: id });
    const atUs = nowUs + refusal.retryAfterMs * 1000;
    // Asking too early changes nothing of the promise.
    expect(await askAt(atUs - 1000), `1 ms before ${refusal.retryAfterMs} ms`).toBeDefined();
    expect(await askAt(atUs), `at ${refusal.retryAfterMs} ms`).toBeUndefined();
    nowUs = atUs + 77_773;
  }
}

let made = 0;

function suite(name: string, scene: () => Promise<Scene>): void {
  describe(name, () => {
    test.each(limits)('%s: refused 1 ms before retry_after, admitted at it', async (_, limit) => {
      await told('exact', limit, await scene());
    });
  });
}

const inMemory = async (): Promise<Scene> => {
  let nowUs = startUs;
  const clock = { wallMs: () => 0, monoUs: () => nowUs };
  return {
    store: new MemoryBudgetStore({ clock, timers: new World(), hashSeed: [1, 2] }),
    setNowUs: (value) => {
      nowUs = value;
    },
  };
};

describe('scope instance', () => {
  test.each(limits)('%s: refused 1 ms before retry_after, admitted at it', async (_, limit) => {
    await told('instance', limit, await inMemory());
  });
});

suite('scope exact, in memory', inMemory);

/** The same promises from a store over a network. */
function overNetwork(
  name: string,
  start: () => Promise<{ readonly urls: readonly string[]; stop(): Promise<void> }>,
  cluster: boolean,
): void {
  describe(name, () => {
    let servers: Awaited<ReturnType<typeof start>>;
    let store: RedisBudgetStore;
    let nowUs = startUs;
    beforeAll(async () => {
      servers = await start();
      const { urls } = servers;
      const link = await RedisLink.open({ urls, cluster, timers: systemTimers, timeoutMs: 20_000 });
      store = new RedisBudgetStore({ link, keys: new Keys('told'), nowUs: () => nowUs });
    });
    afterAll(async () => {
      await store.close();
      await servers.stop();
    });
    suite('scope exact', async () => ({
      store,
      setNowUs: (value) => {
        nowUs = value;
      },
    }));
  });
}

overNetwork(
  'on Redis',
  async () => {
    const server: RedisServer = await startRedis();
    return { urls: [server.url], stop: () => server.stop() };
  },
  false,
);
overNetwork('on Redis Cluster', () => startRedisCluster(3), true);
