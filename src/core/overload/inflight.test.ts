import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { InflightSlots, type InflightSettings, nextLimit } from './inflight.ts';

const settings: InflightSettings = { adaptive: 'on', ceiling: 100, floor: 4, setpointMs: 20 };

const after = (limit: number, waitMs: number | undefined, peakInflight: number, finished = 0) =>
  nextLimit(limit, { waitMs, peakInflight, finishedPerSecond: finished }, settings);

test('shrinks in proportion to the wait, at most by half in one window', () => {
  expect(after(100, 25, 100)).toBe(80);
  expect(after(100, 1e6, 100)).toBe(50);
});

test('shrinks from what was used, not from a limit that nobody has come near', () => {
  const wide = { ...settings, ceiling: 10_000 };
  const window = { waitMs: 40, peakInflight: 300, finishedPerSecond: 0 };
  expect(nextLimit(10_000, window, wide)).toBe(150);
  // A pause of the process while hardly anybody was there says little about how many could be.
  expect(nextLimit(10_000, { ...window, peakInflight: 2 }, wide)).toBe(32);
});

test('never shrinks below what the finished work proves, and never grows by it', () => {
  // 1,000 a second: 20 of them wait and 20 are in service at the setpoint.
  expect(after(60, 1e6, 60, 1_000)).toBe(40);
  expect(after(30, 1e6, 30, 1_000)).toBe(30);
});

test('grows only when at least half is used, and never past the ceiling', () => {
  expect(after(16, 1, 8)).toBe(18);
  expect(after(16, 1, 7)).toBe(16);
  expect(after(99.9, 1, 99)).toBe(100);
});

test('no measurement moves nothing', () => {
  expect(after(16, undefined, 16)).toBe(16);
});

test('from any limit there is a way back to the ceiling under a healthy, used system', () => {
  fc.assert(
    fc.property(fc.double({ min: 4, max: 100, noNaN: true }), (start) => {
      let limit = start;
      for (let i = 0; i < 100; i += 1) {
        limit = after(limit, 1, limit);
      }
      expect(limit).toBe(100);
    }),
  );
});

test('for any history the limit stays between floor and ceiling', () => {
  const window = fc.record({
    waitMs: fc.option(fc.double({ min: 0, max: 1e7, noNaN: true }), { nil: undefined }),
    peakInflight: fc.nat(200),
    finishedPerSecond: fc.nat(100_000),
  });
  fc.assert(
    fc.property(fc.array(window), (history) => {
      let limit = 50;
      for (const entry of history) {
        limit = nextLimit(limit, entry, settings);
        expect(limit).toBeGreaterThanOrEqual(4);
        expect(limit).toBeLessThanOrEqual(100);
      }
    }),
  );
});

test('slots: the bound is reached and holds; a release frees one', () => {
  const slots = new InflightSlots({ ...settings, ceiling: 2, floor: 1 });
  expect([slots.tryTake(), slots.tryTake(), slots.tryTake()]).toEqual([true, true, false]);
  slots.release('success');
  expect(slots.tryTake()).toBe(true);
});

test('a release that nobody held is a programming error', () => {
  expect(() => new InflightSlots(settings).release('success')).toThrow(/nobody held/);
});

test('shadow computes the limit and does not apply it', () => {
  const slots = new InflightSlots({ ...settings, adaptive: 'shadow' });
  slots.tick(40);
  expect(slots.adaptiveLimit).toBe(32);
  expect(slots.limitInForce).toBe(100);
});

test('dropped work shrinks the limit even where no wait was measured', () => {
  const slots = new InflightSlots(settings);
  slots.tryTake();
  slots.release('dropped');
  slots.tick(undefined);
  expect(slots.limitInForce).toBe(32);
});

test('a floor above the ceiling is refused with both values', () => {
  expect(() => new InflightSlots({ ...settings, floor: 101 })).toThrow(/floor 101 .* ceiling 100/);
});
