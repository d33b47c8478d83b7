import type { TimelineState } from './timeline.ts';
import { freshTimeline, observe } from './timeline.ts';
import type { TokenBucket } from './token-bucket.ts';
import { countedTo, levelAt } from './token-bucket.ts';

/**
 * The store's side of a leased budget.
 *
 * The budget of a sale is one token bucket. Asking it for every request makes it the hottest key of
 * the whole sale; dividing it by the number of instances wastes it wherever the load is not even. So
 * each instance takes a *lease*: tokens, debited here before they are granted, to be spent there
 * without asking, until a deadline.
 *
 *     instance                                store
 *        │  renew: demand 300/s, keep 20, return 55 ──►│  + 55, − 240
 *        │◄── 240 more, for 1.2 s, epoch 7 ────────────│
 *
 * What keeps it exact: whatever is granted has been debited, so in any interval the instances admit
 * at most burst + rate·Δt + what was out in leases when it began. Nothing an instance does, loses or
 * forgets can raise that; a crash only wastes what it held, and a lease handed back in time wastes
 * nothing.
 *
 * What keeps it useful: each renewal reports demand, and what flows in is divided by it. An
 * instance is entitled to its share of the rate for the time since it last came. A store that is
 * fuller than half gives its share of the surplus as well; so the level settles near half, where it can
 * serve a large instance at once and still take in what is handed back. Nobody's share is less than a
 * floor. Who did not renew by the end of the lease is gone, and the shares are those of who is left.
 *
 * What keeps it cheap: a lease is long enough that calls are at most `callsPerToken` of what is
 * admitted, however many instances there are; the busy renew more often than the idle.
 *
 * Epochs: a budget whose leases must end at once gets a higher epoch. An instance that knows a higher
 * epoch than the store proves that the store has forgotten (a failover, a flush): the store then takes
 * an epoch above it, and starts empty, because it cannot know what is out.
 */
export interface BudgetState {
  readonly epoch: number;
  readonly levelUnits: number;
  readonly lastUs: number;
  readonly timeline: TimelineState;
  readonly holders: ReadonlyMap<string, Holder>;
}

/** What the store knows of one instance. */
export interface Holder {
  readonly leaseId: number;
  /** The lease that this one replaced, as the instance named it. */
  readonly beforeId: number;
  /** Kept and granted together. */
  readonly tokensMilli: number;
  readonly grantedMilli: number;
  readonly sequence: number;
  readonly expiresUs: number;
  readonly demandMilliPerSecond: number;
  readonly seenUs: number;
}

export interface RenewRequest {
  /** Of one run of one process: a restart is another instance. */
  readonly instance: string;
  /** Grows with each request of the instance: one that was overtaken changes nothing. */
  readonly sequence: number;
  /** The highest epoch that the instance has seen; 0 for none. */
  readonly epoch: number;
  /** The lease it holds; 0 for none. */
  readonly leaseId: number;
  /** Unspent tokens that it goes on spending meanwhile. */
  readonly keepMilli: number;
  /** Unspent tokens that it gives back; it spends them no more. */
  readonly returnMilli: number;
  /** What it could spend, whether it was allowed to or not. */
  readonly demandMilliPerSecond: number;
  /** How long its calls take: a lease is longer by that, since it ends earlier there. */
  readonly roundTripUs: number;
  /** It stops: takes nothing more, and is no longer counted. */
  readonly leaving: boolean;
}

export interface RenewReply {
  readonly epoch: number;
  readonly leaseId: number;
  readonly grantedMilli: number;
  /** How much of what it kept goes on under the new lease; the rest ends with the old one. */
  readonly keptMilli: number;
  readonly leaseUs: number;
  /** Less was there than the instance could spend: coming back early would bring nothing. */
  readonly scarce: boolean;
  /** Instances that hold or want leases, this one included. */
  readonly instances: number;
}

