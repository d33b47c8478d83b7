import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { InflightSlots, type InflightSettings, nextLimit } from './inflight.ts';

const settings: InflightSettings = { adaptive: 'on', ceiling: 100, floor: 4, setpointMs: 20 };

test('shrinks in proportion to the wait, at most by half in one window', () => {
  expect(nextLimit(100, { waitMs: 25, peakInflight: 100 }, settings)).toBe(80);
  expect(nextLimit(100, { waitMs: 1e6, peakInflight: 100 }, settings)).toBe(50);
});

test('grows only when at least half is used, and never past the ceiling', () => {
  expect(nextLimit(16, { waitMs: 1, peakInflight: 8 }, settings)).toBe(18);
  expect(nextLimit(16, { waitMs: 1, peakInflight: 7 }, settings)).toBe(16);
  expect(nextLimit(99.9, { waitMs: 1, peakInflight: 99 }, settings)).toBe(100);
});

test('no measurement moves nothing', () => {
  expect(nextLimit(16, { waitMs: undefined, peakInflight: 16 }, settings)).toBe(16);
});

test('from any limit there is a way back to the ceiling under a healthy, used system', () => {
  fc.assert(
    fc.property(fc.double({ min: 4, max: 100, noNaN: true }), (start) => {
      let limit = start;
      for (let i = 0; i < 100; i += 1) {
        limit = nextLimit(limit, { waitMs: 1, peakInflight: limit }, settings);
      }
      expect(limit).toBe(100);
    }),
  );
});

test('for any history the limit stays between floor and ceiling', () => {
  const window = fc.record({
    waitMs: fc.option(fc.double({ min: 0, max: 1e7, noNaN: true }), { nil: undefined }),
    peakInflight: fc.nat(200),
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
  expect(slots.adaptiveLimit).toBe(50);
  expect(slots.limitInForce).toBe(100);
});

test('dropped work shrinks the limit even where no wait was measured', () => {
  const slots = new InflightSlots(settings);
  slots.tryTake();
  slots.release('dropped');
  slots.tick(undefined);
  expect(slots.limitInForce).toBe(50);
});

test('a floor above the ceiling is refused with both values', () => {
  expect(() => new InflightSlots({ ...settings, floor: 101 })).toThrow(/floor 101 .* ceiling 100/);
});
