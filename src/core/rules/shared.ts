import type { LimitSpec } from '../limit/algorithm.ts';
import type { SpendAnswer } from '../limit/lease.ts';
import type { Rule } from './model.ts';

/**
 * Budgets and limits that a process shares with others, as the rule engine sees them. What is leased is
 * spent at once; what is exact is asked for.
 */
export interface SharedLimits {
  /** The lease of this rule and key, made when it is first asked for. */
  lease(rule: Rule, parts: readonly string[]): LeasedBudget;
  /** Rejects where the store is away or did not answer in time. */
  take(checks: readonly ExactCheck[]): Promise<ExactReply>;
  giveBack(checks: readonly ExactCheck[]): Promise<void>;
  /** Is this a failure of the store, which policies are for, and not of the program? */
  isStoreFailure(error: unknown): boolean;
}

export interface LeasedBudget {
  /** 0: covered now. A positive number: an earliest hint. `away`: the store is, and nothing is left. */
  probe(costMilli: number, nowUs: number, keepMilli: number): SpendAnswer;
  /** Charges what the `probe` just before said is covered. */
  charge(costMilli: number, nowUs: number): void;
  /** Counts demand, whether it was allowed or not. */
  wanted(costMilli: number): void;
  /** Unspent, thousandths. */
  remainingMilli(nowUs: number): number;
}

/** One limit of a request. Checks of one slot go in one step; see `ExactCheck.slot`. */
export interface ExactCheck {
  readonly ruleId: string;
  readonly parts: readonly string[];
  readonly limit: LimitSpec;
  readonly costMilli: number;
  /** Part of the burst that must be left, thousandths of a token. */
  readonly keepMilli: number;
  /** Checks that name the same slot lie together in a clustered store. */
  readonly slot: string;
}

export interface ExactReply {
  /** 0 when all were charged; else the longest wait of those that refused. */
  readonly waitUs: number;
  /** The check that refused for longest; -1 when none did. */
  readonly refusedBy: number;
  /** What each has left, thousandths. */
  readonly leftMilli: readonly number[];
}
