import { expect, test } from 'vitest';
import { pressure, SignalBoard, smooth, staleIntervals } from './signals.ts';

test('rises fast, falls slowly', () => {
  expect(smooth(0, 100)).toBe(50);
  expect(smooth(100, 0)).toBe(80);
  expect(smooth(undefined, 7)).toBe(7);
});

test('no data keeps the value, and is never read as zero', () => {
  expect(smooth(5, undefined)).toBe(5);
  expect(smooth(5, Number.NaN)).toBe(5);
  expect(smooth(undefined, undefined)).toBeUndefined();
});

test('pressure is clamped between its marks', () => {
  const marks = { low: 10, high: 20 };
  expect(pressure(5, marks)).toBe(0);
  expect(pressure(15, marks)).toBe(0.5);
  expect(pressure(1e9, marks)).toBe(1.5);
});

test('the board names the worst signal and forgets one that has gone silent', () => {
  const board = new SignalBoard({ wait: { low: 0, high: 100 }, depth: { low: 0, high: 10 } });
  expect(board.worst()).toBeUndefined();
  board.feed({ wait: 50, depth: 9 });
  expect(board.worst()).toEqual({ name: 'depth', pressure: 0.9 });
  for (let i = 0; i < staleIntervals; i += 1) board.feed({ wait: 50 });
  expect(board.worst()?.name).toBe('wait');
  expect(board.value('depth')).toBeUndefined();
});

test('marks that are the wrong way round are refused with both values', () => {
  expect(() => new SignalBoard({ wait: { low: 5, high: 5 } })).toThrow(/high mark 5 .* low mark 5/);
});
