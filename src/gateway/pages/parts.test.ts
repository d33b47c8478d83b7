import { fc } from '../../../test/support/property.ts';
import { describe, expect, it } from 'vitest';
import { readCookie, writeCookie } from './cookies.ts';
import { formatCountdown, formatInstant, formatMoney, formatSpan } from './format.ts';
import { chooseLanguage, fromAcceptLanguage, wantsJson } from './language.ts';
import { originAllowed } from './origin.ts';
import {
  contrast,
  darkGround,
  defaultTheme,
  inkOn,
  lightGround,
  parseTheme,
  themeCss,
} from './theme.ts';

describe('language', () => {
  it.each([
    ['zh-CN,zh;q=0.9,en;q=0.8', 'zh'],
    ['en-GB,en;q=0.9', 'en'],
    ['fr-FR,fr;q=0.9,zh;q=0.3,en;q=0.2', 'zh'],
    ['en;q=0.2, zh-Hant-TW;q=0.7', 'zh'],
    ['zh;q=0, en;q=0.1', 'en'],
    ['fr', undefined],
    ['*', 'en'],
    ['', undefined],
    [undefined, undefined],
  ] as const)('reads %s as %s', (header, expected) => {
    expect(fromAcceptLanguage(header)).toBe(expected);
  });

  it('takes the address before the cookie before the browser', () => {
    expect(chooseLanguage('zh', 'en', 'en')).toBe('zh');
    expect(chooseLanguage('xx', 'zh', 'en')).toBe('zh');
    expect(chooseLanguage(undefined, undefined, 'zh')).toBe('zh');
    expect(chooseLanguage(undefined, undefined, undefined)).toBe('en');
  });

  it.each([
    ['application/json', true],
    ['text/plain, application/json', true],
    ['*/*;q=0.1, application/problem+json', true],
    ['text/html, application/json;q=0.9', false],
    ['application/json, text/html;q=0.5', true],
    ['application/json;q=0', false],
    ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', false],
    ['*/*', false],
    [undefined, false],
  ] as const)('Accept %s wants JSON: %s', (accept, expected) => {
    expect(wantsJson(accept)).toBe(expected);
  });

  it('survives any header', () => {
    fc.assert(
      fc.property(fc.string(), (header) => {
        expect(['en', 'zh', undefined]).toContain(fromAcceptLanguage(header));
        expect(typeof wantsJson(header)).toBe('boolean');
      }),
    );
  });
});

describe('cookies', () => {
  it('reads back what it wrote, under the name that the connection allows', () => {
    for (const secure of [true, false]) {
      const written = writeCookie('sluice-user', 'a.b-c_d=', secure, 60);
      const pair = written.split(';')[0]!;
      expect(readCookie(`x=1; ${pair}; y=2`, 'sluice-user', secure)).toBe('a.b-c_d=');
      expect(readCookie(pair, 'sluice-user', !secure)).toBeUndefined();
      expect(written).toMatch(/; HttpOnly; SameSite=Lax/);
      expect(written.includes('; Secure')).toBe(secure);
      expect(written.startsWith('__Host-')).toBe(secure);
    }
  });

  it('refuses a value that could carry an attribute', () => {
    expect(() => writeCookie('sluice-lang', 'en; Domain=evil', false, 1)).toThrow(/allowed/);
  });

  it('is not fooled by a name that only ends alike', () => {
    expect(readCookie('xsluice-user=evil', 'sluice-user', false)).toBeUndefined();
  });
});

describe('origin', () => {
  const base = {
    host: 'shop.example:8080',
    origin: undefined,
    secFetchSite: undefined,
    referer: undefined,
  };

  it.each([
    [{ origin: 'http://shop.example:8080' }, true],
    [{ origin: 'https://shop.example:8080' }, false],
    [{ origin: 'http://shop.example' }, false],
    [{ origin: 'http://evil.example' }, false],
    [{ origin: 'null' }, false],
    [{ origin: 'http://shop.example:8080.evil.example' }, false],
    [{ origin: 'http://evil.example', referer: 'http://shop.example:8080/' }, false],
    [{ secFetchSite: 'same-origin' }, true],
    [{ secFetchSite: 'same-site' }, false],
    [{ secFetchSite: 'cross-site' }, false],
    [{ secFetchSite: 'none' }, false],
    [{ referer: 'http://shop.example:8080/a/x' }, true],
    [{ referer: 'http://evil.example/?http://shop.example:8080/' }, false],
    [{}, false],
  ])('%j allowed: %s', (headers, expected) => {
    expect(originAllowed({ ...base, ...headers }, false)).toBe(expected);
  });

  it('compares the scheme too', () => {
    expect(originAllowed({ ...base, origin: 'https://shop.example:8080' }, true)).toBe(true);
    expect(originAllowed({ ...base, host: undefined, origin: 'http://x' }, false)).toBe(false);
  });
});

