import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { encodeKey, KeyHasher } from './key.ts';

const hash = (hasher: KeyHasher, parts: readonly string[]): string => {
  hasher.hashParts(parts);
  return `${hasher.low}:${hasher.high}`;
};

test('"aa"+"b" and "a"+"ab" are different keys', () => {
  expect(encodeKey(['aa', 'b'])).not.toBe(encodeKey(['a', 'ab']));
  const hasher = new KeyHasher([1, 2], 'rule');
  expect(hash(hasher, ['aa', 'b'])).not.toBe(hash(hasher, ['a', 'ab']));
});

const tuple = fc.array(fc.string({ unit: 'binary', maxLength: 6 }), { maxLength: 4 });

test('no two tuples share a text, a hash, or a rule', () => {
  fc.assert(
    fc.property(tuple, tuple, fc.string(), fc.string(), (a, b, ruleA, ruleB) => {
      const same = JSON.stringify(a) === JSON.stringify(b);
      expect(encodeKey(a) === encodeKey(b)).toBe(same);
      const [first, second] = [new KeyHasher([7, 9], ruleA), new KeyHasher([7, 9], ruleB)];
      expect(hash(first, a) === hash(first, b)).toBe(same);
      expect(hash(first, a) === hash(second, a)).toBe(ruleA === ruleB);
    }),
    { numRuns: 2_000 },
  );
});

test('tuples moved across the border between parts, or padded with NUL, stay apart', () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 12 }), fc.nat(12), fc.nat(12), (text, i, j) => {
      const [a, b] = [Math.min(i, text.length), Math.min(j, text.length)];
      const hasher = new KeyHasher([3, 4], 'r');
      const cutA = [text.slice(0, a), text.slice(a)];
      const cutB = [text.slice(0, b), text.slice(b)];
      expect(hash(hasher, cutA) === hash(hasher, cutB)).toBe(a === b);
      expect(hash(hasher, [text])).not.toBe(hash(hasher, [`${text}\0`]));
    }),
  );
});

test('the pair form and the list form hash alike', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (a, b) => {
      const [pair, list] = [new KeyHasher([5, 6], 'rule'), new KeyHasher([5, 6], 'rule')];
      pair.hashPair(a, b);
      list.hashParts([a, b]);
      expect([pair.low, pair.high]).toEqual([list.low, list.high]);
      list.hashParts([a, b]);
      expect([pair.low, pair.high]).toEqual([list.low, list.high]);
    }),
  );
});

test('another seed is another hash: collisions cannot be prepared', () => {
  const [one, two] = [new KeyHasher([1, 2], 'r'), new KeyHasher([1, 3], 'r')];
  let equal = 0;
  for (let at = 0; at < 10_000; at += 1) {
    one.hashPair(`user-${at}`, '');
    two.hashPair(`user-${at}`, '');
    if ((one.low & 0xff) === (two.low & 0xff)) equal += 1;
  }
  // Independent bytes agree once in 256: 39 expected, seven deviations of room.
  expect(equal).toBeGreaterThan(0);
  expect(equal).toBeLessThan(85);
});

test('every bit of the hash is used evenly', () => {
  const hasher = new KeyHasher([11, 12], 'even');
  const ones = Array.from({ length: 64 }, () => 0);
  const keys = 20_000;
  for (let at = 0; at < keys; at += 1) {
    hasher.hashPair(`10.0.${at >> 8}.${at & 255}`, 'submit');
    for (let bit = 0; bit < 32; bit += 1) {
      ones[bit] = (ones[bit] ?? 0) + ((hasher.low >>> bit) & 1);
      ones[bit + 32] = (ones[bit + 32] ?? 0) + ((hasher.high >>> bit) & 1);
    }
  }
  for (const count of ones) expect(Math.abs(count - keys / 2)).toBeLessThan(500);
});

test('a seed of one word is refused', () => {
  expect(() => new KeyHasher([1], 'r')).toThrow('found 1 words; allowed is 2 or more');
});
