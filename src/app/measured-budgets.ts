import type { RenewReply, RenewRequest } from '../core/limit/budget.ts';
import type { BudgetStore, ExactCheck, ExactReply, SharedBudget } from '../ports/budget-store.ts';
import type { Clock } from '../ports/clock.ts';
import { OutcomeUnknownError } from '../ports/errors.ts';
import type { Latency } from '../telemetry/latency.ts';

/** A budget store whose calls are counted; it changes nothing of what they say. */
export class MeasuredBudgets implements BudgetStore {
  readonly #store: BudgetStore;
  readonly #clock: Clock;
  readonly #calls: Latency;
  #errors = 0;
  #unknown = 0;

  constructor(store: BudgetStore, clock: Clock, calls: Latency) {
    this.#store = store;
    this.#clock = clock;
    this.#calls = calls;
  }

  /** Calls that failed, those of unknown outcome among them. */
  get errors(): number {
    return this.#errors;
  }

  /** Calls of which nobody knows whether they were done: each counts as spent. */
  get unknown(): number {
    return this.#unknown;
  }

  renew(budget: SharedBudget, request: RenewRequest): Promise<RenewReply> {
    return this.#measured(this.#store.renew(budget, request));
  }

  raiseEpoch(budget: SharedBudget): Promise<number> {
    return this.#measured(this.#store.raiseEpoch(budget));
  }

  take(checks: readonly ExactCheck[]): Promise<ExactReply> {
    return this.#measured(this.#store.take(checks));
  }

  giveBack(checks: readonly ExactCheck[]): Promise<void> {
    return this.#measured(this.#store.giveBack(checks));
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  async #measured<Reply>(call: Promise<Reply>): Promise<Reply> {
    const sentUs = this.#clock.monoUs();
    try {
      return await call;
    } catch (error) {
      this.#errors += 1;
      if (error instanceof OutcomeUnknownError) this.#unknown += 1;
      throw error;
    } finally {
      this.#calls.record(this.#clock.monoUs() - sentUs);
    }
  }
}
