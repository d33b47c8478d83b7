import { describe, expect, test } from 'vitest';
import {
  BadLogError,
  householdAddress,
  logArrivals,
  parseLogLine,
  shapedArrivals,
} from './arrivals.ts';
import { Dice } from './dice.ts';

const line = (address: string, time: string, agent = 'A'): string =>
  `${address} - - [17/May/2015:${time} +0000] "GET / HTTP/1.1" 200 5 "-" "${agent}"`;

describe('a log line', () => {
  test('combined format with offset and agent', () => {
    expect(
      parseLogLine(
        '198.18.0.216 - bob [17/May/2015:10:05:03 +0200] "GET /x HTTP/1.1" 200 20 "http://r/" "Moz (X; 1) \\"q"',
      ),
    ).toEqual({
      address: '198.18.0.216',
      atMs: Date.UTC(2015, 4, 17, 8, 5, 3),
      agent: 'q',
    });
  });

  test('common format has no agent', () => {
    const common = '2001:db8::1 - - [01/Jan/2020:00:00:00 -0130] "GET / HTTP/1.0" 404 -';
    expect(parseLogLine(common)).toEqual({
      address: '2001:db8::1',
      atMs: Date.UTC(2020, 0, 1, 1, 30),
      agent: '',
    });
  });

  test.each(['', 'hello', '1.2.3.4 - - [17/Foo/2015:10:05:03 +0000] "GET /"'])(
    'no log line: %j',
    (text) => expect(parseLogLine(text)).toBeUndefined(),
  );
});

describe('arrivals of a log', () => {
  const log = [
    line('10.0.0.1', '10:00:10', 'B'),
    line('10.0.0.2', '10:00:00'),
    line('10.0.0.1', '10:00:20'),
  ].join('\n');

  test('sorted by time, squeezed, one household an address, cycled over people', () => {
    const arrivals = logArrivals(log, 5, 1000);
    expect([...arrivals.atMs]).toEqual([0, 0, 500, 500, 1000]);
    expect(arrivals.addresses).toEqual(['10.0.0.2', '10.0.0.1']);
    expect([...arrivals.household]).toEqual([0, 0, 1, 1, 1]);
    expect([...arrivals.agentOf].map((at) => arrivals.agents[at])).toEqual([
      'A',
      'A',
      'B',
      'B',
      'A',
    ]);
  });

  test('more lines than people: the first lines, their own span', () => {
    const arrivals = logArrivals(log, 2, 1000);
    expect([...arrivals.atMs]).toEqual([0, 1000]);
    expect(arrivals.lines).toBe(3);
  });

  test('a file that is no log is refused with what was found', () => {
    expect(() => logArrivals('a\nb\n', 5, 1000)).toThrow(BadLogError);
    expect(() => logArrivals('', 5, 1000)).toThrow(/found 0 lines/);
    expect(logArrivals(`${log}\n`.repeat(5) + 'garbage', 5, 1000).skipped).toBe(1);
  });
});

describe('arrivals of a shape', () => {
  test.each([
    ['constant', 0.5],
    ['ramp', 0.25],
    ['spike', 1 / 16],
  ] as const)('%s: share of arrivals in the first half is near %d', (shape, share) => {
    const n = 10_000;
    const { atMs } = shapedArrivals(shape, n, 1000, new Dice(1));
    const early = atMs.filter((at) => at < 500).length / n;
    expect(Math.abs(early - share)).toBeLessThan(0.02);
    expect([...atMs]).toEqual([...atMs].sort((a, b) => a - b));
    expect(atMs[n - 1]).toBeLessThanOrEqual(1000);
  });

  test('households hold one to five, members arrive apart', () => {
    const { household, households } = shapedArrivals('constant', 5_000, 1000, new Dice(1));
    const sizes = new Map<number, number>();
    for (const each of household) sizes.set(each, (sizes.get(each) ?? 0) + 1);
    expect(sizes.size).toBe(households);
    expect(Math.max(...sizes.values())).toBeLessThanOrEqual(5);
    expect(5_000 / households).toBeGreaterThan(2);
    const beside = household.filter((each, at) => each === household[at + 1]).length;
    expect(beside).toBeLessThan(50);
  });
});

test('households have addresses of their own, scattered over prefixes', () => {
  const addresses = Array.from({ length: 20_000 }, (_, i) => householdAddress(i, 0));
  expect(new Set(addresses).size).toBe(20_000);
  const prefixes = new Map<string, number>();
  for (const address of addresses.filter((each) => each.includes('.'))) {
    const prefix = address.split('.').slice(0, 3).join('.');
    prefixes.set(prefix, (prefixes.get(prefix) ?? 0) + 1);
  }
  expect(Math.max(...prefixes.values())).toBeLessThan(10);
  expect(householdAddress(4, 1)).not.toBe(householdAddress(4, 2));
});
