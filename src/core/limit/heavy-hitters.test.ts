import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { SeededRandom } from '../../../test/support/world.ts';
import { HeavyHitters } from './heavy-hitters.ts';

test('keeps its guarantees: nothing busy is missed, no count is below the truth or too far above', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 12 }),
      fc.array(fc.nat(30), { minLength: 1, maxLength: 500 }),
      (capacity, stream) => {
        const sketch = new HeavyHitters(capacity, 1e9);
        const truth = new Map<string, number>();
        for (const value of stream) {
          sketch.observe(`v${value}`, 0);
          truth.set(`v${value}`, (truth.get(`v${value}`) ?? 0) + 1);
        }
        expect(sketch.size).toBeLessThanOrEqual(capacity);
        const top = new Map(sketch.top(capacity).map((hit) => [hit.value, hit]));
        for (const [value, count] of truth) {
          const hit = top.get(value);
          if (count > stream.length / capacity) expect(hit).toBeDefined();
          if (hit === undefined) continue;
          expect(hit.count).toBeGreaterThanOrEqual(count);
          expect(hit.count - hit.error).toBeLessThanOrEqual(count);
          expect(hit.error).toBeLessThanOrEqual(stream.length / capacity);
          expect(sketch.certain(value)).toBe(hit.count - hit.error);
        }
      },
    ),
  );
});

test('finds the few among a hundred thousand strangers', () => {
  const random = new SeededRandom('hot');
  const sketch = new HeavyHitters(100, 1e12);
  for (let n = 0; n < 100_000; n += 1) {
    const hot = random.float() < 0.3;
    sketch.observe(hot ? `hot-${random.below(5)}` : `cold-${n}`, n);
  }
  expect(sketch.size).toBe(100);
  expect(new Set(sketch.top(5).map(({ value }) => value))).toEqual(
    new Set(['hot-0', 'hot-1', 'hot-2', 'hot-3', 'hot-4']),
  );
});

test('yesterday fades: what was busy is forgotten, what is busy now leads', () => {
  const sketch = new HeavyHitters(4, 1_000_000);
  for (let n = 0; n < 1_000; n += 1) sketch.observe('old', 0);
  for (let n = 0; n < 20; n += 1) sketch.observe('new', 10_000_000);
  expect(sketch.top(1)[0]?.value).toBe('new');
  sketch.observe('next', 100_000_000);
  expect(sketch.top(9).map(({ value }) => value)).toEqual(['next']);
  expect(sketch.total).toBe(1);
});

test('a newcomer is not hot by the count it took over', () => {
  const sketch = new HeavyHitters(1, 1e9);
  for (let n = 0; n < 1_000; n += 1) sketch.observe('busy', 0);
  expect(sketch.observe('newcomer', 0)).toBe(1);
});

test('long values are bounded, and a clock that goes back fades nothing', () => {
  const sketch = new HeavyHitters(2, 1_000);
  sketch.observe('x'.repeat(10_000), 5_000);
  expect(sketch.top(1)[0]?.value).toHaveLength(256);
  expect(sketch.certain('x'.repeat(10_000))).toBe(1);
  sketch.observe('y', 0);
  expect(sketch.total).toBe(2);
});

test('parameters out of range are refused', () => {
  expect(() => new HeavyHitters(0, 1)).toThrow('capacity: found 0; allowed is 1 to 10000');
  expect(() => new HeavyHitters(1, 0)).toThrow('half-life: found 0; allowed is more than 0');
});
