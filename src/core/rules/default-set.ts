import { formatRate, perSecond, type Rate } from '../limit/rate.ts';
import type { RuleSet } from './model.ts';
import { readRules } from './read.ts';

/**
 * The rules of a deployment that has written none, in the language in which it would write them:
 * generous enough that no honest buyer meets them, tight enough that a loop does.
 *
 * Two layers: the instance first (its ceiling, from the deployment file, stands before all rules), then
 * the budget of each activity, leased from the store that all instances share.
 */
export interface DefaultRuleSettings {
  /** What the submits of one activity may ask of the stock, over all instances. */
  readonly submit: Rate;
}

/** Below this a lease would hold too much of the budget: it is asked for each request. Tokens a second. */
const leasePerSecondLeast = 2_000;

/** Requests per person and route. A submit's retries and a poll's pace fit several times over. */
const perUser: readonly (readonly [route: string, rate: string, burst: number])[] = [
  ['submit', '1/s', 10],
  ['status', '5/s', 20],
  ['standing', '5/s', 20],
  ['join', '1/s', 10],
  ['pass', '1/s', 10],
  ['order', '5/s', 20],
  ['cancel', '5/s', 20],
  ['pay', '1/s', 10],
];

/**
 * Where an address counts. Not for standings, which have a pace of their own and cost nothing, nor for
 * pages, whose pictures and styles come many at a time.
 */
const counted = [
  'submit',
  'status',
  'join',
  'pass',
  'session',
  'order',
  'cancel',
  'pay',
  'callback',
  'facts',
];

/** As a person would write it. */
export function defaultRules({ submit }: DefaultRuleSettings): readonly object[] {
  return [
    {
      // An address may be a whole company or a mobile carrier's gateway: soft.
      id: 'default-address',
      match: { route: counted },
      key: ['ip'],
      limit: { rate: '100/s', burst: 400 },
    },
    {
      id: 'default-prefix',
      match: { route: counted },
      key: ['ip_prefix'],
      limit: { rate: '1000/s', burst: 4_000 },
    },
    ...perUser.map(([route, rate, burst]) => ({
      id: `default-user-${route}`,
      match: { route },
      key: ['user'],
      limit: { rate, burst },
    })),
    {
      // Only of those who name one: all others would share one counter.
      id: 'default-device',
      match: { route: perUser.map(([route]) => route), header: { 'sluice-device': '/./' } },
      key: ['device'],
      limit: { rate: '4/s', burst: 40 },
    },
    {
      id: 'default-budget',
      match: { route: 'submit' },
      key: ['activity'],
      limit: { rate: formatRate(submit) },
      scope: perSecond(submit) >= leasePerSecondLeast ? 'lease' : 'exact',
      fail: 'closed',
    },
  ];
}

/** @throws Error when the defaults themselves are wrong: a defect of ours. */
export function defaultRuleSet(settings: DefaultRuleSettings): RuleSet {
  const { set, problems } = readRules(defaultRules(settings));
  const [first] = problems;
  if (first !== undefined) {
    throw new Error(`default rules: ${first.path.join('.')}: ${first.found}; ${first.allowed}`);
  }
  return set;
}
