import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { Latency, RecentLatency } from './latency.ts';

describe('Latency', () => {
  test('property: every quantile is within 1/32 of the true one, never below it', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 4_000_000_000 }), { minLength: 1, maxLength: 300 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (all, q) => {
          const latency = new Latency();
          for (const us of all) latency.record(us);
          const sorted = all.toSorted((a, b) => a - b);
          const exact = sorted[Math.max(1, Math.ceil(q * all.length)) - 1]!;
          const told = latency.quantileUs(q)!;
          expect(told).toBeGreaterThanOrEqual(exact);
          expect(told).toBeLessThanOrEqual(exact + exact / 32);
          expect(latency.count).toBe(all.length);
          expect(latency.sumUs).toBe(all.reduce((sum, us) => sum + us, 0));
        },
      ),
    );
  });

  test('property: counts below powers of two are exact', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(10_000_000), { maxLength: 200 }),
        fc.integer({ min: 0, max: 31 }),
        (all, power) => {
          const latency = new Latency();
          for (const us of all) latency.record(us);
          expect(latency.countBelow(2 ** power)).toBe(all.filter((us) => us < 2 ** power).length);
        },
      ),
    );
  });

  test('nothing measured is undefined, not zero', () => {
    expect(new Latency().quantileUs(0.99)).toBeUndefined();
  });

  test('what is out of range counts at the edge', () => {
    const latency = new Latency();
    latency.record(-5);
    latency.record(Number.NaN);
    expect(latency.quantileUs(1)).toBe(0);
    latency.record(1e15);
    expect(latency.quantileUs(1)).toBe(2 ** 32 - 1);
    latency.reset();
    expect(latency.count).toBe(0);
    expect(latency.quantileUs(1)).toBeUndefined();
  });
});

describe('RecentLatency', () => {
  test('a spike is seen at once and forgotten after two spans', () => {
    const recent = new RecentLatency(1_000);
    recent.record(900_000, 0);
    expect(recent.quantileUs(0.99, 500_000)).toBe(900_000);
    expect(recent.quantileUs(0.99, 1_500_000)).toBe(900_000);
    expect(recent.quantileUs(0.99, 2_600_000)).toBeUndefined();
  });

  test('a silent while leaves nothing behind', () => {
    const recent = new RecentLatency(1_000);
    recent.record(5, 0);
    recent.record(7, 10_000_000);
    expect(recent.quantileUs(1, 10_000_000)).toBe(7);
  });

  test('a span must be one', () => {
    expect(() => new RecentLatency(0)).toThrow(/above 0/);
  });
});
