import type { RenewReply, RenewRequest } from './budget.ts';
import type { WaitUs } from './token-bucket.ts';

/**
 * The instance's side of a leased budget: spends without asking, reports demand, and knows when to
 * come back. No I/O and no timer of its own: the owner ticks it, sends what it says, and hands it the
 * replies. The store's side, and why the whole is exact, is in budget.ts.
 *
 * - **Deadlines** are of the instance's monotonic clock, counted from the moment the request was
 *   *sent*: the store granted later than that, so the lease ends here before it ends there, by the
 *   round trip. Wall clocks play no part.
 * - **Renewing** gives back what is not needed and keeps what the round trip will need; what is given
 *   back is not spent from the moment of sending. If the reply is lost, what was given back is lost with
 *   it, and what was kept is still good until its own deadline.
 * - **One call at a time.** A reply that comes after its call was given up is ignored: its tokens are
 *   debited and die, which wastes them and admits nobody twice.
 * - **Early renewals** happen when demand has outgrown the lease, not when the whole budget is used: the
 *   reply says which it is. They are paid from a small allowance, so that no pattern of demand turns
 *   leases into one call per request.
 * - **Store away**: the lease is spent until its deadline; then `spend` answers `away`, and the rule's
 *   policy decides (shared-budgets.ts).
 */
export interface LeaseOptions {
  readonly instance: string;
  /** First renewal after the start waits up to this long, spread by `phase` in [0, 1). */
  readonly phase: number;
}

/** Answer of `spend`: 0 admits; a positive number is an earliest hint; `away`: ask the policy. */
export type SpendAnswer = WaitUs | 'away';

/** Early renewals wait at least this part of the lease after the last call. */
const earlyDivisor = 8;
/** Tokens spent that pay for one early renewal. */
const tokensPerEarlyMilli = 128_000;
/** Early renewals that can be saved up. */
const earlyMax = 3;
/** How much of the lease may pass before it is renewed. */
const renewNumerator = 3;
const renewDenominator = 4;
/** A renewal keeps back at least what this long will need. */
const tideLeastUs = 100_000;
/** A call without an answer is given up after this long. */
export const renewTimeoutUs = 500_000;
/** After a failed call, the next one waits this long, doubled each time up to the most. */
const retryLeastUs = 100_000;
const retryMostUs = 2_000_000;
/** Weight of the newest measurement of demand: it rises faster than it falls. */
const riseWeight = 0.8;
const fallWeight = 0.5;
/** Demand is measured over at least this long. */
const measureLeastUs = 50_000;

interface Parcel {
  milli: number;
  deadlineUs: number;
}

export class LeaseHolder {
  readonly #options: LeaseOptions;
  /** What is left of the lease before, kept through a renewal whose reply did not extend it. */
  #old: Parcel = { milli: 0, deadlineUs: 0 };
  #current: Parcel = { milli: 0, deadlineUs: 0 };
  #epoch = 0;
  #fencedBelow = 0;
  #leaseId = 0;
  #leaseUs = 0;
  #scarce = false;
  #demand = 0;
  #arrivedMilli = 0;
  #spentMilli = 0;
  #measuredUs: number;
  #nextUs: number;
  #lastCallUs: number;
  #early = earlyMax;
  #failures = 0;
  #call: { sentUs: number; keepMilli: number; leaving: boolean } | undefined;
  #wastedMilli = 0;
  #roundTripUs = 0;
  #calls = 0;
  #left = false;

  constructor(options: LeaseOptions, nowUs: number) {
    this.#options = options;
    this.#measuredUs = nowUs;
    this.#lastCallUs = nowUs;
    // Instances that start together should not come together for ever.
    this.#nextUs = nowUs + Math.floor(options.phase * measureLeastUs);
  }

  get epoch(): number {
    return this.#epoch;
  }

