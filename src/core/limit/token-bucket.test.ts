import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { parseRate } from './rate.ts';
import type { TokenBucket, TokenBucketState } from './token-bucket.ts';
import {
  carryOver,
  CostNeverFitsError,
  freshBucket,
  levelAt,
  LimitParameterError,
  neverUs,
  takeTokens,
  tokenBucket,
} from './token-bucket.ts';

const bucketOf = (rate: string, burst: number): TokenBucket =>
  tokenBucket(parseRate(rate), Math.round(burst * 1000));

/** Counts what is admitted of `calls` (times in µs, each of cost 1). */
function admit(bucket: TokenBucket, times: readonly number[], start = 0): number {
  let state = freshBucket(bucket, start);
  let admitted = 0;
  for (const now of times) {
    const next = takeTokens(bucket, state, now, 1000);
    state = next.state;
    if (next.waitUs === 0) admitted += 1;
  }
  return admitted;
}

test('burst 1 at 1 per 60 s admits exactly 1 of 100 calls at once', () => {
  expect(
    admit(
      bucketOf('1/60s', 1),
      Array.from({ length: 100 }, () => 0),
    ),
  ).toBe(1);
});

test('10/s offered against 5/s for a minute: 5/s admitted throughout, refusals push nothing away', () => {
  const bucket = bucketOf('5/s', 5);
  let state = freshBucket(bucket, 0);
  const perSecond = Array.from({ length: 60 }, () => 0);
  for (let now = 0; now < 60_000_000; now += 100_000) {
    const next = takeTokens(bucket, state, now, 1000);
    state = next.state;
    const second = Math.floor(now / 1_000_000);
    if (next.waitUs === 0) perSecond[second] = (perSecond[second] ?? 0) + 1;
  }
  expect(perSecond[0]).toBeLessThanOrEqual(10);
  for (const count of perSecond.slice(2)) expect(count).toBe(5);
});

test('rate 0 refuses after the burst, for ever, with a finite wait that is no time', () => {
  const bucket = bucketOf('0/s', 3);
  expect(admit(bucket, [0, 1, 2, 3, 10 ** 15])).toBe(3);
  const empty = takeTokens(bucket, { levelUnits: 0, lastUs: 0 }, 10 ** 15, 1000);
  expect(empty.waitUs).toBe(neverUs);
});

test('burst 0 refuses at once', () => {
  expect(admit(bucketOf('5/s', 0), [0, 10_000_000])).toBe(0);
  expect(admit(bucketOf('0/s', 0), [0, 10_000_000])).toBe(0);
});

test('a key idle for 12 hours at a high rate has a full bucket, and no more', () => {
  const bucket = bucketOf('2000000/s', 2_000_000);
  const later = 12 * 3_600 * 1_000_000;
  expect(levelAt(bucket, 0, 0, later)).toBe(bucket.capacityUnits);
  expect(levelAt(bucket, 0, 0, Number.MAX_SAFE_INTEGER)).toBe(bucket.capacityUnits);
});

test('2 left, cost 5 is refused and takes nothing; then cost 1 is admitted', () => {
  const bucket = bucketOf('1/60s', 5);
  let state: TokenBucketState = takeTokens(bucket, freshBucket(bucket, 0), 0, 3000).state;
  const refused = takeTokens(bucket, state, 0, 5000);
  expect(refused.waitUs).toBe(3 * 60_000_000);
  expect(refused.state).toEqual(state);
  state = takeTokens(bucket, refused.state, 0, 1000).state;
  expect(levelAt(bucket, state.levelUnits, state.lastUs, 0)).toBe(1000 * bucket.unitsPerMilli);
});

test('a cost above the capacity says that it can never fit', () => {
  const bucket = bucketOf('5/s', 3);
  const over = (): unknown => takeTokens(bucket, freshBucket(bucket, 0), 0, 3001);
  expect(over).toThrow(CostNeverFitsError);
  expect(over).toThrow('cost 3.001 can never fit: the limit holds at most 3');
});

test.each([0, -1, 0.5, Number.NaN, Infinity])('a cost of %d is an argument error', (cost) => {
  const bucket = bucketOf('5/s', 3);
  expect(() => takeTokens(bucket, freshBucket(bucket, 0), 0, cost)).toThrow(RangeError);
});

