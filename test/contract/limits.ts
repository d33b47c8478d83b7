import { fc } from '../support/property.ts';
import { expect, test } from 'vitest';
import type { LimitSpec } from '../../src/core/limit/algorithm.ts';
import { parseDurationUs, parseRate } from '../../src/core/limit/rate.ts';
import { observe, freshTimeline } from '../../src/core/limit/timeline.ts';
import { CostNeverFitsError, neverUs } from '../../src/core/limit/token-bucket.ts';
import { type Oracle, oracleFor } from '../support/limit-oracle.ts';

/**
 * What every implementation of the limits must do: one table and one set of properties, for the table
 * in memory and for the scripts of a shared store.
 */
export interface LimitUnderTest {
  take(key: string, costMilli: number, nowUs: number): Promise<LimitAnswer> | LimitAnswer;
  release(key: string, costMilli: number, nowUs: number): Promise<void> | void;
}

export interface LimitAnswer {
  /** 0: admitted. */
  readonly waitUs: number;
  readonly leftMilli: number;
  readonly delayUs: number;
}

/** A fresh limit for each call; keys of earlier ones are forgotten. */
export type MakeLimit = (spec: LimitSpec) => Promise<LimitUnderTest> | LimitUnderTest;

const tokens = (rate: string, burst: number, initialShareMilli?: number): LimitSpec => ({
  algorithm: 'token_bucket',
  rate: parseRate(rate),
  burstMilli: Math.round(burst * 1000),
  ...(initialShareMilli === undefined ? {} : { initialShareMilli }),
});
const windowed = (
  algorithm: 'fixed_window' | 'sliding_window' | 'sliding_log',
  limit: number,
  window: string,
): LimitSpec => ({
  algorithm,
  limitMilli: Math.round(limit * 1000),
  windowUs: parseDurationUs(window),
});
const leaky = (rate: string, maxWait: string): LimitSpec => ({
  algorithm: 'leaky_bucket',
  rate: parseRate(rate),
  maxWaitUs: parseDurationUs(maxWait),
});
const warmUp = (rate: string, burst: number, warm: string, of = 1, parts = 3): LimitSpec => ({
  algorithm: 'warm_up',
  rate: parseRate(rate),
  burstMilli: burst * 1000,
  warmUpUs: parseDurationUs(warm),
  coldShare: { of, parts },
});

const ms = 1_000;
const second = 1_000_000;

interface Row {
  readonly name: string;
  readonly spec: LimitSpec;
  /** [instant µs, cost, 'in' or the exact wait in µs] */
  readonly calls: readonly (readonly [number, number, 'in' | number])[];
}