  /** Unspent tokens that are still good. */
  remainingMilli(nowUs: number): number {
    return good(this.#old, nowUs) + good(this.#current, nowUs);
  }

  /** Tokens that died unspent with their lease. */
  get wastedMilli(): number {
    return this.#wastedMilli;
  }

  /** Calls sent. */
  get calls(): number {
    return this.#calls;
  }

  /** Calls failed since the last that succeeded: above 0, the store is away. */
  get failures(): number {
    return this.#failures;
  }

  /**
   * Spends if the lease covers it. O(1), allocates nothing.
   * @param keepMilli what must be left: a part set aside for other work.
   */
  spend(costMilli: number, nowUs: number, keepMilli = 0): SpendAnswer {
    this.#arrivedMilli += costMilli;
    const wait = this.probe(costMilli, nowUs, keepMilli);
    if (wait === 0) this.charge(costMilli, nowUs);
    return wait;
  }

  /** What `spend` would answer; counts no demand and charges nothing. */
  probe(costMilli: number, nowUs: number, keepMilli = 0): SpendAnswer {
    if (this.remainingMilli(nowUs) >= costMilli + keepMilli) return 0;
    if (this.#failures > 0) return 'away';
    return Math.max(1, this.#nextUs - nowUs);
  }

  /** Counts demand that was not offered to `spend`. */
  wanted(costMilli: number): void {
    this.#arrivedMilli += costMilli;
  }

  /** Charges what a `probe` just before said fits. The older parcel goes first: it dies first. */
  charge(costMilli: number, nowUs: number): void {
    this.#spentMilli += costMilli;
    const fromOld = Math.min(good(this.#old, nowUs), costMilli);
    this.#old.milli -= fromOld;
    this.#current.milli -= costMilli - fromOld;
  }

  /**
   * What to send now, if anything. Call from the owner's one timer.
   * After it answers a request, exactly one of `granted` and `failed` must follow.
   */
  tick(nowUs: number): RenewRequest | undefined {
    this.#bury(nowUs);
    if (this.#call !== undefined || this.#left) return undefined;
    if (nowUs < this.#nextUs && !this.#outgrown(nowUs)) return undefined;
    return this.#send(nowUs, false);
  }

  /** The last request: hands everything back. `undefined` when there is nothing to hand back. */
  leave(nowUs: number): RenewRequest | undefined {
    this.#left = true;
    if (this.#leaseId === 0 || this.#call !== undefined) return undefined;
    return this.#send(nowUs, true);
  }

  granted(reply: RenewReply, nowUs: number): void {
    const call = this.#call;
    if (call === undefined) return;
    this.#call = undefined;
    this.#failures = 0;
    if (call.leaving) return;
    this.#roundTripUs = Math.max(nowUs - call.sentUs, Math.floor(this.#roundTripUs / 2));
    // A store that answers with an older epoch than we know is not the store any more.
    if (reply.epoch < Math.max(this.#epoch, this.#fencedBelow)) {
      this.#nextUs = nowUs + retryLeastUs;
      return;
    }
    if (reply.epoch > this.#epoch) this.fence(reply.epoch, nowUs);
    this.#epoch = reply.epoch;
    this.#leaseId = reply.leaseId;
    this.#leaseUs = reply.leaseUs;
    this.#scarce = reply.scarce;
    const deadlineUs = call.sentUs + reply.leaseUs;
    // What was kept and extended moves to the new lease; some of it has been spent meanwhile.
    const moved = Math.min(reply.keptMilli, this.#old.milli);
    this.#old.milli -= moved;
    this.#current = { milli: moved + reply.grantedMilli, deadlineUs };
    this.#nextUs = call.sentUs + Math.floor((reply.leaseUs * renewNumerator) / renewDenominator);
  }

  /** The call failed, or was given up: its outcome counts as spent. */
  failed(nowUs: number): void {
    if (this.#call === undefined) return;
    this.#call = undefined;
    this.#failures += 1;
    const backoff = Math.min(retryMostUs, retryLeastUs * 2 ** Math.min(10, this.#failures - 1));
    this.#nextUs = nowUs + backoff;
  }

  /** Leases of lower epochs end at once, and are never accepted again. */
  fence(epoch: number, nowUs: number): void {
    if (epoch <= Math.max(this.#epoch, this.#fencedBelow)) return;
    this.#fencedBelow = epoch;
    this.#wastedMilli += this.remainingMilli(nowUs);
    this.#old = { milli: 0, deadlineUs: 0 };
    this.#current = { milli: 0, deadlineUs: 0 };
    if (this.#call === undefined) this.#nextUs = Math.min(this.#nextUs, nowUs);
  }

  #send(nowUs: number, leaving: boolean): RenewRequest {
    this.#measure(nowUs);
    this.#early = Math.min(
      earlyMax,
      this.#early + this.#spentMilli / tokensPerEarlyMilli - (nowUs < this.#nextUs ? 1 : 0),
    );
    this.#spentMilli = 0;
    const unspent = this.remainingMilli(nowUs);
    // Enough for the round trip stays spendable; what is more than the next lease needs goes back.
    const flightUs = this.#failures > 0 ? renewTimeoutUs : 4 * this.#roundTripUs + tideLeastUs;
    const tide = Math.ceil((this.#demand * Math.min(renewTimeoutUs, flightUs)) / 1e6);
    const keepMilli = leaving ? 0 : Math.min(unspent, tide);
    const deadlineUs = Math.min(
      good(this.#old, nowUs) > 0 ? this.#old.deadlineUs : Infinity,
      this.#current.deadlineUs,
    );
    this.#old = { milli: keepMilli, deadlineUs };
    this.#current = { milli: 0, deadlineUs: 0 };
    this.#call = { sentUs: nowUs, keepMilli, leaving };
    this.#lastCallUs = nowUs;
    this.#calls += 1;
    return {
      instance: this.#options.instance,
      sequence: this.#calls,
      epoch: this.#epoch,
      leaseId: this.#leaseId,
      keepMilli,
      returnMilli: unspent - keepMilli,
      demandMilliPerSecond: Math.ceil(this.#demand),
      roundTripUs: this.#roundTripUs,
      leaving,
    };
  }

  #measure(nowUs: number): void {
    const elapsedUs = nowUs - this.#measuredUs;
    if (elapsedUs < measureLeastUs) return;
    const measured = (this.#arrivedMilli * 1e6) / elapsedUs;
    const weight = measured > this.#demand ? riseWeight : fallWeight;
    this.#demand += weight * (measured - this.#demand);
    if (this.#demand < 1) this.#demand = 0;
    this.#arrivedMilli = 0;
    this.#measuredUs = nowUs;
  }

  /** Would the lease be spent before its renewal, for want of asking and not for want of budget? */
  #outgrown(nowUs: number): boolean {
    if (this.#failures > 0 || this.#early < 1 || this.#leaseUs === 0) return false;
    const elapsedUs = nowUs - this.#measuredUs;
    if (nowUs - this.#lastCallUs < this.#leaseUs / earlyDivisor || elapsedUs < measureLeastUs) {
      return false;
    }
    const measured = (this.#arrivedMilli * 1e6) / elapsedUs;
    // Where the budget is used up, only a demand that has doubled is news to the store.
    if (this.#scarce && measured < 2 * this.#demand) return false;
    const ahead = (measured * this.#leaseUs) / earlyDivisor / 1e6;
    return measured > 0 && this.remainingMilli(nowUs) < ahead;
  }

  /** Parcels past their deadline die. */
  #bury(nowUs: number): void {
    for (const parcel of [this.#old, this.#current]) {
      if (parcel.milli > 0 && parcel.deadlineUs <= nowUs) {
        this.#wastedMilli += parcel.milli;
        parcel.milli = 0;
      }
    }
  }
}

function good(parcel: Parcel, nowUs: number): number {
  return parcel.deadlineUs > nowUs ? parcel.milli : 0;
}
