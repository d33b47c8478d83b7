import { expect, test } from 'vitest';
import { judgeRules, type RuleContext } from './judge.ts';
import { routeNames } from './model.ts';
import { readRules } from './read.ts';
import type { RuleProblem } from './reader.ts';

const full = {
  id: 'submit-per-user',
  match: { route: 'submit', activity: '*' },
  key: ['user'],
  limit: { algorithm: 'token_bucket', rate: '0.5/s', burst: 3 },
  cost: 1,
  scope: 'instance',
  overrides: [{ value: 'u_vip', rate: '5/s', burst: 10 }],
  max_keys: 500_000,
  overflow: { rate: '100/s', burst: 200 },
  penalty: { after: 20, within: '10s', for: '60s' },
  on_limit: 'reject',
  fail: 'closed',
  mode: 'enforce',
  priority: 'P1',
  effective_at: '2027-05-01T20:00:00+08:00',
  expires_at: '2027-05-02T20:00:00+08:00',
};

test('the example of the documentation is read whole', () => {
  const { set, problems } = readRules([full]);
  expect(problems).toEqual([]);
  expect(set.rules[0]).toMatchObject({
    id: 'submit-per-user',
    key: [{ kind: 'user' }],
    limit: { algorithm: 'token_bucket', burstMilli: 3_000, rate: { tokensMilli: 500 } },
    cost: { kind: 'fixed', costMilli: 1_000 },
    overrides: [{ parts: ['u_vip'], limit: { burstMilli: 10_000 } }],
    maxKeys: 500_000,
    overflow: { burstMilli: 200_000 },
    penalty: { after: 20, withinUs: 10_000_000, forUs: 60_000_000 },
    effectiveAtMs: Date.parse('2027-05-01T12:00:00Z'),
  });
});

test.each([
  ['token_bucket', { rate: '5/s' }, { burstMilli: 5_000 }],
  ['token_bucket', { rate: '1/30d' }, { burstMilli: 1_000 }],
  ['fixed_window', { limit: 10, window: '1m' }, { windowUs: 60_000_000 }],
  ['sliding_window', { limit: 10, window: '0.5s' }, { windowUs: 500_000 }],
  ['sliding_log', { limit: 10, window: '60s' }, { limitMilli: 10_000 }],
  ['leaky_bucket', { rate: '5/s' }, { maxWaitUs: 0 }],
  [
    'warm_up',
    { rate: '5/s', warm_up: '30s', cold_share: '1/3' },
    { coldShare: { of: 1, parts: 3 } },
  ],
  ['concurrency', { limit: 4 }, { limitMilli: 4_000 }],
])('%s is read with its own parameters', (algorithm, parameters, expected) => {
  const key = algorithm === 'sliding_log' ? { max_keys: 100 } : {};
  const { set, problems } = readRules([{ id: 'a', limit: { algorithm, ...parameters }, ...key }]);
  expect(problems).toEqual([]);
  expect(set.rules[0]?.limit).toMatchObject({ algorithm, ...expected });
});

