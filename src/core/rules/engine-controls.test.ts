import { afterEach, describe, expect, test, vi } from 'vitest';
import { KeyedLimiter } from '../limit/keyed-limiter.ts';
import { parseRate } from '../limit/rate.ts';
import { SingleBucket } from '../limit/single-bucket.ts';
import { RuleCounter } from './counter.ts';
import { RuleEngine } from './engine.ts';
import type { RequestFacts } from './facts.ts';
import { readRules } from './read.ts';
import { type DecisionSink, giveBack, newSink } from './sink.ts';
import type { RuleStage } from './stage.ts';

/**
 * Each guard of the rules engine, seen to work, and then switched off: what it guards must then break, or
 * the first half showed nothing.
 */
afterEach(() => {
  vi.restoreAllMocks();
});

/* oxlint-disable typescript/unbound-method -- called with a `this` of the mock's choice */
const counter = RuleCounter.prototype;
const limiter = KeyedLimiter.prototype;

const facts = (over: Partial<RequestFacts> = {}): RequestFacts => ({
  route: 'join',
  method: 'POST',
  address: '192.0.2.7',
  user: 'ann',
  device: 'phone',
  activity: 'concert',
  risk: 'low',
  fromTrustedProxy: false,
  header: () => undefined,
  claim: () => undefined,
  ...over,
});

function engineOf(...rules: object[]): RuleEngine {
  const ceiling = { rate: parseRate('1/h'), burstMilli: 3_000 };
  const engine = new RuleEngine({ hashSeed: [1, 2], ceiling }, 0);
  const { set, problems } = readRules(rules);
  expect(problems).toEqual([]);
  engine.apply(set, 0);
  return engine;
}

const ask = (
  engine: RuleEngine,
  over: Partial<RequestFacts> = {},
  stage: RuleStage = 'person',
  sink?: DecisionSink,
): string => engine.decide(stage, facts(over), 0, 0, sink)?.ruleId ?? 'in';

const hour = (burst: number): object => ({ rate: '1/h', burst });

interface Guard {
  readonly name: string;
  /** Throws when it is not guarded. */
  readonly works: () => void;
  readonly off: () => void;
}

