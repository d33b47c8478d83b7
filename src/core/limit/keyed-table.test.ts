import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { KeyedTable } from './keyed-table.ts';

interface Op {
  readonly kind: 'put' | 'get' | 'sweep';
  readonly key: number;
}

const ops = (keys: number): fc.Arbitrary<Op[]> =>
  fc.array(
    fc.record({
      kind: fc.constantFrom('put', 'put', 'get', 'sweep'),
      key: fc.nat(keys),
    }) as fc.Arbitrary<Op>,
    { minLength: 50, maxLength: 400 },
  );

/** Hash words of a key; `spread` 0 puts every key into one run of slots, the worst case. */
const words = (key: number, spread: number): [number, number] => [
  spread === 0 ? key << 11 : Math.imul(key, 0x9e3779b1),
  spread === 0 ? 0xffffff00 | 0 : Math.imul(key ^ 0x5bd1e995, 0x85ebca6b),
];

test.each([0, 1])('behaves as a map with sweeps would (spread %i)', (spread) => {
  fc.assert(
    fc.property(ops(60), (list) => {
      const table = new KeyedTable(1, spread === 0 ? 10 : 100_000);
      const model = new Map<number, number>();
      let value = 0;
      for (const { kind, key } of list) {
        const [low, high] = words(key, spread);
        if (kind === 'put') {
          const found = table.find(low, high);
          expect(found >= 0).toBe(model.has(key));
          const at = found >= 0 ? found : table.insert();
          value += 1;
          table.cells[at] = value;
          model.set(key, value);
        } else if (kind === 'get') {
          const at = table.find(low, high);
          expect(at < 0 ? undefined : table.cells[at]).toBe(model.get(key));
        } else {
          const doomed = (cells: Float64Array, at: number): boolean => (cells[at] ?? 0) % 3 === 0;
          // A whole turn: as many slots as there are, removals and shrinks charged on top.
          let removed = 0;
          for (let turn = 0; turn < 8; turn += 1) {
            removed += table.sweep(8 * (table.slots + 100), doomed);
          }
          let expected = 0;
          for (const [k, v] of model) {
            if (v % 3 !== 0) continue;
            model.delete(k);
            expected += 1;
          }
          expect(removed).toBe(expected);
        }
        expect(table.entries).toBe(model.size);
      }
      const seen: number[] = [];
      table.forEach((cells, at) => seen.push(cells[at] ?? 0));
      expect(seen.sort((a, b) => a - b)).toEqual([...model.values()].sort((a, b) => a - b));
    }),
  );
});

test('memory follows what is used, and comes back', () => {
  const table = new KeyedTable(2, 100_000);
  expect(table.bytes).toBe(0);
  for (let key = 0; key < 100_000; key += 1) {
    const [low, high] = words(key, 1);
    expect(table.find(low, high)).toBe(-1);
    const at = table.insert();
    table.cells[at] = 1;
  }
  expect(table.bytes / 100_000).toBeLessThan(64);
  while (table.entries > 0) table.sweep(10_000, () => true);
  table.sweep(100_000, () => true);
  expect(table.bytes).toBe(0);
});

test('a sweep of an empty table ends', () => {
  expect(new KeyedTable(2, 1_000_000).sweep(1_000_000_000, () => true)).toBe(0);
});
