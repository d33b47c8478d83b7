import type { LimitSpec } from '../limit/algorithm.ts';
import type { OverflowLimit } from '../limit/keyed-limiter.ts';
import type { TextPattern } from './pattern.ts';

/**
 * A rule: whom a limit counts, how much it allows, and what happens past it. These are values already
 * checked (read.ts says what is wrong with what was written); nothing here is parsed again.
 */
export interface Rule {
  readonly id: string;
  readonly match: Match;
  readonly key: readonly KeyPart[];
  readonly limit: LimitSpec;
  readonly cost: Cost;
  readonly scope: RuleScope;
  readonly overrides: readonly Override[];
  readonly hot?: HotValues;
  /** What a request without one of the key's parts meets. */
  readonly absent: 'anonymous' | 'refuse';
  readonly maxKeys: number;
  readonly overflow: OverflowLimit;
  readonly penalty?: Penalty;
  /** Parts of the burst that ordinary work leaves alone, thousandths. */
  readonly reserve?: { readonly retriesMilli: number; readonly p0Milli: number };
  readonly onLimit: OnLimit;
  readonly fail: FailPolicy;
  readonly mode: RuleMode;
  readonly priority: Priority;
  readonly effectiveAtMs?: number;
  readonly expiresAtMs?: number;
}

/** Everything one reload brings. A lower version never replaces a higher one. */
export interface RuleSet {
  readonly version: number;
  /** Named lists of route patterns. */
  readonly groups: ReadonlyMap<string, readonly TextPattern[]>;
  readonly risk: RiskSettings;
  readonly rules: readonly Rule[];
}

/** All that are given must hold; each is a list of which one must hold. */
export interface Match {
  readonly route?: readonly TextPattern[];
  readonly group?: readonly string[];
  readonly method?: readonly string[];
  readonly activity?: readonly TextPattern[];
  readonly sku?: readonly TextPattern[];
  readonly risk?: readonly Risk[];
  readonly header?: readonly NamedPattern[];
  readonly claim?: readonly NamedPattern[];
}

/** Every named value must match one of its patterns. */
export interface NamedPattern {
  readonly name: string;
  readonly patterns: readonly TextPattern[];
}

export type KeyPart =
  | {
      readonly kind: 'user' | 'device' | 'ip' | 'ip_prefix' | 'activity' | 'sku' | 'pass' | 'route';
    }
  | { readonly kind: 'header' | 'claim'; readonly name: string };

export type Cost =
  | { readonly kind: 'fixed'; readonly costMilli: number; readonly maxMilli: number }
  | { readonly kind: 'quantity'; readonly maxMilli: number }
  /** Believed from trusted proxies only; otherwise 1. */
  | { readonly kind: 'header'; readonly name: string; readonly maxMilli: number };

/** A named value of the key with a limit of its own. One text per part of the key. */
export interface Override {
  readonly parts: readonly string[];
  readonly limit: LimitSpec;
}

/** The busiest values of the key meet a limit more. */
export interface HotValues {
  /** How many values are hot at most. */
  readonly top: number;
  /** Share of all requests of the rule from which a value is hot, thousandths. */
  readonly shareMilli: number;
  readonly halfLifeUs: number;
  readonly limit: LimitSpec;
}

/** A caller refused `after` times `withinUs` is refused everything of this rule `forUs`. */
export interface Penalty {
  readonly after: number;
  readonly withinUs: number;
  readonly forUs: number;
}

/** Where `risk` of a request comes from. */
export interface RiskSettings {
  /** Header whose word a trusted edge sets. */
  readonly header?: string;
  /** Prefix lists, most specific risk first. */
  readonly prefixes: readonly { readonly risk: Risk; readonly ranges: readonly string[] }[];
  /** More accounts than this on one device make it this risky. */
  readonly accountsPerDevice?: { readonly more: number; readonly risk: Risk };
  readonly forgedPass?: Risk;
}

export const scopes = ['instance', 'lease', 'exact'] as const;
export type RuleScope = (typeof scopes)[number];

export const failPolicies = ['closed', 'local', 'instance', 'open'] as const;
export type FailPolicy = (typeof failPolicies)[number];

export const modes = ['enforce', 'shadow', 'off'] as const;
export type RuleMode = (typeof modes)[number];

export const onLimits = [
  'reject',
  'queue',
  'delay',
  'challenge',
  'degrade',
  'accept_later',
] as const;
export type OnLimit = (typeof onLimits)[number];

export const priorities = ['P0', 'P1', 'P2', 'P3', 'P4'] as const;
export type Priority = (typeof priorities)[number];

/** From the least to the most suspect. */
export const risks = ['trusted', 'low', 'medium', 'high'] as const;
export type Risk = (typeof risks)[number];

/** Routes of Sluice itself, as rules name them. */
export const routeNames = [
  'submit',
  'status',
  'standing',
  'join',
  'pass',
  'session',
  'order',
  'cancel',
  'pay',
  'callback',
  'facts',
  'page',
] as const;

/**
 * What each route of Sluice can do past a limit. A route that is not named here can only reject.
 * - `queue` points to the waiting room: where one goes who was about to buy.
 * - `delay` holds a connection: never in submit, and not where millions ask.
 * - `degrade` tells what was known last, without asking the stock.
 * - `challenge` asks for a proof of work, and `accept_later` gives a place ahead with a ticket: where
 *   the caller is a program that can bring either back. A payment provider is none, and what is shown
 *   to everybody (facts, pages) is for nobody in particular.
 */
export const routeAnswers: Readonly<Record<string, readonly OnLimit[]>> = {
  submit: ['reject', 'queue', 'challenge', 'accept_later'],
  pass: ['reject', 'queue', 'delay', 'challenge', 'accept_later'],
  join: ['reject', 'delay', 'challenge', 'accept_later'],
  session: ['reject', 'delay', 'challenge', 'accept_later'],
  order: ['reject', 'delay', 'challenge', 'accept_later'],
  cancel: ['reject', 'delay', 'challenge', 'accept_later'],
  pay: ['reject', 'delay', 'challenge', 'accept_later'],
  callback: ['reject', 'delay'],
  facts: ['reject', 'delay', 'degrade'],
  page: ['reject', 'delay'],
};

/** Of those, the ones that change nothing that is sold: all that a rule may fail open on. */
export const readRoutes: readonly string[] = ['status', 'standing', 'facts', 'page'];

/** Methods that change nothing, by HTTP's own definition. */
export const readMethods: readonly string[] = ['GET', 'HEAD', 'OPTIONS'];

/** Rules in one set: each is looked at by every request that it may concern. */
export const rulesMax = 500;
/** Overrides in one rule. */
export const overridesMax = 1_000;
/** Keys that one rule remembers: 44 bytes each. */
export const maxKeysMax = 10_000_000;
