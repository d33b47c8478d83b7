import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { debtUs, freshTimeline, observe, Timeline } from './timeline.ts';

const read = (readings: readonly number[]): number[] => {
  const timeline = new Timeline();
  return readings.map((now) => timeline.read(now));
};

test('readings that alternate between two instants earn nothing', () => {
  const steady = read([10, 5, 10, 5, 10, 5, 10]);
  expect(steady).toEqual([10, 10, 10, 10, 10, 10, 10]);
});

test('a clock set back goes on earning from where it is', () => {
  expect(read([1000, 0, 1, 2, 300])).toEqual([1000, 1000, 1001, 1002, 1300]);
});

test('time earned below the highest reading is not earned again above it', () => {
  // 4 earned below; the way from 100 to 104 is the same four.
  expect(read([100, 50, 54, 104, 105])).toEqual([100, 100, 104, 104, 105]);
});

test('two callers five seconds apart that take turns earn what passes, once', () => {
  const readings = Array.from({ length: 1000 }, (_, at) => (at % 2 === 0 ? 100 + at : 95 + at));
  const steady = read(readings);
  expect(steady.at(-1)).toBeLessThanOrEqual(100 + 999);
  expect(steady.at(-1)).toBeGreaterThanOrEqual(100 + 998);
});

const steps = fc.array(
  fc.record({ by: fc.integer({ min: -1_000, max: 1_000 }), to: fc.constantFrom(0, 1, 2) }),
  { maxLength: 200 },
);

test('steady time never goes back, and earns at most the longest stretch seen going forward', () => {
  fc.assert(
    fc.property(steps, (moves) => {
      const timeline = new Timeline();
      let state = freshTimeline;
      const clocks = [5_000, 5_000, 5_000];
      let high = 0;
      let stretch = 0;
      let longest = 0;
      let base = -1;
      let before = 0;
      for (const { by, to } of moves) {
        const now = Math.max(0, (clocks[to] ?? 0) + by);
        clocks[to] = now;
        state = observe(state, now);
        expect(timeline.read(now)).toBe(state.steadyUs);
        expect(timeline.debtUs).toBe(debtUs(state, now));
        expect(timeline.debtUs).toBeGreaterThanOrEqual(0);
        expect(state.steadyUs).toBeGreaterThanOrEqual(before);
        before = state.steadyUs;
        if (now >= high) {
          high = now;
          base = -1;
        } else {
          base = base < 0 || now < base ? now : base;
          stretch = now - base;
          longest = Math.max(longest, stretch);
        }
        expect(state.steadyUs).toBeLessThanOrEqual(high + longest);
        expect(state.steadyUs).toBeGreaterThanOrEqual(high);
      }
    }),
  );
});

test('after a jump back, progress of the clock is progress of steady time, at once', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 10 ** 12 }),
      fc.integer({ min: 0, max: 10 ** 12 }),
      fc.array(fc.integer({ min: 0, max: 1_000_000 })),
      (start, back, progress) => {
        const timeline = new Timeline();
        timeline.read(start);
        let now = Math.max(0, start - back);
        timeline.read(now);
        let sum = 0;
        for (const by of progress) {
          now += by;
          if (now >= start && back > 0) break;
          sum += by;
          expect(timeline.read(now)).toBe(start + sum);
        }
      },
    ),
  );
});