/** Store calls for each token admitted that timed renewals may come to. */
const callsPerToken = 0.01;
/** Tokens that a busy instance's lease should hold, so that it pays for its call. */
const tokensPerLease = 150;
/** No lease is shorter: renewing takes a round trip, and a timer that has its own grain. */
export const leaseMinUs = 400_000;
/** No lease is longer: it is the time for which a vanished instance is still counted. */
export const leaseMaxUs = 5_000_000;
/** The busy renew up to so many times as often as the others. */
const busiestTimes = 4;
/** What is granted above the reported demand while there is enough for all. */
const headroom = 1.2;
/** Instances that one budget counts; more are refused leases, not forgotten. */
export const holdersMax = 1_000;
/** The part of an even share that nobody goes below, as a divisor. */
const floorDivisor = 10;

/** The constants above, in the order in which budget-renew.lua takes them. */
export const renewBounds: readonly number[] = [
  callsPerToken,
  tokensPerLease,
  leaseMinUs,
  leaseMaxUs,
  busiestTimes,
  headroom,
  holdersMax,
  floorDivisor,
];

/** Store state of a budget that nobody has used. `forgotten`: an instance says it was in use before. */
export function freshBudget(bucket: TokenBucket, epoch: number, forgotten: boolean): BudgetState {
  return {
    epoch,
    levelUnits: forgotten ? 0 : bucket.initialUnits,
    lastUs: 0,
    timeline: freshTimeline,
    holders: new Map(),
  };
}

/** One renewal: old state, request and the store's time in; new state and reply out. O(instances). */
export function renewBudget(
  bucket: TokenBucket,
  before: BudgetState | undefined,
  request: RenewRequest,
  nowUs: number,
): { readonly state: BudgetState; readonly reply: RenewReply } {
  let state = before;
  if (state === undefined) state = freshBudget(bucket, request.epoch + 1, request.epoch > 0);
  else if (request.epoch > state.epoch) state = freshBudget(bucket, request.epoch + 1, true);
  const timeline = observe(state.timeline, nowUs);
  const now = timeline.steadyUs;
  // A state without a past begins now, with what it was given.
  const lastUs = state.lastUs === 0 ? now : state.lastUs;
  let levelUnits = levelAt(bucket, state.levelUnits, lastUs, now);
  const counted = countedTo(bucket, lastUs, now);

  const holders = new Map([...state.holders].filter(([, holder]) => holder.expiresUs > now));
  const held = holders.get(request.instance);
  const { epoch } = state;
  if (held !== undefined && request.sequence <= held.sequence && request.epoch === epoch) {
    // It was overtaken by a later one, and its sender has given it up.
    const reply = { epoch, leaseId: held.leaseId, grantedMilli: 0, keptMilli: 0 };
    return {
      state: { epoch, levelUnits, lastUs: counted, timeline, holders },
      reply: { ...reply, leaseUs: leaseMinUs, scarce: true, instances: holders.size },
    };
  }
  const { returned, keptMilli } = handBack(epoch, held, request);
  levelUnits = Math.min(bucket.capacityUnits, levelUnits + returned * bucket.unitsPerMilli);

  const leaseId = (held?.leaseId ?? 0) + 1;
  if (request.leaving || (held === undefined && holders.size >= holdersMax)) {
    holders.delete(request.instance);
    const reply = { epoch, leaseId, grantedMilli: 0, keptMilli, leaseUs: leaseMaxUs };
    return {
      state: { epoch, levelUnits, lastUs: counted, timeline, holders },
      reply: { ...reply, scarce: !request.leaving, instances: holders.size },
    };
  }
  const demand = Math.max(0, Math.floor(request.demandMilliPerSecond));
  const elapsedUs = held === undefined ? undefined : now - held.seenUs;
  let total = demand;
  for (const [name, holder] of holders) {
    if (name !== request.instance) total += holder.demandMilliPerSecond;
  }
  const instances = holders.size + (held === undefined ? 1 : 0);
  const levelMilli = Math.floor(levelUnits / bucket.unitsPerMilli);
  const { roundTripUs } = request;
  const asked = { demand, total, instances, elapsedUs, keptMilli, levelMilli, roundTripUs };
  const { grantedMilli, leaseUs, scarce } = divide(bucket, asked);
  holders.set(request.instance, {
    leaseId,
    beforeId: request.leaseId,
    tokensMilli: keptMilli + grantedMilli,
    grantedMilli,
    sequence: request.sequence,
    expiresUs: now + leaseUs,
    demandMilliPerSecond: demand,
    seenUs: now,
  });
  return {
    state: {
      epoch,
      levelUnits: levelUnits - grantedMilli * bucket.unitsPerMilli,
      lastUs: counted,
      timeline,
      holders,
    },
    reply: { epoch, leaseId, grantedMilli, keptMilli, leaseUs, scarce, instances },
  };
}