test('window edge: 100 just before and 100 just after admit about 100, not 200', () => {
  const times = [
    ...Array.from({ length: 100 }, () => 990_000),
    ...Array.from({ length: 100 }, () => 1_010_000),
  ];
  expect(admit(bucketOf('100/s', 100), times, 990_000)).toBe(102);
});

test.each([
  ['burst', () => tokenBucket(parseRate('5/s'), -1), 'burst: found -0.001; allowed is 0 or more'],
  [
    'share',
    () => tokenBucket(parseRate('5/s'), 1, 1001),
    'initial share: found 1.001; allowed is 0 to 1',
  ],
  [
    'units',
    () => tokenBucket({ tokensMilli: 999_999_999_989, periodUs: 31_622_399_999_999 }, 10 ** 12),
    'cannot be counted exactly',
  ],
])('parameters that cannot work are refused with what is allowed: %s', (_name, make, message) => {
  expect(make).toThrow(LimitParameterError);
  expect(make).toThrow(message);
});

const rates = fc.oneof(
  fc.constantFrom('5/s', '0.5/s', '100/10s', '1/30d', '2000000/s', '7/s', '10007/30d', '999983/h'),
  fc
    .tuple(fc.integer({ min: 1, max: 2_000_000 }), fc.constantFrom('s', '7s', 'm', 'h', 'd', '30d'))
    .map(([tokens, period]) => `${tokens}/${period}`),
);
const bursts = fc.oneof(
  fc.constantFrom(1, 3, 1000),
  fc.integer({ min: 1, max: 2_000_000 }).map((milli) => Math.max(1, milli / 1000)),
);
const calls = fc.array(
  fc.record({
    byUs: fc.oneof(
      fc.integer({ min: -5_000_000, max: 10_000_000 }),
      fc.constantFrom(0, 1, 999, 86_400_000_000, 43_200_000_000),
    ),
    costShare: fc.double({ min: 0.001, max: 1, noNaN: true }),
  }),
  { minLength: 1, maxLength: 60 },
);

/** The plainest possible bucket: level and time as exact rationals over one denominator. */
class Oracle {
  #level: bigint;
  #last: bigint;
  readonly #denominator: bigint;
  readonly #rate: bigint;
  readonly #capacity: bigint;

  constructor(rate: { tokensMilli: number; periodUs: number }, burstMilli: number) {
    this.#denominator = BigInt(rate.periodUs);
    this.#rate = BigInt(rate.tokensMilli);
    this.#capacity = BigInt(burstMilli) * this.#denominator;
    this.#level = this.#capacity;
    this.#last = 0n;
  }

  #levelAt(now: bigint): bigint {
    const elapsed = now > this.#last ? now - this.#last : 0n;
    const level = this.#level + elapsed * this.#rate;
    return level < this.#capacity ? level : this.#capacity;
  }

  take(now: number, costMilli: number): boolean {
    const at = BigInt(now);
    const level = this.#levelAt(at);
    const cost = BigInt(costMilli) * this.#denominator;
    if (level < cost) return false;
    this.#level = level - cost;
    if (at > this.#last) this.#last = at;
    return true;
  }
}

test('decides as a big-integer bucket does, whatever the rate, the costs and the steps of the clock', () => {
  fc.assert(
    fc.property(rates, bursts, calls, (rateText, burst, list) => {
      const bucket = bucketOf(rateText, burst);
      // Coarser ticks are compared where whole ticks pass; the tick itself has its own test.
      const oracle = new Oracle(bucket.rate, bucket.burstMilli);
      let state = freshBucket(bucket, 0);
      let now = 0;
      for (const { byUs, costShare } of list) {
        now = Math.max(0, now + byUs * bucket.tickUs);
        const cost = Math.max(1, Math.floor(bucket.burstMilli * costShare));
        const next = takeTokens(bucket, state, now, cost);
        expect(next.waitUs === 0).toBe(oracle.take(now, cost));
        expect(Number.isSafeInteger(next.state.levelUnits)).toBe(true);
        expect(next.state.levelUnits).toBeGreaterThanOrEqual(0);
        expect(next.waitUs).toBeGreaterThanOrEqual(0);
        state = next.state;
      }
    }),
    { numRuns: 400 },
  );
});

