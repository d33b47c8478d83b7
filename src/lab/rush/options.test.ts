import { describe, expect, test } from 'vitest';
import { parseRushOptions, rushFlags } from './options.ts';

const errorsOf = (raw: Record<string, unknown>): readonly string[] => {
  const parsed = parseRushOptions(raw);
  return parsed.ok ? [] : parsed.errors;
};

describe('options of rush', () => {
  test('the run of the readme', () => {
    const parsed = parseRushOptions({
      embedded: true,
      people: '20000',
      stock: '500',
      bots: '20%',
      duplicates: '50%',
      timeouts: '0.1',
      over: '20s',
      report: 'r.json',
      seed: '9',
    });
    expect(parsed).toMatchObject({
      ok: true,
      options: {
        target: undefined,
        people: 20_000,
        stock: 500,
        overMs: 20_000,
        seed: 9,
        reportFile: 'r.json',
        scenario: { bots: 0.2, duplicates: 0.5, timeouts: 0.1 },
      },
    });
  });

  test('a scenario gives defaults, flags override, scale multiplies people and stock', () => {
    const parsed = parseRushOptions({ embedded: true, scenario: 'million', scale: '0.02' });
    expect(parsed).toMatchObject({
      ok: true,
      options: { people: 20_000, stock: 200, overMs: 10_000, scenario: { bots: 0.1 } },
    });
  });

  test('every error at once, each with what was found and what is allowed', () => {
    const errors = errorsOf({
      people: '0',
      over: '10',
      bots: '120%',
      scenario: 'nope',
      seed: 'x',
      scale: '-1',
      poeple: '3',
    }).join('\n');
    expect(errors).toMatch(/--embedded and --target URL; found neither/);
    expect(errors).toMatch(/--people: found "0"; must be a whole number from 1/);
    expect(errors).toMatch(/--over: found "10"/);
    expect(errors).toMatch(/--bots: found "120%"/);
    expect(errors).toMatch(/--scenario: found "nope"; allowed: even, spike/);
    expect(errors).toMatch(/--seed: found "x"/);
    expect(errors).toMatch(/--scale: found "-1"/);
    expect(errors).toMatch(/--poeple: no such option/);
  });

  test.each([
    [{ embedded: true, target: 'http://x' }, /found both/],
    [{ target: 'ftp://x' }, /--target: found "ftp:\/\/x"/],
    [{ target: 'http://x', stock: '5' }, /--stock: only with --embedded/],
    [{ embedded: true, people: '5000000', scale: '2' }, /found 10000000; at most 5000000/],
  ])('%j', (raw, message) => {
    expect(errorsOf(raw).join('\n')).toMatch(message);
  });

  test('every flag that is described is understood', () => {
    const values: Record<string, unknown> = {
      embedded: true,
      activity: 'a',
      people: '1',
      over: '1s',
      stock: '1',
      bots: '1%',
      duplicates: '1%',
      timeouts: '1%',
      arrivals: 'f',
      scenario: 'even',
      scale: '1',
      seed: '1',
      report: 'f',
      json: true,
    };
    const described = rushFlags
      .map(({ flag }) => flag.slice(2))
      .filter((name) => name !== 'target');
    expect(Object.keys(values).sort()).toEqual(described.sort());
    expect(errorsOf(values)).toEqual([]);
  });
});
