import type { LimitSpec } from '../limit/algorithm.ts';
import { encodeKey } from '../limit/key.ts';
import type { WaitUs } from '../limit/token-bucket.ts';
import type { RuleCounter } from './counter.ts';
import type { RequestFacts } from './facts.ts';
import type { OnLimit, Rule } from './model.ts';
import type { ExactCheck, ExactReply, LeasedBudget } from './shared.ts';
import type { DecisionSink, RuleStanding, Vouchers } from './sink.ts';
import { type RuleStage, stageOf } from './stage.ts';

/** Why a request was refused. */
export type RuleReason =
  | 'limit'
  | 'penalty'
  | 'absent_key'
  | 'ceiling'
  | 'store_away'
  /** A place was taken before, and its turn has not come. */
  | 'early';

/** A refusal: which rule, for how long, and how the caller is to be answered. */
export interface RuleRefusal {
  readonly ruleId: string;
  readonly reason: RuleReason;
  readonly waitUs: WaitUs;
  /** The counter is this caller's own: the wait is exact. Otherwise it is an earliest hint. */
  readonly own: boolean;
  readonly onLimit: OnLimit;
  readonly rule: Rule | undefined;
  /** The counter that refused, by its key. */
  readonly parts: readonly string[];
  /** The limit that refused: the rule's own, that of a named value, or the ceiling. */
  readonly limit: LimitSpec;
}

/** A rule with its counters and its numbers. */
export class Live {
  readonly counter: RuleCounter;
  readonly stage: RuleStage;
  readonly own: boolean;
  admitted = 0;
  refused = 0;
  wouldRefuse = 0;
  penalties = 0;
  failAdmitted = 0;
  // Of the request being decided.
  parts: readonly string[] = [];
  costMilli = 0;
  waitUs: WaitUs = 0;
  /** Where it is spent from, when not from the counter. */
  lease: LeasedBudget | undefined;
  /** Nothing in this process is charged: the store answers, or the request was let past the rule. */
  unmetered = false;
  /** Its turn has been waited for already, on another instance. */
  waited = false;

  constructor(counter: RuleCounter) {
    this.counter = counter;
    this.stage = stageOf(counter.rule);
    this.own = counter.rule.key.some(({ kind }) => ownKinds.has(kind));
  }

  get rule(): Rule {
    return this.counter.rule;
  }
}

/** Parts of a key that make a counter one caller's own. */
const ownKinds: ReadonlySet<string> = new Set([
  'user',
  'device',
  'ip',
  'ip_prefix',
  'pass',
  'header',
  'claim',
]);

export interface Exact {
  readonly live: Live;
  readonly parts: readonly string[];
  readonly check: ExactCheck;
}

/** Parts of a key by which limits lie together in a clustered store, the widest first. */
const slotKinds = ['activity', 'user', 'device', 'pass', 'ip', 'ip_prefix'] as const;

/**
 * Limits of one activity, and of one caller, lie together: one script charges what belongs together, all
 * or nothing.
 */
export function slotOf(rule: Rule, parts: readonly string[]): string {
  for (const kind of slotKinds) {
    const at = rule.key.findIndex((part) => part.kind === kind);
    if (at >= 0) return encodeKey([kind, parts[at] ?? '']);
  }
  return encodeKey(['rule', rule.id, ...parts]);
}

/** What a leased budget says, and, where the store is away, what the rule's policy says. */
export function probeLease(
  live: Live,
  lease: LeasedBudget,
  keptShareMilli: number,
  nowUs: number,
): RuleReason {
  const { rule, costMilli } = live;
  const burst = 'burstMilli' in rule.limit ? rule.limit.burstMilli : 0;
  const keep = Math.floor((burst * keptShareMilli) / 1000);
  // A reserve of the whole budget is more than one lease ever holds: each lease keeps its share.
  const kept = Math.min(keep, Math.floor((lease.remainingMilli(nowUs) * keptShareMilli) / 1000));
  live.lease = lease;
  const answer = lease.probe(costMilli, nowUs, kept);
  live.waitUs = answer === 'away' ? awayWaitUs : answer;
  if (answer !== 'away') return 'limit';
  if (rule.fail === 'instance' || rule.fail === 'open') {
    live.unmetered = true;
    live.waitUs = 0;
  }
  return 'store_away';
}

/** Earliest hint while the shared store is away, µs: it is asked again about as often. */
const awayWaitUs = 1_000_000;