describe('theme', () => {
  it('takes the defaults, which are readable', () => {
    expect(parseTheme({})).toEqual(defaultTheme);
    expect(contrast(defaultTheme.accent, lightGround)).toBeGreaterThan(4.5);
    expect(contrast(defaultTheme.accentDark, darkGround)).toBeGreaterThan(4.5);
  });

  it('lists every fault with what was found and what is allowed', () => {
    const faulty = {
      name: '',
      accent: '#ffff00',
      radius_px: 1.5,
      colour: 'red',
      logo_text: 'long',
    };
    expect(() => parseTheme(faulty)).toThrow(RangeError);
    try {
      parseTheme(faulty);
    } catch (error) {
      const text = String((error as Error).message);
      for (const word of [
        'theme.name: found ""',
        '#ffff00',
        'contrast of at least 4.5',
        'theme.radius_px: found 1.5',
        'theme.colour: unknown',
        'up to 3 characters',
      ])
        expect(text).toContain(word);
    }
    expect(() => parseTheme([])).toThrow(/allowed is an object/);
  });

  it('never lets a value leave its declaration', () => {
    for (const accent of ['red;}', '#12345', '#0b5c73;}*{display:none', 'url(x)'])
      expect(() => parseTheme({ accent })).toThrow(RangeError);
    expect(themeCss({ ...defaultTheme, name: '</style>' })).not.toContain('</style>');
  });

  it('puts ink on any accent that can be read', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffffff }), (value) => {
        const colour = `#${value.toString(16).padStart(6, '0')}`;
        expect(contrast(colour, inkOn(colour))).toBeGreaterThanOrEqual(4.3);
      }),
    );
  });
});

describe('format', () => {
  it('writes money in the currency’s own digits', () => {
    expect(formatMoney('en', 68_000, 'CNY')).toBe('¥680.00');
    expect(formatMoney('zh', 68_000, 'CNY')).toBe('¥680.00');
    expect(formatMoney('en', 500, 'JPY')).toBe('¥500');
    expect(formatMoney('en', 1_250, 'EUR')).toBe('€12.50');
  });

  it('writes an instant in a zone, with its offset', () => {
    const at = Date.UTC(2026, 2, 14, 12, 0, 0);
    expect(formatInstant('en', 'Asia/Shanghai', at)).toMatch(/^Sat,? 14 Mar, 20:00:00 GMT\+8$/);
    expect(formatInstant('zh', 'Asia/Shanghai', at)).toBe('3月14日周六 20:00:00 GMT+8');
    expect(formatInstant('en', 'UTC', at)).toContain('12:00:00');
  });

  it('counts down and never below zero', () => {
    expect(formatCountdown('en', -5)).toBe('0:00');
    expect(formatCountdown('en', 7_200)).toBe('0:08');
    expect(formatCountdown('en', 3_600_000 + 61_000)).toBe('1:01:01');
    expect(formatCountdown('en', 2 * 86_400_000)).toBe('2d 0:00:00');
    expect(formatCountdown('zh', 2 * 86_400_000)).toBe('2 天 0:00:00');
  });

  it('says spans roughly', () => {
    expect(formatSpan('en', 1_000, 50_000)).toBe('under a minute');
    expect(formatSpan('en', 130_000, 290_000)).toBe('2–5 min');
    expect(formatSpan('zh', 130_000, 290_000)).toBe('2–5 分钟');
    expect(formatSpan('en', 20_000, 150_000)).toBe('up to 3 min');
    expect(formatSpan('zh', 0, 60_000)).toBe('最多 1 分钟');
    expect(formatSpan('en', 7_200_000, 7_200_000)).toBe('2 h');
  });
});
