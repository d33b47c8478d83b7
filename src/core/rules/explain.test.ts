import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { RuleEngine } from './engine.ts';
import { giveBack, newSink } from './sink.ts';
import { explain, renderExplanation } from './explain.ts';
import { readRules } from './read.ts';
import { ruleStages } from './stage.ts';

const written = {
  groups: { reads: ['facts', 'status'] },
  risk: { header: 'x-risk', prefixes: { high: ['198.51.100.0/24'], trusted: ['192.0.2.0/24'] } },
  rules: [
    { id: 'sku-budget', key: ['activity', 'sku'], limit: { rate: '40000/s', burst: 40000 } },
    {
      id: 'per-user',
      match: { route: 'submit', activity: '*' },
      key: ['user'],
      limit: { rate: '0.5/s', burst: 3 },
      overrides: [{ value: 'u_vip', rate: '5/s', burst: 10 }],
    },
    {
      id: 'per-address',
      key: ['ip'],
      limit: { algorithm: 'fixed_window', limit: 100, window: '1s' },
    },
    { id: 'instance', limit: { rate: '1000/s', burst: 500 } },
    {
      id: 'suspects',
      match: { risk: 'high' },
      key: ['ip'],
      limit: { rate: '1/m', burst: 1 },
      on_limit: 'challenge',
    },
    { id: 'reads', match: { group: 'reads' }, limit: { rate: '10/s' } },
    { id: 'tryout', key: ['device'], limit: { rate: '1/s', burst: 1 }, mode: 'shadow' },
    { id: 'holiday', expires_at: '2027-01-01T00:00:00Z', limit: { rate: '1/s' } },
    { id: 'later', effective_at: '2028-01-01T00:00:00Z', limit: { rate: '1/s' } },
  ],
};
const { set, problems } = readRules(written);
const atMs = Date.parse('2027-06-01T00:00:00Z');
const request = {
  route: 'submit',
  address: '::ffff:203.0.113.9',
  activity: 'drop',
  sku: 'shoe',
  user: 'u1',
  atMs,
};

test('rules are listed in the order in which they are asked, with counter, cost and answer', () => {
  expect(problems).toEqual([]);
  const { rules, risk } = explain(set, request);
  expect(risk).toBe('low');
  expect(rules.map(({ id, applies, because }) => [id, applies ? 'applies' : because])).toEqual([
    ['instance', 'applies'],
    ['per-address', 'applies'],
    ['per-user', 'applies'],
    ['tryout', 'applies'],
    ['sku-budget', 'applies'],
    ['suspects', 'risk'],
    ['reads', 'group'],
    ['holiday', 'expired 13046400 s before'],
    ['later', 'not yet effective'],
  ]);
  const by = (id: string) => rules.find((rule) => rule.id === id);
  expect(by('per-user')).toMatchObject({
    stage: 'person',
    key: [{ part: 'user', value: 'u1' }],
    cost: 1,
    atOnce: 3,
    thenRetryAfterMs: 2_000,
    exact: true,
    answer: '429 RATE_LIMITED',
  });
  expect(by('per-address')).toMatchObject({
    key: [{ value: '203.0.113.9' }],
    atOnce: 100,
    thenRetryAfterMs: 1_000,
  });
  expect(by('tryout')).toMatchObject({
    key: [{ part: 'device', value: null }],
    answer: 'nothing: shadow rules only count',
  });
  expect(by('sku-budget')).toMatchObject({ atOnce: 40_000, exact: false, thenRetryAfterMs: 1 });
});

test('named values and suspects are explained as what they are', () => {
  const vip = explain(set, { ...request, user: 'u_vip' }).rules.find(({ id }) => id === 'per-user');
  expect(vip).toMatchObject({ from: 'override', atOnce: 10, thenRetryAfterMs: 200 });
  const suspect = explain(set, { ...request, address: '198.51.100.4' });
  expect(suspect.risk).toBe('high');
  expect(suspect.rules.find(({ id }) => id === 'suspects')).toMatchObject({
    applies: true,
    answer: '403 CHALLENGE_REQUIRED, and past the rule with the answer',
  });
  const word = (fromTrustedProxy: boolean) =>
    explain(set, { ...request, fromTrustedProxy, headers: { 'X-Risk': 'medium' } }).risk;
  expect([word(true), word(false)]).toEqual(['medium', 'low']);
});

test('the text names every rule', () => {
  const text = renderExplanation(explain(set, request));
  for (const { id } of set.rules) expect(text).toContain(id);
  expect(text).toContain('device=(absent: anonymous)');
  expect(text).toContain('admits 3 at once; then 429 RATE_LIMITED, retry after 2000 ms');
  expect(text).toContain('retry after at least');
  expect(renderExplanation({ risk: 'low', rules: [] })).toContain('no rule applies');
});

test('what it says is what the engine does', () => {
  const limit = fc.oneof(
    fc.record({
      rate: fc.constantFrom('5/s', '1/7s', '0/s'),
      burst: fc.integer({ min: 0, max: 6 }),
    }),
    fc.record({
      algorithm: fc.constantFrom('fixed_window', 'sliding_window', 'sliding_log'),
      limit: fc.integer({ min: 0, max: 6 }),
      window: fc.constantFrom('1s', '700ms'),
    }),
    fc.record({ algorithm: fc.constant('leaky_bucket'), rate: fc.constantFrom('5/s', '1/7s') }),
    fc.record({
      algorithm: fc.constant('warm_up'),
      rate: fc.constant('5/s'),
      burst: fc.integer({ min: 3, max: 9 }),
      warm_up: fc.constant('2s'),
    }),
    fc.record({ algorithm: fc.constant('concurrency'), limit: fc.integer({ min: 0, max: 4 }) }),
  );
  fc.assert(
    fc.property(
      fc.array(
        fc.record({ limit, key: fc.constantFrom([], ['user'], ['ip', 'sku'], ['device']) }),
        { minLength: 1, maxLength: 4 },
      ),
      (rules) => {
        const read = readRules(rules.map((rule, at) => ({ id: `r${at}`, max_keys: 100, ...rule })));
        expect(read.problems).toEqual([]);
        const said = explain(read.set, request);
        const facts = {
          route: 'submit',
          method: 'POST',
          address: '203.0.113.9',
          activity: 'drop',
          sku: 'shoe',
          user: 'u1',
          risk: 'low' as const,
          fromTrustedProxy: false,
          header: () => undefined,
          claim: () => undefined,
        };
        for (const rule of said.rules) {
          // Each rule alone: the engine charges it as often as was said, then refuses as was said.
          const engine = new RuleEngine({ hashSeed: [1, 2] }, 0);
          engine.apply(
            { ...read.set, rules: read.set.rules.filter(({ id }) => id === rule.id) },
            0,
          );
          const sink = newSink();
          let admitted = 0;
          let refused = engine.decide(rule.stage, facts, 0, 0, sink);
          for (; refused === undefined; refused = engine.decide(rule.stage, facts, 0, 0, sink))
            admitted += 1;
          expect(admitted).toBe(rule.atOnce);
          expect(ruleStages).toContain(rule.stage);
          if (rule.thenRetryAfterMs === null) expect(refused.waitUs).toBe(Number.MAX_SAFE_INTEGER);
          else expect(Math.ceil(refused.waitUs / 1000)).toBe(rule.thenRetryAfterMs);
          giveBack(sink.holds);
        }
      },
    ),
  );
});
