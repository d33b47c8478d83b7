import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { clientAddress, trustedProxies } from '../limit/address.ts';
import { parseRate } from '../limit/rate.ts';
import { RuleEngine } from './engine.ts';
import type { RuleRefusal } from './live.ts';
import { giveBack, newSink } from './sink.ts';
import type { RequestFacts } from './facts.ts';
import { readRules } from './read.ts';
import type { RuleStage } from './stage.ts';

const second = 1_000_000;

const facts = (
  over: Partial<RequestFacts> & {
    headers?: Record<string, string>;
    claims?: Record<string, string>;
  } = {},
): RequestFacts => ({
  route: 'submit',
  method: 'POST',
  address: '192.0.2.7',
  user: 'u1',
  activity: 'drop',
  sku: 'shoe',
  risk: 'low',
  fromTrustedProxy: false,
  header: (name) => over.headers?.[name],
  claim: (name) => over.claims?.[name],
  ...over,
});

function engineOf(rules: unknown, ceiling?: { rate: string; burst: number }): RuleEngine {
  const engine = new RuleEngine(
    {
      hashSeed: [1, 2],
      ...(ceiling === undefined
        ? {}
        : { ceiling: { rate: parseRate(ceiling.rate), burstMilli: ceiling.burst * 1000 } }),
    },
    0,
  );
  apply(engine, rules);
  return engine;
}

function apply(engine: RuleEngine, rules: unknown, nowUs = 0): void {
  const { set, problems } = readRules(rules);
  expect(problems).toEqual([]);
  expect(engine.apply(set, nowUs)).toEqual({ applied: true });
}

const ask = (
  engine: RuleEngine,
  stage: RuleStage,
  request = facts(),
  nowUs = 0,
): RuleRefusal | undefined => engine.decide(stage, request, nowUs, 0);

const stat = (engine: RuleEngine, id: string) => engine.stats().find(({ ruleId }) => ruleId === id);

