import type { WaitUs } from '../limit/token-bucket.ts';
import type { RuleCounter } from './counter.ts';
import type { Rule } from './model.ts';

/** What a decision leaves behind, for callers that want it. */
export interface DecisionSink {
  /** Where each enforced rule stands: for `RateLimit` fields. */
  readonly standings: RuleStanding[];
  /** Places taken under `concurrency` rules: to be given back with `giveBack`, once, come what may. */
  readonly holds: RuleCharge[];
  /** Charges of all other rules: given back where the request turns out not to count. */
  readonly charges: RuleCharge[];
  /** How long the request has to be held back before it goes on, µs: the longest of its pacing rules. */
  delayUs: number;
  /**
   * Set by callers that have a cheaper answer: a rule with `on_limit: degrade` that has no room then
   * names itself in `degradedBy` and stands in the way of nothing, so that the other rules of its
   * stage are still asked and charged. Without it, such a rule refuses as any other.
   */
  readonly degrades?: true;
  degradedBy?: string;
}

export interface RuleCharge {
  readonly counter: RuleCounter;
  readonly parts: readonly string[];
  readonly costMilli: number;
  readonly chargedUs: number;
}

/** @param degrades see `DecisionSink.degrades` */
export function newSink(degrades = false): DecisionSink {
  const sink = { standings: [], holds: [], charges: [], delayUs: 0 };
  return degrades ? { ...sink, degrades } : sink;
}

/** Takes charges back, and forgets them, so that saying it twice changes nothing. */
export function giveBack(charges: RuleCharge[]): void {
  for (const { counter, parts, costMilli, chargedUs } of charges.splice(0)) {
    counter.give(parts, costMilli, chargedUs);
  }
}

/** Where a rule stands with a request that it has just decided on. */
export interface RuleStanding {
  readonly rule: Rule;
  /** The rule's own limit, or that of a named value. */
  readonly limit: Rule['limit'];
  readonly leftMilli: number;
  readonly waitUs: WaitUs;
  /** Until everything is left again. */
  readonly fullUs: number;
}