/** The store did not answer: refused, unless every rule that asked it says otherwise. */
export function storeAway(exact: readonly Exact[]): RuleRefusal | undefined {
  const closed = exact.find(
    ({ live }) => live.rule.fail === 'closed' || live.rule.fail === 'local',
  );
  if (closed === undefined) {
    for (const { live } of exact) live.failAdmitted += 1;
    return undefined;
  }
  const { rule } = closed.live;
  closed.live.refused += 1;
  return {
    ruleId: rule.id,
    reason: 'store_away',
    waitUs: awayWaitUs,
    own: false,
    onLimit: rule.onLimit,
    rule,
    parts: closed.parts,
    limit: rule.limit,
  };
}

export function charge(live: Live, nowUs: number, sink: DecisionSink | undefined): void {
  const { rule, counter, parts, costMilli } = live;
  if (live.unmetered) {
    if (live.lease !== undefined) live.failAdmitted += 1;
    return;
  }
  if (live.lease !== undefined) {
    live.lease.charge(costMilli, nowUs);
    if (rule.mode === 'enforce') live.admitted += 1;
    return;
  }
  const { viaOverflow, decidedUs: chargedUs } = counter;
  counter.charge(costMilli);
  const holds = rule.limit.algorithm === 'concurrency';
  if (holds && sink === undefined) {
    throw new Error(`rule ${rule.id} holds places, and nobody gives them back`);
  }
  // A charge of the shared overflow bucket is nobody's own: it is not given back.
  if (!viaOverflow && sink !== undefined && (holds || sink.charges !== undefined)) {
    (holds ? sink.holds : sink.charges)?.push({ counter, parts, costMilli, chargedUs });
  }
  if (rule.mode !== 'enforce') return;
  live.admitted += 1;
  const { delayUs } = counter;
  if (sink === undefined || delayUs === 0 || live.waited) return;
  if (rule.onLimit !== 'accept_later') {
    sink.delayUs = Math.max(sink.delayUs, delayUs);
    return;
  }
  sink.later ??= { delayUs: 0, places: [] };
  sink.later.delayUs = Math.max(sink.later.delayUs, delayUs);
  sink.later.places.push({ rule, parts });
}

/** Share of the burst that this request must leave for others, thousandths. */
export function keptShare(rule: Rule, facts: RequestFacts): number {
  if (rule.reserve === undefined || facts.p0 === true) return 0;
  const { retriesMilli, p0Milli } = rule.reserve;
  return facts.retry === true ? p0Milli : p0Milli + retriesMilli;
}

export function note(asked: readonly Live[], standings: RuleStanding[]): void {
  for (const { rule, counter, waitUs, lease, unmetered } of asked) {
    // Of a leased limit only a part is known here: nothing is said rather than half of it. What is
    // exact has been noted when the store answered.
    if (rule.mode !== 'enforce' || lease !== undefined || unmetered) continue;
    const { limit } = counter;
    const [leftMilli, fullUs] = [counter.leftMilli(), counter.fullUs()];
    standings.push({ rule, limit, leftMilli, waitUs, fullUs });
  }
}

/** What the store said of exact limits: what is left of each, and, where that follows, until when. */
export function noteExact(
  exact: readonly Exact[],
  reply: ExactReply,
  standings: RuleStanding[],
): void {
  const refused = reply.waitUs > 0;
  for (const [at, { live, check }] of exact.entries()) {
    const leftMilli = reply.leftMilli[at];
    // Of a refusal only the limit that refused is sure to have been asked.
    if (leftMilli === undefined || (refused && at !== reply.refusedBy)) continue;
    const { limit } = check;
    const fullUs = refillUs(limit, leftMilli);
    standings.push({ rule: live.rule, limit, leftMilli, waitUs: reply.waitUs, fullUs });
  }
}

/** Until a bucket with so much left is full; other algorithms depend on what the store keeps to itself. */
function refillUs(limit: LimitSpec, leftMilli: number): number | undefined {
  if (limit.algorithm !== 'token_bucket' || limit.rate.tokensMilli === 0) return undefined;
  const missing = Math.max(0, limit.burstMilli - leftMilli);
  return Math.ceil((missing / limit.rate.tokensMilli) * limit.rate.periodUs);
}

/** What a place that the caller has taken before changes of the rule's own answer. */
export function usePlace(live: Live, place: ReturnType<Vouchers['place']>): RuleReason {
  live.waited = place === 'waited';
  if (place === 'paid') {
    live.waitUs = 0;
    live.unmetered = true;
  }
  if (typeof place !== 'number') return 'limit';
  live.waitUs = place;
  return 'early';
}
