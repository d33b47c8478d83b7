import { describe, expect, test } from 'vitest';
import { SeededRandom, World } from '../../test/support/world.ts';
import { parseRate } from '../core/limit/rate.ts';
import { defaultRuleSet } from '../core/rules/default-set.ts';
import { RuleEngine } from '../core/rules/engine.ts';
import { readRules } from '../core/rules/read.ts';
import { type KnownFacts, LimitedCall } from './limited-request.ts';
import { degradedBy, delayMsOf, type LimitRefusal, type RouteName } from './limits.ts';
import { RuleLimits } from './rule-limits.ts';

interface Scene {
  readonly world: World;
  readonly engine: RuleEngine;
  readonly limits: RuleLimits;
  readonly request: (route: RouteName, more?: Partial<Known>) => LimitedCall;
}

interface Known extends KnownFacts {
  readonly user: string;
  readonly device: string;
  readonly activity: string;
  readonly requestId: string;
  readonly headers: Readonly<Record<string, string>>;
}

function scene(rules?: object, ceiling = '1000/s'): Scene {
  const world = new World();
  const rate = parseRate(ceiling);
  const engine = new RuleEngine(
    { hashSeed: [1, 2], ceiling: { rate, burstMilli: 500_000 } },
    world.monoUs(),
  );
  const { set, problems } = readRules(rules ?? []);
  expect(problems).toEqual([]);
  const applied = rules === undefined ? defaultRuleSet({ submit: parseRate('100/s') }) : set;
  engine.apply(applied, world.monoUs());
  const limits = new RuleLimits({ engine, clock: world, random: new SeededRandom('limits') });
  return {
    world,
    engine,
    limits,
    request(route, { user, device, activity, headers = {}, requestId, ...more } = {}) {
      const made = new LimitedCall(
        {
          route,
          method: 'POST',
          arrivedUs: world.monoUs(),
          nowMs: world.wallMs(),
          address: '192.0.2.7',
          fromTrustedProxy: false,
          p0: false,
          header: (name) => headers[name],
          ...more,
        },
        limits,
      );
      made.user = user;
      made.device = device;
      made.activity = activity;
      return requestId === undefined ? made : Object.assign(made, { requestId });
    },
  };
}

/** Asks until refused; how many got through. */
function through(ask: () => unknown, most = 10_000): number {
  for (let count = 0; count < most; count += 1) if (ask() !== undefined) return count;
  return most;
}

describe('the built-in rules', () => {
  test('each stage has its own counter, and its refusal names scope and rule', () => {
    const { limits, request } = scene();
    expect(through(() => limits.instance(request('submit')))).toBe(500);
    const refused = limits.instance(request('submit'));
    expect(refused).toMatchObject({ scope: 'instance', ruleId: 'ceiling', reason: 'ceiling' });
    expect(refused?.headers).toEqual([
      ['RateLimit-Policy', '"ceiling";q=500;w=1'],
      ['RateLimit', '"ceiling";r=0;t=1'],
    ]);
    expect(through(() => limits.source(request('submit')))).toBe(400);
    expect(limits.source(request('submit'))).toMatchObject({
      scope: 'source',
      ruleId: 'default-address',
    });
    const ann = () => limits.person(request('submit', { user: 'ann' }));
    expect(through(ann)).toBe(10);
    expect(ann()).toMatchObject({ scope: 'user', ruleId: 'default-user-submit' });
    expect(limits.person(request('submit', { user: 'bob' }))).toBeUndefined();
    const submit = (activity: string) => limits.budget(request('submit', { activity }));
    expect(through(() => submit('concert'))).toBe(100);
    expect(submit('concert')).toMatchObject({
      scope: 'activity',
      ruleId: 'default-budget',
      activityId: 'concert',
    });
    expect(submit('other')).toBeUndefined();
  });

  test('a source refused by its prefix is not charged at its address', async () => {
    const { limits, request, world } = scene(undefined, '1000000/s');
    const from = (host: number) =>
      limits.source(request('submit', { address: `198.51.100.${host}` }));
    let sent = 0;
    for (let host = 1; host <= 200; host += 1) {
      for (let n = 0; n < 20; n += 1) if (from(host) === undefined) sent += 1;
    }
    expect(sent).toBe(4000);
    expect(from(250)?.ruleId).toBe('default-prefix');
    // A second later the prefix has refilled by 1,000, and this address still has its whole burst.
    await world.advance(1_000);
    expect(through(() => from(250))).toBe(400);
  });

  test('a person refused by the device is not charged as a user; no device is nobody’s device', () => {
    const { limits, request } = scene();
    const headers = { 'sluice-device': 'phone' };
    let users = 0;
    const one = (user: string) =>
      limits.person(request('status', { user, device: 'hash', headers }));
    while (one(`u${users}`) === undefined) users += 1;
    expect(users).toBe(40);
    expect(through(() => limits.person(request('status', { user: 'u40' })))).toBe(20);
    const nobodys = Array.from({ length: 500 }, (_, n) =>
      limits.person(request('status', { user: `without-${n}` })),
    );
    expect(nobodys.every((said) => said === undefined)).toBe(true);
  });

  test('they read as a person would have written them, without a problem', () => {
    expect(defaultRuleSet({ submit: parseRate('40000/s') }).rules.at(-1)).toMatchObject({
      id: 'default-budget',
      scope: 'lease',
      fail: 'closed',
    });
    // A small budget is asked for each time: leases would hold too much of it.
    expect(defaultRuleSet({ submit: parseRate('100/s') }).rules.at(-1)?.scope).toBe('exact');
  });
});

