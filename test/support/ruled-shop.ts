import { expect } from 'vitest';
import { parseRate } from '../../src/core/limit/rate.ts';
import type { KeyRing } from '../../src/core/pass/key-ring.ts';
import { RuleEngine } from '../../src/core/rules/engine.ts';
import { judgeRules } from '../../src/core/rules/judge.ts';
import { routeAnswers, routeNames } from '../../src/core/rules/model.ts';
import { readRules } from '../../src/core/rules/read.ts';
import type { SharedLimits } from '../../src/core/rules/shared.ts';
import { LimitDesk } from '../../src/pipeline/limit-desk.ts';
import { RuleLimits } from '../../src/pipeline/rule-limits.ts';
import { UnavailableError } from '../../src/ports/errors.ts';
import { MemoryBudgetStore } from '../../src/stores/limits/memory-budget-store.ts';
import { newRing, openShop, type Shop, type ShopOptions, sku } from './shop.ts';
import { SeededRandom, World } from './world.ts';

/** A gateway on a real port under the rules of a test. */
export interface RuledShopOptions {
  /** The shared store does not answer. */
  readonly away?: boolean;
  readonly settings?: ShopOptions;
  /** Of tickets and challenges; several shops with one ring are instances of one deployment. */
  readonly ring?: KeyRing;
  readonly seed?: string;
}

export const ruledContext = {
  routes: routeNames,
  answers: routeAnswers,
  maxInstances: 1,
  ceiling: parseRate('1000/s'),
};

export async function openRuledShop(rules: object, options: RuledShopOptions = {}): Promise<Shop> {
  const { set, problems } = readRules(rules);
  expect([...problems, ...judgeRules(set, ruledContext).problems]).toEqual([]);
  // Rules count in the shop's own time, which exists once the shop does.
  let world = new World();
  const clock = { wallMs: () => world.wallMs(), monoUs: () => world.monoUs() };
  const store = new MemoryBudgetStore({ clock, timers: world, hashSeed: [1, 2] });
  const away = (): Promise<never> => Promise.reject(new UnavailableError('away'));
  const shared: SharedLimits = {
    lease: () => {
      throw new Error('no rule of these tests leases');
    },
    take: options.away === true ? away : (checks) => store.take(checks),
    giveBack: (checks) => store.giveBack(checks),
    isStoreFailure: (error) => error instanceof UnavailableError,
  };
  const engine = new RuleEngine({ hashSeed: [1, 2], shared }, clock.monoUs());
  engine.apply(set, clock.monoUs());
  const random = new SeededRandom(options.seed ?? 'rules');
  const desk = new LimitDesk({
    ring: options.ring ?? newRing('challenge'),
    issuer: 'shop',
    random,
  });
  const limits = new RuleLimits({ engine, clock, random, desk });
  const shop = await openShop({ ...options.settings, limits });
  world = shop.world;
  return shop;
}

export function submitTo(
  at: Shop,
  name: string,
  requestId = name,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  return fetch(`${at.url}/v1/seckill/${at.path}/submit`, {
    method: 'POST',
    headers: { ...at.buyer(name).headers, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({
      request_id: requestId,
      activity_id: sku.activityId,
      sku_id: sku.skuId,
      quantity: 1,
    }),
  });
}
