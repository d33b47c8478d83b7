import { encodeKey } from '../../core/limit/key.ts';
import { LeaseHolder, type SpendAnswer } from '../../core/limit/lease.ts';
import type { Rule } from '../../core/rules/model.ts';
import type {
  ExactCheck,
  ExactReply,
  LeasedBudget,
  SharedLimits,
} from '../../core/rules/shared.ts';
import type { BudgetStore, SharedBudget } from '../../ports/budget-store.ts';
import type { Clock, TimerHandle, Timers } from '../../ports/clock.ts';
import type { EmergencyLedger } from '../../ports/emergency-ledger.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import { newId, type Random } from '../../ports/random.ts';

/**
 * The budgets that this process shares with others: its leases, renewed from one timer and never
 * inside a request, and its calls for exact limits.
 *
 * When the store goes away, three things happen in this order. The lease is spent until its deadline.
 * Then, where the rule says `local`, one small emergency budget is spent, if the ledger's marker for
 * this epoch could be removed; the timer does that ahead of need, because it needs the disk. Then the
 * rule's policy answers. When the store comes back, what is left of the emergency budget is dropped: it
 * belongs to the outage, and the outage is over.
 */
export interface SharedBudgetsOptions {
  readonly store: BudgetStore;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly ledger: EmergencyLedger;
  /** Tokens that one outage may spend without the store, for each budget of this instance. */
  readonly emergencyTokens: number;
  readonly onTrouble: (error: unknown) => void;
}

/** Between two looks at the leases, ms: well below the shortest lease. */
const tickMs = 20;
/** Leases held at a time: budgets of activities and SKUs, not of callers. */
const leasesMax = 5_000;
/** A lease that nobody spent from for so long is handed back, µs. */
const idleUs = 60_000_000;
/** Failed renewals after which the emergency budget is made ready. */
const failuresOfAnOutage = 2;

export class SharedBudgets implements SharedLimits {
  readonly #options: SharedBudgetsOptions;
  readonly #instance: string;
  readonly #leases = new Map<string, Lease>();
  /** Runs while there is a lease to look at. */
  #timer: TimerHandle | undefined;
  #closed = false;
  #emergencyTotalMilli = 0;

  constructor(options: SharedBudgetsOptions) {
    this.#options = options;
    this.#instance = newId(options.random, 'i');
  }

  /** Emergency tokens spent since the start, thousandths: any growth is an alarm. */
  get emergencyTotalMilli(): number {
    return this.#emergencyTotalMilli;
  }