/**
 * What comes back, and what stays with the instance. An instance that names the lease before its
 * present one never heard of the present one: what that granted comes back whole, because the reply
 * is lost for good (its sender listens to no late replies) and the sequence shows that this request
 * is younger.
 */
function handBack(
  epoch: number,
  held: Holder | undefined,
  request: RenewRequest,
): { returned: number; keptMilli: number } {
  const knows = held?.leaseId === request.leaseId;
  const missed = !knows && held?.beforeId === request.leaseId;
  if (held === undefined || request.epoch !== epoch || (!knows && !missed)) {
    return { returned: 0, keptMilli: 0 };
  }
  const known = missed ? held.tokensMilli - held.grantedMilli : held.tokensMilli;
  const given = Math.min(request.returnMilli, known);
  const keptMilli = request.leaving ? 0 : Math.min(request.keepMilli, known - given);
  return { returned: given + (missed ? held.grantedMilli : 0), keptMilli };
}

/** Ends every lease: they are of an epoch that is past. What was out stays debited. */
export function raiseEpoch(bucket: TokenBucket, before: BudgetState | undefined): BudgetState {
  // A budget that is not known may have been: it starts empty.
  const state = before ?? freshBudget(bucket, 0, true);
  return { ...state, epoch: state.epoch + 1, holders: new Map() };
}

interface Asked {
  readonly demand: number;
  readonly total: number;
  readonly instances: number;
  /** Since this instance was last here; absent when it is new. */
  readonly elapsedUs: number | undefined;
  readonly keptMilli: number;
  readonly levelMilli: number;
  readonly roundTripUs: number;
}

/** How much of the level this instance gets, and for how long. */
function divide(
  bucket: TokenBucket,
  asked: Asked,
): { grantedMilli: number; leaseUs: number; scarce: boolean } {
  const { demand, total, instances, elapsedUs, keptMilli, levelMilli } = asked;
  const perSecond = (bucket.rate.tokensMilli * 1e6) / bucket.rate.periodUs;
  const share = total > 0 ? demand / total : 1 / instances;
  const flowing = Math.min(perSecond, Math.max(total, perSecond / 10));
  const leaseUs = leaseLength(flowing, instances, share, asked.roundTripUs);
  const wanted = Math.ceil((demand * leaseUs * headroom) / 1e6);
  const flow = perSecond * Math.max(share, 1 / (instances * floorDivisor));
  const sinceUs = Math.min(elapsedUs ?? leaseUs, leaseMaxUs);
  const surplus = Math.max(0, levelMilli - bucket.burstMilli / 2);
  const entitled = total <= perSecond ? Infinity : (flow * sinceUs) / 1e6 + surplus * share;
  // An idle instance holds a few tokens all the same, so that its first caller need not wait.
  const least = (perSecond * leaseUs) / 1e6 / (instances * floorDivisor);
  const target = Math.min(Math.max(wanted, least) - keptMilli, entitled, levelMilli);
  const grantedMilli = Math.max(0, Math.floor(target));
  return { grantedMilli, leaseUs, scarce: grantedMilli + keptMilli < wanted };
}

function leaseLength(
  perSecond: number,
  instances: number,
  share: number,
  roundTripUs: number,
): number {
  const nominal = nominalLeaseUs(perSecond, instances);
  const flow = perSecond * share;
  const paid = flow > 0 ? (tokensPerLease * 1000 * 1e6) / flow : nominal;
  const leaseUs = Math.min(nominal, Math.max(paid, nominal / busiestTimes, leaseMinUs));
  return Math.floor(leaseUs + 2 * Math.min(roundTripUs, leaseMinUs));
}

/** Length of an ordinary lease, given what flows: so long that all instances together stay within their calls. */
export function nominalLeaseUs(milliPerSecond: number, instances: number): number {
  const us = (instances * 1e6) / ((milliPerSecond / 1000) * callsPerToken);
  return Math.min(leaseMaxUs, Math.max(leaseMinUs, Math.floor(us)));
}
