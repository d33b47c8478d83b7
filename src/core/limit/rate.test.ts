import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import {
  formatDuration,
  formatMilli,
  formatRate,
  parseDurationUs,
  parseRate,
  periodMaxUs,
  sameRate,
} from './rate.ts';

test.each([
  ['5/s', 5_000, 1_000_000],
  ['0.5/s', 500, 1_000_000],
  ['100/10s', 100_000, 10_000_000],
  ['1/30d', 1_000, 2_592_000_000_000],
  ['2000000/s', 2_000_000_000, 1_000_000],
  ['0/s', 0, 1_000_000],
  ['3/0.5s', 3_000, 500_000],
  ['10/m', 10_000, 60_000_000],
  ['1.125/250ms', 1_125, 250_000],
])('%s is so many thousandths in so many microseconds', (text, tokensMilli, periodUs) => {
  expect(parseRate(text)).toEqual({ tokensMilli, periodUs });
});

test.each([
  '',
  '5',
  '5/',
  '/s',
  '-1/s',
  '5/x',
  '1.2345/s',
  '5 /s',
  '1e3/s',
  '5/0s',
  '1/400d',
  'NaN/s',
])('"%s" is refused, quoted, with what is allowed', (text) => {
  expect(() => parseRate(text)).toThrow(`found "${text}"; allowed is`);
});

test('a duration is a whole number of microseconds or an error', () => {
  expect(parseDurationUs('1.9s')).toBe(1_900_000);
  expect(parseDurationUs('0.1h')).toBe(360_000_000);
  expect(() => parseDurationUs('0.5us')).toThrow('whole number of microseconds');
  expect(() => parseDurationUs('9'.repeat(200))).toThrow(/found "9{60}…"/);
});

test('what is written reads back as the same rate, the same duration', () => {
  const rate = fc.record({
    tokensMilli: fc.integer({ min: 0, max: 1_000_000_000_000 }),
    periodUs: fc.integer({ min: 1, max: periodMaxUs }),
  });
  fc.assert(
    fc.property(rate, (original) => {
      expect(parseRate(formatRate(original))).toEqual(original);
      expect(parseDurationUs(formatDuration(original.periodUs))).toBe(original.periodUs);
      expect(Number(formatMilli(original.tokensMilli)) * 1000).toBeCloseTo(original.tokensMilli, 3);
    }),
  );
});

test('equal rates are equal however they are written', () => {
  expect(sameRate(parseRate('5/s'), parseRate('50/10s'))).toBe(true);
  expect(sameRate(parseRate('5/s'), parseRate('5.001/s'))).toBe(false);
});
