import type { WaitUs } from '../limit/token-bucket.ts';
import type { RuleCounter } from './counter.ts';
import type { Rule } from './model.ts';

/** What a decision leaves behind, for callers that want it. */
export interface DecisionSink {
  /** Where each enforced rule stands: for `RateLimit` fields. */
  readonly standings: RuleStanding[];
  /** Noted by every decision, also one that refuses; else when `noteAdmitted` is asked. */
  readonly notesAll: boolean;
  /** Places taken under `concurrency` rules: to be given back with `giveBack`, once, come what may. */
  readonly holds: RuleCharge[];
  /** Charges of all other rules, for callers that may give them back when the request does not count. */
  readonly charges: RuleCharge[] | undefined;
  /** How long the request has to be held back before it goes on, µs: the longest of its `delay` rules. */
  delayUs: number;
  /**
   * Set by callers that have a cheaper answer: a rule with `on_limit: degrade` that has no room then
   * names itself in `degradedBy` and stands in the way of nothing, so that the other rules of its
   * stage are still asked and charged. Without it, such a rule refuses as any other.
   */
  readonly degrades: boolean;
  degradedBy: string | undefined;
  /** What the caller brings along to be let past a rule; absent where nobody can check it. */
  readonly vouchers: Vouchers | undefined;
  /** Set when rules of this stage took a place that lies ahead: the request is to come back for it. */
  later: Later | undefined;
}

/** A place under `accept_later` rules: taken now, to be used after so long. */
export interface Later {
  delayUs: number;
  readonly places: { readonly rule: Rule; readonly parts: readonly string[] }[];
}

/** What a caller may bring along. Asked only about rules that give such a thing out. */
export interface Vouchers {
  /**
   * Has this counter's place been waited for already? `paid`: it was taken here, so nothing more is
   * charged. `waited`: it was taken on another instance; here it is charged, and not waited for again. A
   * number: its turn comes after so many µs.
   */
  place(rule: Rule, parts: readonly string[]): 'paid' | 'waited' | number | undefined;
  /** Has the challenge of this rule been answered? Asked only when the rule has no room. */
  answered(rule: Rule, parts: readonly string[]): boolean;
}

export interface RuleCharge {
  readonly counter: RuleCounter;
  readonly parts: readonly string[];
  readonly costMilli: number;
  readonly chargedUs: number;
}

/** Written out as a class: one is made for every request, and a shape that varies costs more than it. */
class Sink implements DecisionSink {
  readonly standings: RuleStanding[] = [];
  readonly holds: RuleCharge[] = [];
  readonly charges: RuleCharge[] | undefined;
  readonly degrades: boolean;
  readonly notesAll: boolean;
  readonly vouchers: Vouchers | undefined;
  delayUs = 0;
  degradedBy: string | undefined = undefined;
  later: Later | undefined = undefined;

  constructor({ degrades = false, notesAll = false, charges = false, vouchers }: SinkOptions) {
    this.degrades = degrades;
    this.notesAll = notesAll;
    this.charges = charges ? [] : undefined;
    this.vouchers = vouchers;
  }
}

export interface SinkOptions {
  /** See `DecisionSink.degrades`. */
  readonly degrades?: boolean;
  /** See `DecisionSink.notesAll`. */
  readonly notesAll?: boolean;
  /** Charges may be given back. */
  readonly charges?: boolean;
  readonly vouchers?: Vouchers | undefined;
}

export function newSink(options: SinkOptions = {}): DecisionSink {
  return new Sink(options);
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
  /** Until everything is left again; absent where the store that counts does not say. */
  readonly fullUs: number | undefined;
}