const allRows: readonly Row[] = [
  {
    name: 'burst 1 at 1 per 60 s: exactly one of many at once',
    spec: tokens('1/60s', 1),
    calls: [
      [0, 1, 'in'],
      [0, 1, 60 * second],
      [0, 1, 60 * second],
      [60 * second - 1, 1, 1],
      [60 * second, 1, 'in'],
    ],
  },
  {
    name: 'the limit lifts in 0.3 s',
    spec: tokens('1/0.3s', 1),
    calls: [
      [0, 1, 'in'],
      [0, 1, 300 * ms],
      [299 * ms, 1, 1 * ms],
      [300 * ms, 1, 'in'],
    ],
  },
  {
    name: 'two left, cost five: refused, nothing taken; then cost one: admitted',
    spec: tokens('1/60s', 5),
    calls: [
      [0, 3, 'in'],
      [0, 5, 180 * second],
      [0, 2, 'in'],
      [0, 1, 60 * second],
    ],
  },
  { name: 'rate 0, burst 0: refuses at once', spec: tokens('0/s', 0), calls: [[0, 1, neverUs]] },
  {
    name: 'rate 0: refuses after the burst, for ever',
    spec: tokens('0/s', 2),
    calls: [
      [0, 1, 'in'],
      [0, 1, 'in'],
      [0, 1, neverUs],
      [10 ** 14, 1, neverUs],
    ],
  },
  {
    name: 'idle for 12 hours at a high rate: a full bucket, no more',
    spec: tokens('2000000/s', 10),
    calls: [
      [0, 10, 'in'],
      [43_200 * second, 10, 'in'],
      [43_200 * second, 1, 1],
    ],
  },
  {
    name: '1/30d is exact to the microsecond',
    spec: tokens('1/30d', 1),
    calls: [
      [0, 1, 'in'],
      [1, 1, 2_592_000 * second - 1],
      [2_592_000 * second - 1, 1, 1],
      [2_592_000 * second, 1, 'in'],
    ],
  },
  {
    name: 'a new key with a fifth of its burst waits for the rest, once',
    spec: tokens('1/s', 5, 200),
    calls: [
      [0, 3, 2 * second],
      [2 * second - 1, 3, 1],
      [2 * second, 3, 'in'],
    ],
  },
  {
    name: 'a clock that goes back mints nothing, and what is there can still be taken',
    spec: tokens('1/s', 2),
    calls: [
      [10 * second, 1, 'in'],
      [5 * second, 1, 'in'],
      [10 * second, 1, 1 * second],
      [5 * second, 1, 1 * second],
      [10 * second, 1, 1 * second],
      [11 * second, 1, 'in'],
    ],
  },
  {
    name: 'a clock set back goes on earning from where it is',
    spec: tokens('1/s', 1),
    calls: [
      [100 * second, 1, 'in'],
      [10 * second, 1, 1 * second],
      [11 * second - 1, 1, 1],
      [11 * second, 1, 'in'],
    ],
  },
  {
    name: 'fixed window: its documented edge, twice the limit and not more',
    spec: windowed('fixed_window', 100, '1s'),
    calls: [
      [990 * ms, 100, 'in'],
      [990 * ms, 1, 10 * ms],
      [1_010 * ms, 100, 'in'],
      [1_010 * ms, 1, 990 * ms],
      [1_999 * ms, 1, 1 * ms],
      [2_000 * ms, 100, 'in'],
    ],
  },
  {
    name: 'the token bucket at the same edge: about the limit',
    spec: tokens('100/s', 100),
    calls: [
      [990 * ms, 100, 'in'],
      [1_010 * ms, 3, 10 * ms],
      [1_010 * ms, 2, 'in'],
      [1_010 * ms, 1, 10 * ms],
    ],
  },
  {
    name: 'fixed window of half a second, and of 1.9 s, as such',
    spec: windowed('fixed_window', 1, '0.5s'),
    calls: [
      [0, 1, 'in'],
      [0, 1, 500 * ms],
      [500 * ms, 1, 'in'],
    ],
  },
  {
    name: 'fixed window of 1.9 s',
    spec: windowed('fixed_window', 1, '1.9s'),
    calls: [
      [100 * ms, 1, 'in'],
      [100 * ms, 1, 1_800 * ms],
      [1_899 * ms, 1, 1 * ms],
      [1_900 * ms, 1, 'in'],
    ],
  },
  {
    name: 'fixed window, a clock that goes back: no window comes twice',
    spec: windowed('fixed_window', 2, '1s'),
    calls: [
      [1_500 * ms, 2, 'in'],
      [500 * ms, 1, 500 * ms],
      [1_500 * ms, 1, 500 * ms],
    ],
  },
  {
    name: 'sliding window: the last window fades evenly',
    spec: windowed('sliding_window', 10, '1s'),
    calls: [
      [500 * ms, 10, 'in'],
      [500 * ms, 1, 600 * ms],
      [1_000 * ms, 1, 100 * ms],
      [1_099_999, 1, 1],
      [1_100 * ms, 1, 'in'],
      [1_500 * ms, 5, 100 * ms],
      [1_600 * ms, 5, 'in'],
    ],
  },
  {
    name: 'sliding window: what is in the way is this window, the wait reaches into the next',
    spec: windowed('sliding_window', 10, '1s'),
    calls: [
      [0, 8, 'in'],
      [100 * ms, 6, 900 * ms + 500 * ms],
      [1_500 * ms, 6, 'in'],
    ],
  },
  {
    name: 'sliding log: ten codes by message in any minute',
    spec: windowed('sliding_log', 3, '60s'),
    calls: [
      [0, 1, 'in'],
      [10 * second, 1, 'in'],
      [20 * second, 1, 'in'],
      [30 * second, 1, 30 * second],
      [59_999_999, 1, 1],
      [60 * second, 1, 'in'],
      [60 * second, 2, 20 * second],
      [80 * second, 2, 'in'],
    ],
  },
  {
    name: 'pacing above 2,000/s is enforced, spaced below a millisecond',
    spec: leaky('4000/s', '1ms'),
    calls: [
      [0, 1, 'in'],
      [0, 1, 'in'],
      [0, 1, 'in'],
      [0, 1, 'in'],
      [0, 1, 'in'],
      [0, 1, 250],
      [249, 1, 1],
      [250, 1, 'in'],
    ],
  },
  {
    name: 'pacing without waiting: admitted when the spacing has passed',
    spec: leaky('2/s', '0s'),
    calls: [
      [0, 1, 'in'],
      [0, 1, 500 * ms],
      [499_999, 1, 1],
      [500 * ms, 1, 'in'],
    ],
  },
  {
    name: 'warm-up: a third of burst and rate at first, the full rate when warm',
    spec: warmUp('3/s', 3, '6s'),
    calls: [
      // Cold: a burst of one; the next token takes nearly a second at one a second, rising.
      [0, 1, 'in'],
      [0, 3, 2_196_153],
      [2_196_152, 3, 1],
      [2_196_153, 3, 'in'],
      // Warm and full; now three come back in a second.
      [10 * second, 3, 'in'],
      [10 * second, 3, 1 * second],
      // Idle for long enough to be cold again.
      [40 * second, 1, 'in'],
      [40 * second, 3, 2_196_153],
    ],
  },
  {
    name: 'concurrency: check and take are one step',
    spec: { algorithm: 'concurrency', limitMilli: 2_000 },
    calls: [
      [0, 1, 'in'],
      [0, 1, 'in'],
      [0, 1, 200 * ms],
      [10 ** 12, 1, 200 * ms],
    ],
  },
];