describe('charging', () => {
  const three = [
    { id: 'one', key: ['user'], limit: { rate: '1/h', burst: 5 } },
    { id: 'two', key: ['device'], limit: { rate: '1/h', burst: 5 } },
    { id: 'three', key: ['user', 'device'], limit: { rate: '1/h', burst: 1 } },
  ];

  test('three limits of one stage, the third refuses: the first two are not charged', () => {
    const engine = engineOf(three);
    const request = facts({ device: 'd1' });
    expect(ask(engine, 'person', request)).toBeUndefined();
    for (let n = 0; n < 10; n += 1) expect(ask(engine, 'person', request)?.ruleId).toBe('three');
    expect(engine.peek('one', request, 0)).toBe(4_000);
    expect(engine.peek('two', request, 0)).toBe(4_000);
  });

  test('negative control: charged one after the other, the first would be emptied by refusals', () => {
    const alone = three.map((rule) => engineOf([rule]));
    const request = facts({ device: 'd1' });
    const sequential = (): string | undefined => {
      for (const engine of alone) {
        const refused = ask(engine, 'person', request);
        if (refused !== undefined) return refused.ruleId;
      }
      return undefined;
    };
    expect(sequential()).toBeUndefined();
    for (let n = 0; n < 4; n += 1) expect(sequential()).toBe('three');
    expect(alone[0]?.peek('one', request, 0)).toBe(0);
  });

  test('whatever the rules, a refusal leaves every balance as it was, and an admission charges all', () => {
    const rule = fc.record({
      burst: fc.integer({ min: 1, max: 4 }),
      cost: fc.constantFrom(1, 0.5, 1),
      key: fc.constantFrom(['user'], ['device'], ['user', 'device'], ['claim:tier']),
    });
    fc.assert(
      fc.property(
        fc.array(rule, { minLength: 1, maxLength: 5 }),
        fc.array(fc.tuple(fc.nat(1), fc.nat(1), fc.nat(1)), { maxLength: 20 }),
        (rules, requests) => {
          const written = rules.map(({ burst, cost, key }, at) => ({
            id: `r${at}`,
            key,
            cost,
            limit: { rate: '1/h', burst },
          }));
          const engine = engineOf(written);
          for (const [user, device, tier] of requests) {
            const request = facts({
              user: `u${user}`,
              device: `d${device}`,
              claims: { tier: `${tier}` },
            });
            const before = written.map(({ id }) => engine.peek(id, request, 0) ?? 0);
            const refused = ask(engine, 'person', request);
            const after = written.map(({ id }) => engine.peek(id, request, 0) ?? 0);
            const cost = written.map((one) => one.cost * 1000);
            if (refused === undefined) {
              expect(after).toEqual(before.map((left, at) => left - (cost[at] ?? 0)));
            } else {
              expect(after).toEqual(before);
              const short = written.filter((_, at) => (before[at] ?? 0) < (cost[at] ?? 0));
              expect(short.map(({ id }) => id)).toContain(refused.ruleId);
            }
          }
        },
      ),
    );
  });

  test('who waits as told is not refused by another rule: the longest wait is told', () => {
    const engine = engineOf([
      { id: 'fast', key: ['user'], limit: { rate: '2/s', burst: 1 } },
      { id: 'slow', key: ['user'], limit: { rate: '1/3s', burst: 1 } },
    ]);
    expect(ask(engine, 'person')).toBeUndefined();
    const refused = ask(engine, 'person');
    expect(refused).toMatchObject({ ruleId: 'slow', waitUs: 3 * second, own: true });
    expect(ask(engine, 'person', facts(), 3 * second - 1)?.waitUs).toBe(1);
    expect(ask(engine, 'person', facts(), 3 * second)).toBeUndefined();
  });

  test('charges of earlier stages stand', () => {
    const engine = engineOf([
      { id: 'address', key: ['ip'], limit: { rate: '1/h', burst: 9 } },
      { id: 'user', key: ['user'], limit: { rate: '1/h', burst: 1 } },
    ]);
    for (let n = 0; n < 5; n += 1) {
      ask(engine, 'source');
      ask(engine, 'person');
    }
    expect(engine.peek('address', facts(), 0)).toBe(4_000);
    expect(engine.peek('user', facts(), 0)).toBe(0);
  });
});

describe('shadow', () => {
  test('a shadow rule before an enforced one: the enforced one still refuses', () => {
    const engine = engineOf([
      { id: 'shadow', key: ['user'], limit: { rate: '1/h', burst: 1 }, mode: 'shadow' },
      { id: 'real', key: ['user'], limit: { rate: '1/h', burst: 2 } },
    ]);
    const answers = [1, 2, 3, 4].map(() => ask(engine, 'person')?.ruleId);
    expect(answers).toEqual([undefined, undefined, 'real', 'real']);
    expect(stat(engine, 'shadow')).toMatchObject({ refused: 0, wouldRefuse: 3, admitted: 0 });
    expect(stat(engine, 'real')).toMatchObject({ refused: 2, admitted: 2 });
  });

  test('shadow rules never change what enforced ones answer, wherever they stand', () => {
    const entry = fc.record({
      shadow: fc.boolean(),
      burst: fc.integer({ min: 0, max: 3 }),
      key: fc.constantFrom(['user'], ['device'], ['ip', 'user']),
    });
    fc.assert(
      fc.property(
        fc.array(entry, { maxLength: 6 }),
        fc.array(fc.tuple(fc.nat(1), fc.nat(1)), { maxLength: 15 }),
        (entries, requests) => {
          const rules = entries.map(({ shadow, burst, key }, at) => ({
            id: `r${at}`,
            key,
            limit: { rate: '1/h', burst },
            mode: shadow ? 'shadow' : 'enforce',
          }));
          const [all, enforced] = [
            engineOf(rules),
            engineOf(rules.filter(({ mode }) => mode === 'enforce')),
          ];
          for (const [user, device] of requests) {
            const request = facts({ user: `u${user}`, device: `d${device}` });
            const [a, b] = [ask(all, 'person', request), ask(enforced, 'person', request)];
            expect(a?.ruleId).toBe(b?.ruleId);
            expect(a?.waitUs).toBe(b?.waitUs);
          }
        },
      ),
    );
  });
});

