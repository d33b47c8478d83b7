import { fc } from '../../../test/support/property.ts';
import { describe, expect, it } from 'vitest';
import type { Packable } from './pack.ts';
import { pack } from './pack.ts';

/** A reader of the whole format, written from its specification and from nothing here. */
function unpack(bytes: Buffer): unknown {
  let at = 0;
  const take = (count: number): Buffer => {
    at += count;
    return bytes.subarray(at - count, at);
  };
  const array = (count: number): unknown[] => Array.from({ length: count }, read);
  function read(): unknown {
    const head = take(1).readUInt8();
    if (head < 0x80) return head;
    if (head >= 0x90 && head < 0xa0) return array(head & 15);
    if (head >= 0xa0 && head < 0xc0) return take(head & 31).toString();
    if (head === 0xc2) return false;
    if (head === 0xc3) return true;
    if (head === 0xce) return take(4).readUInt32BE();
    if (head === 0xcf) return Number(take(8).readBigUInt64BE());
    if (head === 0xd9) return take(take(1).readUInt8()).toString();
    if (head === 0xda) return take(take(2).readUInt16BE()).toString();
    if (head === 0xdb) return take(take(4).readUInt32BE()).toString();
    if (head === 0xdc) return array(take(2).readUInt16BE());
    if (head === 0xdd) return array(take(4).readUInt32BE());
    throw new Error(`head ${head}`);
  }
  const value = read();
  expect(at).toBe(bytes.length);
  return value;
}

describe('pack', () => {
  it('is read back by any reader', () => {
    const { value } = fc.letrec<{ value: Packable }>((tie) => ({
      value: fc.oneof(
        fc.string({ unit: 'grapheme' }),
        fc.maxSafeNat(),
        fc.boolean(),
        fc.array(tie('value'), { maxLength: 40 }),
      ),
    }));
    fc.assert(
      fc.property(value, (each) => {
        expect(unpack(pack(each))).toEqual(each);
      }),
    );
  });

  it('takes lengths on both sides of every border', () => {
    for (const length of [0, 1, 10, 11, 31, 32, 85, 86, 255, 256, 21_845, 21_846, 65_535, 65_536]) {
      for (const letter of ['x', 'ü', '票']) {
        const text = letter.repeat(length);
        expect(unpack(pack(text))).toBe(text);
      }
      const list = Array.from({ length }, () => 1);
      expect(unpack(pack(list))).toEqual(list);
    }
    for (const number of [0, 127, 128, 2 ** 32 - 1, 2 ** 32, Number.MAX_SAFE_INTEGER])
      expect(unpack(pack(number))).toBe(number);
  });

  it('refuses what a script could not take', () => {
    for (const bad of [-1, 0.5, Number.NaN, 2 ** 53])
      expect(() => pack(bad)).toThrow(new RegExp(`not ${bad}`));
  });
});
