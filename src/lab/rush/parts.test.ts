import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { Arena } from './arena.ts';
import { Dice } from './dice.ts';
import { Histogram } from './histogram.ts';
import { Series } from './series.ts';
import { TaskHeap } from './task-heap.ts';

test('the arena gives back every text, across chunks, and none for handle 0', () => {
  const arena = new Arena();
  const texts = Array.from({ length: 300 }, (_, i) => `${i}:${'x'.repeat((i * 997) % 60_000)}`);
  const handles = texts.map((text) => arena.put(text));
  expect(new Set(handles).size).toBe(300);
  expect(handles).not.toContain(0);
  handles.forEach((handle, i) => expect(arena.get(handle)).toBe(texts[i]));
  expect(arena.get(0)).toBe('');
  expect(arena.bytes).toBeGreaterThan(4 * 2 ** 20);
  expect(() => arena.put('x'.repeat(70_000))).toThrow(/70000/);
});

test('the heap gives tasks back by due time', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(1000)), (dues) => {
      const heap = new TaskHeap<number>();
      for (const due of dues) heap.push(due, due);
      const out: number[] = [];
      for (let task = heap.popDue(500); task !== undefined; task = heap.popDue(500)) out.push(task);
      expect(out).toEqual(dues.filter((due) => due <= 500).sort((a, b) => a - b));
      expect(heap.size).toBe(dues.length - out.length);
    }),
  );
});

describe('histogram', () => {
  test('quantiles are at most 3.2% above the truth and never above the maximum', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0.001, max: 100_000, noNaN: true }), { minLength: 1 }),
        fc.double({ min: 0.01, max: 1, noNaN: true }),
        (values, q) => {
          const histogram = new Histogram();
          for (const value of values) histogram.record(value);
          const sorted = [...values].sort((a, b) => a - b);
          const truth = sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? 0;
          const told = histogram.quantile(q) ?? 0;
          // A microsecond for rounding to the unit.
          expect(told).toBeGreaterThanOrEqual(truth - 0.001);
          expect(told).toBeLessThanOrEqual(truth * 1.032 + 0.002);
        },
      ),
    );
  });

  test('nothing recorded, nothing told', () => {
    expect(new Histogram().quantile(0.5)).toBeNull();
  });
});

test('a series counts by second; its rate is over busy seconds alone', () => {
  const series = new Series(1000);
  series.add('reserved', 1500);
  series.add('reserved', 1600, 3);
  series.add('reserved', 9000, 2);
  expect(series.column('reserved')).toEqual([4, 0, 0, 0, 0, 0, 0, 0, 2]);
  expect(series.rate('reserved')).toBe(3);
  expect(series.rate('paid')).toBe(0);
});

describe('dice', () => {
  test('the same seed, person and question give the same answer; others do not', () => {
    expect(new Dice(7).roll(3, 5)).toBe(new Dice(7).roll(3, 5));
    const seen = new Set<number>();
    for (let person = 0; person < 100; person += 1) {
      for (let asked = 0; asked < 20; asked += 1) seen.add(new Dice(7).roll(person, asked));
    }
    expect(seen.size).toBeGreaterThan(1_995);
    expect(new Dice(8).roll(3, 5)).not.toBe(new Dice(7).roll(3, 5));
  });

  test('rolls are uniform, and two questions about one person are independent', () => {
    const dice = new Dice(42);
    const buckets = Array.from({ length: 10 }, () => 0);
    let together = 0;
    const n = 20_000;
    for (let person = 0; person < n; person += 1) {
      const a = dice.roll(person, 1);
      const b = dice.roll(person, 2);
      buckets[Math.floor(a * 10)] = (buckets[Math.floor(a * 10)] ?? 0) + 1;
      if (a < 0.5 && b < 0.5) together += 1;
    }
    // Five standard deviations of a binomial.
    for (const count of buckets)
      expect(Math.abs(count - n / 10)).toBeLessThan(5 * Math.sqrt(n * 0.09));
    expect(Math.abs(together - n / 4)).toBeLessThan(5 * Math.sqrt(n * 0.1875));
  });
});
