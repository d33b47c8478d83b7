import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { Wheel } from './wheel.ts';

test('fires each person once, in order of due time, never early', () => {
  const wheel = new Wheel(4, 1000);
  wheel.set(0, 1010);
  wheel.set(1, 1005.5);
  wheel.set(2, 1005.2);
  wheel.set(3, 900);
  const fired: number[] = [];
  wheel.turn(1005, (person) => fired.push(person));
  expect(fired).toEqual([3]);
  wheel.turn(1011, (person) => fired.push(person));
  expect(fired.slice(1, 3).sort((a, b) => a - b)).toEqual([1, 2]);
  expect(fired[3]).toBe(0);
  expect(wheel.pending).toBe(0);
});

test('a wake-up set while firing, for now, fires in the same turn; one a round away does not', () => {
  const wheel = new Wheel(2, 0);
  const fired: string[] = [];
  wheel.set(0, 5);
  wheel.turn(20, (person) => {
    fired.push(`${person}`);
    if (person === 0) wheel.set(1, 0);
  });
  expect(fired).toEqual(['0', '1']);
  wheel.set(0, 20 + 65_536);
  wheel.turn(60_000, () => fired.push('early'));
  expect(fired).toHaveLength(2);
  wheel.turn(20 + 65_537, () => fired.push('due'));
  expect(fired.at(-1)).toBe('due');
});

test('after a stall longer than a round everything due has fired', () => {
  const wheel = new Wheel(3, 0);
  wheel.set(0, 10);
  wheel.set(1, 70_000);
  wheel.set(2, 500_000);
  const fired: number[] = [];
  wheel.turn(200_000, (person) => fired.push(person));
  expect(fired.sort((a, b) => a - b)).toEqual([0, 1]);
  expect(wheel.pending).toBe(1);
});

test('agrees with a sorted list under any schedule of set, move, cancel and turn', () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant('set'), person: fc.nat(7), at: fc.nat(200_000) }),
    fc.record({ kind: fc.constant('cancel'), person: fc.nat(7), at: fc.constant(0) }),
    fc.record({ kind: fc.constant('turn'), person: fc.constant(0), at: fc.nat(90_000) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const wheel = new Wheel(8, 0);
      const model = new Map<number, number>();
      let now = 0;
      for (const { kind, person, at } of steps) {
        if (kind === 'set') {
          wheel.set(person, at);
          model.set(person, Math.max(at, now));
        } else if (kind === 'cancel') {
          wheel.cancel(person);
          model.delete(person);
        } else {
          now += at;
          const fired: number[] = [];
          wheel.turn(now, (each) => fired.push(each));
          const due = [...model].filter(([, dueMs]) => dueMs < now).map(([each]) => each);
          expect(fired.sort((a, b) => a - b)).toEqual(due.sort((a, b) => a - b));
          for (const each of due) model.delete(each);
        }
        expect(wheel.pending).toBe(model.size);
      }
    }),
  );
});
