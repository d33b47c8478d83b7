import { readFileSync } from 'node:fs';
import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { type PlainRequest, RateLimiter, type Verdict } from './limiter.ts';
import { optionNames, RateLimitOptionError, type RateLimitOptions } from './options.ts';
import type { LibraryWorld } from './system.ts';

function worldAt(): LibraryWorld & { nowUs: number; sweeps: (() => void)[] } {
  const world = {
    nowUs: 1_000_000,
    sweeps: [] as (() => void)[],
    monoUs: () => world.nowUs,
    wallMs: () => Math.floor(world.nowUs / 1000),
    float: () => 0.5,
    seed: () => Uint32Array.of(1, 2),
    every: (_periodMs: number, run: () => void) => {
      world.sweeps.push(run);
      return () => undefined;
    },
    sleep: async () => undefined,
  };
  return world;
}

type Options = RateLimitOptions<PlainRequest>;

const plain = (
  over: Partial<PlainRequest> & { headers?: Record<string, string> } = {},
): PlainRequest => ({
  method: 'GET',
  path: '/',
  peer: '203.0.113.9',
  header: (name) => over.headers?.[name],
  ...over,
});

const sync = (verdict: ReturnType<RateLimiter<PlainRequest>['check']>): Verdict | undefined => {
  if (verdict instanceof Promise) throw new Error('it is decided at once');
  return verdict;
};

function limiterOf(options: Options, world = worldAt()) {
  const limiter = new RateLimiter<PlainRequest>({ world, ...options });
  const ask = (request = plain()): Verdict | undefined => sync(limiter.check(request, request));
  const count = (times: number, request = plain()): number =>
    Array.from({ length: times }, () => ask(request)).filter(
      (verdict) => verdict?.admitted !== false,
    ).length;
  return { limiter, world, ask, count };
}

