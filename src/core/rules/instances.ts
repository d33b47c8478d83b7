import { perSecond, type Rate } from '../limit/rate.ts';
import type { LimitSpec } from '../limit/algorithm.ts';
import { instanceLimits } from './judge.ts';
import type { Rule, RuleSet } from './model.ts';
import { steadyRate } from './read-limit.ts';

/**
 * Limits of an instance are written for an instance among equals. Where one is none, they are scaled:
 *
 * - A canary holds another share of the traffic than the others. Its own limits follow that share, so that
 *   a few canaries neither refuse a crowd that the others would have let in, nor show limits that nobody
 *   ever meets; when traffic is even again, so are they. Leases need nothing of this: they follow demand.
 * - Rules that go on with the instance limits alone while the shared store is away were judged by a number
 *   of instances that somebody declared. When more are there, what they let through together may be more
 *   than the budget: that is reported, with the number that would fit.
 */
export interface InstanceTraffic {
  readonly instance: string;
  /** Requests since it started. */
  readonly arrivals: number;
}

/** Weight of the newest second in an instance's traffic. */
const newestWeight = 0.3;

/** How much of all traffic each instance has, from the counts that they tell once a second. */
export class TrafficShares {
  readonly #known = new Map<string, { arrivals: number; atUs: number; perSecond: number }>();

  /** Instances that are not named are gone. O(instances). */
  feed(instances: readonly InstanceTraffic[], nowUs: number): void {
    const names = new Set(instances.map(({ instance }) => instance));
    for (const name of this.#known.keys()) if (!names.has(name)) this.#known.delete(name);
    for (const { instance, arrivals } of instances) {
      const known = this.#known.get(instance);
      // A count that went back is of another run under the same name.
      if (known === undefined || arrivals < known.arrivals) {
        this.#known.set(instance, { arrivals, atUs: nowUs, perSecond: known?.perSecond ?? 0 });
        continue;
      }
      if (nowUs <= known.atUs) continue;
      const measured = ((arrivals - known.arrivals) * 1e6) / (nowUs - known.atUs);
      known.perSecond += newestWeight * (measured - known.perSecond);
      known.arrivals = arrivals;
      known.atUs = nowUs;
    }
  }

  get count(): number {
    return this.#known.size;
  }

  /** 0 to 1; an even share while nothing is known or nothing comes. */
  shareOf(instance: string): number {
    let all = 0;
    for (const one of this.#known.values()) all += one.perSecond;
    const own = this.#known.get(instance)?.perSecond ?? 0;
    return all < 1 ? 1 / Math.max(1, this.count) : own / all;
  }
}

/** One, in the steps in which limits are scaled: fine enough, and seldom a new set of rules. */
export const evenQuarters = 4;
/** So far from the step in force a share must be before another one is taken, in quarters. */
const quarterSlack = 0.75;

/** By how many quarters a canary's limits are to be scaled. `present` stays while it nearly fits. */
export function quartersFor(share: number, instances: number, present: number): number {
  const wanted = Math.min(instances, Math.max(0.25, share * instances)) * evenQuarters;
  return Math.abs(wanted - present) < quarterSlack ? present : Math.round(wanted);
}

/** The set with its instances' own limits scaled: those that count everybody of one process together. */
export function scaledSet(set: RuleSet, quarters: number): RuleSet {
  if (quarters === evenQuarters) return set;
  const rules = set.rules.map((rule) =>
    isInstanceLimit(rule) ? { ...rule, limit: scaled(rule.limit, quarters) } : rule,
  );
  return { ...set, rules };
}

function isInstanceLimit({ scope, key }: Rule): boolean {
  return scope === 'instance' && key.length === 0;
}

function scaled(limit: LimitSpec, quarters: number): LimitSpec {
  const units = (value: number): number =>
    value === 0 ? 0 : Math.max(1000, Math.round((value * quarters) / evenQuarters / 1000) * 1000);
  const rate = (of: Rate): Rate => ({
    ...of,
    tokensMilli:
      of.tokensMilli === 0 ? 0 : Math.max(1, Math.round((of.tokensMilli * quarters) / 4)),
  });
  switch (limit.algorithm) {
    case 'token_bucket':
    case 'warm_up':
      return { ...limit, rate: rate(limit.rate), burstMilli: units(limit.burstMilli) };
    case 'leaky_bucket':
      return { ...limit, rate: rate(limit.rate) };
    case 'fixed_window':
    case 'sliding_window':
    case 'concurrency':
      return { ...limit, limitMilli: units(limit.limitMilli) };
    case 'sliding_log':
      // Each call is stored: its bound is one of memory too.
      return { ...limit, limitMilli: Math.min(1_000_000, units(limit.limitMilli)) };
  }
}

/** A quota that so many instances go past. */
export interface QuotaMisfit {
  readonly ruleId: string;
  readonly instances: number;
  /** What each of them lets through a second, and what the budget allows to all of them. */
  readonly eachPerSecond: number;
  readonly budgetPerSecond: number;
  /** What each may let through at most, so that it fits again: ready to be written. */
  readonly fitsPerSecond: number;
}

/** @param ceiling of each instance. O(rules). */
export function quotaMisfits(
  set: RuleSet,
  instances: number,
  ceiling: Rate,
): readonly QuotaMisfit[] {
  const eachPerSecond = Math.min(perSecond(ceiling), ...instanceLimits(set));
  return set.rules.flatMap((rule) => {
    if (rule.fail !== 'instance' || rule.mode !== 'enforce') return [];
    const budgetPerSecond = perSecond(steadyRate(rule.limit));
    if (instances * eachPerSecond <= budgetPerSecond) return [];
    const fitsPerSecond = Math.floor(budgetPerSecond / instances);
    return [{ ruleId: rule.id, instances, eachPerSecond, budgetPerSecond, fitsPerSecond }];
  });
}
