import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { covers, mayOverlap, PatternError, textPattern } from './pattern.ts';

test.each([
  ['submit', 'submit', true],
  ['submit', 'submits', false],
  ['/api/*', '/api/cart', true],
  ['/api/*', '/apx', false],
  ['*', '', true],
  ['/^a[0-9]+$/', 'a12', true],
  ['/^a[0-9]+$/', 'b12', false],
  ['/^(?:shoe|hat)-\\d{1,3}$/', 'hat-7', true],
  ['/', '/', true],
])('%s against %s: %s', (source, text, expected) => {
  expect(textPattern(source).matches(text)).toBe(expected);
});

test.each([
  ['', 'a text of 0 characters'],
  ['a*b', '"a*b"'],
  ['/(a+)+$/', 'a repeated group that repeats'],
  ['/(a|aa)+$/', 'a repeated group that repeats or branches'],
  ['/(?=a)b/', 'look-around'],
  ['/(a)\\1/', 'a back-reference'],
  ['/a*b*c*/', '3 unbounded repetitions'],
  ['/(/', 'allowed is a regular expression'],
  ['/a)/', 'a ")" without its "("'],
  ['/((a{1,9}){1,9}){1,9}/', 'a repeated group'],
])('%s is refused: %s', (source, message) => {
  expect(() => textPattern(source)).toThrow(PatternError);
  expect(() => textPattern(source)).toThrow(message);
});

test('whatever expression is admitted, no text keeps it busy', () => {
  const piece = fc.constantFrom(
    'a',
    'b',
    '.',
    '\\w',
    '[ab]',
    '(a)',
    '(?:ab)',
    'a*',
    'b+',
    'a?',
    'a{2,}',
    '|',
    '^',
    '$',
    '(a|b)',
    '+',
    '*',
  );
  fc.assert(
    fc.property(
      fc.array(piece, { minLength: 1, maxLength: 8 }),
      fc.array(fc.constantFrom('a', 'b', 'ab', 'c'), { minLength: 100, maxLength: 400 }),
      (pieces, text) => {
        let pattern;
        try {
          pattern = textPattern(`/${pieces.join('')}/`);
        } catch (error) {
          expect(error).toBeInstanceOf(PatternError);
          return;
        }
        // A runaway expression would not come back within the time of a test.
        pattern.matches(`${text.join('')}!`);
      },
    ),
    { numRuns: 2_000 },
  );
});

test('a text past the bound matches no expression', () => {
  expect(textPattern('/a/').matches('a'.repeat(513))).toBe(false);
  expect(textPattern('/a/').matches('a'.repeat(512))).toBe(true);
});

const source = fc.oneof(
  fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 3 }),
  fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 3 }).map((text) => `${text}*`),
);

test('covers and overlaps are never wrong where they commit themselves', () => {
  fc.assert(
    fc.property(
      source,
      source,
      fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 4 }),
      (a, b, text) => {
        const [outer, inner] = [textPattern(a), textPattern(b)];
        if (covers(outer, inner) && inner.matches(text)) expect(outer.matches(text)).toBe(true);
        if (outer.matches(text) && inner.matches(text)) expect(mayOverlap(outer, inner)).toBe(true);
      },
    ),
    { numRuns: 1_000 },
  );
});