/** A rule with one thing changed, and what is said about it: path, found, allowed. */
const wrong: readonly (readonly [string, object, string, string, string])[] = [
  ['an unknown key', { limt: 1 }, 'limt', 'unknown key "limt"', 'limit? Known here'],
  ['no id', { id: undefined }, 'id', 'nothing', 'an id of letters'],
  ['a bad id', { id: '-x' }, 'id', '"-x"', 'an id of 1 to 64'],
  ['no limit', { limit: undefined }, 'limit', 'nothing', 'a limit such as'],
  ['a bad rate', { limit: { rate: '5 per s' } }, 'limit.rate', '"5 per s"', '5/s, 0.5/s'],
  ['a rate that is a number', { limit: { rate: 5 } }, 'limit.rate', '5', 'a rate such as'],
  [
    'a mistyped algorithm',
    { limit: { algorithm: 'token_buket' } },
    'limit.algorithm',
    '"token_buket"',
    'token_bucket? one of',
  ],
  [
    'a parameter of another algorithm',
    { limit: { rate: '1/s', window: '1s' } },
    'limit.window',
    'unknown key "window"',
    'rate, burst',
  ],
  [
    'a negative burst',
    { limit: { rate: '1/s', burst: -1 } },
    'limit.burst',
    '-1',
    'a number from 0',
  ],
  [
    'a cost that can never fit',
    { cost: 4 },
    'cost',
    'cost up to 4 against a limit that holds 3',
    'at most 3',
  ],
  ['a cost of zero', { cost: 0 }, 'cost', '0', 'a number from 0.001'],
  ['an unknown cost', { cost: 'seats' }, 'cost', '"seats"', 'a number, quantity, or header:NAME'],
  [
    'a quantity without a bound',
    { cost: 'quantity' },
    'max_cost',
    'nothing',
    'the most that one request may cost',
  ],
  [
    'a bound above the burst',
    { cost: 'quantity', max_cost: 9 },
    'max_cost',
    'cost up to 9',
    'at most 3',
  ],
  ['an unknown key part', { key: ['uzer'] }, 'key[0]', '"uzer"', 'one of user, device'],
  ['a key part twice', { key: ['user', 'user'] }, 'key[1]', '"user" twice', 'each part once'],
  [
    'an override without its value',
    { overrides: [{ rate: '1/s' }] },
    'overrides[0].value',
    'nothing',
    'a text',
  ],
  [
    'an override twice',
    {
      overrides: [
        { value: 'a', rate: '1/s' },
        { value: 'a', rate: '2/s' },
      ],
    },
    'overrides[1].value',
    '["a"] twice',
    'each value once',
  ],
  [
    'overrides without a key',
    { key: [], penalty: undefined },
    'overrides',
    'overrides of a rule without a key',
    'a key',
  ],
  ['a mistyped scope', { scope: 'cluster' }, 'scope', '"cluster"', 'one of instance, lease, exact'],
  ['no keys', { max_keys: 0 }, 'max_keys', '0', 'a whole number from 1'],
  [
    'an overflow below the cost',
    { cost: 3, overrides: [], overflow: { rate: '1/s', burst: 2 } },
    'overflow',
    'a burst of 2 for costs up to 3',
    'at least 3',
  ],
  [
    'a penalty for ever',
    { penalty: { after: 1, within: '1s', for: '2h' } },
    'penalty.for',
    '"2h"',
    'a time such as',
  ],
  [
    'a reserve of everything',
    { reserve: { retries: '60%', p0: '40%' } },
    'reserve',
    '100% of a burst of 3',
    'at least the largest cost',
  ],
  [
    'an instant without its offset',
    { effective_at: '2027-05-01 20:00' },
    'effective_at',
    '"2027-05-01 20:00"',
    'with its offset',
  ],
  [
    'an end before the beginning',
    { expires_at: '2027-04-01T20:00:00Z' },
    'expires_at',
    'an end before the beginning',
    'after effective_at',
  ],
  [
    'a dangerous expression',
    { match: { route: '/(a+)+/' } },
    'match.route',
    'a repeated group',
    'an expression without',
  ],
  ['an empty list', { match: { route: [] } }, 'match.route', 'an empty list', 'at least one'],
  [
    'a bad header name',
    { match: { header: { 'x y': 'a' } } },
    'match.header.x y',
    '"x y"',
    'the name of a header',
  ],
  [
    'a log of too many keys',
    { limit: { algorithm: 'sliding_log', limit: 1000, window: '1h' } },
    'max_keys',
    '500000 keys that each store 1000 calls',
    'at most 1 GiB',
  ],
  [
    'a log of too many calls',
    { limit: { algorithm: 'sliding_log', limit: 1001, window: '1h' } },
    'limit',
    'limit: found 1001',
    '0 to 1000',
  ],
  [
    'a half cost under a log',
    { cost: 0.5, max_keys: 10, limit: { algorithm: 'sliding_log', limit: 10, window: '1h' } },
    'cost',
    '0.5',
    'whole costs',
  ],
  [
    'a hot limit below the cost',
    { cost: 2, hot: { limit: { rate: '1/s', burst: 1 } } },
    'hot.limit',
    'a limit that holds 1 for costs up to 2',
    'at least 2',
  ],
];

const pathText = (path: RuleProblem['path']): string =>
  path
    .slice(1)
    .map((part, at) => (typeof part === 'number' ? `[${part}]` : at === 0 ? part : `.${part}`))
    .join('');

test.each(wrong)(
  '%s is named with its path, what was found, what is allowed',
  (_name, change, path, found, allowed) => {
    const rule = Object.fromEntries(
      Object.entries({ ...full, ...change }).filter(([, value]) => value !== undefined),
    );
    const { problems } = readRules([rule]);
    const named = problems.find((problem) => pathText(problem.path) === path);
    expect(named, JSON.stringify(problems)).toBeDefined();
    expect(named?.found).toContain(found);
    expect(named?.allowed).toContain(allowed);
  },
);

test('every problem is reported at once, and two rules of one id are one of them', () => {
  const { problems } = readRules([
    { ...full, scope: 'x', mode: 'y' },
    { ...full, priority: 'P9' },
  ]);
  expect(problems.map(({ path }) => path.join('.'))).toEqual([
    '0.scope',
    '0.mode',
    '1.priority',
    '1.id',
  ]);
});

test.each([42, 'rules', { rulez: [] }, [null], [[1]], [{ id: {} }], { rules: {} }, { groups: [] }])(
  'noise %j is refused, never thrown on',
  (noise) => {
    expect(readRules(noise).problems.length).toBeGreaterThan(0);
  },
);

const limit = { rate: '5000/s', burst: 5000 };
const context: RuleContext = {
  routes: routeNames,
  activities: ['spring-drop'],
  skus: ['shoe-42'],
  maxInstances: 8,
  ceiling: { tokensMilli: 1_000_000, periodUs: 1_000_000 },
};