describe('reload', () => {
  const rules = (burst: number) => ({
    version: burst,
    rules: [
      { id: 'changed', key: ['user'], limit: { rate: '1/h', burst } },
      { id: 'same', key: ['user'], limit: { rate: '1/h', burst: 7 } },
    ],
  });

  test('with one rule changed, the balances of the other stay, and its own is carried in proportion', () => {
    const engine = engineOf(rules(4));
    for (let n = 0; n < 3; n += 1) ask(engine, 'person');
    apply(engine, rules(8));
    expect(engine.peek('same', facts(), 0)).toBe(4_000);
    expect(engine.peek('changed', facts(), 0)).toBe(2_000);
    expect(stat(engine, 'same')?.admitted).toBe(3);
  });

  test('an operator raises a limit: the new one holds at once for who was just refused', () => {
    const engine = engineOf([{ id: 'a', key: ['user'], limit: { rate: '1/h', burst: 1 } }]);
    ask(engine, 'person');
    expect(ask(engine, 'person')?.waitUs).toBe(3_600 * second);
    apply(engine, [{ id: 'a', key: ['user'], limit: { rate: '10/s', burst: 1 } }]);
    expect(ask(engine, 'person')?.waitUs).toBe(100_000);
    expect(ask(engine, 'person', facts(), 100_000)).toBeUndefined();
  });

  test('a lower version never replaces a higher one', () => {
    const engine = engineOf(rules(5));
    const { set } = readRules(rules(4));
    expect(engine.apply(set, 0)).toEqual({ applied: false, live: 5 });
    expect(engine.set.rules[0]?.limit).toMatchObject({ burstMilli: 5_000 });
  });

  test('a rule that counts something else starts anew; a rule that is gone refuses nobody', () => {
    const engine = engineOf([{ id: 'a', key: ['user'], limit: { rate: '1/h', burst: 1 } }]);
    ask(engine, 'person');
    apply(engine, [{ id: 'a', key: ['device'], limit: { rate: '1/h', burst: 1 } }]);
    expect(ask(engine, 'person', facts({ device: 'd' }))).toBeUndefined();
    apply(engine, []);
    expect(ask(engine, 'person', facts({ device: 'd' }))).toBeUndefined();
  });
});