  /** Unspent and wasted tokens of all leases, thousandths, and calls sent. */
  totals(): { remainingMilli: number; wastedMilli: number; calls: number; leases: number } {
    const nowUs = this.#options.clock.monoUs();
    const totals = { remainingMilli: 0, wastedMilli: 0, calls: 0, leases: this.#leases.size };
    for (const { holder } of this.#leases.values()) {
      totals.remainingMilli += holder.remainingMilli(nowUs);
      totals.wastedMilli += holder.wastedMilli;
      totals.calls += holder.calls;
    }
    return totals;
  }

  lease(rule: Rule, parts: readonly string[]): LeasedBudget {
    const name = encodeKey([rule.id, ...parts]);
    const nowUs = this.#options.clock.monoUs();
    const known = this.#leases.get(name);
    if (known !== undefined) {
      known.usedUs = nowUs;
      known.follow(rule);
      return known;
    }
    // Bounded: past it, everything refuses as an empty lease does, and the operator is told.
    if (this.#leases.size >= leasesMax) {
      this.#options.onTrouble(new RangeError(`${this.#leases.size} leases; at most ${leasesMax}`));
      return noLease;
    }
    const phase = this.#options.random.float();
    const holder = new LeaseHolder({ instance: this.#instance, phase }, nowUs);
    const made = new Lease(holder, rule, name, nowUs, (milli) => {
      this.#emergencyTotalMilli += milli;
    });
    this.#leases.set(name, made);
    if (!this.#closed) this.#timer ??= this.#options.timers.every(tickMs, () => this.#tick());
    return made;
  }

  take(checks: readonly ExactCheck[]): Promise<ExactReply> {
    return this.#options.store.take(checks);
  }

  giveBack(checks: readonly ExactCheck[]): Promise<void> {
    return this.#options.store.giveBack(checks);
  }

  isStoreFailure(error: unknown): boolean {
    return error instanceof UnavailableError || error instanceof OutcomeUnknownError;
  }

  /** Hands every lease back, as far as the store answers in time, and stops. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    const { store, clock, onTrouble } = this.#options;
    await Promise.all(
      [...this.#leases.values()].map(async (lease) => {
        const request = lease.holder.leave(clock.monoUs());
        if (request === undefined) return;
        try {
          await store.renew(lease.budget, request);
        } catch (error) {
          // What cannot be handed back dies at its deadline: wasted, and admitted nowhere.
          onTrouble(error);
        }
      }),
    );
    this.#leases.clear();
  }

  #tick(): void {
    const nowUs = this.#options.clock.monoUs();
    for (const [name, lease] of this.#leases) {
      const idle = nowUs - lease.usedUs >= idleUs;
      const request = idle ? lease.holder.leave(nowUs) : lease.holder.tick(nowUs);
      // Who asks for it again gets a new one; this one only hands back.
      if (idle) this.#leases.delete(name);
      if (request !== undefined) this.#renew(lease, request);
      if (lease.wantsEmergency()) this.#makeReady(lease);
    }
    if (this.#leases.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #renew(lease: Lease, request: Parameters<BudgetStore['renew']>[1]): void {
    const { store, clock, ledger, onTrouble } = this.#options;
    store.renew(lease.budget, request).then(
      (reply) => {
        lease.holder.granted(reply, clock.monoUs());
        lease.outageEnded();
        if (lease.armedEpoch >= reply.epoch || lease.rule.fail !== 'local') return;
        lease.armedEpoch = reply.epoch;
        ledger.arm(lease.name, reply.epoch).catch(onTrouble);
      },
      (error: unknown) => {
        lease.holder.failed(clock.monoUs());
        onTrouble(error);
      },
    );
  }

  #makeReady(lease: Lease): void {
    lease.emergency = 'asked';
    const { ledger, emergencyTokens, onTrouble } = this.#options;
    ledger.spend(lease.name).then(
      (granted) => {
        lease.openEmergency(granted ? emergencyTokens * 1000 : 0);
      },
      (error: unknown) => {
        // A marker whose fate is unknown counts as spent.
        lease.openEmergency(0);
        onTrouble(error);
      },
    );
  }
}

class Lease implements LeasedBudget {
  readonly holder: LeaseHolder;
  readonly name: string;
  usedUs: number;
  armedEpoch = 0;
  emergency: 'none' | 'asked' | 'open' = 'none';
  #emergencyMilli = 0;
  #fromEmergency = false;
  #rule: Rule;
  #budget: SharedBudget;
  readonly #onEmergency: (milli: number) => void;

  constructor(
    holder: LeaseHolder,
    rule: Rule,
    name: string,
    nowUs: number,
    onEmergency: (milli: number) => void,
  ) {
    this.holder = holder;
    this.#rule = rule;
    this.name = name;
    this.usedUs = nowUs;
    this.#budget = budgetOf(rule, name);
    this.#onEmergency = onEmergency;
  }

  get rule(): Rule {
    return this.#rule;
  }

  get budget(): SharedBudget {
    return this.#budget;
  }

  /** Goes on under an edited rule; what is held stays held. */
  follow(rule: Rule): void {
    if (rule === this.#rule) return;
    this.#rule = rule;
    this.#budget = budgetOf(rule, this.name);
  }

  probe(costMilli: number, nowUs: number, keepMilli: number): SpendAnswer {
    this.#fromEmergency = false;
    const answer = this.holder.probe(costMilli, nowUs, keepMilli);
    if (answer !== 'away' || this.#emergencyMilli < costMilli) return answer;
    this.#fromEmergency = true;
    return 0;
  }

  charge(costMilli: number, nowUs: number): void {
    if (!this.#fromEmergency) {
      this.holder.charge(costMilli, nowUs);
      return;
    }
    this.#emergencyMilli -= costMilli;
    this.#onEmergency(costMilli);
  }

  wanted(costMilli: number): void {
    this.holder.wanted(costMilli);
  }

  remainingMilli(nowUs: number): number {
    return this.holder.remainingMilli(nowUs) + this.#emergencyMilli;
  }

  wantsEmergency(): boolean {
    const { failures } = this.holder;
    return (
      this.#rule.fail === 'local' && this.emergency === 'none' && failures >= failuresOfAnOutage
    );
  }

  openEmergency(milli: number): void {
    this.emergency = 'open';
    // The outage may have ended while the disk was asked: then it is spent, and used by nobody.
    this.#emergencyMilli = this.holder.failures > 0 ? milli : 0;
  }

  outageEnded(): void {
    if (this.emergency === 'asked') return;
    this.emergency = 'none';
    this.#emergencyMilli = 0;
  }
}

function budgetOf(rule: Rule, name: string): SharedBudget {
  const { limit } = rule;
  if (limit.algorithm !== 'token_bucket') {
    throw new TypeError(
      `rule ${rule.id}: found ${limit.algorithm}; a leased budget is a token_bucket`,
    );
  }
  return { name, rate: limit.rate, burstMilli: limit.burstMilli };
}

/** What is told where no lease can be held: nothing is there, and it is not the store's fault. */
const noLease: LeasedBudget = {
  probe: () => 1_000_000,
  charge: () => undefined,
  wanted: () => undefined,
  remainingMilli: () => 0,
};