describe('the simple form', () => {
  test('so many per window for each address, and the answer says what is left', () => {
    const { ask, count } = limiterOf({ limit: 3, window: '1m' });
    const first = ask();
    expect(first).toMatchObject({
      admitted: true,
      info: { limit: 3, used: 1, remaining: 2, degraded: false },
    });
    expect(first?.headers).toEqual([
      ['RateLimit-Policy', '"default";q=3;w=60'],
      ['RateLimit', expect.stringMatching(/^"default";r=2;t=\d+$/)],
    ]);
    expect(count(5)).toBe(2);
    expect(count(5, plain({ peer: '203.0.113.10' }))).toBe(3);
  });

  test('a refusal is a problem document, with the exact time to come back', () => {
    const { ask, world } = limiterOf({ rate: '1/0.3s', burst: 1, name: 'api' });
    ask();
    const refused = ask();
    if (refused?.admitted !== false) throw new Error('it must be refused');
    expect(refused.status).toBe(429);
    expect(refused.contentType).toBe('application/problem+json');
    expect(JSON.parse(refused.body)).toEqual({
      type: 'urn:sluice:problem:rate_limited',
      title: 'A configured limit said no',
      status: 429,
      detail: 'limit "api" is used up for the moment',
      code: 'RATE_LIMITED',
      scope: 'source',
      reason: 'limit',
      rule_id: 'api',
      retryable: true,
      retry_after_ms: 300,
      next_action: 'RETRY_LATER',
      server_time: '1970-01-01T00:00:01.000Z',
    });
    const headers = new Map(refused.headers);
    expect(headers.get('Retry-After')).toBe('1');
    expect(headers.get('Sluice-Limited')).toBe('source');
    expect(headers.get('Cache-Control')).toBe('no-store');
    expect(headers.get('RateLimit')).toBe('"api";r=0;t=1');
    world.nowUs += 299_000;
    expect(ask()?.admitted).toBe(false);
    world.nowUs += 1_000;
    expect(ask()?.admitted).toBe(true);
  });

  test('the same caller in another writing is the same caller', () => {
    const { count } = limiterOf({ limit: 1 });
    expect(count(1, plain({ peer: '::ffff:192.0.2.7' }))).toBe(1);
    expect(count(1, plain({ peer: '192.0.2.7' }))).toBe(0);
    expect(count(1, plain({ peer: '2001:db8:0:1::1' }))).toBe(1);
    expect(count(1, plain({ peer: '2001:db8:0:2::9' }))).toBe(0);
    expect(count(1, plain({ peer: '2001:db8:0:100::9' }))).toBe(1);
  });

  test('X-Forwarded-For is nobody’s business, unless a trusted proxy wrote it', () => {
    const forged = (n: number) => plain({ headers: { 'x-forwarded-for': `198.51.100.${n}` } });
    const open = limiterOf({ limit: 1 });
    expect([1, 2, 3].map((n) => open.count(1, forged(n)))).toEqual([1, 0, 0]);
    const behind = limiterOf({ limit: 1, trustedProxies: ['203.0.113.0/24'] });
    expect([1, 2, 1].map((n) => behind.count(1, forged(n)))).toEqual([1, 1, 0]);
  });

  test('a key of the application counts as it says; what it does not know is counted together', () => {
    const { count } = limiterOf({ limit: 1, key: (request) => request.header('x-user') });
    const by = (user?: string) => plain(user === undefined ? {} : { headers: { 'x-user': user } });
    expect([by('a'), by('b'), by('a'), by(), by()].map((one) => count(1, one))).toEqual([
      1, 1, 0, 1, 0,
    ]);
  });

  test('successes or failures can be left uncounted', () => {
    const run = (options: Options, statuses: readonly number[]): number => {
      const { ask } = limiterOf({ limit: 2, ...options });
      let admitted = 0;
      for (const status of statuses) {
        const verdict = ask();
        if (verdict?.admitted !== true) continue;
        admitted += 1;
        verdict.finished(status);
      }
      return admitted;
    };
    expect(run({}, [200, 200, 200, 200])).toBe(2);
    expect(run({ skipSuccessfulRequests: true }, [200, 200, 200, 200])).toBe(4);
    expect(run({ skipSuccessfulRequests: true }, [500, 200, 404, 200])).toBe(3);
    expect(run({ skipFailedRequests: true }, [500, 200, 404, 200, 200])).toBe(4);
  });

  test('skipped requests are not counted; a promise is waited for', async () => {
    const world = worldAt();
    const limiter = new RateLimiter<PlainRequest>({
      limit: 1,
      world,
      skip: async (request) => request.path === '/health',
    });
    const ask = async (path: string) => limiter.check(plain({ path }), plain({ path }));
    expect(await ask('/health')).toBeUndefined();
    expect(await ask('/')).toMatchObject({ admitted: true });
    expect(await ask('/')).toMatchObject({ admitted: false });
    expect(await ask('/health')).toBeUndefined();
  });

  test('status, message, headers and the hook are the application’s', () => {
    const heard: unknown[] = [];
    const { ask } = limiterOf({
      limit: 1,
      statusCode: 503,
      message: { error: 'slow down' },
      headers: ['draft-7', 'legacy'],
      onRefused: (_request, refusal) => heard.push(refusal),
    });
    ask();
    const refused = ask();
    expect(refused).toMatchObject({
      status: 503,
      contentType: 'application/json',
      body: '{"error":"slow down"}',
    });
    expect(refused?.headers.map(([name]) => name)).toEqual([
      'RateLimit-Policy',
      'RateLimit',
      'X-RateLimit-Limit',
      'X-RateLimit-Remaining',
      'X-RateLimit-Reset',
      'Retry-After',
      'Sluice-Limited',
      'Cache-Control',
    ]);
    expect(heard).toEqual([
      { ruleId: 'default', scope: 'source', reason: 'limit', retryAfterMs: expect.any(Number) },
    ]);
    const text = limiterOf({ limit: 1, message: 'Too many.', headers: false });
    text.ask();
    expect(text.ask()).toMatchObject({
      contentType: 'text/plain; charset=utf-8',
      body: 'Too many.',
    });
  });

  test('the conventional names mean the same', () => {
    const conventional: Options = {
      windowMs: 900_000,
      max: 2,
      standardHeaders: 'draft-8',
      legacyHeaders: false,
      ipv6Subnet: 64,
      identifier: 'api',
    };
    const ours: Options = {
      window: '15m',
      limit: 2,
      headers: 'draft-10',
      ipv6Prefix: 64,
      name: 'api',
    };
    const [a, b] = [limiterOf(conventional), limiterOf(ours)];
    for (let n = 0; n < 4; n += 1) expect(a.ask()).toMatchObject({ headers: b.ask()?.headers });
    expect(
      limiterOf({ max: 1, timeWindow: 1_000, standardHeaders: true })
        .ask()
        ?.headers.map(([name]) => name),
    ).toContain('RateLimit-Remaining');
  });

  test('a new address on every request fills no memory', () => {
    const { limiter, world, count } = limiterOf({ limit: 5, maxKeys: 100 });
    let admitted = 0;
    for (let n = 0; n < 10_000; n += 1) {
      world.nowUs += 100;
      admitted += count(1, plain({ peer: `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}` }));
    }
    expect(admitted).toBeLessThan(500);
    expect(world.sweeps).toHaveLength(1);
    limiter.close();
  });
});