const judged = (rules: unknown, given: RuleContext = context): string[] => {
  const { set, problems } = readRules(rules);
  expect(problems).toEqual([]);
  return judgeRules(set, given).problems.map(
    ({ path, found, allowed }) => `${path.join('.')}: ${found} | ${allowed}`,
  );
};

test('open is for reads alone: refused wherever a request may reach stock', () => {
  const open = (match: object): string[] => judged([{ id: 'a', match, limit, fail: 'open' }]);
  for (const match of [
    {},
    { route: 'submit' },
    { route: '*' },
    { route: ['status', 'submit'] },
    { route: 'sta*' },
    { route: 'order' },
    { activity: 'spring-drop' },
    { method: ['GET', 'POST'] },
  ]) {
    expect(open(match)[0], JSON.stringify(match)).toContain('open on routes that may reach stock');
  }
  expect(open({ route: 'status' })).toEqual([]);
  expect(open({ route: ['status', 'facts'] })).toEqual([]);
  expect(open({ method: 'GET' })).toEqual([]);
});

test('instance is for budgets that all instances together keep', () => {
  const rule = (rate: string) => [
    { id: 'a', limit: { rate, burst: 5000 }, scope: 'lease', fail: 'instance' },
  ];
  expect(judged(rule('7999/s'))[0]).toContain(
    '8 instances of 1000/s = 8000/s against a budget of 7999/s',
  );
  expect(judged(rule('8000/s'))).toEqual([]);
  const own = { id: 'own', limit: { rate: '500/s' } };
  expect(judged([...rule('4000/s'), own])).toEqual([]);
  expect(judged(rule('8000/s'), { routes: routeNames })[0]).toContain(
    'without known instance limits',
  );
});

test.each([
  [{ fail: 'local' }, 'local on scope instance'],
  [{ fail: 'local', scope: 'exact' }, 'local on scope exact'],
  [{ scope: 'lease', key: ['user'] }, '"user" in a leased budget'],
  [
    { scope: 'lease', limit: { algorithm: 'fixed_window', limit: 1, window: '1s' } },
    'lease of a fixed_window',
  ],
  [
    { scope: 'exact', limit: { algorithm: 'concurrency', limit: 1 } },
    'exact of a concurrency limit',
  ],
  [
    { limit: { algorithm: 'leaky_bucket', rate: '5/s', max_wait: '1s' }, on_limit: 'delay' },
    'waiting on routes that may be submit',
  ],
  [
    {
      match: { route: 'facts' },
      limit: { algorithm: 'leaky_bucket', rate: '5/s', max_wait: '1s' },
    },
    'reject with a max_wait',
  ],
  [{ on_limit: 'delay' }, 'delay of a token_bucket'],
  [{ match: { route: 'sumbit' } }, '"sumbit", which matches nothing | submit?'],
  [{ match: { activity: 'spring-drob' } }, '"spring-drob", which matches nothing | spring-drop?'],
  [{ match: { sku: 'shoe-43' } }, '"shoe-43", which matches nothing | shoe-42?'],
  [{ match: { group: 'reads' } }, '"reads" | a group of this file: there are none'],
])('%j is refused by the deployment: %s', (change, message) => {
  expect(judged([{ id: 'a', limit, ...change }]).join('\n')).toContain(message);
});

test('a path of the service behind is no typo', () => {
  expect(judged([{ id: 'a', match: { route: '/cart/*' }, limit }])).toEqual([]);
});

test('rules that can never refuse, and rules that another one makes pointless, are noted', () => {
  const notes = (rules: unknown): string[] => {
    const { set, problems } = readRules(rules);
    expect(problems).toEqual([]);
    return judgeRules(set, context).notes.map(({ path, found }) => `${path.join('.')}: ${found}`);
  };
  const loose = {
    id: 'loose',
    match: { route: 'submit' },
    key: ['user'],
    limit: { rate: '5/s', burst: 9 },
  };
  const tight = {
    id: 'tight',
    match: { route: ['submit', 'join'] },
    key: ['user'],
    limit: { rate: '1/s', burst: 9 },
  };
  expect(notes([loose, tight])).toEqual([
    '0.limit: a rule that never refuses: "tight" counts the same, for all of its requests, and allows no more',
  ]);
  expect(notes([loose, { ...tight, match: { route: 'join' } }])).toEqual([]);
  expect(notes([loose, { ...tight, mode: 'shadow' }])).toEqual([]);
  expect(notes([loose, { ...loose, id: 'again' }])).toHaveLength(1);
  const closed = { id: 'closed', match: { route: 'submit' }, limit: { rate: '0/s', burst: 0 } };
  expect(notes([closed, loose])).toEqual(['1.match: a rule whose requests "closed" refuses all']);
  expect(notes([{ id: 'slow', limit: { rate: '10/s' }, scope: 'lease' }])[0]).toContain(
    'a lease of 10/s',
  );
});
