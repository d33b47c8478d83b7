import { expect, test } from 'vitest';
import { parseRate } from '../core/limit/rate.ts';
import { DefaultPathLimits } from './path-limits.ts';

const make = (): DefaultPathLimits =>
  new DefaultPathLimits(
    {
      instance: parseRate('1000/s'),
      budget: parseRate('100/s'),
      hashSeed: new Uint32Array([1, 2, 3, 4]),
    },
    0,
    () => 0.5,
  );

/** Asks until refused; how many got through. */
function through(ask: () => unknown, most = 10_000): number {
  for (let count = 0; count < most; count += 1) if (ask() !== undefined) return count;
  return most;
}

test('each stage has its own bucket, and its refusal names scope and rule', () => {
  const limits = make();
  expect(through(() => limits.instance('submit', 0))).toBe(500);
  expect(limits.instance('submit', 0)).toEqual({
    scope: 'instance',
    ruleId: 'default-instance',
    retryAfterMs: 200,
    headers: [
      ['RateLimit-Policy', '"default-instance";q=500;w=1'],
      ['RateLimit', '"default-instance";r=0;t=1'],
    ],
  });
  expect(through(() => limits.source('submit', '192.0.2.7', 0))).toBe(400);
  expect(limits.source('submit', '192.0.2.7', 0)?.ruleId).toBe('default-address');
  expect(through(() => limits.person('submit', 'alice', undefined, 0))).toBe(10);
  expect(limits.person('submit', 'bob', undefined, 0)).toBeUndefined();
  expect(through(() => limits.budget('concert', 'a', 1, 0))).toBe(100);
  expect(limits.budget('concert', 'a', 1, 0)).toMatchObject({ scope: 'activity' });
  expect(limits.budget('other', 'a', 1, 0)).toBeUndefined();
});

test('a source refused by its prefix is not charged at its address', () => {
  const limits = make();
  let sent = 0;
  for (let host = 1; host <= 200; host += 1) {
    for (let i = 0; i < 20; i += 1) {
      if (limits.source('submit', `198.51.100.${host}`, 0) === undefined) sent += 1;
    }
  }
  expect(sent).toBe(4000);
  expect(limits.source('submit', '198.51.100.250', 0)?.ruleId).toBe('default-prefix');
  // A second later the prefix has refilled by 1,000, and this address still has its whole burst.
  expect(through(() => limits.source('submit', '198.51.100.250', 1_000_000))).toBe(400);
});

test('a person refused by the device is not charged as a user', () => {
  const limits = make();
  let users = 0;
  while (limits.person('status', `u${users}`, 'device', 0) === undefined) users += 1;
  expect(users).toBe(40);
  expect(through(() => limits.person('status', 'u40', undefined, 0))).toBe(20);
});

test('a new key on every request ends in the overflow, and the count shows it', () => {
  const limits = new DefaultPathLimits(
    {
      instance: parseRate('1000/s'),
      budget: parseRate('100/s'),
      hashSeed: new Uint32Array([1, 2]),
      maxKeys: 100,
    },
    0,
    () => 0,
  );
  for (let i = 0; i < 1000; i += 1) limits.person('submit', `new-${i}`, undefined, 0);
  const users = [...limits.dimensions()].find(({ dimension }) => dimension === 'user');
  expect(users?.entries).toBe(100);
  expect(users?.overflow).toBeGreaterThan(0);
  expect(limits.person('submit', 'new-1', undefined, 0)).toBeUndefined();
});
