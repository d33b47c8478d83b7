import type { RenewReply, RenewRequest } from '../core/limit/budget.ts';
import type { Rate } from '../core/limit/rate.ts';
import type { ExactCheck, ExactReply } from '../core/rules/shared.ts';

export type { ExactCheck, ExactReply };

/**
 * Budgets that many instances share: token buckets that live in one store and are spent through
 * leases, and limits that are asked for every request.
 *
 * Promises every implementation keeps (test/contract/budget-store.ts proves them):
 * - One clock decides, the store's own; stored time never goes back; nothing is earned by a step.
 * - A lease is debited before it is granted: what instances spend never exceeds what was debited.
 * - A higher epoch fences every lower one. A store that has lost what it knew starts empty, under a
 *   higher epoch than any instance has seen.
 * - `take` charges all of its checks or none.
 * - Every key goes by itself when nobody comes back.
 * - A call whose fate is unknown throws OutcomeUnknownError, and its charge counts as spent; one that
 *   surely did nothing, UnavailableError.
 */
export interface BudgetStore {
  renew(budget: SharedBudget, request: RenewRequest): Promise<RenewReply>;
  /** Ends every lease that is out, at once and for good; answers the new epoch. */
  raiseEpoch(budget: SharedBudget): Promise<number>;
  take(checks: readonly ExactCheck[]): Promise<ExactReply>;
  /** Takes back what `take` charged: another limit of the same request refused. */
  giveBack(checks: readonly ExactCheck[]): Promise<void>;
  close(): Promise<void>;
}

/** A budget by name, with what it holds; two budgets of one name are one budget. */
export interface SharedBudget {
  readonly name: string;
  readonly rate: Rate;
  readonly burstMilli: number;
}