describe('when to come back', () => {
  test('on a shared counter: never earlier than useful, and spread', () => {
    const { limits, request } = scene([{ id: 'all', limit: { rate: '1/4s', burst: 1 } }]);
    expect(limits.instance(request('join'))).toBeUndefined();
    const hints = Array.from(
      { length: 10_000 },
      () => limits.instance(request('join'))?.retryAfterMs ?? 0,
    );
    expect(Math.min(...hints)).toBeGreaterThanOrEqual(4_000);
    // No tenth of the spread gets a fifth of the crowd.
    const span = Math.max(...hints) - 4_000;
    expect(span).toBeGreaterThan(3_500);
    for (let tenth = 0; tenth < 10; tenth += 1) {
      const [from, to] = [4_000 + (span * tenth) / 10, 4_000 + (span * (tenth + 1)) / 10];
      expect(hints.filter((hint) => hint >= from && hint < to).length).toBeLessThan(2_000);
    }
  });

  test('an instance hints about 200 ms, a shared budget about 1 s', () => {
    const { limits, request } = scene(
      [
        {
          id: 'budget',
          match: { route: 'submit' },
          scope: 'exact',
          limit: { rate: '1000/s', burst: 1 },
        },
      ],
      '1000/s',
    );
    const average = (ask: () => LimitRefusal | undefined): number => {
      through(ask);
      const hints = Array.from({ length: 2_000 }, () => ask()?.retryAfterMs ?? 0);
      return hints.reduce((sum, hint) => sum + hint, 0) / hints.length;
    };
    expect(average(() => limits.instance(request('join')))).toBeCloseTo(200, -2);
    const asked = average(() => limits.budget(request('submit')) as LimitRefusal | undefined);
    expect(asked).toBeGreaterThan(900);
    expect(asked).toBeLessThan(1_100);
  });
});

describe('answers', () => {
  test('places of a concurrency limit come back when the request ends, once', () => {
    const { limits, request } = scene([
      { id: 'two', match: { route: 'join' }, limit: { algorithm: 'concurrency', limit: 2 } },
    ]);
    const [first, second, third] = [request('join'), request('join'), request('join')];
    expect(limits.instance(first)).toBeUndefined();
    expect(limits.instance(second)).toBeUndefined();
    expect(limits.instance(third)).toMatchObject({ ruleId: 'two' });
    limits.end(third);
    expect(limits.instance(request('join'))).toBeDefined();
    limits.end(first);
    limits.end(first);
    expect(limits.instance(request('join'))).toBeUndefined();
    expect(limits.instance(request('join'))).toBeDefined();
  });

  test('delay holds back by the spacing; degrade lets through, marked; queue points to the room', () => {
    const { limits, request } = scene([
      {
        id: 'paced',
        match: { route: 'join' },
        limit: { algorithm: 'leaky_bucket', rate: '10/s', max_wait: '1s' },
        on_limit: 'delay',
      },
      {
        id: 'cheap',
        match: { route: 'facts' },
        limit: { rate: '1/h', burst: 1 },
        on_limit: 'degrade',
      },
      {
        id: 'room',
        match: { route: 'pass', activity: '*' },
        limit: { rate: '1/h', burst: 1 },
        on_limit: 'queue',
      },
    ]);
    const delays = Array.from({ length: 3 }, () => {
      const asked = request('join');
      expect(limits.instance(asked)).toBeUndefined();
      return delayMsOf(asked);
    });
    expect(delays).toEqual([0, 100, 200]);

    const marks = Array.from({ length: 2 }, () => {
      const asked = request('facts');
      expect(limits.instance(asked)).toBeUndefined();
      return degradedBy(asked);
    });
    expect(marks).toEqual([undefined, 'cheap']);

    const pass = () => limits.person(request('pass', { user: 'ann', activity: 'concert' }));
    expect(pass()).toBeUndefined();
    expect(pass()).toMatchObject({ answer: 'queue', activityId: 'concert', ruleId: 'room' });
  });

  test('who keeps on asking meets the penalty, and is told so', () => {
    const { limits, request } = scene([
      {
        id: 'loop',
        key: ['ip'],
        limit: { rate: '1/h', burst: 1 },
        penalty: { after: 3, within: '10s', for: '60s' },
      },
    ]);
    const said = Array.from({ length: 6 }, () => limits.source(request('join'))?.reason);
    expect(said).toEqual([undefined, 'limit', 'limit', 'limit', 'penalty', 'penalty']);
  });
});

