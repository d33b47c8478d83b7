import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock, systemRandom, systemTimers } from '../../src/app/system.ts';
import { RuleEngine } from '../../src/core/rules/engine.ts';
import { readRules } from '../../src/core/rules/read.ts';
import { LimitedCall } from '../../src/pipeline/limited-request.ts';
import type { RouteName } from '../../src/pipeline/limits.ts';
import { RuleLimits } from '../../src/pipeline/rule-limits.ts';
import { EmergencyFile } from '../../src/stores/limits/emergency-file.ts';
import { RedisBudgetStore } from '../../src/stores/limits/redis-budget-store.ts';
import { SharedBudgets } from '../../src/stores/limits/shared-budgets.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { Keys } from '../../src/stores/redis/keys.ts';
import { startRedis } from '../support/servers/redis.ts';

/** The store of shared limits killed under load: each policy does what it says, on the path's own words. */
const rules = [
  {
    id: 'closed',
    match: { route: 'join' },
    key: ['user'],
    scope: 'exact',
    limit: { rate: '1000/s' },
  },
  {
    id: 'instance',
    match: { route: 'pass' },
    key: ['user'],
    scope: 'exact',
    limit: { rate: '1000/s' },
    fail: 'instance',
  },
  {
    id: 'open',
    match: { route: 'facts' },
    key: ['ip'],
    scope: 'exact',
    limit: { rate: '1000/s' },
    fail: 'open',
  },
  {
    id: 'local',
    match: { route: 'submit' },
    key: ['activity'],
    scope: 'lease',
    limit: { rate: '5000/s' },
    fail: 'local',
  },
];
const emergencyTokens = 5;

async function instance(url: string, folder: string) {
  const link = await RedisLink.open({
    urls: [url],
    cluster: false,
    timers: systemTimers,
    timeoutMs: 200,
  });
  const store = new RedisBudgetStore({ link, keys: new Keys('outage') });
  const shared = new SharedBudgets({
    store,
    clock: systemClock,
    timers: systemTimers,
    random: systemRandom,
    ledger: new EmergencyFile(folder),
    emergencyTokens,
    onTrouble: () => undefined,
  });
  const engine = new RuleEngine({ hashSeed: [1, 2], shared }, systemClock.monoUs());
  const { set, problems } = readRules(rules);
  expect(problems).toEqual([]);
  engine.apply(set, systemClock.monoUs());
  const limits = new RuleLimits({ engine, clock: systemClock, random: systemRandom });
  const ask = async (route: RouteName): Promise<string> => {
    const request = new LimitedCall(
      {
        route,
        method: 'POST',
        arrivedUs: systemClock.monoUs(),
        nowMs: systemClock.wallMs(),
        address: '192.0.2.7',
        fromTrustedProxy: false,
        p0: false,
        header: () => undefined,
      },
      limits,
    );
    request.user = 'ann';
    request.activity = 'concert';
    const said = await limits.budget(request);
    return said === undefined ? 'admitted' : (said.reason ?? 'limit');
  };
  /** A new set each time, as a reload brings it. */
  const reload = (): void => {
    engine.apply(readRules(rules).set, systemClock.monoUs());
  };
  const close = async (): Promise<void> => {
    await shared.close();
    await store.close();
  };
  return { ask, reload, shared, close };
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
}

test('killed under load: closed refuses, instance and open go on, local spends once, whatever reloads', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-outage-'));
  const server = await startRedis();
  const one = await instance(server.url, folder);
  try {
    await until(async () => (await one.ask('submit')) === 'admitted');
    for (const route of ['join', 'pass', 'facts'] as const) {
      expect(await one.ask(route)).toBe('admitted');
    }
    // Armed on disk: so that finding it gone means something.
    const record = join(folder, 'emergency-budgets.json');
    await until(
      () => existsSync(record) && readFileSync(record, 'utf8').includes('"unspent":true'),
    );
    await server.kill();
    // What the lease still holds is spent first; then five tokens, and then nothing.
    await until(async () => {
      one.reload();
      const answers = new Set<string>();
      for (let n = 0; n < 50; n += 1) answers.add(await one.ask('submit'));
      return one.shared.emergencyTotalMilli > 0 && !answers.has('admitted');
    });
    expect(one.shared.emergencyTotalMilli).toBe(emergencyTokens * 1000);
    for (let n = 0; n < 3; n += 1) {
      one.reload();
      expect(await one.ask('submit')).toBe('store_away');
      expect(await one.ask('join')).toBe('store_away');
      expect(await one.ask('pass')).toBe('admitted');
      expect(await one.ask('facts')).toBe('admitted');
    }
    expect(one.shared.emergencyTotalMilli).toBe(emergencyTokens * 1000);
    // Who comes after a process that died finds the marker gone, which means spent.
    expect(await new EmergencyFile(folder).spend('5:local7:concert')).toBe(false);
  } finally {
    await one.close();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}, 60_000);
