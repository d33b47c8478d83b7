import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import type { LimitSpec } from './algorithm.ts';
import { createAlgorithm } from './algorithms/create.ts';
import { KeyedLimiter } from './keyed-limiter.ts';
import { parseRate } from './rate.ts';

const second = 1_000_000;
const overflow = { rate: parseRate('1/s'), burstMilli: 1_000 };

const tokens = (rate: string, burst: number): LimitSpec => ({
  algorithm: 'token_bucket',
  rate: parseRate(rate),
  burstMilli: burst * 1000,
});

const specs: readonly LimitSpec[] = [
  tokens('1/h', 4),
  tokens('2/h', 40),
  tokens('10/h', 7),
  { algorithm: 'fixed_window', limitMilli: 20_000, windowUs: 36_000 * second },
  { algorithm: 'sliding_window', limitMilli: 12_000, windowUs: 36_000 * second },
  { algorithm: 'sliding_window', limitMilli: 24_000, windowUs: 36_000 * second },
  { algorithm: 'sliding_log', limitMilli: 10_000, windowUs: 36_000 * second },
  { algorithm: 'sliding_log', limitMilli: 5_000, windowUs: 36_000 * second },
  { algorithm: 'warm_up', rate: parseRate('1/h'), burstMilli: 6_000, warmUpUs: second },
  { algorithm: 'leaky_bucket', rate: parseRate('1/h'), maxWaitUs: 36_000 * second },
];

const limiterFor = (limit: LimitSpec): KeyedLimiter =>
  new KeyedLimiter({ ruleId: 'r', limit, maxKeys: 1_000, overflow, hashSeed: [3, 4] });

test('a reload carries every share over: nobody is refilled, nobody is emptied', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...specs),
      fc.array(fc.constantFrom(...specs), { minLength: 1, maxLength: 7 }),
      fc.nat(8),
      fc.boolean(),
      (first, later, spent, bySweep) => {
        const limiter = limiterFor(first);
        for (let n = 0; n < spent; n += 1) limiter.takeParts(['k', 'x'], 1000, 10 * second);
        let before = limiter.peekParts(['k', 'x'], 10 * second);
        // A paced caller has a queue, which is no balance; its share is compared where there is one.
        let [now, capacity] = [10 * second, limiter.capacityMilli];
        let comparable = first.algorithm !== 'leaky_bucket';
        for (const limit of later) {
          now += 1;
          limiter.reconfigure({ limit, maxKeys: 1_000, overflow }, now);
          if (bySweep) limiter.sweep(now, 1_000_000);
          const after = limiter.peekParts(['k', 'x'], now);
          const next = limiter.capacityMilli;
          comparable &&= limit.algorithm !== 'leaky_bucket';
          if (comparable && spent > 0) {
            // What is seen is rounded down to a thousandth; the log rounds to whole calls, against the
            // caller.
            expect(after).toBeLessThanOrEqual(((before + 1) / capacity) * next + 1);
            expect(after).toBeGreaterThanOrEqual((before / capacity) * next - 1_001);
          }
          [before, capacity] = [after, next];
        }
      },
    ),
    { numRuns: 200 },
  );
});

test('negative control: a limiter made anew would refill everybody', () => {
  const old = limiterFor(tokens('1/h', 4));
  for (let n = 0; n < 4; n += 1) expect(old.take('k', '', 1000, 0)).toBe(0);
  const anew = limiterFor(tokens('1/h', 8));
  expect(anew.peek('k', '', 0)).toBe(8_000);
  old.reconfigure({ limit: tokens('1/h', 8), maxKeys: 1_000, overflow }, 0);
  expect(old.peek('k', '', 0)).toBe(0);
});

test('keys that a sweep moves over and keys that come by themselves decide alike', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...specs),
      fc.constantFrom(...specs),
      fc.array(fc.tuple(fc.nat(9), fc.nat(600 * second)), { maxLength: 60 }),
      (from, to, calls) => {
        const [lazy, swept] = [limiterFor(from), limiterFor(from)];
        let now = 0;
        let at = 0;
        for (const [key, by] of calls) {
          now += by;
          at += 1;
          if (at === 30) {
            for (const limiter of [lazy, swept]) {
              limiter.reconfigure({ limit: to, maxKeys: 1_000, overflow }, now);
            }
            swept.sweep(now, 1_000_000);
          }
          const parts = [`k${key}`, ''];
          expect(lazy.takeParts(parts, 1000, now)).toBe(swept.takeParts(parts, 1000, now));
        }
        expect(lazy.entries).toBe(swept.entries);
      },
    ),
    { numRuns: 300 },
  );
});

