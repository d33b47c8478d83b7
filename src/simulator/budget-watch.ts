import type { BudgetStore } from '../ports/budget-store.ts';
import type { Oracle } from './oracle.ts';
import { type SimProcess, emergencyTokens } from './process.ts';
import type { World } from './world.ts';

/**
 * Invariant 6: in any interval, admitted ≤ burst + rate·Δt + leases outstanding at its start +
 * emergency budgets.
 *
 * With A(t) admitted up to t, and O(t) outstanding at t, it says that A(b) − rate·b exceeds
 * A(a) − rate·a + O(a) by no more than burst + emergency, for every a before b. So it is enough to keep
 * the least value of A − rate·t + O so far, and to compare once for each that is admitted.
 */
export class BudgetWatch {
  readonly #world: World;
  readonly #oracle: Oracle;
  #admitted = 0;
  #taken = 0;
  #least = 0;
  readonly #leases = new Map<string, { readonly tokens: number; readonly untilUs: number }>();
  /** Until when each process may spend what it was ever granted: a later reply may never reach it. */
  readonly #goodUntilUs = new Map<SimProcess, number>();
  /** Epochs of emergency budgets that were handed out. */
  readonly #armed = new Set<string>();
  #forgotten = 0;
  readonly #grants = new Map<string, { readonly leaseId: number; readonly milli: number }>();
  /** Tokens handed out, less those that came back. */
  #out = 0;
  #leastOut = 0;

  constructor(world: World, oracle: Oracle) {
    this.#world = world;
    this.#oracle = oracle;
  }

  /** The store has lost what it knew: whoever has seen nothing of it begins anew. */
  forgot(): void {
    this.#forgotten += 1;
  }

  renewed(
    process: SimProcess,
    [, request]: Parameters<BudgetStore['renew']>,
    reply: Awaited<ReturnType<BudgetStore['renew']>>,
  ): void {
    const { drift } = this.#world.plan.shape;
    const tokens = (reply.grantedMilli + reply.keptMilli) / 1_000;
    this.#armed.add(`${request.instance} ${reply.epoch}`);
    this.#granted(request, reply);
    const untilUs = this.#world.time.nowUs + reply.leaseUs * (1 + 2 * drift) + graceUs;
    this.#goodUntilUs.set(process, Math.max(untilUs, this.#goodUntilUs.get(process) ?? 0));
    this.#settle();
    this.#leases.set(request.instance, { tokens, untilUs });
    this.#settle();
  }

  /**
   * What the store hands out, less what comes back to it, is never more than the bucket held and earned
   * meanwhile. Of what came back the most is taken that may have.
   */
  #granted(
    request: Parameters<BudgetStore['renew']>[1],
    reply: Awaited<ReturnType<BudgetStore['renew']>>,
  ): void {
    const { limits } = this.#world.plan.shape;
    const before = this.#grants.get(request.instance);
    const unheard = before !== undefined && before.leaseId !== request.leaseId ? before.milli : 0;
    this.#grants.set(request.instance, { leaseId: reply.leaseId, milli: reply.grantedMilli });
    const earned = this.#ratePerUs() * this.#world.time.nowUs;
    this.#leastOut = Math.min(this.#leastOut, this.#out - earned);
    this.#out += (reply.grantedMilli - request.returnMilli - unheard) / 1_000;
    const above = this.#out - earned - this.#leastOut;
    const allowed = limits.burst * (1 + this.#forgotten) + 1;
    this.#oracle.check(
      above <= allowed,
      '6',
      () =>
        `leases of ${above.toFixed(2)} tokens above the rate were handed out; allowed ${allowed}`,
    );
    this.#leastOut = Math.min(this.#leastOut, this.#out - earned);
  }

  taken(reply: Awaited<ReturnType<BudgetStore['take']>>): void {
    if (reply.waitUs === 0) this.#taken += 1;
  }

  gaveBack(): void {
    this.#taken -= 1;
  }

  /** A request got past the budget at this gateway. */
  admitted(process: SimProcess): void {
    const { limits, deployment } = this.#world.plan.shape;
    if (limits.scope === 'none') return;
    this.#admitted += 1;
    // Beyond the store these policies go by the instance's own limits: they are bounded elsewhere.
    if (limits.fail === 'instance') return;
    if (limits.scope === 'exact') {
      // Which process a charge was for is not known: all of them together never exceed the charges.
      this.#oracle.check(
        this.#admitted <= this.#taken || deployment === 'embedded',
        '6',
        () => `${this.#admitted} admitted at ${process.name}, ${this.#taken} charged`,
      );
      return;
    }
    this.#settle();
    this.#oracle.check(
      limits.fail !== 'closed' || this.#world.time.nowUs <= (this.#goodUntilUs.get(process) ?? 0),
      '6',
      () => `${process.name} let somebody in when none of its leases was good any more`,
    );
    const spent = (process.running?.shared?.emergencyTotalMilli ?? 0) / 1_000;
    this.#oracle.check(
      spent <= emergencyTokens * process.emergencies,
      '6',
      () => `${process.name} spent ${spent} tokens of its emergency budget of ${emergencyTokens}`,
    );
    const nowUs = this.#world.time.nowUs;
    const value = this.#admitted - this.#ratePerUs() * nowUs;
    const emergency = limits.fail === 'local' ? emergencyTokens * this.#armed.size : 0;
    const allowed = limits.burst * (1 + this.#forgotten) + emergency + 1;
    this.#oracle.check(
      value - this.#least <= allowed,
      '6',
      () =>
        `${(value - this.#least).toFixed(2)} above the rate at ${process.name}; ` +
        `allowed: burst ${limits.burst} + emergency ${emergency} + 1`,
    );
    this.#settle();
  }

  #settle(): void {
    const nowUs = this.#world.time.nowUs;
    let outstanding = 0;
    for (const [instance, lease] of this.#leases) {
      if (lease.untilUs < nowUs) this.#leases.delete(instance);
      else outstanding += lease.tokens;
    }
    this.#least = Math.min(this.#least, this.#admitted - this.#ratePerUs() * nowUs + outstanding);
  }

  #ratePerUs(): number {
    const { limits, drift } = this.#world.plan.shape;
    return (limits.perSecond * (1 + 2 * drift)) / 1e6;
  }
}

/** It ends for its holder before it ends here, by the way of the question: clocks are whole, µs. */
const graceUs = 1_000;
