import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import { EventLog, cleaned, keptPerKind, keptPerSecond, refusalsPerSecond } from './log.ts';
import type { LogFields, LogLevel } from './log.ts';

function logged(level: LogLevel = 'info', successSample = 1) {
  const world = new World();
  const lines: string[] = [];
  const log = new EventLog({
    level,
    clock: world,
    successSample,
    destination: { write: (line) => lines.push(line) },
  });
  const parsed = () => lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  return { world, lines, log, parsed };
}

const base64url = (length: number) =>
  fc.string({
    unit: fc.constantFrom(
      ...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'.split(''),
    ),
    minLength: length,
    maxLength: length,
  });

/** What must never be read in a log, each in its usual writing. */
const secret = fc.oneof(
  fc.tuple(base64url(40), base64url(120), base64url(43)).map(([a, b, c]) => `eyJ${a}.eyJ${b}.${c}`),
  base64url(43).filter((text) => /\d/.test(text)),
  fc.stringMatching(/^[0-9a-f]{64}$/).filter((text) => /\d/.test(text)),
  fc.ipV4(),
  fc.ipV6().filter((text) => text.length > 6),
  fc.emailAddress(),
);

const places: readonly (keyof LogFields)[] = [
  'activity_id',
  'stage',
  'decision',
  'reason',
  'mode',
  'error',
  'error_code',
  'detail',
  'fail_policy',
  'trace_id',
];

describe('redaction', () => {
  test('property: a secret put into free text, anywhere, is never written', () => {
    const words = fc.constantFrom(
      '',
      'cannot read ',
      'from user ',
      'at ',
      'token=',
      'Bearer ',
      '"',
      '(',
    );
    fc.assert(
      fc.property(
        words,
        secret,
        fc.constantFrom('', ' again', '"', ')', ', retrying', '\n'),
        (before, hidden, after) => {
          const { log, lines } = logged();
          log.error('fault', new Error(before + hidden + after));
          log.warn('note', { detail: before + hidden + after });
          for (const line of lines) expect(line).not.toContain(hidden);
        },
      ),
      { numRuns: 3_000 },
    );
  });

  test('property: signed tokens and addresses are written in no field at all', () => {
    const impossible = secret.filter((text) => /[.:@]/.test(text));
    fc.assert(
      fc.property(fc.constantFrom(...places), impossible, (place, hidden) => {
        const { log, lines } = logged();
        const fields = { [place]: hidden } as LogFields;
        log.refusal(fields);
        log.warn('w', fields);
        log.info(hidden);
        for (const line of lines) expect(line).not.toContain(hidden);
      }),
    );
  });

  test('what is not on the list does not pass, whatever it is called', () => {
    const { log, lines } = logged();
    const sly = { user_id: 'u_1', authorization: 'x', address: '192.0.2.1', __proto__: { a: 1 } };
    log.warn('w', sly as LogFields);
    log.warn('w', { ...sly, cost: Number.NaN, stage: 7 } as unknown as LogFields);
    expect(lines.map((line) => Object.keys(JSON.parse(line) as object))).toEqual([
      ['level', 'time', 'event'],
      ['level', 'time', 'event'],
    ]);
  });

  test('a secret that looks like any word is hidden by the name before it, however that is written', () => {
    const name = fc.constantFrom(
      'Authorization',
      'proxy-authorization',
      'SET-COOKIE',
      'cookie',
      'access_token',
      'client_secret',
      'X-Api-Key',
      'apiKey',
      'PGPASSWORD',
      'passwd',
      'private_key',
      'sig',
      'SLUICE_SECRET',
    );
    const is = fc.constantFrom(
      '=',
      ' = ',
      ': ',
      ':',
      '":"',
      '": "',
      "': '",
      '=Bearer ',
      ': Basic ',
    );
    const before = fc.constantFrom('', 'GET /cb?', '{"', 'failed with ', '&a=b&');
    fc.assert(
      fc.property(before, name, is, fc.constantFrom('', '"', '; a=b', ' x'), (...parts) => {
        const [start, key, sign, end] = parts;
        expect(cleaned(`${start}${key}${sign}hunter2${end}`)).not.toContain('hunter2');
      }),
      { numRuns: 1_000 },
    );
    // All of it, not the first word.
    expect(cleaned('Cookie: a=hunter1; b=hunter2')).toBe('Cookie [hidden]');
    expect(cleaned('{"password": "hunter one", "tries": 3}')).toBe(
      '{"password [hidden] "tries": 3}',
    );
    expect(cleaned('the design: a queue')).toBe('the design: a queue');
  });

  test('a secret that the end of a long text cuts through is not half written', () => {
    const token = 'q7Zk2Vx9Lm4Tn8Rb3Wc6';
    for (let kept = 1; kept < token.length; kept += 1) {
      const text = `${'word '.repeat(100).slice(0, 499 - kept)} ${token} more`;
      expect(cleaned(text)).not.toContain(token.slice(0, Math.min(kept, 4)));
    }
  });

  test('negative control: without cleaning, the property would find the secret', () => {
    expect('cannot read 192.0.2.7').toContain('192.0.2.7');
    expect(cleaned('cannot read 192.0.2.7')).toBe('cannot read [address]');
  });

  test('ordinary words survive', () => {
    for (const text of [
      'journal.log is damaged at byte 4096',
      'connect ECONNREFUSED',
      '/var/lib/sluice/orders/write-ahead.journal',
      'found "drw"; allowed: draw, fifo',
    ])
      expect(cleaned(text)).toBe(text);
    expect(cleaned('no answer of postgres://user:pw@db/x')).toBe('no answer of [hidden]');
    expect(cleaned('a\u0000b\u001B[31m')).toBe('a b [31m');
    expect(cleaned('x'.repeat(10_000)).length).toBeLessThan(600);
  });
});