describe('keys', () => {
  test('an absent key is no way out: it shares one anonymous counter, or is refused', () => {
    const engine = engineOf([
      { id: 'per-device', key: ['device'], limit: { rate: '1/h', burst: 2 } },
      {
        id: 'strict',
        match: { route: 'join' },
        key: ['device'],
        absent: 'refuse',
        limit: { rate: '1/h' },
      },
    ]);
    expect(ask(engine, 'person', facts({ user: 'a' }))).toBeUndefined();
    expect(ask(engine, 'person', facts({ user: 'b' }))).toBeUndefined();
    expect(ask(engine, 'person', facts({ user: 'c' }))?.ruleId).toBe('per-device');
    // Nobody can name themselves into the anonymous counter, or out of it.
    expect(ask(engine, 'person', facts({ device: '' }))).toBeUndefined();
    expect(ask(engine, 'person', facts({ device: 'absent:device' }))).toBeUndefined();
    expect(ask(engine, 'person', facts({ route: 'join' }))).toMatchObject({ reason: 'absent_key' });
  });

  test('a caller that sends another X-Forwarded-For each time stays in its bucket', () => {
    const engine = engineOf([{ id: 'a', key: ['ip'], limit: { rate: '1/h', burst: 1 } }]);
    const proxies = trustedProxies(['10.0.0.0/8'], 1);
    let admitted = 0;
    for (let n = 0; n < 50; n += 1) {
      const address = clientAddress('203.0.113.9', `198.51.100.${n}`, proxies);
      if (ask(engine, 'source', facts({ address })) === undefined) admitted += 1;
    }
    expect(admitted).toBe(1);
    const behind = clientAddress('10.0.0.1', '198.51.100.1', proxies);
    expect(ask(engine, 'source', facts({ address: behind }))).toBeUndefined();
  });

  test('prefixes are shared by a household, and no further', () => {
    const engine = engineOf([{ id: 'a', key: ['ip_prefix'], limit: { rate: '1/h', burst: 1 } }]);
    expect(ask(engine, 'source', facts({ address: '192.0.2.7' }))).toBeUndefined();
    expect(ask(engine, 'source', facts({ address: '192.0.2.99' }))?.ruleId).toBe('a');
    expect(ask(engine, 'source', facts({ address: '192.0.3.7' }))).toBeUndefined();
    expect(ask(engine, 'source', facts({ address: '2001:db8:0:100::1' }))).toBeUndefined();
    expect(ask(engine, 'source', facts({ address: '2001:db8:0:1ff::1' }))?.ruleId).toBe('a');
  });

  test('named values have a limit of their own', () => {
    const engine = engineOf([
      {
        id: 'a',
        key: ['user'],
        limit: { rate: '1/h', burst: 1 },
        overrides: [
          { value: 'vip', rate: '1/h', burst: 3 },
          { value: 'banned', rate: '0/s', burst: 0 },
        ],
      },
    ]);
    const count = (user: string): number =>
      [1, 2, 3, 4, 5].filter(() => ask(engine, 'person', facts({ user })) === undefined).length;
    expect([count('vip'), count('banned'), count('somebody')]).toEqual([3, 0, 1]);
  });

  test('the busiest values meet a limit more, and give it back when they calm down', () => {
    const engine = engineOf([
      {
        id: 'a',
        key: ['header:x-block'],
        limit: { rate: '1000/s', burst: 1000 },
        hot: { top: 3, share: '20%', half_life: '1s', limit: { rate: '5/s', burst: 5 } },
      },
    ]);
    let [hot, cold] = [0, 0];
    for (let n = 0; n < 2_000; n += 1) {
      const block = n % 2 === 0 ? 'hot' : `cold-${n}`;
      const refused = ask(engine, 'source', facts({ headers: { 'x-block': block } }), n * 1_000);
      if (refused !== undefined) continue;
      if (block === 'hot') hot += 1;
      else cold += 1;
    }
    expect(cold).toBe(1_000);
    // Free until it is seen to be hot, then five a second.
    expect(hot).toBeLessThan(90);
    expect(hot).toBeGreaterThan(40);
  });
});

describe('cost', () => {
  test('a quantity costs as much, within 1 … max_cost', () => {
    const engine = engineOf([
      { id: 'a', key: ['user'], cost: 'quantity', max_cost: 4, limit: { rate: '1/h', burst: 10 } },
    ]);
    for (const [quantity, left] of [
      [3, 7],
      [-5, 6],
      [0, 5],
      [99, 1],
    ] as const) {
      expect(ask(engine, 'budget', facts({ quantity }))).toBeUndefined();
      expect(engine.peek('a', facts(), 0)).toBe(left * 1000);
    }
    expect(ask(engine, 'budget', facts({ quantity: Number.NaN }))?.ruleId).toBe('a');
  });

  test('a header says what a request costs only from a trusted proxy', () => {
    const engine = engineOf([
      {
        id: 'a',
        key: ['ip'],
        cost: 'header:x-cost',
        max_cost: 5,
        limit: { rate: '1/h', burst: 20 },
      },
    ]);
    const left = (said: string, fromTrustedProxy: boolean): number => {
      const before = engine.peek('a', facts(), 0) ?? 0;
      ask(engine, 'source', facts({ headers: { 'x-cost': said }, fromTrustedProxy }));
      return (before - (engine.peek('a', facts(), 0) ?? 0)) / 1000;
    };
    expect([
      left('3', false),
      left('3', true),
      left('0', true),
      left('999', true),
      left('-1', true),
    ]).toEqual([1, 3, 1, 5, 1]);
  });
});