const guards: readonly Guard[] = [
  {
    name: 'a refusal charges none of its stage',
    works: () => {
      const engine = engineOf(
        { id: 'wide', key: ['user'], limit: hour(4) },
        { id: 'narrow', key: ['user', 'device'], limit: hour(1) },
      );
      ask(engine);
      for (let n = 0; n < 5; n += 1) ask(engine);
      expect(engine.peek('wide', facts(), 0)).toBe(3_000);
    },
    off: () => {
      const { probe, charge } = counter;
      vi.spyOn(counter, 'probe').mockImplementation(function (this: RuleCounter, ...asked) {
        const wait = probe.call(this, ...asked);
        if (wait === 0) charge.call(this, asked[1]);
        return wait;
      });
    },
  },
  {
    name: 'the ceiling stands before every rule',
    works: () => {
      const engine = engineOf({ id: 'generous', limit: { rate: '1000/s', burst: 1000 } });
      const answers = Array.from({ length: 5 }, () => ask(engine, {}, 'instance'));
      expect(answers).toEqual(['in', 'in', 'in', 'ceiling', 'ceiling']);
    },
    off: () => vi.spyOn(SingleBucket.prototype, 'probe').mockReturnValue(0),
  },
  {
    name: 'who ignores refusals is penalised',
    works: () => {
      const penalty = { after: 2, within: '10s', for: '60s' };
      const engine = engineOf({
        id: 'a',
        key: ['user'],
        limit: { rate: '1/s', burst: 1 },
        penalty,
      });
      for (let n = 0; n < 4; n += 1) ask(engine);
      expect(engine.decide('person', facts(), 5_000_000, 0)?.reason).toBe('penalty');
    },
    off: () => vi.spyOn(counter, 'refused').mockReturnValue(false),
  },
  {
    name: 'a reserve is left to retries',
    works: () => {
      const engine = engineOf({
        id: 'a',
        key: ['activity'],
        limit: hour(10),
        reserve: { retries: '50%' },
      });
      for (let n = 0; n < 10; n += 1) ask(engine, {}, 'budget');
      expect(ask(engine, { retry: true }, 'budget')).toBe('in');
    },
    off: () => {
      const { probe } = counter;
      vi.spyOn(counter, 'probe').mockImplementation(function (this: RuleCounter, ...asked) {
        const [parts, costMilli, nowUs] = asked;
        return probe.call(this, parts, costMilli, nowUs, 0);
      });
    },
  },
  {
    name: 'places of a concurrency limit are given back, and once',
    works: () => {
      const engine = engineOf({
        id: 'a',
        key: ['user'],
        limit: { algorithm: 'concurrency', limit: 1 },
      });
      const sink = newSink();
      expect(ask(engine, {}, 'person', sink)).toBe('in');
      expect(ask(engine, {}, 'person', newSink())).toBe('a');
      giveBack(sink.holds);
      giveBack(sink.holds);
      expect(ask(engine, {}, 'person', newSink())).toBe('in');
    },
    off: () => vi.spyOn(counter, 'give').mockImplementation(() => undefined),
  },
  {
    name: 'a reload refills nobody',
    works: () => {
      const engine = engineOf({ id: 'a', key: ['user'], limit: hour(2) });
      for (let n = 0; n < 2; n += 1) ask(engine);
      engine.apply(readRules([{ id: 'a', key: ['user'], limit: hour(4) }]).set, 0);
      expect(ask(engine)).toBe('a');
    },
    off: () => vi.spyOn(counter, 'canBecome').mockReturnValue(false),
  },
  {
    name: 'a shadow rule refuses nobody, and charges its own copy alone',
    works: () => {
      const engine = engineOf(
        { id: 'ghost', key: ['user'], limit: hour(1), mode: 'shadow' },
        { id: 'real', key: ['user'], limit: hour(3) },
      );
      const answers = Array.from({ length: 4 }, () => ask(engine));
      expect(answers).toEqual(['in', 'in', 'in', 'real']);
      expect(engine.stats().find(({ ruleId }) => ruleId === 'ghost')?.wouldRefuse).toBe(3);
    },
    // As if the rule were an enforced one.
    off: () => {
      const { apply } = RuleEngine.prototype;
      vi.spyOn(RuleEngine.prototype, 'apply').mockImplementation(function (
        this: RuleEngine,
        set,
        at,
      ) {
        const rules = set.rules.map((rule) => ({ ...rule, mode: 'enforce' as const }));
        return apply.call(this, { ...set, rules }, at);
      });
    },
  },
  {
    name: 'unknown keys of a full table share one counter',
    works: () => {
      const engine = engineOf({
        id: 'a',
        key: ['user'],
        limit: hour(1),
        max_keys: 2,
        overflow: { rate: '1/h', burst: 3 },
      });
      const answers = Array.from({ length: 10 }, (_, n) => ask(engine, { user: `u${n}` }));
      expect(answers.filter((said) => said === 'in')).toHaveLength(5);
    },
    // As if each had one of its own.
    off: () => {
      const { probeParts } = limiter;
      vi.spyOn(limiter, 'probeParts').mockImplementation(function (this: KeyedLimiter, ...asked) {
        const wait = probeParts.call(this, ...asked);
        return this.viaOverflow ? 0 : wait;
      });
    },
  },
  {
    name: 'an absent key is no way out',
    works: () => {
      const engine = engineOf({ id: 'a', key: ['device'], limit: hour(1) });
      const nobody = { device: undefined };
      expect([ask(engine, nobody), ask(engine, nobody)]).toEqual(['in', 'a']);
    },
    off: () => {
      const { probe } = counter;
      vi.spyOn(counter, 'probe').mockImplementation(function (this: RuleCounter, ...asked) {
        const wait = probe.call(this, ...asked);
        return asked[0].every((part) => part === 'phone') ? wait : 0;
      });
    },
  },
];

describe.each(guards)('$name', ({ works, off }) => {
  test('it does', () => {
    works();
  });

  test('control: and does not where the guard is off', () => {
    off();
    expect(works).toThrow();
  });
});