test('the wait is exact: refused one microsecond before it, admitted at it', () => {
  fc.assert(
    fc.property(rates, bursts, calls, (rateText, burst, list) => {
      const bucket = bucketOf(rateText, burst);
      let state = freshBucket(bucket, 0);
      let now = 0;
      for (const { byUs, costShare } of list) {
        now = Math.max(0, now + byUs);
        const cost = Math.max(1, Math.floor(bucket.burstMilli * costShare));
        const next = takeTokens(bucket, state, now, cost);
        if (next.waitUs > 0) {
          expect(takeTokens(bucket, state, now + next.waitUs - 1, cost).waitUs).toBe(1);
          expect(takeTokens(bucket, state, now + next.waitUs, cost).waitUs).toBe(0);
        }
        state = next.state;
      }
    }),
    { numRuns: 400 },
  );
});

test('any interval admits at most burst + rate·Δt, and looking often changes nothing', () => {
  fc.assert(
    fc.property(rates, bursts, calls, (rateText, burst, list) => {
      const bucket = bucketOf(rateText, burst);
      let polled = freshBucket(bucket, 0);
      let plain = freshBucket(bucket, 0);
      let now = 0;
      let sum = 0n;
      for (const { byUs, costShare } of list) {
        const until = now + Math.abs(byUs);
        // Charges of the smallest cost that is refused anyway are the closest thing to being looked at.
        for (const at of [now, Math.floor((now + until) / 2), until]) {
          const level = levelAt(bucket, polled.levelUnits, polled.lastUs, at);
          if (level < bucket.capacityUnits) {
            polled = takeTokens(bucket, polled, at, bucket.burstMilli).state;
          }
        }
        now = until;
        const cost = Math.max(1, Math.floor(bucket.burstMilli * costShare));
        const [a, b] = [
          takeTokens(bucket, polled, now, cost),
          takeTokens(bucket, plain, now, cost),
        ];
        expect(a.waitUs).toBe(b.waitUs);
        [polled, plain] = [a.state, b.state];
        if (b.waitUs === 0) sum += BigInt(cost);
        const period = BigInt(bucket.rate.periodUs);
        expect(sum * period).toBeLessThanOrEqual(
          BigInt(bucket.burstMilli) * period + BigInt(bucket.rate.tokensMilli) * BigInt(now),
        );
      }
    }),
    { numRuns: 300 },
  );
});

test('a changed rule carries the share of the bucket over: full stays full, empty stays empty', () => {
  fc.assert(
    fc.property(
      rates,
      rates,
      bursts,
      bursts,
      fc.double({ min: 0, max: 1, noNaN: true }),
      (r1, r2, b1, b2, share) => {
        const [from, to] = [bucketOf(r1, b1), bucketOf(r2, b2)];
        const levelUnits = Math.floor(from.capacityUnits * share);
        const carried = carryOver(from, to, { levelUnits, lastUs: 0 }, 0);
        const exact = (BigInt(levelUnits) * BigInt(to.capacityUnits)) / BigInt(from.capacityUnits);
        expect(BigInt(carried.levelUnits)).toBe(exact);
        expect(carryOver(from, to, { levelUnits: 0, lastUs: 5 }, 5).levelUnits).toBe(0);
        expect(
          carryOver(from, to, { levelUnits: from.capacityUnits, lastUs: 0 }, 9).levelUnits,
        ).toBe(to.capacityUnits);
      },
    ),
  );
});

test('2,000,000/s and 1/30d are exact to the microsecond', () => {
  const fast = bucketOf('2000000/s', 1);
  expect(
    admit(
      fast,
      Array.from({ length: 1_000 }, (_, at) => at),
    ),
  ).toBe(1_000);
  const slow = bucketOf('1/30d', 1);
  const month = 30 * 86_400 * 1_000_000;
  expect(admit(slow, [0, 1, month - 1, month, 2 * month - 1, 2 * month])).toBe(3);
});