const allSpecs: readonly LimitSpec[] = [
  tokens('5/s', 5),
  tokens('0.5/s', 3, 400),
  tokens('2000000/s', 7),
  tokens('1/30d', 2),
  tokens('999983/h', 12.5),
  tokens('100/10s', 20),
  windowed('fixed_window', 10, '1s'),
  windowed('fixed_window', 7.5, '1.9s'),
  windowed('sliding_window', 10, '1s'),
  windowed('sliding_window', 33, '0.5s'),
  windowed('sliding_log', 5, '1s'),
  windowed('sliding_log', 40, '1.9s'),
  leaky('5/s', '2s'),
  leaky('3000/s', '1ms'),
  leaky('7/s', '0s'),
  warmUp('1000/s', 9, '2ms'),
  warmUp('700/s', 5, '1.5ms', 1, 4),
  { algorithm: 'concurrency', limitMilli: 6_000 },
];

const timeOf = (spec: LimitSpec): number => {
  if ('windowUs' in spec) return spec.windowUs;
  if (spec.algorithm === 'concurrency') return second;
  const burst = 'burstMilli' in spec ? spec.burstMilli : 1_000;
  return Math.max(10, Math.ceil((burst * spec.rate.periodUs) / spec.rate.tokensMilli));
};
const capacityOf = (spec: LimitSpec): number =>
  'limitMilli' in spec ? spec.limitMilli : 'burstMilli' in spec ? spec.burstMilli : 4_000;
const costOf = (spec: LimitSpec, share: number): number => {
  const cost = Math.max(1, Math.floor(capacityOf(spec) * share ** 3));
  return spec.algorithm === 'sliding_log' ? Math.max(1, Math.floor(cost / 1000)) * 1000 : cost;
};
const isHint = (spec: LimitSpec): boolean => spec.algorithm === 'concurrency';

const steps = (backwards: boolean): fc.Arbitrary<{ by: number; share: number; end: boolean }[]> =>
  fc.array(
    fc.record({
      /** In units of the time the limit needs to recover. */
      by: fc.oneof(
        fc.double({ min: 0, max: 0.4, noNaN: true }),
        fc.constantFrom(0, 0, 1, 2.5),
        ...(backwards ? [fc.double({ min: -2, max: 0, noNaN: true })] : []),
      ),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
      end: fc.boolean(),
    }),
    { minLength: 1, maxLength: 40 },
  );

export interface LimitSuiteOptions {
  /** Scales the properties, for stores where each call is a round trip. */
  readonly numRuns?: number;
  /** What an implementation does not offer, as a spec → the reason. */
  readonly exempt?: (spec: LimitSpec) => string | undefined;
}