describe('options', () => {
  test.each<[string, object, string]>([
    ['an unknown one', { limitt: 5 }, 'found option "limitt"; allowed is limit?'],
    [
      'two names for one thing',
      { limit: 5, max: 6 },
      'found limit and max; allowed is one of them',
    ],
    ['two windows', { window: '1s', windowMs: 5 }, 'found window and windowMs'],
    ['a rate beside a limit', { rate: '5/s', limit: 5 }, 'found rate beside limit'],
    ['rules beside a limit', { rules: [], limit: 5 }, 'found limit beside rules'],
    ['a bad rate', { rate: 'fast' }, 'limit.rate: found "fast"; allowed is a number'],
    ['a bad window', { window: 'soon' }, 'limit.window: found "soon"'],
    ['a bad limit', { limit: -1 }, 'limit.limit: found -1'],
    ['a bad prefix', { ipv6Prefix: 8 }, 'ipv6Prefix: found 8; allowed is 32 to 128'],
    [
      'a bad revision',
      { headers: 'draft-3' },
      'headers: found "draft-3"; allowed is one of draft-10',
    ],
    ['headers said in two ways', { headers: false, legacyHeaders: true }, 'found headers beside'],
    [
      'a rule that is wrong',
      { rules: [{ id: 'a', limit: { rate: '5' } }] },
      '0.limit.rate: found "5"',
    ],
    [
      'an answer that a library cannot give',
      { rules: [{ id: 'a', limit: { rate: '5/s' }, on_limit: 'queue' }] },
      '0.on_limit: found queue',
    ],
    ['a log of too many calls', { algorithm: 'sliding_log', limit: 1_001 }, 'limit: found 1001'],
    ['a cost that never fits', { limit: 2, cost: 3 }, 'found cost up to 3'],
  ])('%s is refused with what is allowed', (_name, options, message) => {
    expect(() => new RateLimiter(options as Options)).toThrow(RateLimitOptionError);
    expect(() => new RateLimiter(options as Options)).toThrow(message);
  });

  test('every option of the interface is known, and no other', () => {
    const source = readFileSync(new URL('./options.ts', import.meta.url), 'utf8');
    const body = source.slice(
      source.indexOf('export interface RateLimitOptions'),
      source.indexOf('export interface RefusalInfo'),
    );
    const declared = [...body.matchAll(/^ {2}readonly (\w+)\?:/gm)].map(([, name]) => name);
    expect(new Set(declared)).toEqual(new Set<string>(optionNames));
  });

  test('whatever is handed in, it works or says why not', () => {
    fc.assert(
      fc.property(
        fc.record(
          {
            limit: fc.oneof(fc.integer({ min: -5, max: 5_000 }), fc.double()),
            window: fc.oneof(
              fc.constantFrom('1s', '15m', 'x', ''),
              fc.integer({ min: -5, max: 1e9 }),
            ),
            algorithm: fc.constantFrom('sliding_window', 'fixed_window', 'sliding_log', 'gcra'),
            cost: fc.integer({ min: 0, max: 3 }),
            maxKeys: fc.integer({ min: 0, max: 100 }),
          },
          { requiredKeys: [] },
        ),
        (options) => {
          try {
            const { ask } = limiterOf(options as Options);
            for (let n = 0; n < 3; n += 1) expect(ask()).toBeDefined();
          } catch (error) {
            expect(error).toBeInstanceOf(RateLimitOptionError);
          }
        },
      ),
    );
  });
});

describe('rules', () => {
  test('the rules of a deployment work as they are, with the facts that the application knows', () => {
    const { count, ask } = limiterOf({
      rules: [
        {
          id: 'writes',
          match: { method: ['POST', 'PUT'] },
          key: ['user'],
          limit: { rate: '1/h', burst: 2 },
        },
        {
          id: 'reads',
          match: { route: '/items*' },
          key: ['ip'],
          limit: { algorithm: 'fixed_window', limit: 3, window: '1m' },
        },
        {
          id: 'bots',
          match: { header: { 'user-agent': '/^curl/' } },
          limit: { rate: '0/s', burst: 0 },
          on_limit: 'challenge',
        },
      ],
      facts: (request) => ({ user: request.header('x-user') ?? 'nobody' }),
    });
    expect(count(5, plain({ method: 'POST', headers: { 'x-user': 'a' } }))).toBe(2);
    expect(count(5, plain({ method: 'POST', headers: { 'x-user': 'b' } }))).toBe(2);
    expect(count(5, plain({ path: '/items/1' }))).toBe(3);
    expect(count(5, plain({ path: '/other' }))).toBe(5);
    const bot = ask(plain({ headers: { 'user-agent': 'curl/8' } }));
    expect(bot).toMatchObject({ admitted: false, status: 403 });
  });

  test('degrade lets the request through and marks it', () => {
    const { ask } = limiterOf({
      rules: [{ id: 'a', key: ['ip'], limit: { rate: '1/h', burst: 1 }, on_limit: 'degrade' }],
    });
    const degraded = [1, 2].map(() => {
      const verdict = ask();
      return verdict?.admitted === true ? verdict.info?.degraded : undefined;
    });
    expect(degraded).toEqual([false, true]);
  });

  test('concurrency gives its place back when the response is over, refused or not', () => {
    const { ask } = limiterOf({
      rules: [
        { id: 'places', limit: { algorithm: 'concurrency', limit: 1 } },
        { id: 'later', key: ['user'], match: { method: 'PUT' }, limit: { rate: '0/s', burst: 0 } },
      ],
    });
    // Takes a place in the first stage, is refused in a later one, and must not keep it.
    expect(ask(plain({ method: 'PUT' }))).toMatchObject({
      admitted: false,
      info: { ruleId: 'later' },
    });
    const first = ask();
    expect(first?.admitted).toBe(true);
    expect(ask()).toMatchObject({ admitted: false, info: { scope: 'instance' } });
    if (first?.admitted === true) first.finished(200);
    expect(ask()?.admitted).toBe(true);
  });
});
