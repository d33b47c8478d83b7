import type { BudgetState, RenewReply, RenewRequest } from '../../core/limit/budget.ts';
import { raiseEpoch, renewBudget } from '../../core/limit/budget.ts';
import { encodeKey, type HashSeed } from '../../core/limit/key.ts';
import { KeyedLimiter } from '../../core/limit/keyed-limiter.ts';
import { sameRate } from '../../core/limit/rate.ts';
import { type TokenBucket, tokenBucket } from '../../core/limit/token-bucket.ts';
import type { Clock, TimerHandle, Timers } from '../../ports/clock.ts';
import { UnavailableError } from '../../ports/errors.ts';
import type {
  BudgetStore,
  ExactCheck,
  ExactReply,
  SharedBudget,
} from '../../ports/budget-store.ts';

/**
 * The shared budgets of one process: what a deployment on one machine uses, and what tests compare the
 * Redis store with. Everything is one slot here.
 */
export interface MemoryBudgetOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly hashSeed: HashSeed;
  /** Keys remembered for each rule. */
  readonly maxKeys?: number;
}

/** Rules and budgets known at a time: a rule set has fewer. */
const namesMax = 2_000;
const maxKeysDefault = 500_000;
const sweepEveryMs = 100;
const sweepSlots = 2_000;

export class MemoryBudgetStore implements BudgetStore {
  readonly #options: MemoryBudgetOptions;
  readonly #budgets = new Map<string, { bucket: TokenBucket; state: BudgetState }>();
  readonly #limiters = new Map<string, KeyedLimiter>();
  /** When each check was charged, for as long as its request may give it back. */
  readonly #charges = new WeakMap<ExactCheck, number>();
  readonly #sweeper: TimerHandle;
  #sweepNext = 0;
  #closed = false;

  constructor(options: MemoryBudgetOptions) {
    this.#options = options;
    this.#sweeper = options.timers.every(sweepEveryMs, () => this.#sweep());
  }

  /** Keys remembered over all rules. */
  get entries(): number {
    let entries = 0;
    for (const limiter of this.#limiters.values()) entries += limiter.entries;
    return entries;
  }

  async renew(budget: SharedBudget, request: RenewRequest): Promise<RenewReply> {
    this.#open();
    const bucket = tokenBucket(budget.rate, budget.burstMilli);
    const before = this.#budgets.get(budget.name);
    if (before === undefined && this.#budgets.size >= namesMax) {
      throw new RangeError(
        `${this.#budgets.size} budgets; at most ${namesMax} are known at a time`,
      );
    }
    const known = before === undefined ? undefined : carried(before, bucket);
    const { state, reply } = renewBudget(bucket, known, request, this.#options.clock.monoUs());
    this.#budgets.set(budget.name, { bucket, state });
    return reply;
  }

  async raiseEpoch(budget: SharedBudget): Promise<number> {
    this.#open();
    const bucket = tokenBucket(budget.rate, budget.burstMilli);
    const state = raiseEpoch(bucket, this.#budgets.get(budget.name)?.state);
    this.#budgets.set(budget.name, { bucket, state });
    return state.epoch;
  }

  async take(checks: readonly ExactCheck[]): Promise<ExactReply> {
    this.#open();
    const nowUs = this.#options.clock.monoUs();
    const limiters = checks.map((check) => this.#limiter(check, nowUs));
    // The same key twice in one request would be probed twice before it is charged once.
    const keys = checks.map((check) => encodeKey([check.ruleId, ...check.parts]));
    if (new Set(keys).size !== keys.length) throw new RangeError('two checks of one key');
    let [waitUs, refusedBy] = [0, -1];
    for (const [at, check] of checks.entries()) {
      const wait = limiters[at]?.probeParts(check.parts, check.costMilli, nowUs, check.keepMilli);
      if (wait !== undefined && wait > waitUs) [waitUs, refusedBy] = [wait, at];
    }
    const leftMilli = checks.map((check, at) => {
      const limiter = limiters[at];
      if (limiter === undefined) return 0;
      if (waitUs === 0) {
        limiter.takeParts(check.parts, check.costMilli, nowUs);
        this.#charges.set(check, limiter.decidedUs);
      }
      return limiter.peekParts(check.parts, nowUs);
    });
    return { waitUs, refusedBy, leftMilli };
  }

  async giveBack(checks: readonly ExactCheck[]): Promise<void> {
    for (const check of checks) {
      const chargedUs = this.#charges.get(check);
      if (chargedUs === undefined) continue;
      this.#charges.delete(check);
      this.#limiters.get(check.ruleId)?.giveParts(check.parts, check.costMilli, chargedUs);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#sweeper.cancel();
  }

  #open(): void {
    if (this.#closed) throw new UnavailableError('The budget store is closed');
  }

  #limiter(check: ExactCheck, nowUs: number): KeyedLimiter {
    const maxKeys = this.#options.maxKeys ?? maxKeysDefault;
    // Strangers past the bound share what one key has: in one process the rule's own overflow governs.
    const overflow = { rate: { tokensMilli: 1000, periodUs: 1_000_000 }, burstMilli: 1_000_000 };
    const known = this.#limiters.get(check.ruleId);
    if (known !== undefined) {
      known.reconfigure({ limit: check.limit, maxKeys, overflow }, nowUs);
      return known;
    }
    if (this.#limiters.size >= namesMax) {
      throw new RangeError(`${this.#limiters.size} rules; at most ${namesMax} are known at a time`);
    }
    const { hashSeed } = this.#options;
    const made = new KeyedLimiter({
      ruleId: check.ruleId,
      limit: check.limit,
      maxKeys,
      overflow,
      hashSeed,
    });
    this.#limiters.set(check.ruleId, made);
    return made;
  }

  #sweep(): void {
    const limiters = [...this.#limiters.values()];
    const limiter = limiters[this.#sweepNext % Math.max(1, limiters.length)];
    this.#sweepNext += 1;
    limiter?.sweep(this.#options.clock.monoUs(), sweepSlots);
  }
}

/** A budget that was edited keeps the share that is left of it, and its leases. */
function carried(
  before: { readonly bucket: TokenBucket; readonly state: BudgetState },
  bucket: TokenBucket,
): BudgetState {
  const { state } = before;
  const { rate, burstMilli } = before.bucket;
  if (sameRate(rate, bucket.rate) && burstMilli === bucket.burstMilli) return state;
  const share =
    before.bucket.capacityUnits === 0 ? 0 : state.levelUnits / before.bucket.capacityUnits;
  return { ...state, levelUnits: Math.floor(bucket.capacityUnits * share) };
}
