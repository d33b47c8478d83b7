import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import type { LimitSpec } from './algorithm.ts';
import type { KeyedLimiterOptions } from './keyed-limiter.ts';
import { KeyedLimiter } from './keyed-limiter.ts';
import { parseRate } from './rate.ts';
import { SingleBucket } from './single-bucket.ts';
import {
  CostNeverFitsError,
  freshBucket,
  neverUs,
  takeTokens,
  tokenBucket,
} from './token-bucket.ts';
import { Timeline } from './timeline.ts';

const seconds = 1_000_000;

const limiter = (over: Partial<KeyedLimiterOptions> = {}): KeyedLimiter =>
  new KeyedLimiter({
    ruleId: 'submit-per-user',
    rate: parseRate('5/s'),
    burstMilli: 5_000,
    maxKeys: 1_000,
    overflow: { rate: parseRate('10/s'), burstMilli: 20_000 },
    hashSeed: [0x1234, 0x5678],
    ...over,
  });

test('the limit lifts in 0.3 s: refused at 299 ms, admitted at 300 ms', () => {
  const limit = limiter({ rate: parseRate('1/0.3s'), burstMilli: 1_000 });
  expect(limit.take('u', '', 1000, 0)).toBe(0);
  expect(limit.take('u', '', 1000, 0)).toBe(300_000);
  expect(limit.take('u', '', 1000, 299_000)).toBe(1_000);
  expect(limit.take('u', '', 1000, 300_000)).toBe(0);
});

const call = fc.record({
  key: fc.nat(12),
  byUs: fc.integer({ min: -500_000, max: 600_000 }),
  costMilli: fc.integer({ min: 1, max: 5_000 }),
});

test('decides for every key as the pure function does for that key alone, clock steps included', () => {
  fc.assert(
    fc.property(fc.array(call, { maxLength: 300 }), (calls) => {
      const limit = limiter();
      const bucket = tokenBucket(parseRate('5/s'), 5_000);
      const timeline = new Timeline();
      const model = new Map<number, ReturnType<typeof freshBucket>>();
      let now = 10 * seconds;
      for (const { key, byUs, costMilli } of calls) {
        now = Math.max(0, now + byUs);
        const steady = timeline.read(now);
        const { state, waitUs } = takeTokens(
          bucket,
          model.get(key) ?? freshBucket(bucket, steady),
          steady,
          costMilli,
        );
        if (waitUs === 0) model.set(key, state);
        const before = limit.peek(`k${key}`, 'part', now);
        const said = limit.probe(`k${key}`, 'part', costMilli, now);
        expect(limit.peek(`k${key}`, 'part', now)).toBe(before);
        expect(limit.take(`k${key}`, 'part', costMilli, now)).toBe(said);
        expect(said).toBe(waitUs === 0 ? 0 : waitUs + timeline.debtUs);
      }
    }),
  );
});

test('the list form charges the counter of the pair form', () => {
  const limit = limiter({ burstMilli: 2_000 });
  expect(limit.takeParts(['aa', 'b'], 1000, 0)).toBe(0);
  expect(limit.take('aa', 'b', 1000, 0)).toBe(0);
  expect(limit.take('aa', 'b', 1000, 0)).toBeGreaterThan(0);
  expect(limit.take('a', 'ab', 1000, 0)).toBe(0);
});

test('a new random key on every request: memory bounded, known keys unharmed, overflow counted', () => {
  const limit = limiter({ rate: parseRate('1/m'), burstMilli: 2_000 });
  for (let key = 0; key < 500; key += 1) limit.take(`known-${key}`, '', 1000, 0);
  let admitted = 0;
  let bytesAtBound = 0;
  for (let call = 0; call < 200_000; call += 1) {
    // Ten seconds in all: no known key has been idle for long enough to be forgotten.
    if (limit.take(`random-${call}`, '', 1000, call * 50) === 0) admitted += 1;
    if (call === 2_000) bytesAtBound = limit.bytes;
  }
  expect(limit.entries).toBe(1_000);
  expect(limit.bytes).toBe(bytesAtBound);
  expect(limit.overflowTotal).toBe(200_000 - 500);
  // 500 found a place of their own; the others share burst 20 and 10/s for ten seconds.
  expect(admitted).toBeLessThanOrEqual(500 + 20 + 100);
  for (let key = 0; key < 500; key += 1) {
    expect(limit.take(`known-${key}`, '', 1000, 10 * seconds)).toBe(0);
    expect(limit.viaOverflow).toBe(false);
  }
});

test('negative control: a limiter that gave each unknown key its own bucket would admit the flood', () => {
  const limit = limiter({ maxKeys: 1_000_000, rate: parseRate('1/m'), burstMilli: 2_000 });
  let admitted = 0;
  for (let call = 0; call < 20_000; call += 1) {
    if (limit.take(`random-${call}`, '', 1000, call) === 0) admitted += 1;
  }
  expect(admitted).toBe(20_000);
});

test('forgetting never gives a burst back early', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 0, max: 3 * seconds }), { minLength: 1, maxLength: 80 }),
      (gaps) => {
        const [swept, kept] = [limiter(), limiter()];
        let now = 0;
        for (const gap of gaps) {
          now += gap;
          swept.sweep(now, 1_000_000);
          for (let n = 0; n < 4; n += 1) {
            expect(swept.take('k', '', 2_000, now)).toBe(kept.take('k', '', 2_000, now));
          }
        }
      },
    ),
  );
});