test('a limit that did not change keeps its very states, whatever else changed', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...specs),
      fc.array(fc.nat(5), { maxLength: 40 }),
      (spec, calls) => {
        const [reloaded, plain] = [limiterFor(spec), limiterFor(spec)];
        for (const key of calls) {
          reloaded.reconfigure(
            { limit: { ...spec }, maxKeys: 2_000, overflow: { ...overflow, burstMilli: 5_000 } },
            second,
          );
          const parts = [`k${key}`, ''];
          expect(reloaded.takeParts(parts, 1000, second)).toBe(
            plain.takeParts(parts, 1000, second),
          );
        }
      },
    ),
  );
});

test('holders of a concurrency limit stay when the limit is lowered, and the new one holds', () => {
  const limiter = limiterFor({ algorithm: 'concurrency', limitMilli: 3_000 });
  for (let n = 0; n < 3; n += 1) expect(limiter.takeParts(['k'], 1000, 0)).toBe(0);
  limiter.reconfigure(
    { limit: { algorithm: 'concurrency', limitMilli: 2_000 }, maxKeys: 10, overflow },
    0,
  );
  expect(limiter.takeParts(['k'], 1000, 0)).toBeGreaterThan(0);
  limiter.giveParts(['k'], 1000, 0);
  expect(limiter.takeParts(['k'], 1000, 0)).toBeGreaterThan(0);
  limiter.giveParts(['k'], 1000, 0);
  expect(limiter.takeParts(['k'], 1000, 0)).toBe(0);
});

test('a raised limit holds at once for a caller who was just refused', () => {
  const limiter = limiterFor(tokens('1/h', 2));
  for (let n = 0; n < 2; n += 1) limiter.take('k', '', 1000, 0);
  expect(limiter.take('k', '', 1000, 0)).toBe(3_600 * second);
  limiter.reconfigure({ limit: tokens('10/s', 20), maxKeys: 1_000, overflow }, 0);
  expect(limiter.take('k', '', 1000, 0)).toBe(100_000);
  expect(limiter.take('k', '', 1000, 100_000)).toBe(0);
});

test('many reloads in a row keep a bounded number of tables, and every balance', () => {
  const limiter = limiterFor(tokens('1/h', 10));
  for (let key = 0; key < 500; key += 1) limiter.take(`k${key}`, '', 5_000, 0);
  const one = limiter.bytes;
  for (let turn = 0; turn < 50; turn += 1) {
    limiter.reconfigure(
      { limit: tokens('1/h', turn % 2 === 0 ? 20 : 10), maxKeys: 1_000, overflow },
      0,
    );
    limiter.take(`k${turn}`, '', 1, 0);
    expect(limiter.bytes).toBeLessThan(8 * one);
  }
  expect(limiter.entries).toBe(500);
  expect(limiter.peek('k499', '', 0)).toBe(5_000);
});

test('a million distinct keys a minute for five minutes: memory flat, known keys unharmed, alarm', () => {
  const limiter = new KeyedLimiter({
    ruleId: 'r',
    rate: parseRate('1/m'),
    burstMilli: 3_000,
    maxKeys: 200_000,
    overflow: { rate: parseRate('100/s'), burstMilli: 200_000 },
    hashSeed: [5, 6],
  });
  for (let key = 0; key < 1_000; key += 1) limiter.take(`known-${key}`, '', 1_000, 0);
  let [admittedByOverflow, flat] = [0, 0];
  const stepUs = 60;
  for (let call = 0; call < 5_000_000; call += 1) {
    const now = call * stepUs;
    if (call % 1_000_000 === 0) limiter.sweep(now, 5_000);
    const wait = limiter.take('flood', String(call), 1_000, now);
    if (limiter.viaOverflow && wait === 0) admittedByOverflow += 1;
    // Known keys come back every minute: they are never strangers.
    if (call % 1_000 === 999) {
      const key = ((call / 1_000) % 1_000) | 0;
      expect(limiter.take(`known-${key}`, '', 1_000, now)).toBe(0);
      expect(limiter.viaOverflow).toBe(false);
    }
    if (call === 500_000) flat = limiter.bytes;
    if (call > 500_000 && call % 100_000 === 0)
      expect(limiter.bytes).toBeLessThanOrEqual(flat * 1.05);
  }
  expect(limiter.entries).toBeLessThanOrEqual(200_000);
  expect(limiter.overflowTotal).toBeGreaterThan(3_000_000);
  expect(admittedByOverflow).toBeLessThanOrEqual(200 + 100 * 300);
});

test('every algorithm forgets its keys: nothing is left when nobody comes back', () => {
  for (const spec of specs) {
    const limiter = limiterFor(spec);
    for (let key = 0; key < 300; key += 1) limiter.takeParts([`k${key}`], 1000, 0);
    expect(limiter.entries).toBe(300);
    limiter.sweep(0, 1_000_000);
    expect(limiter.entries, spec.algorithm).toBe(300);
    const idle = 3 * Math.max(createAlgorithm(spec).fillUs, second) + 20 * second;
    limiter.sweep(idle, 1_000_000);
    limiter.sweep(idle, 1_000_000);
    expect(limiter.entries, spec.algorithm).toBe(0);
    expect(limiter.bytes).toBe(0);
  }
});
