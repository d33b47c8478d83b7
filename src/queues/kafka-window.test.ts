import { fc } from '../../test/support/property.ts';
import { expect, test } from 'vitest';
import type { OrderMessage } from '../ports/order-queue.ts';
import { PartitionWindow } from './kafka-window.ts';

const message = (offset: number): OrderMessage => ({ messageId: `m${offset}` }) as OrderMessage;

function filled(...offsets: number[]): PartitionWindow {
  const window = new PartitionWindow(offsets[0] ?? 0);
  for (const offset of offsets) window.add(offset, message(offset));
  return window;
}

const offsetsOf = (taken: readonly { readonly offset: number }[]): number[] =>
  taken.map(({ offset }) => offset);

test('what is done moves the mark only without a gap', () => {
  const window = filled(5, 6, 7);
  expect(window.stable).toBe(5);
  expect(window.done(6)).toBe(true);
  expect(window.done(6)).toBe(false);
  expect([window.stable, window.doneAhead, window.size]).toEqual([5, 1, 3]);
  expect(window.done(5)).toBe(true);
  expect([window.stable, window.doneAhead, window.size]).toEqual([7, 0, 1]);
  window.done(7);
  expect([window.stable, window.head, window.size]).toEqual([8, undefined, 0]);
  expect(window.done(4)).toBe(false);
});

test('offsets that the log leaves out do not hold the mark', () => {
  const window = filled(0, 3);
  window.done(0);
  expect(window.stable).toBe(3);
  window.done(3);
  window.skipTo(9);
  expect([window.stable, window.next]).toEqual([9, 9]);
  window.skipTo(2);
  window.add(4, message(4));
  expect([window.next, window.size]).toEqual([9, 0]);
});

test('one that is out comes again when its time is over, and is given back by its holder alone', () => {
  const window = filled(0, 1);
  expect(offsetsOf(window.take(1, 0, 100))).toEqual([0]);
  expect(offsetsOf(window.take(9, 0, 100))).toEqual([1]);
  expect(window.take(9, 99, 100)).toEqual([]);
  expect(window.giveBack(0, 1, 100)).toBe(false);
  expect(window.take(9, 100, 100)).toMatchObject([
    { offset: 0, attempt: 2 },
    { offset: 1, attempt: 2 },
  ]);
  expect(window.giveBack(0, 1, 101)).toBe(false);
  expect(window.giveBack(0, 2, 101)).toBe(true);
  expect(window.giveBack(0, 2, 101)).toBe(false);
  expect(window.take(9, 101, 100)).toMatchObject([{ offset: 0, attempt: 3 }]);
  window.done(1);
  expect(window.has(1)).toBe(false);
  expect(window.giveBack(1, 2, 102)).toBe(false);
  expect(window.take(0, 500, 100)).toEqual([]);
});

test('whatever happens in whatever order: the mark never passes one that is not done', () => {
  const step = fc.record({
    kind: fc.constantFrom('add', 'take', 'done', 'giveBack', 'time'),
    offset: fc.nat(20),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const window = new PartitionWindow(0);
      const done = new Set<number>();
      const outUntil = new Map<number, number>();
      let nowUs = 0;
      for (const { kind, offset } of steps) {
        if (kind === 'add') window.add(window.next, message(window.next));
        else if (kind === 'time') nowUs += 60;
        else if (kind === 'done') {
          const known = offset < window.next && !done.has(offset);
          expect(window.done(offset)).toBe(known);
          if (known) done.add(offset);
        } else if (kind === 'giveBack') {
          if (window.giveBack(offset, 1, nowUs)) outUntil.delete(offset);
        } else
          for (const taken of window.take(offset, nowUs, 100)) {
            expect(done.has(taken.offset)).toBe(false);
            expect(outUntil.get(taken.offset) ?? 0).toBeLessThanOrEqual(nowUs);
            outUntil.set(taken.offset, nowUs + 100);
          }
        for (let at = 0; at < window.stable; at += 1) expect(done.has(at)).toBe(true);
        if (window.stable < window.next) expect(done.has(window.stable)).toBe(false);
      }
    }),
  );
});