describe('a flood', () => {
  test('writes a few lines per reason and second, and says how many more there were', async () => {
    const { log, parsed, world } = logged();
    for (let n = 0; n < 5_000; n += 1) log.refusal({ reason: 'sold_out' });
    for (let n = 0; n < 3; n += 1) log.refusal({ reason: 'mode' });
    expect(parsed()).toHaveLength(refusalsPerSecond + 3);
    world.jumpWall(-60_000);
    await world.advance(1_000);
    log.refusal({ reason: 'sold_out' });
    expect(parsed().at(-1)).toMatchObject({
      event: 'refused',
      reason: 'sold_out',
      suppressed: 5_000 - refusalsPerSecond,
    });
  });

  test('the last count is told by flush, once', async () => {
    const { log, parsed, world } = logged();
    for (let n = 0; n < 20; n += 1) log.refusal({ reason: 'x' });
    log.flush();
    expect(parsed()).toHaveLength(refusalsPerSecond);
    await world.advance(1_000);
    log.flush();
    log.flush();
    expect(parsed()).toHaveLength(refusalsPerSecond + 1);
    expect(parsed().at(-1)).toMatchObject({ suppressed: 20 - refusalsPerSecond });
  });

  test('every line is accounted for: written plus suppressed is what came', async () => {
    const { log, parsed, world } = logged();
    let came = 0;
    for (let second = 0; second < 5; second += 1) {
      for (let n = 0; n < second * 7; n += 1) {
        log.refusal({ reason: `r${n % 3}`, stage: 'shed' });
        came += 1;
      }
      await world.advance(1_000);
    }
    log.flush();
    const refused = parsed().filter((line) => line['event'] === 'refused');
    const suppressed = parsed().reduce((sum, line) => sum + Number(line['suppressed'] ?? 0), 0);
    const said = refused.filter((line) => line['stage'] === 'shed').length;
    expect(said + suppressed).toBe(came);
  });

  test('invented reasons share one count', () => {
    const { log, parsed } = logged();
    for (let n = 0; n < 10_000; n += 1) log.refusal({ reason: `r${n}` });
    expect(parsed().length).toBeLessThanOrEqual(127 + refusalsPerSecond);
  });

  test('even what is always kept has a cap', () => {
    const { log, parsed } = logged();
    for (let n = 0; n < 1_000; n += 1) log.error(`fault${n % 100}`, new Error('again'));
    expect(parsed()).toHaveLength(keptPerSecond);
  });

  test('what is said with every request does not push out what is said once', async () => {
    const { log, parsed, world } = logged();
    const trouble = { reason: 'forgotten', sku_id: 'a' };
    for (let n = 0; n < 10_000; n += 1) log.warn('stock_trouble', trouble);
    log.warn('stock_forgotten', { sku_id: 'a' });
    expect(parsed()).toHaveLength(keptPerKind + 1);
    expect(parsed().at(-1)).toMatchObject({ event: 'stock_forgotten' });
    await world.advance(1_000);
    log.flush();
    log.flush();
    expect(parsed()).toHaveLength(keptPerKind + 2);
    expect(parsed().at(-1)).toMatchObject({
      event: 'suppressed',
      reason: 'stock_trouble-forgotten',
      suppressed: 10_000 - keptPerKind,
    });
  });

  test('what is kept is accounted for: written plus suppressed is what came', async () => {
    const { log, parsed, world } = logged();
    const said = { written: 0, suppressed: 0 };
    const came = 5 * 3_000;
    for (let second = 0; second < 5; second += 1) {
      for (let n = 0; n < 3_000; n += 1) log.warn(`w${n % (1 + second * 20)}`, { reason: 'r' });
      await world.advance(1_000);
    }
    log.flush();
    for (const line of parsed()) {
      if (line['event'] !== 'suppressed') said.written += 1;
      said.suppressed += Number(line['suppressed'] ?? 0);
    }
    expect(said.written + said.suppressed).toBe(came);
  });
});

describe('levels and samples', () => {
  test('one success in so many', () => {
    const { log, parsed } = logged('info', 10);
    for (let n = 0; n < 100; n += 1) log.success('admitted', { latency_ms: n });
    expect(parsed()).toHaveLength(10);
  });

  test('a quieter level writes less and pays less', () => {
    const { log, parsed } = logged('warn');
    log.refusal({ reason: 'x' });
    log.success('admitted', {});
    log.info('started');
    log.warn('mode', { mode: 'CLOSED' });
    expect(parsed()).toEqual([
      expect.objectContaining({ level: 'warn', event: 'mode', mode: 'CLOSED' }),
    ]);
  });

  test('a fault says its kind, code and words', () => {
    const { log, parsed } = logged();
    log.error('store', Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' }));
    log.error('odd', 'just a string');
    expect(parsed()[0]).toMatchObject({
      event: 'store',
      error: 'Error',
      error_code: 'ETIMEDOUT',
      detail: 'no answer',
      time: new Date(1_800_000_000_000).toISOString(),
    });
    expect(parsed()[1]).toMatchObject({ error: 'thrown', detail: 'just a string' });
  });
});
