import { fc } from '../../test/support/property.ts';
import { expect, test } from 'vitest';
import { Bloom, bloomMaxBytes } from './bloom.ts';

test('never denies a member, also after a journey as bytes', () => {
  fc.assert(
    fc.property(fc.array(fc.string()), (members) => {
      const bloom = Bloom.from(Bloom.of(members, members.length).toBytes());
      for (const member of members) expect(bloom.mayHave(member)).toBe(true);
    }),
  );
});

test('lets through fewer than one stranger in a thousand', () => {
  const members = Array.from({ length: 10_000 }, (_, n) => `u_${n.toString(36)}`);
  const bloom = Bloom.of(members, members.length);
  let through = 0;
  for (let n = 0; n < 100_000; n += 1) if (bloom.mayHave(`stranger${n}`)) through += 1;
  expect(through / 100_000).toBeLessThan(0.001);
});

test('is bounded, and refuses sizes that no writer makes', () => {
  expect(Bloom.sized(1e9).toBytes().bits.length).toBe(bloomMaxBytes);
  const bits = new Uint8Array(bloomMaxBytes + 1);
  expect(() => Bloom.from({ bits, hashes: 14, members: 0 })).toThrow(RangeError);
  expect(() => Bloom.from({ bits: new Uint8Array(1), hashes: 99, members: 0 })).toThrow(RangeError);
});
