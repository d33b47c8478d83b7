import type { ArrivalShape } from './arrivals.ts';

/** What a bot does. Kinds that also act as a person may end up buying; that is their aim. */
export const botKinds = ['forger', 'replayer', 'farm', 'rotator', 'scanner', 'ignorer'] as const;
export type BotKind = (typeof botKinds)[number];

/** How a person comes back after a refusal that says "later". */
export type RetryHabit = 'server' | 'fixed_100ms' | 'full_jitter';

/** A crowd's character and a sale's size; every number may be overridden on the command line. */
export interface Scenario {
  readonly about: string;
  readonly people: number;
  readonly overMs: number;
  readonly stock: number;
  readonly arrivals: ArrivalShape;
  /** Shares in [0, 1]. */
  readonly bots: number;
  readonly duplicates: number;
  readonly timeouts: number;
  /** Relative weights of bot kinds. */
  readonly botMix: Readonly<Record<BotKind, number>>;
  /** SKUs on sale (embedded), and how unequally they are wanted: 0 all alike, 1 as Zipf's law. */
  readonly skus: number;
  readonly skew: number;
  readonly retry: RetryHabit;
  /** Of those with an order: who walks away without a word, and who cancels. The rest pay. */
  readonly abandons: number;
  readonly cancels: number;
  /** Share that gives up waiting after some seconds. */
  readonly impatient: number;
  /** Share that stays on after "sold out", in case units return. */
  readonly hopeful: number;
  /** One person sends this many requests a second on top; 0 for none. */
  readonly loudPerSecond: number;
  /** Payment deadline of an embedded sale, ms. */
  readonly paymentDeadlineMs: number;
}

const evenMix: Scenario['botMix'] = {
  forger: 1,
  replayer: 1,
  farm: 1,
  rotator: 1,
  scanner: 1,
  ignorer: 1,
};

const base: Scenario = {
  about: 'people come evenly, one hot SKU, no bots unless asked for',
  people: 2_000,
  overMs: 10_000,
  stock: 100,
  arrivals: 'constant',
  bots: 0,
  duplicates: 0,
  timeouts: 0,
  botMix: evenMix,
  skus: 1,
  skew: 0,
  retry: 'server',
  abandons: 0.05,
  cancels: 0.03,
  impatient: 0.05,
  hopeful: 0.15,
  loudPerSecond: 0,
  paymentDeadlineMs: 30_000,
};

const only = (kind: BotKind): Scenario['botMix'] => ({
  forger: 0,
  replayer: 0,
  farm: 0,
  rotator: 0,
  scanner: 0,
  ignorer: 0,
  [kind]: 1,
});

export const scenarios = {
  even: base,
  spike: { ...base, about: 'nine in ten people come in the last fifth', arrivals: 'spike' },
  ramp: { ...base, about: 'the rate of arrivals grows from nothing', arrivals: 'ramp' },
  million: {
    ...base,
    about: 'a million people in ten seconds for 10,000 units; scale it to the machine',
    people: 1_000_000,
    stock: 10_000,
    arrivals: 'spike',
    bots: 0.1,
  },
  'hot-sku': { ...base, about: 'one SKU, a hundred people for each unit', stock: 20 },
  'skewed-skus': {
    ...base,
    about: 'eight SKUs wanted as Zipf has it',
    skus: 8,
    skew: 1,
    stock: 40,
  },
  duplicates: {
    ...base,
    about: 'half the people submit twice or more, with one id and with several, from two devices',
    duplicates: 0.5,
  },
  timeouts: {
    ...base,
    about: 'one in ten gives up on the answer to a submit and asks again',
    timeouts: 0.1,
  },
  'retry-fixed': {
    ...base,
    about: 'everybody who is refused comes back after 100 ms, whatever they are told',
    retry: 'fixed_100ms',
    people: 1_000,
  },
  'retry-jitter': {
    ...base,
    about: 'everybody who is refused comes back after full jitter, doubling',
    retry: 'full_jitter',
    people: 1_000,
  },
  'forged-passes': {
    ...base,
    about: 'half the crowd are bots that submit with forged passes',
    bots: 0.5,
    botMix: only('forger'),
  },
  'address-rotation': {
    ...base,
    about: 'a third are bots with another address at each request',
    bots: 0.33,
    botMix: only('rotator'),
  },
  'loud-user': {
    ...base,
    about: 'one user sends 200 requests a second; the others must not feel it',
    loudPerSecond: 200,
  },
  abandonment: {
    ...base,
    about: 'half of those with an order never pay; their units come back',
    abandons: 0.5,
    hopeful: 0.6,
    paymentDeadlineMs: 8_000,
  },
  reopen: {
    ...base,
    about: 'sells out at once, then cancelled orders reopen it again and again',
    stock: 30,
    abandons: 0,
    cancels: 0.5,
    hopeful: 0.8,
  },
} as const satisfies Record<string, Scenario>;

export type ScenarioName = keyof typeof scenarios;
export const scenarioNames = Object.keys(scenarios) as ScenarioName[];
