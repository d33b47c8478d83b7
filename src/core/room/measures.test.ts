import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { deviceClassOf, gini, networkBuckets, networkOf, RoomMeasures } from './measures.ts';

test('Gini of known distributions', () => {
  expect(gini([])).toBe(0);
  expect(gini([0, 0])).toBe(0);
  expect(gini([3, 3, 3, 3])).toBe(0);
  expect(gini([0, 0, 0, 1])).toBeCloseTo(0.75);
  expect(gini([1, 2, 3, 4])).toBeCloseTo(0.25);
  fc.assert(
    fc.property(fc.array(fc.nat(1000), { minLength: 1 }), (counts) => {
      const value = gini(counts);
      expect(value).toBeGreaterThanOrEqual(-1e-12);
      expect(value).toBeLessThan(1);
      expect(gini([...counts].reverse())).toBeCloseTo(value);
    }),
  );
});

test('devices and networks fall into closed classes, whatever is sent', () => {
  const agents: [string | undefined, string][] = [
    [undefined, 'unknown'],
    ['', 'unknown'],
    ['Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Safari/604.1', 'phone'],
    ['Mozilla/5.0 (Linux; Android 14) Chrome/126.0 Mobile Safari/537.36', 'phone'],
    ['Mozilla/5.0 (Linux; Android 14; SM-X710) Chrome/126.0 Safari/537.36', 'tablet'],
    ['Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) Safari/604.1', 'tablet'],
    ['Mozilla/5.0 (Windows NT 10.0; Win64; x64) Firefox/127.0', 'desktop'],
    ['curl/8.5.0', 'bot'],
    ['Something else', 'other'],
  ];
  for (const [agent, wanted] of agents) expect(deviceClassOf(agent), agent).toBe(wanted);
  const addresses: [string, string][] = [
    ['203.0.113.9', 'ipv4'],
    ['2001:db8::1', 'ipv6'],
    ['10.1.2.3', 'private'],
    ['172.20.0.1', 'private'],
    ['::1', 'private'],
    ['fe80::1', 'private'],
    ['unknown', 'unknown'],
  ];
  for (const [address, wanted] of addresses) expect(networkOf(address).network).toBe(wanted);
  expect(networkOf('203.0.113.9').networkBucket).toBe(networkOf('203.0.113.200').networkBucket);
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const { networkBucket } = networkOf(text);
      expect(networkBucket).toBeGreaterThanOrEqual(0);
      expect(networkBucket).toBeLessThan(networkBuckets);
      deviceClassOf(text);
    }),
  );
});

test('a room in numbers', () => {
  const measures = new RoomMeasures();
  const at = (address: string, device: 'phone' | 'bot') => ({ device, ...networkOf(address) });
  for (let one = 0; one < 10; one += 1) {
    measures.joined(at(`203.0.${one}.1`, 'phone'), undefined, one / 10);
  }
  for (let one = 0; one < 10; one += 1)
    measures.joined(at('198.51.100.7', 'bot'), 'ab'.repeat(32), 2);
  for (let one = 0; one < 5; one += 1) {
    measures.passTaken(at(`203.0.${one}.1`, 'phone'), one / 10, 1, 20_000);
  }
  measures.passTaken(at('203.0.0.1', 'phone'), 0, 2, 90_000);
  measures.passTaken(undefined, 5, 1, 5_000_000);
  const seen = measures.snapshot();
  expect(seen.byDevice.find(({ name }) => name === 'phone')).toMatchObject({
    joined: 10,
    admitted: 5,
  });
  expect(seen.byDevice.find(({ name }) => name === 'bot')).toMatchObject({
    joined: 10,
    admitted: 0,
  });
  expect(seen.byDevice.find(({ name }) => name === 'unknown')).toMatchObject({ admitted: 1 });
  expect(seen.byArrival.map((each) => each.joined)).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10]);
  expect(seen.byArrival.map((each) => each.admitted)).toEqual([1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1]);
  expect(seen.passesPerEntry).toEqual([6, 1, 0, 0, 0, 0]);
  expect(seen.accountsPerDevice).toEqual([1, 1, 1, 1, 1, 5]);
  expect(seen.concentration).toBeGreaterThan(0.4);
  expect(seen.waits.counts[4]).toBe(5);
  expect(seen.waits.counts.at(-1)).toBe(1);
  expect(seen.waits.sumS).toBe(5_100);
});

test('its tables do not grow, whatever comes', () => {
  const measures = new RoomMeasures();
  const sizes = () =>
    JSON.stringify(measures.snapshot(), (_, value: unknown) =>
      typeof value === 'number' ? 0 : value,
    ).length;
  const before = sizes();
  for (let one = 0; one < 20_000; one += 1) {
    const origin = {
      device: deviceClassOf(`agent ${one}`),
      ...networkOf(`${one % 256}.${one % 7}.3.4`),
    };
    measures.joined(origin, one.toString(16).padStart(64, '0'), one / 1_000);
    measures.passTaken(origin, Number.NaN, 1 + (one % 50), one * 1_000);
  }
  expect(sizes()).toBe(before);
});
