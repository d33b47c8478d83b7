import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import {
  addressPrefix,
  addressSet,
  canonicalAddress,
  clientAddress,
  noProxies,
  trustedProxies,
} from './address.ts';

test.each([
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['::FFFF:c000:0207', '192.0.2.7'],
  ['[::ffff:192.0.2.7]:443', '192.0.2.7'],
  ['192.0.2.7:8080', '192.0.2.7'],
  ['2001:DB8:0:0::1', '2001:db8::1'],
  ['fe80::1%eth0', 'fe80::1'],
  ['[2001:db8::1]', '2001:db8::1'],
  ['::1', '::1'],
])('%s is %s', (text, canonical) => {
  expect(canonicalAddress(text)).toBe(canonical);
});

test.each([
  '',
  '1.2.3',
  '010.0.0.1',
  '0x7f.0.0.1',
  '1.2.3.256',
  '1.2.3.4.5',
  'localhost',
  '1.2.3.',
  '::g',
  '1'.repeat(200),
  '1..2.3',
  'unknown',
  '192.0.2.7:',
])('"%s" is no address', (text) => {
  expect(canonicalAddress(text)).toBeUndefined();
});

test('an address has one writing, however it is written', () => {
  fc.assert(
    fc.property(fc.ipV6(), fc.ipV4(), (six, four) => {
      const canonical = canonicalAddress(six);
      expect(canonical).toBeDefined();
      expect(canonicalAddress(six.toUpperCase())).toBe(canonical);
      expect(canonicalAddress(canonical!)).toBe(canonical);
      expect(canonicalAddress(`[${six}]:1`)).toBe(canonical);
      const plain = canonicalAddress(four);
      if (plain !== undefined) {
        expect(canonicalAddress(`::ffff:${four}`)).toBe(plain);
        expect(addressPrefix(`::ffff:${four}`)).toBe(addressPrefix(plain));
      }
    }),
  );
});

test('prefixes hold a household and fold mapped addresses', () => {
  expect(addressPrefix('192.0.2.7')).toBe('192.0.2.0/24');
  expect(addressPrefix('::ffff:192.0.2.200')).toBe('192.0.2.0/24');
  expect(addressPrefix('192.0.2.200', 25)).toBe('192.0.2.128/25');
  expect(addressPrefix('2001:db8:1:2ff::9')).toBe('2001:db8:1:200::/56');
  expect(addressPrefix('2001:db8:1:2ff::9', 24, 48)).toBe('2001:db8:1::/48');
  expect(addressPrefix('nobody')).toBeUndefined();
});

test('a caller that sends another X-Forwarded-For each time keeps its address', () => {
  const proxies = trustedProxies(['10.0.0.0/8'], 2);
  fc.assert(
    fc.property(fc.string(), (forwarded) => {
      expect(clientAddress('203.0.113.9', forwarded, proxies)).toBe('203.0.113.9');
      expect(clientAddress('10.1.2.3', `${forwarded}, 203.0.113.9`, proxies)).toBe('203.0.113.9');
      expect(clientAddress('203.0.113.9', forwarded, noProxies)).toBe('203.0.113.9');
    }),
  );
});

test('forwarded entries are believed hop by hop, and no hop further than configured', () => {
  const chain = '198.51.100.1, 203.0.113.9, 10.0.0.2';
  expect(clientAddress('10.0.0.1', chain, trustedProxies(['10.0.0.0/8'], 1))).toBe('10.0.0.2');
  expect(clientAddress('10.0.0.1', chain, trustedProxies(['10.0.0.0/8'], 2))).toBe('203.0.113.9');
  expect(clientAddress('10.0.0.1', chain, trustedProxies(['10.0.0.0/8'], 5))).toBe('203.0.113.9');
  expect(clientAddress('::ffff:10.0.0.1', chain, trustedProxies(['10.0.0.0/8'], 2))).toBe(
    '203.0.113.9',
  );
  expect(clientAddress('10.0.0.1', 'garbage', trustedProxies(['10.0.0.0/8']))).toBe('10.0.0.1');
  expect(clientAddress('10.0.0.1', undefined, trustedProxies(['10.0.0.0/8']))).toBe('10.0.0.1');
  expect(clientAddress(undefined, chain, trustedProxies(['10.0.0.0/8']))).toBe('unknown');
});

test('ranges cover what they say, in either writing', () => {
  const set = addressSet(['192.0.2.0/25', '2001:db8::/32', '127.0.0.1', '::ffff:10.0.0.0/104']);
  expect(set('192.0.2.127')).toBe(true);
  expect(set('192.0.2.128')).toBe(false);
  expect(set('::ffff:192.0.2.1')).toBe(true);
  expect(set('2001:db8:ffff::1')).toBe(true);
  expect(set('2001:db9::1')).toBe(false);
  expect(set('127.0.0.1')).toBe(true);
  expect(set('127.0.0.2')).toBe(false);
  expect(set('10.255.0.1')).toBe(true);
  expect(set('not an address')).toBe(false);
});

test.each(['10.0.0.0/33', 'x/8', '10.0.0.0/-1', '10.0.0.0/', '::/129', '::ffff:10.0.0.0/8'])(
  'the range "%s" is refused and quoted',
  (range) => {
    expect(() => trustedProxies([range])).toThrow(`found "${range}"; allowed is`);
  },
);

test('a hop count that is none is refused', () => {
  expect(() => trustedProxies([], 0)).toThrow('found 0; allowed is 1 to 16');
});