describe('past the limit', () => {
  test('callers that ignore refusals are penalised, for as long as was said and no longer', () => {
    const told: string[] = [];
    const { set } = readRules([
      {
        id: 'a',
        key: ['user'],
        limit: { rate: '10/s', burst: 1 },
        penalty: { after: 3, within: '10s', for: '60s' },
      },
    ]);
    const engine = new RuleEngine(
      { hashSeed: [1, 2], onPenalty: (rule, parts) => told.push(`${rule.id} ${parts.join()}`) },
      0,
    );
    engine.apply(set, 0);
    const at = (nowUs: number, user = 'loud'): string =>
      engine.decide('person', facts({ user }), nowUs, 0)?.reason ?? 'in';
    expect([at(0), at(0), at(0), at(0)]).toEqual(['in', 'limit', 'limit', 'limit']);
    expect(told).toEqual(['a loud']);
    expect(at(1 * second)).toBe('penalty');
    expect(at(1 * second, 'quiet')).toBe('in');
    for (let n = 2; n < 60; n += 1) expect(at(n * second)).toBe('penalty');
    // Refusals during the penalty did not extend it.
    expect(at(60 * second - 1)).toBe('penalty');
    expect(at(60 * second)).toBe('in');
    expect(told).toHaveLength(1);
  });

  test('who is refused now and then is not penalised', () => {
    const engine = engineOf([
      {
        id: 'a',
        key: ['user'],
        limit: { rate: '1/s', burst: 1 },
        penalty: { after: 3, within: '1s', for: '60s' },
      },
    ]);
    for (let now = 0; now < 100 * second; now += 500_000) {
      expect(ask(engine, 'person', facts(), now)?.reason ?? 'limit').toBe('limit');
    }
  });

  test('a reserve leaves its part to retries and to the most urgent work', () => {
    const engine = engineOf([
      {
        id: 'a',
        key: ['activity'],
        limit: { rate: '1/h', burst: 10 },
        reserve: { retries: '20%', p0: '10%' },
      },
    ]);
    const count = (over: Partial<RequestFacts>): number => {
      let admitted = 0;
      while (ask(engine, 'budget', facts(over)) === undefined) admitted += 1;
      return admitted;
    };
    expect([count({}), count({ retry: true }), count({ p0: true })]).toEqual([7, 2, 1]);
  });

  test('no rule raises the ceiling', () => {
    const engine = engineOf([{ id: 'wide', limit: { rate: '1000000/s', burst: 1000000 } }], {
      rate: '10/s',
      burst: 2,
    });
    apply(engine, [{ id: 'wider', limit: { rate: '1000000/s', burst: 1000000 } }]);
    let admitted = 0;
    for (let now = 0; now < 10 * second; now += 1_000) {
      if (ask(engine, 'instance', facts(), now) === undefined) admitted += 1;
    }
    expect(admitted).toBe(2 + 99);
    expect(ask(engine, 'instance', facts(), 0)).toMatchObject({ ruleId: 'ceiling', own: false });
  });

  test('concurrency: places are taken, given back once, and never without somebody to give them back', () => {
    const engine = engineOf([
      { id: 'a', key: ['user'], limit: { algorithm: 'concurrency', limit: 2 } },
    ]);
    const sinks = [newSink(), newSink(), newSink()];
    const enter = (at: number): boolean =>
      engine.decide('person', facts(), 0, 0, sinks[at]) === undefined;
    expect([enter(0), enter(1), enter(2)]).toEqual([true, true, false]);
    giveBack(sinks[0]?.holds ?? []);
    giveBack(sinks[0]?.holds ?? []);
    expect([enter(2), enter(0)]).toEqual([true, false]);
    expect(() =>
      engineOf([{ id: 'a', limit: { algorithm: 'concurrency', limit: 2 } }]).decide(
        'instance',
        facts(),
        0,
        0,
      ),
    ).toThrow('nobody gives them back');
  });

  test('pacing tells how long to hold a request back', () => {
    const engine = engineOf([
      {
        id: 'a',
        match: { route: 'facts' },
        key: ['user'],
        on_limit: 'delay',
        limit: { algorithm: 'leaky_bucket', rate: '4/s', max_wait: '0.5s' },
      },
    ]);
    const delays = [0, 1, 2, 3].map(() => {
      const sink = newSink();
      const refused = engine.decide('person', facts({ route: 'facts' }), 0, 0, sink);
      return refused === undefined ? sink.delayUs : refused.onLimit;
    });
    expect(delays).toEqual([0, 250_000, 500_000, 'delay']);
  });
});

