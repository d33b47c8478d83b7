import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import type { LimitSpec } from './algorithm.ts';
import { createAlgorithm } from './algorithms/create.ts';
import { type LimitStanding, rateLimitHeaders, retryAfterHeader } from './headers.ts';
import { exactWaitMs, retryAfterSeconds, spreadWaitMs, waitMaxMs } from './hint.ts';
import { KeyedLimiter } from './keyed-limiter.ts';
import { parseRate } from './rate.ts';
import { neverUs } from './token-bucket.ts';

const bucket: LimitSpec = {
  algorithm: 'token_bucket',
  rate: parseRate('0.5/s'),
  burstMilli: 3_000,
};
const windowed: LimitSpec = { algorithm: 'fixed_window', limitMilli: 100_000, windowUs: 1_900_000 };
const standing = (over: Partial<LimitStanding> = {}): LimitStanding => ({
  name: 'submit',
  limit: bucket,
  leftMilli: 2_000,
  fullUs: 2_000_000,
  ...over,
});

test('each revision is written in its own shape', () => {
  const list = [standing(), standing({ name: 'w', limit: windowed, leftMilli: 99_000, fullUs: 1 })];
  expect(rateLimitHeaders('draft-10', list)).toEqual([
    ['RateLimit-Policy', '"submit";q=3;w=6, "w";q=100;w=2'],
    ['RateLimit', '"submit";r=2;t=2, "w";r=99;t=1'],
  ]);
  expect(rateLimitHeaders('draft-7', list)).toEqual([
    ['RateLimit-Policy', '3;w=6'],
    ['RateLimit', 'limit=3, remaining=2, reset=2'],
  ]);
  expect(rateLimitHeaders('draft-6', list).map(([name]) => name)).toEqual([
    'RateLimit-Policy',
    'RateLimit-Limit',
    'RateLimit-Remaining',
    'RateLimit-Reset',
  ]);
  expect(rateLimitHeaders('legacy', list)).toEqual([
    ['X-RateLimit-Limit', '3'],
    ['X-RateLimit-Remaining', '2'],
    ['X-RateLimit-Reset', '2'],
  ]);
  for (const version of ['draft-10', 'legacy'] as const) {
    expect(rateLimitHeaders(version, [])).toEqual([]);
  }
});

test('the limit that refuses is the one that an old client hears of', () => {
  const list = [standing({ leftMilli: 0 }), standing({ limit: windowed, retryAfterMs: 1_500 })];
  expect(rateLimitHeaders('draft-7', list)[1]?.[1]).toContain('limit=100');
});

test('a hint of 300 ms is Retry-After: 1, and the reset is never before it', () => {
  expect(retryAfterHeader(300)).toEqual([['Retry-After', '1']]);
  expect(retryAfterHeader(1)).toEqual([['Retry-After', '1']]);
  expect(retryAfterHeader(1_001)).toEqual([['Retry-After', '2']]);
  const [, state] = rateLimitHeaders('draft-10', [standing({ fullUs: 10, retryAfterMs: 4_001 })]);
  expect(state).toEqual(['RateLimit', '"submit";r=2;t=5']);
});

const algorithms: readonly LimitSpec[] = [
  bucket,
  windowed,
  { algorithm: 'sliding_window', limitMilli: 10_000, windowUs: 500_000 },
  { algorithm: 'sliding_log', limitMilli: 10_000, windowUs: 60_000_000 },
  { algorithm: 'leaky_bucket', rate: parseRate('5/s'), maxWaitUs: 2_000_000 },
  { algorithm: 'warm_up', rate: parseRate('5/s'), burstMilli: 9_000, warmUpUs: 1_000_000 },
  { algorithm: 'concurrency', limitMilli: 5_000 },
  { algorithm: 'token_bucket', rate: parseRate('0/s'), burstMilli: 0 },
];

test('whatever limit stands however, the fields are well-formed structured fields', () => {
  const item = '"(?:[ !#-\\[\\]-~]|\\\\["\\\\])*"(?:;[a-z]+=(?:\\d{1,15}|"[a-z-]+"))+';
  const shape = new RegExp(`^${item}(?:, ${item})*$`);
  const one = fc.record({
    name: fc.string({ unit: 'binary' }),
    limit: fc.constantFrom(...algorithms),
    leftMilli: fc.integer({ min: -1_000, max: 10 ** 12 }),
    fullUs: fc.oneof(fc.nat(10 ** 12), fc.constant(neverUs)),
  });
  fc.assert(
    fc.property(fc.array(one, { minLength: 1, maxLength: 4 }), (list) => {
      for (const [, value] of rateLimitHeaders('draft-10', list)) expect(value).toMatch(shape);
      for (const version of ['draft-7', 'draft-6', 'legacy'] as const) {
        for (const [, value] of rateLimitHeaders(version, list))
          expect(value).not.toMatch(/NaN|-\d|undefined/);
      }
    }),
  );
});

test('the reset is when the counter is full: not one microsecond before', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...algorithms.filter(({ algorithm }) => algorithm !== 'concurrency')),
      fc.array(fc.nat(700_000), { minLength: 1, maxLength: 15 }),
      (limit, gaps) => {
        const { capacityMilli } = createAlgorithm(limit);
        fc.pre(capacityMilli > 0);
        const make = (): KeyedLimiter =>
          new KeyedLimiter({
            ruleId: 'r',
            limit,
            maxKeys: 10,
            overflow: { rate: parseRate('1/s'), burstMilli: 1_000 },
            hashSeed: [1, 2],
          });
        const limiter = make();
        let now = 10_000_000;
        for (const gap of gaps) limiter.takeParts(['k'], 1_000, (now += gap));
        const fullUs = limiter.fullUs();
        const most = limit.algorithm === 'leaky_bucket' ? 11_000 : capacityMilli;
        expect(limiter.peekParts(['k'], now + fullUs)).toBe(most);
        if (fullUs > 0)
          expect(limiter.peekParts(['k'], now + fullUs - 1)).toBeLessThanOrEqual(most);
      },
    ),
  );
});

test('ten thousand callers refused by a shared budget do not come back together', () => {
  for (const waitUs of [1, 300, 50_000, 1_000_000, 20_000_000]) {
    for (const leastSpread of [200, 1_000]) {
      const hints = Array.from({ length: 10_000 }, (_, at) =>
        spreadWaitMs(waitUs, leastSpread, at / 10_000),
      );
      const earliest = exactWaitMs(waitUs);
      expect(Math.min(...hints)).toBeGreaterThanOrEqual(earliest);
      // In no tenth of the mean hint do more than a quarter of them return.
      const mean = hints.reduce((sum, hint) => sum + hint, 0) / hints.length;
      const width = mean / 10;
      for (let from = earliest; from < 2 * mean; from += width / 2) {
        const within = hints.filter((hint) => hint >= from && hint < from + width).length;
        expect(within).toBeLessThan(2_500);
      }
    }
  }
});

test('waits are told as finite whole numbers, whatever they are', () => {
  expect(exactWaitMs(neverUs)).toBe(waitMaxMs);
  expect(exactWaitMs(1)).toBe(1);
  expect(exactWaitMs(300_000)).toBe(300);
  expect(exactWaitMs(300_001)).toBe(301);
  expect(spreadWaitMs(neverUs, 200, 0.99)).toBeLessThanOrEqual(2 * waitMaxMs);
  expect(retryAfterSeconds(0)).toBe(1);
});