describe('what is known of a caller', () => {
  const risky = [
    {
      risk: {
        header: 'x-risk',
        prefixes: { high: ['203.0.113.0/24'] },
        accounts_per_device: { more: 2, risk: 'high' },
        forged_pass: 'high',
      },
      rules: [{ id: 'risky', match: { risk: 'high' }, limit: { rate: '1/h', burst: 0 } }],
    },
  ][0] as object;
  const refused = ({ limits, request }: Scene, more: Partial<Known>): boolean =>
    limits.source(request('join', more)) !== undefined;

  test('the edge’s word counts from a trusted proxy alone', () => {
    const at = scene(risky);
    const headers = { 'x-risk': 'high' };
    expect(refused(at, { headers })).toBe(false);
    expect(refused(at, { headers, fromTrustedProxy: true })).toBe(true);
  });

  test('prefixes, many accounts on one device, and a forged pass are signs', () => {
    const at = scene(risky);
    expect(refused(at, {})).toBe(false);
    expect(refused(at, { address: '203.0.113.9' })).toBe(true);
    for (const user of ['a', 'b', 'c']) at.limits.person(at.request('join', { user, device: 'd' }));
    expect(refused(at, { device: 'd' })).toBe(true);
    expect(refused(at, { device: 'e' })).toBe(false);
    at.limits.forged('198.51.100.3');
    expect(refused(at, { address: '198.51.100.3' })).toBe(true);
    expect(refused(at, { address: '198.51.100.4' })).toBe(false);
  });

  test('a repetition of what was admitted finds the part kept for retries', () => {
    const { limits, request } = scene([
      {
        id: 'kept',
        match: { route: 'submit', activity: '*' },
        key: ['activity'],
        limit: { rate: '1/h', burst: 10 },
        reserve: { retries: '20%' },
      },
    ]);
    const submit = (n: number) =>
      limits.budget(request('submit', { user: 'ann', activity: 'c', requestId: `r${n}` }));
    expect(through(() => submit((asked += 1)))).toBe(8);
    expect(submit(1)).toBeUndefined();
    expect(submit(2)).toBeUndefined();
    expect(submit(3)).toBeDefined();
  });
});
let asked = 0;

test('a million new keys a minute for five minutes: memory flat, known keys unharmed, the alarm rings', async () => {
  const { limits, request, world, engine } = scene(
    [{ id: 'users', key: ['user'], limit: { rate: '1/10s', burst: 4 }, max_keys: 200_000 }],
    '1000000/s',
  );
  const known = (n: number) => limits.person(request('join', { user: `known-${n}` }));
  for (let n = 0; n < 100; n += 1) expect(known(n)).toBeUndefined();
  const sizes: number[] = [];
  let fresh = 0;
  for (let second = 0; second < 300; second += 1) {
    for (let n = 0; n < 16_667; n += 1) {
      limits.person(request('join', { user: `new-${(fresh += 1)}` }));
    }
    // Each known one keeps to its pace: every ten seconds.
    for (let n = second % 10; n < 100; n += 10) {
      if (known(n) !== undefined) throw new Error(`known key ${n} was refused in second ${second}`);
    }
    for (let slice = 0; slice < 4; slice += 1) {
      await world.advance(250);
      engine.sweep(world.monoUs(), 2_000);
    }
    sizes.push(engine.stats()[0]?.bytes ?? 0);
  }
  const [row] = engine.stats();
  expect(row?.entries).toBeLessThanOrEqual(200_000);
  expect(row?.overflow).toBeGreaterThan(1_000_000);
  // The table breathes as keys are forgotten in waves, and never outgrows its bound.
  expect(Math.max(...sizes)).toBeLessThanOrEqual(64 * 200_000);
  const most = (from: number, to: number): number => Math.max(...sizes.slice(from, to));
  expect(most(240, 300)).toBeLessThanOrEqual(most(0, 60) * 1.1);
}, 120_000);
