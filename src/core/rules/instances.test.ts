import { describe, expect, test } from 'vitest';
import { parseRate } from '../limit/rate.ts';
import { RuleEngine } from './engine.ts';
import type { RequestFacts } from './facts.ts';
import { evenQuarters, quartersFor, quotaMisfits, scaledSet, TrafficShares } from './instances.ts';
import type { RuleSet } from './model.ts';
import { readRules } from './read.ts';

const second = 1_000_000;

function setOf(...rules: object[]): RuleSet {
  const { set, problems } = readRules(rules);
  expect(problems).toEqual([]);
  return set;
}

/** Feeds so many seconds of traffic, and says what share each has then. */
function sharesAfter(shares: TrafficShares, perSecond: Record<string, number>, seconds: number) {
  for (let n = 0; n < seconds; n += 1) {
    time += second;
    for (const [name, rate] of Object.entries(perSecond)) {
      counts.set(name, (counts.get(name) ?? 0) + rate);
    }
    const all = Object.keys(perSecond).map((instance) => ({
      instance,
      arrivals: counts.get(instance) ?? 0,
    }));
    shares.feed(all, time);
  }
  return Object.fromEntries(Object.keys(perSecond).map((name) => [name, shares.shareOf(name)]));
}
let time = 0;
const counts = new Map<string, number>();

describe('shares of the traffic', () => {
  test('follow what each has to do, and forget who is gone', () => {
    const shares = new TrafficShares();
    expect(sharesAfter(shares, { a: 100, b: 100 }, 20)).toEqual({ a: 0.5, b: 0.5 });
    const uneven = sharesAfter(shares, { a: 900, b: 100 }, 20);
    expect(uneven['a']).toBeCloseTo(0.9, 2);
    expect(sharesAfter(shares, { a: 10 }, 1)).toEqual({ a: 1 });
    expect(shares.count).toBe(1);
  });

  test('are even where nothing is known, and a count that begins anew is no negative traffic', () => {
    const shares = new TrafficShares();
    shares.feed(
      [
        { instance: 'a', arrivals: 5 },
        { instance: 'b', arrivals: 900 },
      ],
      second,
    );
    expect(shares.shareOf('a')).toBe(0.5);
    shares.feed([{ instance: 'b', arrivals: 3 }], 2 * second);
    expect(shares.shareOf('b')).toBe(1);
  });
});

test('the step follows the share and does not flutter, and even traffic is one', () => {
  expect(quartersFor(1 / 20, 20, evenQuarters)).toBe(4);
  // One of twenty with a fifth of all traffic: four times as much as its due.
  expect(quartersFor(0.2, 20, evenQuarters)).toBe(16);
  expect(quartersFor(0.21, 20, 16)).toBe(17);
  expect(quartersFor(0.205, 20, 16)).toBe(16);
  // With next to nothing its limits still let somebody in.
  expect(quartersFor(0.0001, 20, evenQuarters)).toBe(1);
  // All of it is at most as much as all of them were to have.
  expect(quartersFor(1, 20, evenQuarters)).toBe(80);
});

describe('a canary', () => {
  const facts: RequestFacts = {
    route: 'join',
    method: 'POST',
    address: '192.0.2.7',
    user: 'ann',
    risk: 'low',
    fromTrustedProxy: false,
    header: () => undefined,
    claim: () => undefined,
  };
  const set = setOf(
    { id: 'instance', limit: { rate: '100/s', burst: 100 } },
    { id: 'caller', key: ['user'], limit: { rate: '1000/s', burst: 1000 } },
  );
  const admittedIn = (engine: RuleEngine, from: number, seconds: number): number => {
    let admitted = 0;
    for (let at = 0; at < seconds * 1000; at += 1) {
      if (engine.decide('instance', facts, from + at * 1000, 0) === undefined) admitted += 1;
    }
    return admitted;
  };

  test('lets through its share of what all were to let through, and returns by itself', () => {
    const engine = new RuleEngine({ hashSeed: [1, 2] }, 0);
    engine.apply(set, 0);
    admittedIn(engine, 0, 1);
    expect(admittedIn(engine, second, 5)).toBe(500);
    // It now has twice as much to do as an equal.
    engine.apply(scaledSet(set, 8), 6 * second);
    admittedIn(engine, 6 * second, 2);
    expect(admittedIn(engine, 8 * second, 5)).toBe(1_000);
    engine.apply(scaledSet(set, evenQuarters), 13 * second);
    admittedIn(engine, 13 * second, 2);
    expect(admittedIn(engine, 15 * second, 5)).toBe(500);
  });

  test('keeps the ceiling, and what is each caller’s own', () => {
    const ceiling = { rate: parseRate('50/s'), burstMilli: 50_000 };
    const engine = new RuleEngine({ hashSeed: [1, 2], ceiling }, 0);
    engine.apply(scaledSet(set, 40), 0);
    admittedIn(engine, 0, 1);
    expect(admittedIn(engine, second, 4)).toBe(200);
    expect(scaledSet(set, 40).rules[1]?.limit).toEqual(set.rules[1]?.limit);
    expect(scaledSet(set, evenQuarters)).toBe(set);
  });

  test('every algorithm can be scaled, to at least one of whatever it counts', () => {
    const all = setOf(
      { id: 'a', limit: { algorithm: 'fixed_window', limit: 8, window: '1s' } },
      { id: 'b', limit: { algorithm: 'sliding_window', limit: 2, window: '1s' } },
      { id: 'c', limit: { algorithm: 'sliding_log', limit: 900, window: '1s' } },
      { id: 'd', limit: { algorithm: 'leaky_bucket', rate: '8/s' } },
      { id: 'e', limit: { algorithm: 'warm_up', rate: '8/s', burst: 4, warm_up: '10s' } },
      { id: 'f', limit: { algorithm: 'concurrency', limit: 1 } },
      { id: 'g', limit: { rate: '0/s', burst: 0 } },
    );
    const engine = new RuleEngine({ hashSeed: [1, 2] }, 0);
    for (const quarters of [1, 3, 8, 80]) {
      const scaled = scaledSet(all, quarters);
      engine.apply(scaled, 0);
      for (const { limit } of scaled.rules) {
        if ('limitMilli' in limit) expect(limit.limitMilli).toBeGreaterThanOrEqual(1_000);
      }
      expect(scaled.rules.at(-1)?.limit).toMatchObject({ rate: { tokensMilli: 0 } });
    }
  });
});

test('a quota that no longer fits the instances is told, with the number that would', () => {
  const ceiling = parseRate('1000/s');
  const set = setOf(
    {
      id: 'shared',
      scope: 'exact',
      key: ['activity'],
      limit: { rate: '4000/s' },
      fail: 'instance',
    },
    { id: 'closed', scope: 'exact', key: ['activity'], limit: { rate: '10/s' } },
  );
  expect(quotaMisfits(set, 4, ceiling)).toEqual([]);
  expect(quotaMisfits(set, 5, ceiling)).toEqual([
    {
      ruleId: 'shared',
      instances: 5,
      eachPerSecond: 1_000,
      budgetPerSecond: 4_000,
      fitsPerSecond: 800,
    },
  ]);
  // As it says, it fits.
  const told = setOf(
    { id: 'instance', limit: { rate: '800/s' } },
    {
      id: 'shared',
      scope: 'exact',
      key: ['activity'],
      limit: { rate: '4000/s' },
      fail: 'instance',
    },
  );
  expect(quotaMisfits(told, 5, ceiling)).toEqual([]);
});
