import type { RequestFacts } from './facts.ts';
import type { Cost, KeyPart, Match, NamedPattern, Rule, RuleSet } from './model.ts';
import { milli } from '../limit/rate.ts';
import type { TextPattern } from './pattern.ts';

/** Whom a rule concerns, what it charges, and to which counter. Pure functions of rule and request. */

/** Why a rule does not concern a request: the first condition that fails; `undefined` when it does. */
export function mismatch(rule: Rule, set: RuleSet, facts: RequestFacts): string | undefined {
  return (
    mismatchOfPlace(rule.match, set, facts.route, facts.method) ?? mismatchOfRest(rule.match, facts)
  );
}

/** Conditions on route, group and method: the same for every request of one route. */
export function mismatchOfPlace(
  match: Match,
  set: RuleSet,
  route: string,
  method: string,
): string | undefined {
  if (match.route !== undefined && !some(match.route, route)) return 'route';
  if (match.group !== undefined) {
    const within = match.group.some((name) => some(set.groups.get(name) ?? [], route));
    if (!within) return 'group';
  }
  if (match.method !== undefined && !match.method.includes(method)) return 'method';
  return undefined;
}

/** Conditions on everything else. */
export function mismatchOfRest(match: Match, facts: RequestFacts): string | undefined {
  if (match.activity !== undefined && !some(match.activity, facts.activity)) return 'activity';
  if (match.sku !== undefined && !some(match.sku, facts.sku)) return 'sku';
  if (match.risk !== undefined && !match.risk.includes(facts.risk)) return 'risk';
  if (match.header !== undefined && !named(match.header, (name) => facts.header(name))) {
    return 'header';
  }
  if (match.claim !== undefined && !named(match.claim, (name) => facts.claim(name))) return 'claim';
  return undefined;
}

/** Is the rule in force at this wall time? */
export function inForce(rule: Rule, nowMs: number): boolean {
  if (rule.mode === 'off') return false;
  if (rule.effectiveAtMs !== undefined && nowMs < rule.effectiveAtMs) return false;
  return rule.expiresAtMs === undefined || nowMs < rule.expiresAtMs;
}

export interface ResolvedKey {
  readonly parts: readonly string[];
  /** Parts that the request did not have. */
  readonly absent: readonly string[];
}

/**
 * The counter of a request. Who lacks a part shares an anonymous counter with all who lack it, which
 * has one part more than any other and so can be nobody's own.
 */
export function resolveKey(
  key: readonly KeyPart[],
  facts: RequestFacts,
  prefixOf: (address: string) => string | undefined,
): ResolvedKey {
  const parts: string[] = [];
  let absent: string[] | undefined;
  for (const part of key) {
    const value = valueOf(part, facts, prefixOf);
    parts.push(value ?? '');
    if (value === undefined) (absent ??= []).push('name' in part ? part.name : part.kind);
  }
  if (absent === undefined) return { parts, absent: [] };
  parts.push(`absent:${absent.join(',')}`);
  return { parts, absent };
}

function valueOf(
  part: KeyPart,
  facts: RequestFacts,
  prefixOf: (address: string) => string | undefined,
): string | undefined {
  switch (part.kind) {
    case 'user':
      return facts.user;
    case 'device':
      return facts.device;
    case 'ip':
      return facts.address;
    case 'ip_prefix':
      return prefixOf(facts.address);
    case 'activity':
      return facts.activity;
    case 'sku':
      return facts.sku;
    case 'pass':
      return facts.pass;
    case 'route':
      return facts.route;
    case 'header':
      return facts.header(part.name)?.slice(0, 256);
    case 'claim':
      return facts.claim(part.name)?.slice(0, 256);
  }
}

/** Thousandths that a request costs under a rule, within 1 … max_cost. */
export function costOf(cost: Cost, facts: RequestFacts): number {
  switch (cost.kind) {
    case 'fixed':
      return cost.costMilli;
    case 'quantity':
      return clamp((facts.quantity ?? 1) * milli, cost.maxMilli);
    case 'header': {
      // A caller that could say what it costs would say 0.
      const said = facts.fromTrustedProxy ? facts.header(cost.name) : undefined;
      return said !== undefined && /^\d{1,9}$/.test(said)
        ? clamp(Number(said) * milli, cost.maxMilli)
        : milli;
    }
  }
}

function clamp(costMilli: number, maxMilli: number): number {
  const whole = Number.isFinite(costMilli) ? Math.floor(costMilli / milli) * milli : maxMilli;
  return Math.min(Math.max(whole, milli), maxMilli);
}

function some(patterns: readonly TextPattern[], text: string | undefined): boolean {
  return text !== undefined && patterns.some((pattern) => pattern.matches(text));
}

function named(
  list: readonly NamedPattern[],
  value: (name: string) => string | undefined,
): boolean {
  return list.every(({ name, patterns }) => some(patterns, value(name)));
}