describe('matching', () => {
  test('groups, methods, headers, claims, risk and time select rules', () => {
    const { set, problems } = readRules({
      groups: { reads: ['status', 'fact*'] },
      rules: [
        { id: 'group', match: { group: 'reads' }, limit: { rate: '0/s', burst: 0 } },
        { id: 'method', match: { method: ['PUT', 'PATCH'] }, limit: { rate: '0/s', burst: 0 } },
        {
          id: 'header',
          match: { header: { 'X-Bot': ['yes', 'maybe'] } },
          limit: { rate: '0/s', burst: 0 },
        },
        { id: 'risk', match: { risk: ['high'] }, limit: { rate: '0/s', burst: 0 } },
        { id: 'claim', match: { claim: { tier: 'free' } }, limit: { rate: '0/s', burst: 0 } },
        {
          id: 'timed',
          match: { route: 'join' },
          effective_at: '1970-01-01T00:00:10Z',
          expires_at: '1970-01-01T00:00:20Z',
          limit: { rate: '0/s', burst: 0 },
        },
        { id: 'off', mode: 'off', limit: { rate: '0/s', burst: 0 } },
      ],
    });
    expect(problems).toEqual([]);
    const engine = new RuleEngine({ hashSeed: [1, 2] }, 0);
    engine.apply(set, 0);
    const by = (
      stage: RuleStage,
      over: Parameters<typeof facts>[0],
      nowMs = 0,
    ): string | undefined => engine.decide(stage, facts(over), 0, nowMs)?.ruleId;
    expect(by('instance', {})).toBeUndefined();
    expect(by('instance', { route: 'facts' })).toBe('group');
    expect(by('instance', { route: 'page', method: 'PATCH' })).toBe('method');
    expect(by('source', { headers: { 'x-bot': 'maybe' } })).toBe('header');
    expect(by('source', { headers: { 'x-bot': 'no' } })).toBeUndefined();
    expect(by('source', { risk: 'high' })).toBe('risk');
    expect(by('person', { claims: { tier: 'free' } })).toBe('claim');
    expect(
      [9_999, 10_000, 19_999, 20_000].map((now) => by('instance', { route: 'join' }, now)),
    ).toEqual([undefined, 'timed', 'timed', undefined]);
  });

  test('in one stage the wider rule is named first among equals', () => {
    const zero = { rate: '0/s', burst: 0 };
    const engine = engineOf([
      { id: 'person', key: ['user', 'sku'], limit: zero },
      { id: 'sku', key: ['sku'], limit: zero },
      { id: 'activity', key: ['activity'], limit: zero },
      { id: 'region', scope: 'exact', limit: zero },
    ]);
    expect(ask(engine, 'budget')?.ruleId).toBe('region');
    const urgent = engineOf([
      { id: 'late', key: ['user'], limit: zero, priority: 'P3' },
      { id: 'soon', key: ['user', 'ip'], limit: zero, priority: 'P0' },
    ]);
    expect(ask(urgent, 'person')?.ruleId).toBe('soon');
  });
});
