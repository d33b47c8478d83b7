import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import {
  formatDuration,
  isHost,
  isSafeUrl,
  isTimeZone,
  localInstantMs,
  parseDurationMs,
  parseInstant,
  parseNetwork,
  parsePrice,
  readRate,
} from './values.ts';

describe('durations', () => {
  test.each([
    ['500ms', 500],
    ['1.5s', 1500],
    ['15m', 900_000],
    ['2h', 7_200_000],
    ['100d', 8_640_000_000],
    ['0s', 0],
  ])('%s is %d ms', (text, ms) => {
    expect(parseDurationMs(text)).toBe(ms);
  });

  test.each(['15', '1.5ms', '101d', '-1s', '1 s', '1e3s', '', 's', '٣s', '1S'])(
    '%j is refused',
    (text) => {
      expect(parseDurationMs(text)).toBeUndefined();
    },
  );

  test('what is written can be read again', () => {
    fc.assert(
      fc.property(fc.nat(8_640_000_000), (ms) => {
        expect(parseDurationMs(formatDuration(ms))).toBe(ms);
      }),
    );
  });
});

describe('rates', () => {
  test.each([
    ['5/s', 5_000, 1_000_000],
    ['0.5/s', 500, 1_000_000],
    ['100/10s', 100_000, 10_000_000],
    ['1/30d', 1_000, 2_592_000_000_000],
    ['2000000/s', 2_000_000_000, 1_000_000],
    ['0/s', 0, 1_000_000],
    ['1/100ms', 1_000, 100_000],
  ])('%s', (text, tokensMilli, periodUs) => {
    expect(readRate(text)).toEqual({ tokensMilli, periodUs });
  });

  test.each(['5', '5/0s', '/s', '-5/s', '5/s/s', '1/367d', '1.2345/s'])('%j is refused', (text) => {
    expect(readRate(text)).toBeUndefined();
  });
});

describe('instants', () => {
  test('after the start, with an offset, or by a clock', () => {
    expect(parseInstant('+30s')).toEqual({ kind: 'relative', offsetMs: 30_000 });
    const utc = Date.UTC(2027, 4, 1, 10);
    expect(parseInstant('2027-05-01T10:00:00Z')).toEqual({ kind: 'absolute', atMs: utc });
    expect(parseInstant('2027-05-01T18:00:00.000+08:00')).toEqual({ kind: 'absolute', atMs: utc });
    expect(parseInstant('2027-05-01 18:00')).toMatchObject({ kind: 'local' });
  });

  test.each(['2027-02-30T10:00:00Z', '2027-05-01', '+30', '-30s', '2027-05-01T25:00Z', 'now'])(
    '%j is refused',
    (text) => {
      expect(parseInstant(text)).toBeUndefined();
    },
  );

  const local = (text: string, zone: string): number | undefined => {
    const instant = parseInstant(text);
    return instant?.kind === 'local' ? localInstantMs(instant.fields, zone) : undefined;
  };

  test('a clock time means its zone, winter and summer', () => {
    expect(local('2027-05-01 18:00', 'Asia/Shanghai')).toBe(Date.UTC(2027, 4, 1, 10));
    expect(local('2027-01-15 12:00', 'Europe/Berlin')).toBe(Date.UTC(2027, 0, 15, 11));
    expect(local('2027-07-15 12:00', 'Europe/Berlin')).toBe(Date.UTC(2027, 6, 15, 10));
    expect(local('2027-07-15 12:00:30.250', 'Pacific/Apia')).toBe(
      Date.UTC(2027, 6, 14, 23, 0, 30, 250),
    );
  });

  test('a time that clocks skip or show twice is not one instant', () => {
    expect(local('2027-03-28 02:30', 'Europe/Berlin')).toBeUndefined();
    expect(local('2027-10-31 02:30', 'Europe/Berlin')).toBeUndefined();
    expect(local('2027-10-31 03:30', 'Europe/Berlin')).toBe(Date.UTC(2027, 9, 31, 2, 30));
  });

  test('whatever the zone, an instant that is found shows the clock time that was written', () => {
    const zones = ['America/New_York', 'Asia/Kathmandu', 'Australia/Lord_Howe', 'UTC'];
    fc.assert(
      fc.property(
        fc.constantFrom(...zones),
        fc.date({ min: new Date('2020-01-01'), max: new Date('2035-01-01'), noInvalidDate: true }),
        (zone, date) => {
          const text = date.toISOString().slice(0, 23);
          const at = local(text, zone);
          if (at === undefined) return;
          const shown = new Date(at).toLocaleString('sv-SE', { timeZone: zone });
          expect(shown).toBe(text.slice(0, 19).replace('T', ' '));
        },
      ),
    );
  });
});

describe('prices', () => {
  test.each([
    ['88.00 CNY', 8_800, 'CNY'],
    ['88 CNY', 8_800, 'CNY'],
    ['88.5 CNY', 8_850, 'CNY'],
    ['1200 JPY', 1_200, 'JPY'],
    ['1.234 KWD', 1_234, 'KWD'],
    ['0 EUR', 0, 'EUR'],
  ])('%s', (text, amountMinor, currency) => {
    expect(parsePrice(text)).toEqual({ amountMinor, currency });
  });

  test.each(['88.001 CNY', '1.5 JPY', '5 QQQ', '5', '5 eur', '-5 EUR', '5EUR'])(
    '%j is refused',
    (text) => {
      expect(parsePrice(text)).toBeUndefined();
    },
  );
});

describe('networks and hosts', () => {
  test.each([
    ['10.0.0.7/8', '10.0.0.0/8'],
    ['127.0.0.1', '127.0.0.1/32'],
    ['::ffff:192.0.2.7', '192.0.2.7/32'],
    ['2001:DB8::1/32', '2001:db8::/32'],
  ])('%s is %s', (text, network) => {
    expect(parseNetwork(text)).toBe(network);
  });

  test.each(['10.1', '0x7f.1', '2130706433', '10.0.0.0/33', '10.0.0.0/', '::1/129', 'proxy', ''])(
    '%j is refused',
    (text) => {
      expect(parseNetwork(text)).toBeUndefined();
    },
  );

  test('hosts', () => {
    for (const good of ['127.0.0.1', '0.0.0.0', '::', '::1', 'localhost', 'shop.example'])
      expect(isHost(good)).toBe(true);
    for (const bad of ['', '127.1', '256.0.0.1', 'a b', '-x', 'http://x', 'x:80'])
      expect(isHost(bad)).toBe(false);
  });

  test('addresses that we call: over TLS, or on this machine, and never with credentials', () => {
    for (const good of ['https://a.example/jwks', 'http://127.0.0.1:9/x', 'http://[::1]/x'])
      expect(isSafeUrl(good)).toBe(true);
    for (const bad of ['http://a.example/', 'https://u:p@a.example/', 'ftp://x', 'a', 'file:///x'])
      expect(isSafeUrl(bad)).toBe(false);
  });

  test('zones', () => {
    expect(isTimeZone('Asia/Shanghai')).toBe(true);
    expect(isTimeZone('Mars/Base')).toBe(false);
  });
});