test('idle keys go, in slices, and the memory with them', () => {
  const limit = limiter({ maxKeys: 100_000 });
  for (let key = 0; key < 50_000; key += 1) limit.take(`k${key}`, '', 1000, 0);
  expect(limit.sweep(1_999_999, 1_000_000)).toBe(0);
  let removed = 0;
  let slices = 0;
  while (limit.entries > 0) {
    removed += limit.sweep(2 * seconds, 2_000);
    slices += 1;
  }
  expect(removed).toBe(50_000);
  expect(slices).toBeGreaterThan(50);
});

test('rate 0: the burst once, then never; its keys are not forgotten', () => {
  const limit = limiter({ rate: parseRate('0/s'), burstMilli: 1_000 });
  expect(limit.take('u', '', 1000, 0)).toBe(0);
  expect(limit.take('u', '', 1000, 10 ** 14)).toBe(neverUs);
  expect(limit.sweep(10 ** 14, 1_000_000)).toBe(0);
  expect(limit.take('u', '', 1000, 10 ** 14)).toBe(neverUs);
});

test('a cost above the burst throws, and charges nothing', () => {
  const limit = limiter();
  expect(() => limit.take('u', '', 5_001, 0)).toThrow(CostNeverFitsError);
  expect(limit.entries).toBe(0);
  expect(limit.peek('u', '', 0)).toBe(5_000);
});

test('two rules never share a counter', () => {
  const [a, b] = [
    limiter({ ruleId: 'a', burstMilli: 1_000 }),
    limiter({ ruleId: 'b', burstMilli: 1_000 }),
  ];
  expect(a.take('u', '', 1000, 0)).toBe(0);
  expect(b.take('u', '', 1000, 0)).toBe(0);
  expect(a.take('u', '', 1000, 0)).toBeGreaterThan(0);
});

test('an initial share below one makes a new key start with less', () => {
  const limit = limiter({ initialShareMilli: 200 });
  expect(limit.take('u', '', 1000, 0)).toBe(0);
  expect(limit.take('u', '', 1000, 0)).toBe(200_000);
});

test('max keys below 1 is refused', () => {
  expect(() => limiter({ maxKeys: 0 })).toThrow('max keys: found 0; allowed is');
});

test('a single bucket decides as the pure function does', () => {
  fc.assert(
    fc.property(fc.array(call, { maxLength: 200 }), (calls) => {
      const bucket = tokenBucket(parseRate('5/s'), 5_000);
      const single = new SingleBucket(bucket, 10 * seconds);
      const timeline = new Timeline();
      let state = freshBucket(bucket, timeline.read(10 * seconds));
      let now = 10 * seconds;
      for (const { byUs, costMilli } of calls) {
        now = Math.max(0, now + byUs);
        const next = takeTokens(bucket, state, timeline.read(now), costMilli);
        state = next.state;
        const wait = single.take(costMilli, now);
        expect(wait).toBe(next.waitUs === 0 ? 0 : next.waitUs + timeline.debtUs);
      }
    }),
  );
});

test('a reconfigured bucket goes on with the same share', () => {
  const single = new SingleBucket(tokenBucket(parseRate('1/s'), 10_000), 0);
  expect(single.take(5_000, 0)).toBe(0);
  single.reconfigure(tokenBucket(parseRate('1/s'), 20_000), 0);
  expect(single.peek(0)).toBe(10_000);
});

test('a charge that is taken back leaves the counter as if it had not been made, and never better', () => {
  const specs: readonly LimitSpec[] = [
    { algorithm: 'token_bucket', rate: parseRate('5/s'), burstMilli: 5_000 },
    { algorithm: 'fixed_window', limitMilli: 5_000, windowUs: seconds },
    { algorithm: 'sliding_window', limitMilli: 5_000, windowUs: seconds },
    { algorithm: 'sliding_log', limitMilli: 5_000, windowUs: seconds },
    { algorithm: 'leaky_bucket', rate: parseRate('5/s'), maxWaitUs: seconds },
    { algorithm: 'warm_up', rate: parseRate('5/s'), burstMilli: 9_000, warmUpUs: seconds },
    { algorithm: 'concurrency', limitMilli: 5_000 },
  ];
  const size = {
    ruleId: 'r',
    maxKeys: 10,
    hashSeed: [1, 2],
    overflow: { rate: parseRate('1/s'), burstMilli: 1_000 },
  };
  fc.assert(
    fc.property(
      fc.constantFrom(...specs),
      fc.array(fc.nat(400_000), { minLength: 1, maxLength: 12 }),
      fc.nat(2 * seconds),
      (limit, gaps, laterUs) => {
        const [given, never] = [
          new KeyedLimiter({ ...size, limit }),
          new KeyedLimiter({ ...size, limit }),
        ];
        let now = 10 * seconds;
        for (const gap of gaps) {
          now += gap;
          expect(given.takeParts(['k'], 1_000, now)).toBe(never.takeParts(['k'], 1_000, now));
        }
        if (given.takeParts(['k'], 1_000, now) !== 0) return;
        const chargedUs = given.decidedUs;
        given.giveParts(['k'], 1_000, chargedUs);
        // At once: the same. (Warmth goes by the last charge, so that one may differ later.)
        expect(given.peekParts(['k'], now)).toBe(never.peekParts(['k'], now));
        if (given.takeParts(['k'], 1_000, now) !== 0) return;
        given.giveParts(['k'], 1_000, given.decidedUs);
        const late = now + laterUs;
        if (limit.algorithm !== 'warm_up') {
          expect(given.peekParts(['k'], late)).toBe(never.peekParts(['k'], late));
        }
        // Given back once more after its time: nothing is made up out of thin air.
        given.giveParts(['k'], 1_000, chargedUs - 10 * seconds);
        if ('windowUs' in limit) {
          expect(given.peekParts(['k'], late)).toBe(never.peekParts(['k'], late));
        }
      },
    ),
    { numRuns: 300 },
  );
});
