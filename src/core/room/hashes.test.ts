import { createHash, createHmac } from 'node:crypto';
import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { fromBase64Url, fromHex, toBase64Url, toHex, utf8, utf8Length } from './bytes.ts';
import { inclusionPath, leafHash, MerkleLog, sameBytes, verifyInclusion } from './merkle.ts';
import { HmacSha256, sha256 } from './sha256.ts';

const bytes = fc.uint8Array({ maxLength: 300 });

describe('SHA-256 and HMAC agree with the platform', () => {
  test('on the standard’s own examples', () => {
    expect(toHex(sha256())).toBe(
      'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
    );
    expect(toHex(sha256(utf8('abc')))).toBe(
      'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    );
  });

  test('on any bytes, in any pieces', () => {
    fc.assert(
      fc.property(fc.array(bytes, { maxLength: 4 }), (parts) => {
        const wanted = createHash('sha256');
        for (const part of parts) wanted.update(part);
        expect(toHex(sha256(...parts))).toBe(wanted.digest('hex'));
      }),
      { numRuns: 500 },
    );
  });

  test('under any key, with any common start, again and again', () => {
    fc.assert(
      fc.property(bytes, bytes, bytes, (key, start, rest) => {
        const mac = new HmacSha256(key, start);
        const wanted = createHmac('sha256', key).update(start).update(rest).digest('hex');
        expect(toHex(mac.mac(rest))).toBe(wanted);
        mac.mac(start);
        expect(toHex(mac.mac(rest))).toBe(wanted);
      }),
      { numRuns: 500 },
    );
  });
});

describe('bytes and text', () => {
  test('UTF-8, hex and base64url agree with the platform', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), bytes, (text, raw) => {
        expect(utf8(text)).toEqual(new Uint8Array(Buffer.from(text, 'utf8')));
        expect(utf8Length(text)).toBe(Buffer.byteLength(text));
        expect(toHex(raw)).toBe(Buffer.from(raw).toString('hex'));
        expect(fromHex(toHex(raw))).toEqual(raw);
        expect(toBase64Url(raw)).toBe(Buffer.from(raw).toString('base64url'));
        expect(fromBase64Url(toBase64Url(raw))).toEqual(raw);
      }),
    );
  });

  test('only one spelling is read', () => {
    for (const bad of ['A', 'AB', 'AAB', 'AA==', 'A+AA', 'A/AA', 'é', 'AA\n']) {
      expect(fromBase64Url(bad), bad).toBeUndefined();
    }
    expect(fromBase64Url('AA')).toEqual(Uint8Array.of(0));
    for (const bad of ['0', '0G', 'AA', '0x']) expect(fromHex(bad), bad).toBeUndefined();
  });
});

/** RFC 6962, section 2.1, as written there. */
function rootAsInTheStandard(leaves: readonly Uint8Array[]): Uint8Array {
  const hash = (...parts: readonly Uint8Array[]): Uint8Array => {
    const sum = createHash('sha256');
    for (const part of parts) sum.update(part);
    return new Uint8Array(sum.digest());
  };
  if (leaves.length === 0) return hash();
  const [only] = leaves;
  if (leaves.length === 1 && only !== undefined) return hash(Uint8Array.of(0), only);
  let split = 1;
  while (split * 2 < leaves.length) split *= 2;
  return hash(
    Uint8Array.of(1),
    rootAsInTheStandard(leaves.slice(0, split)),
    rootAsInTheStandard(leaves.slice(split)),
  );
}

describe('the Merkle log', () => {
  test('has the standard’s root at every size', () => {
    const log = new MerkleLog();
    const leaves: Uint8Array[] = [];
    for (let size = 0; size <= 70; size += 1) {
      expect(toHex(log.root()), `size ${size}`).toBe(toHex(rootAsInTheStandard(leaves)));
      const leaf = utf8(`leaf ${size}`);
      leaves.push(leaf);
      log.append(leaf);
    }
    expect(log.size).toBe(71);
  });

  test('every leaf of every size has a path to the root, and no other leaf or place has', () => {
    for (let size = 1; size <= 40; size += 1) {
      const data = Array.from({ length: size }, (_, at) => utf8(`leaf ${at}`));
      const hashes = data.map(leafHash);
      const root = rootAsInTheStandard(data);
      for (let at = 0; at < size; at += 1) {
        const path = inclusionPath(hashes, at);
        const leaf = hashes[at]!;
        expect(verifyInclusion(leaf, at, size, path, root), `${at} of ${size}`).toBe(true);
        for (let other = 0; other < size; other += 1) {
          if (other !== at) expect(verifyInclusion(leaf, other, size, path, root)).toBe(false);
        }
        expect(verifyInclusion(leafHash(utf8('other')), at, size, path, root)).toBe(false);
        expect(verifyInclusion(leaf, at, size, [...path, leaf], root)).toBe(false);
        if (path.length > 0) {
          expect(verifyInclusion(leaf, at, size, path.slice(1), root)).toBe(false);
          expect(verifyInclusion(leaf, at, size, path.slice(0, -1), root)).toBe(false);
        }
      }
      expect(verifyInclusion(hashes[0]!, size, size, [], root)).toBe(false);
    }
    expect(() => inclusionPath([], 0)).toThrow(/leaf 0/);
    expect(sameBytes(Uint8Array.of(1), Uint8Array.of(1, 2))).toBe(false);
  });
});