export function limitSuite(make: MakeLimit, options: LimitSuiteOptions = {}): void {
  const numRuns = options.numRuns ?? 100;
  const offered = (spec: LimitSpec): boolean => options.exempt?.(spec) === undefined;
  const table = allRows.filter(({ spec }) => offered(spec));
  const specs = allSpecs.filter(offered);

  test.each(table.map((row) => [row.name, row] as const))('%s', async (_name, row) => {
    const limit = await make(row.spec);
    for (const [nowUs, cost, expected] of row.calls) {
      const { waitUs } = await limit.take('k', cost * 1000, nowUs);
      expect([nowUs, cost, waitUs === 0 ? 'in' : waitUs]).toEqual([nowUs, cost, expected]);
    }
  });

  test('10/s offered against 5/s for a minute: 5/s throughout, refusals push nothing away', async () => {
    for (const spec of [
      tokens('5/s', 5),
      windowed('fixed_window', 5, '1s'),
      windowed('sliding_window', 5, '1s'),
      windowed('sliding_log', 5, '1s'),
      leaky('5/s', '0s'),
    ]) {
      const limit = await make(spec);
      const perTenSeconds = [0, 0, 0, 0, 0, 0];
      for (let now = 0; now < 60 * second; now += 100 * ms) {
        const { waitUs } = await limit.take('k', 1000, now);
        const at = Math.floor(now / (10 * second));
        if (waitUs === 0) perTenSeconds[at] = (perTenSeconds[at] ?? 0) + 1;
      }
      for (const count of perTenSeconds.slice(1)) {
        // The counter of two windows gives up to one call a window away to its rounding.
        const least = spec.algorithm === 'sliding_window' ? 40 : 45;
        expect(count, spec.algorithm).toBeGreaterThanOrEqual(least);
        expect(count, spec.algorithm).toBeLessThanOrEqual(50);
      }
    }
  });

  test.each(specs.map((spec) => [JSON.stringify(spec), spec] as const))(
    'a cost above the capacity says that it can never fit: %s',
    async (_name, spec) => {
      const limit = await make(spec);
      const over = spec.algorithm === 'leaky_bucket' ? 1_001_000 : capacityOf(spec) + 1_000;
      const call = async (): Promise<unknown> => limit.take('k', over, 0);
      await expect(call()).rejects.toThrow(CostNeverFitsError);
      const small = spec.algorithm === 'sliding_log' ? 1000 : 1;
      expect((await limit.take('k', small, 0)).waitUs).toBe(0);
    },
  );

  test.each(specs.map((spec) => [JSON.stringify(spec), spec] as const))(
    'decides as the big-integer oracle does, under a clock that steps both ways: %s',
    async (_name, spec) => {
      await fc.assert(
        fc.asyncProperty(steps(true), async (list) => {
          const limit = await make(spec);
          let now = 5 * timeOf(spec);
          let timeline = freshTimeline;
          let oracle: Oracle | undefined;
          const held: number[] = [];
          for (const { by, share, end } of list) {
            now = Math.max(0, now + Math.round(by * timeOf(spec)));
            timeline = observe(timeline, now);
            const cost = costOf(spec, share);
            oracle ??= oracleFor(spec, timeline.steadyUs);
            const expected = oracle.take(timeline.steadyUs, cost);
            const answer = await limit.take('k', cost, now);
            expect(answer.waitUs === 0, `at ${now}, cost ${cost}`).toBe(expected.admitted);
            expect(answer.delayUs).toBe(expected.admitted ? expected.delayUs : 0);
            expect(Number.isSafeInteger(answer.waitUs)).toBe(true);
            expect(answer.leftMilli).toBeGreaterThanOrEqual(0);
            if (expected.admitted) held.push(cost);
            const first = held[0];
            if (end && first !== undefined) {
              held.shift();
              oracle.release(first);
              await limit.release('k', first, now);
            }
          }
        }),
        { numRuns },
      );
    },
  );

  test.each(
    specs.filter((spec) => !isHint(spec)).map((spec) => [JSON.stringify(spec), spec] as const),
  )(
    'the wait is exact: refused one microsecond before it, admitted at it: %s',
    async (_name, spec) => {
      await fc.assert(
        fc.asyncProperty(steps(false), async (list) => {
          const limit = await make(spec);
          let now = 5 * timeOf(spec);
          for (const { by, share } of list) {
            now += Math.round(by * timeOf(spec));
            const cost = costOf(spec, share);
            const { waitUs } = await limit.take('k', cost, now);
            if (waitUs === 0) continue;
            expect((await limit.take('k', cost, now + waitUs - 1)).waitUs).toBe(1);
            expect((await limit.take('k', cost, now + waitUs)).waitUs).toBe(0);
            now += waitUs;
          }
        }),
        { numRuns },
      );
    },
  );

  test.each(specs.map((spec) => [JSON.stringify(spec), spec] as const))(
    'callers whose clocks differ, and a clock that alternates, mint nothing: %s',
    async (_name, spec) => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(fc.nat(3), fc.double({ min: 0, max: 0.2, noNaN: true })), {
            minLength: 1,
            maxLength: 60,
          }),
          fc.double({ min: 0, max: 3, noNaN: true }),
          async (calls, lag) => {
            // The same calls by one caller with one clock: the reference.
            const unit = timeOf(spec);
            const skew = Math.round(lag * unit);
            const [skewed, single] = [await make(spec), await make(spec)];
            let [admittedSkewed, admittedSingle] = [0, 0];
            let truth = 10 * unit;
            const cost = costOf(spec, 0.3);
            await skewed.take('k', cost, truth);
            await single.take('k', cost, truth);
            for (const [node, by] of calls) {
              truth += Math.round(by * unit);
              const reading = node === 0 ? truth : truth - skew;
              if ((await skewed.take('k', cost, reading)).waitUs === 0) admittedSkewed += 1;
              if ((await single.take('k', cost, truth)).waitUs === 0) admittedSingle += 1;
            }
            // Time that passed is earned at most once; a late reading may only earn less. Where the
            // count is by windows, the last window may be entered a moment apart.
            const slack = 'windowUs' in spec ? Math.floor(capacityOf(spec) / cost) : 1;
            expect(admittedSkewed).toBeLessThanOrEqual(admittedSingle + slack);
          },
        ),
        { numRuns },
      );
    },
  );

  test('the sliding counter keeps its stated bound: limit · (1 + Δt/window) in any Δt up to a window', async () => {
    await fc.assert(
      fc.asyncProperty(steps(false), async (list) => {
        const spec = windowed('sliding_window', 10, '1s');
        const limit = await make(spec);
        const admitted: { at: number; cost: number }[] = [];
        let now = 0;
        for (const { by, share } of list) {
          now += Math.round(by * 0.5 * second);
          const cost = costOf(spec, share);
          if ((await limit.take('k', cost, now)).waitUs === 0) admitted.push({ at: now, cost });
        }
        for (const first of admitted) {
          let sum = 0;
          for (const { at, cost } of admitted) {
            if (at < first.at || at - first.at > second) continue;
            sum += cost;
            expect(sum * second).toBeLessThanOrEqual(10_000 * (second + at - first.at));
          }
        }
      }),
      { numRuns },
    );
  });

  test('a fixed window admits at most twice its limit in any span of one window', async () => {
    await fc.assert(
      fc.asyncProperty(steps(false), async (list) => {
        const spec = windowed('fixed_window', 10, '1s');
        const limit = await make(spec);
        const admitted: { at: number; cost: number }[] = [];
        let now = 0;
        for (const { by, share } of list) {
          now += Math.round(by * 0.5 * second);
          const cost = costOf(spec, share);
          if ((await limit.take('k', cost, now)).waitUs === 0) admitted.push({ at: now, cost });
        }
        for (const first of admitted) {
          const within = admitted.filter(({ at }) => at >= first.at && at - first.at < second);
          expect(within.reduce((sum, { cost }) => sum + cost, 0)).toBeLessThanOrEqual(20_000);
        }
      }),
      { numRuns },
    );
  });

  test('keys do not know each other', async () => {
    const limit = await make(tokens('1/h', 2));
    expect((await limit.take('a', 2000, 0)).waitUs).toBe(0);
    expect((await limit.take('b', 2000, 0)).waitUs).toBe(0);
    expect((await limit.take('a', 1000, 0)).waitUs).toBeGreaterThan(0);
  });
}
