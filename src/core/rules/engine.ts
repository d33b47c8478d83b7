import { addressPrefix } from '../limit/address.ts';
import type { LimitSpec } from '../limit/algorithm.ts';
import type { HashSeed } from '../limit/key.ts';
import type { OverflowLimit } from '../limit/keyed-limiter.ts';
import { SingleBucket } from '../limit/single-bucket.ts';
import { neverUs, tokenBucket } from '../limit/token-bucket.ts';
import { RuleCounter } from './counter.ts';
import type { RequestFacts } from './facts.ts';
import {
  charge,
  type Exact,
  keptShare,
  Live,
  note,
  noteExact,
  probeLease,
  type RuleReason,
  type RuleRefusal,
  slotOf,
  storeAway,
  usePlace,
} from './live.ts';
import { costOf, inForce, mismatchOfPlace, mismatchOfRest, resolveKey } from './matching.ts';
import type { Rule, RuleSet } from './model.ts';
import { capacityOf } from './read-limit.ts';
import type { ExactReply, SharedLimits } from './shared.ts';
import type { DecisionSink, RuleStanding } from './sink.ts';
import { byLevel, type RuleStage } from './stage.ts';

/**
 * The rules at work in one process: for each stage of the path, which rules concern a request, whether
 * all of them have room, and then one charge to all or to none.
 *
 * - The deployment's ceiling stands before every rule of the instance stage, and nothing that is
 *   reloaded can raise it.
 * - Among the rules that refuse, the one with the longest wait is named: a caller who waits as told is
 *   not refused by the next one. Ties go to the wider rule.
 * - A shadow rule is evaluated in full on its own counters. It charges when the request goes through,
 *   and when it would have refused, it only counts that.
 * - A reload replaces the set at once; counters go on, each with its balances (counter.ts).
 */
export interface RuleEngineOptions {
  /** Two words or more from a secure random source, drawn once per process. */
  readonly hashSeed: HashSeed;
  /** Hard limit of this process, from the deployment file. */
  readonly ceiling?: OverflowLimit;
  /** Leases and exact limits; without it every rule counts in this process alone. */
  readonly shared?: SharedLimits;
  /** Told when a caller is penalised: for the audit, which bounds itself. */
  readonly onPenalty?: (rule: Rule, parts: readonly string[]) => void;
}

export interface RuleStats {
  readonly ruleId: string;
  readonly mode: Rule['mode'];
  readonly admitted: number;
  readonly refused: number;
  /** What a shadow rule would have refused. */
  readonly wouldRefuse: number;
  readonly entries: number;
  /** Of its table. */
  readonly bytes: number;
  readonly overflow: number;
  readonly penalties: number;
  /** Let through by a fail policy while the shared store was away. */
  readonly failAdmitted: number;
}

/** Routes whose candidate rules are kept ready; where routes are paths there may be more. */
const rememberedPlacesMax = 2_000;

const noRules: RuleSet = { version: 0, groups: new Map(), risk: { prefixes: [] }, rules: [] };

/** Whether a set went in force, or which version stood in its way. */
export type ApplyResult =
  | { readonly applied: true }
  | { readonly applied: false; readonly live: number };

export class RuleEngine {
  readonly #options: RuleEngineOptions;
  readonly #ceiling: { readonly bucket: SingleBucket; readonly limit: LimitSpec } | undefined;
  #set: RuleSet = noRules;
  #lives: Live[] = [];
  /** By stage, route and method: three looks by words that are the same objects again and again. */
  #places: Places = newPlaces();
  #placesKept = 0;
  #sweepNext = 0;
  /** Rules that the last decision asked, when it let the request through. */
  #lastAsked: readonly Live[] = [];
  #ceilingRefused = 0;

  constructor(options: RuleEngineOptions, nowUs: number) {
    this.#options = options;
    const { ceiling } = options;
    if (ceiling !== undefined) {
      const bucket = new SingleBucket(tokenBucket(ceiling.rate, ceiling.burstMilli), nowUs);
      this.#ceiling = { bucket, limit: { algorithm: 'token_bucket', ...ceiling } };
    }
  }

  /** Requests that the ceiling refused. */
  get ceilingRefused(): number {
    return this.#ceilingRefused;
  }

  get version(): number {
    return this.#set.version;
  }

  get set(): RuleSet {
    return this.#set;
  }

  /**
   * Puts a set in force, at once and whole. One of a lower version than the present one is refused.
   */
  apply(set: RuleSet, nowUs: number): ApplyResult {
    if (set.version < this.#set.version) return { applied: false, live: this.#set.version };
    const before = new Map(this.#lives.map((live) => [live.rule.id, live]));
    this.#lives = set.rules.map((rule) => {
      const live = before.get(rule.id);
      if (live === undefined || !live.counter.canBecome(rule)) {
        return new Live(new RuleCounter(rule, this.#options.hashSeed));
      }
      live.counter.reconfigure(rule, nowUs);
      const next = new Live(live.counter);
      next.admitted = live.admitted;
      next.refused = live.refused;
      next.wouldRefuse = live.wouldRefuse;
      next.penalties = live.penalties;
      next.failAdmitted = live.failAdmitted;
      return next;
    });
    this.#lives.sort((a, b) => byLevel(a.rule, b.rule));
    this.#set = set;
    this.#places = newPlaces();
    this.#placesKept = 0;
    return { applied: true };
  }

  /**
   * Decides on a request at one stage: `undefined` lets it through, charged to every rule that
   * concerns it. O(rules of the stage and route).
   * @param nowUs monotonic; @param nowMs wall time, for rules that begin and end.
   * @param sink needed where rules hold or delay: without it, a `concurrency` rule throws.
   */
  decide(
    stage: RuleStage,
    facts: RequestFacts,
    nowUs: number,
    nowMs: number,
    sink?: DecisionSink,
  ): RuleRefusal | undefined {
    if (stage === 'instance' && this.#ceiling !== undefined) {
      const waitUs = this.#ceiling.bucket.probe(1000, nowUs);
      if (waitUs !== 0) {
        this.#ceilingRefused += 1;
        const { limit } = this.#ceiling;
        // Written out: this is made for every request of a flood.
        return {
          ruleId: 'ceiling',
          reason: 'ceiling',
          waitUs,
          own: false,
          onLimit: 'reject',
          rule: undefined,
          parts: [],
          limit,
        };
      }
    }
    const judged = this.#judge(stage, facts, nowUs, nowMs, sink);
    for (const live of judged.asked) {
      if (live.rule.mode === 'shadow' && live.waitUs > 0) live.wouldRefuse += 1;
      if (live.rule.id === sink?.degradedBy) live.refused += 1;
      live.lease?.wanted(live.costMilli);
    }
    if (judged.refusing === undefined) {
      if (stage === 'instance') this.#ceiling?.bucket.charge(1000);
      for (const live of judged.asked) if (live.waitUs === 0) charge(live, nowUs, sink);
    }
    this.#lastAsked = judged.refusing === undefined ? judged.asked : [];
    if (sink?.notesAll === true) note(judged.asked, sink.standings);
    return judged.refusing === undefined ? undefined : this.#refuse(judged, nowUs);
  }

  /** Did the decision just made charge anything that can be noted? */
  get hasCharged(): boolean {
    return this.#lastAsked.length > 0;
  }

  /**
   * Notes where the rules stand that the decision just made has charged. Apart from `decide`, so that a
   * flood that is refused pays nothing for it.
   */
  noteAdmitted(standings: RuleStanding[]): void {
    note(this.#lastAsked, standings);
    this.#lastAsked = [];
  }

  /** Does some rule of this stage and place need the shared store? Then ask `decideShared`. */
  needsStore(stage: RuleStage, facts: RequestFacts): boolean {
    if (this.#options.shared === undefined) return false;
    return this.#candidates(stage, facts).some((live) => isExact(live.rule));
  }

  /**
   * The same decision where rules of scope `exact` concern the request. What this process can refuse
   * by itself never reaches the store. The store answers later, and meanwhile others may have used
   * up what was there: then the store's charge is given back.
   */
  async decideShared(
    stage: RuleStage,
    facts: RequestFacts,
    now: () => { readonly us: number; readonly ms: number },
    sink?: DecisionSink,
  ): Promise<RuleRefusal | undefined> {
    const { shared } = this.#options;
    const { us, ms } = now();
    if (shared === undefined) return this.decide(stage, facts, us, ms, sink);
    const first = this.#judge(stage, facts, us, ms, sink);
    if (first.refusing !== undefined) return this.decide(stage, facts, us, ms, sink);
    const exact = this.#exactOf(stage, facts, us, ms);
    const [enforced, shadows] = [exact.filter(isEnforced), exact.filter((one) => !isEnforced(one))];
    const refusal = await this.#takeExact(shared, enforced, us, sink);
    for (const one of shadows) await this.#takeShadow(shared, one);
    if (refusal !== undefined) return refusal;
    const later = now();
    const local = this.decide(stage, facts, later.us, later.ms, sink);
    if (local === undefined && sink?.notesAll === false) this.noteAdmitted(sink.standings);
    if (local !== undefined && enforced.length > 0) {
      try {
        await shared.giveBack(enforced.map(({ check }) => check));
      } catch (error) {
        // It stays charged, on the strict side; the answer is a refusal all the same.
        if (!shared.isStoreFailure(error)) throw error;
      }
    }
    return local;
  }

  /** Forgets idle keys: a bounded slice of the next rule each time. Call from one timer. */
  sweep(nowUs: number, budget: number): void {
    const live = this.#lives[this.#sweepNext % Math.max(1, this.#lives.length)];
    this.#sweepNext += 1;
    live?.counter.sweep(nowUs, budget);
  }

  stats(): RuleStats[] {
    return this.#lives.map((live) => ({
      ruleId: live.rule.id,
      mode: live.rule.mode,
      admitted: live.admitted,
      refused: live.refused,
      wouldRefuse: live.wouldRefuse,
      penalties: live.penalties,
      failAdmitted: live.failAdmitted,
      entries: live.counter.entries,
      bytes: live.counter.bytes,
      overflow: live.counter.overflowTotal,
    }));
  }

  /** What a request's counter of one rule has left; `undefined` for a rule that does not exist. */
  peek(ruleId: string, facts: RequestFacts, nowUs: number): number | undefined {
    const live = this.#lives.find(({ rule }) => rule.id === ruleId);
    if (live === undefined) return undefined;
    return live.counter.peek(resolveKey(live.rule.key, facts, addressPrefix).parts, nowUs);
  }

  /** Asks every rule of the stage that this process can answer for. Charges nothing. */
  #judge(
    stage: RuleStage,
    facts: RequestFacts,
    nowUs: number,
    nowMs: number,
    sink: DecisionSink | undefined,
  ): Judged {
    const candidates = this.#candidates(stage, facts);
    if (candidates.length === 0) return nothingAsked;
    const asked: Live[] = [];
    let refusing: Live | undefined;
    let reason: RuleReason = 'limit';
    for (const live of candidates) {
      if (!inForce(live.rule, nowMs) || mismatchOfRest(live.rule.match, facts) !== undefined) {
        continue;
      }
      let why = this.#probe(live, facts, nowUs);
      asked.push(live);
      const { rule } = live;
      if (why === 'limit' && rule.onLimit === 'accept_later' && rule.mode === 'enforce') {
        why = usePlace(live, sink?.vouchers?.place(rule, live.parts));
      }
      if (live.waitUs === 0 || rule.mode === 'shadow') continue;
      if (rule.onLimit === 'degrade' && sink?.degrades === true) {
        sink.degradedBy = rule.id;
        continue;
      }
      if (why === 'limit' && rule.onLimit === 'challenge') {
        if (sink?.vouchers?.answered(rule, live.parts) === true) continue;
      }
      if (refusing === undefined || live.waitUs > refusing.waitUs) {
        refusing = live;
        reason = why;
      }
    }
    return { asked, refusing, reason };
  }

  /** Leaves parts, cost and wait of this request in `live`; answers the reason, should it refuse. */
  #probe(live: Live, facts: RequestFacts, nowUs: number): RuleReason {
    const { rule, counter } = live;
    const { parts, absent } = resolveKey(rule.key, facts, addressPrefix);
    live.parts = parts;
    live.costMilli = costOf(rule.cost, facts);
    live.lease = undefined;
    live.unmetered = false;
    live.waited = false;
    if (absent.length > 0 && rule.absent === 'refuse') {
      live.waitUs = neverUs;
      return 'absent_key';
    }
    live.waitUs = counter.penaltyUs(parts, nowUs);
    if (live.waitUs > 0) return 'penalty';
    const { shared } = this.#options;
    if (shared !== undefined && rule.scope === 'lease') {
      return probeLease(live, shared.lease(rule, parts), keptShare(rule, facts), nowUs);
    }
    // The store answers for it, later.
    if (shared !== undefined && isExact(rule)) {
      live.unmetered = true;
      return 'limit';
    }
    live.waitUs = counter.probe(parts, live.costMilli, nowUs, keptShare(rule, facts));
    return 'limit';
  }

  #exactOf(stage: RuleStage, facts: RequestFacts, nowUs: number, nowMs: number): Exact[] {
    return this.#candidates(stage, facts).flatMap((live) => {
      const { rule } = live;
      if (!isExact(rule) || !inForce(rule, nowMs)) return [];
      if (mismatchOfRest(rule.match, facts) !== undefined) return [];
      this.#probe(live, facts, nowUs);
      const { parts, costMilli } = live;
      const named = live.counter.limitOf(parts);
      const keepMilli = Math.floor((capacityOf(named) * keptShare(rule, facts)) / 1000);
      const ruleId = rule.mode === 'shadow' ? `${rule.id}#shadow` : rule.id;
      const check = {
        ruleId,
        parts,
        limit: named,
        costMilli,
        keepMilli,
        slot: slotOf(rule, parts),
      };
      return [{ live, parts, check }];
    });
  }

  async #takeExact(
    shared: SharedLimits,
    exact: readonly Exact[],
    nowUs: number,
    sink: DecisionSink | undefined,
  ): Promise<RuleRefusal | undefined> {
    if (exact.length === 0) return undefined;
    let reply: ExactReply;
    try {
      reply = await shared.take(exact.map(({ check }) => check));
    } catch (error) {
      if (!shared.isStoreFailure(error)) throw error;
      return storeAway(exact);
    }
    const refused = exact[reply.refusedBy];
    if (sink !== undefined) noteExact(exact, reply, sink.standings);
    if (reply.waitUs === 0 || refused === undefined) {
      for (const { live } of exact) live.admitted += 1;
      return undefined;
    }
    refused.live.waitUs = reply.waitUs;
    refused.live.parts = refused.parts;
    return this.#refuse({ asked: [], refusing: refused.live, reason: 'limit' }, nowUs);
  }

  async #takeShadow(shared: SharedLimits, exact: Exact): Promise<void> {
    try {
      const { waitUs } = await shared.take([exact.check]);
      if (waitUs > 0) exact.live.wouldRefuse += 1;
    } catch (error) {
      // A shadow rule that cannot be asked says nothing, and stands in nobody's way.
      if (!shared.isStoreFailure(error)) throw error;
    }
  }

  #refuse(judged: Judged, nowUs: number): RuleRefusal {
    const { refusing: live, reason } = judged;
    if (live === undefined) throw new Error('a refusal has a rule that refuses');
    const { rule, waitUs } = live;
    live.refused += 1;
    // Of the shared overflow bucket nothing can be promised.
    const own = live.own && (reason !== 'limit' || !live.counter.viaOverflow);
    if (reason === 'limit' && live.counter.refused(live.parts, nowUs)) {
      live.penalties += 1;
      this.#options.onPenalty?.(rule, live.parts);
    }
    const { parts } = live;
    const limit = live.counter.limitOf(parts);
    return { ruleId: rule.id, reason, waitUs, own, onLimit: rule.onLimit, rule, parts, limit };
  }

  /** Rules of the stage that route and method do not exclude, widest first. */
  #candidates(stage: RuleStage, facts: RequestFacts): readonly Live[] {
    const { route, method } = facts;
    const known = this.#places[stage].get(route)?.get(method);
    if (known !== undefined) return known;
    const found = this.#lives.filter(
      (live) =>
        live.stage === stage &&
        mismatchOfPlace(live.rule.match, this.#set, route, method) === undefined,
    );
    if (this.#placesKept < rememberedPlacesMax) {
      const methods = this.#places[stage].get(route) ?? new Map<string, readonly Live[]>();
      this.#places[stage].set(route, methods.set(method, found));
      this.#placesKept += 1;
    }
    return found;
  }
}

type Places = Readonly<Record<RuleStage, Map<string, Map<string, readonly Live[]>>>>;

function newPlaces(): Places {
  return { instance: new Map(), source: new Map(), person: new Map(), budget: new Map() };
}

/** Of a stage that no rule concerns. */
const nothingAsked: Judged = { asked: [], refusing: undefined, reason: 'limit' };

interface Judged {
  readonly asked: readonly Live[];
  readonly refusing: Live | undefined;
  readonly reason: RuleReason;
}

const isEnforced = ({ live }: Exact): boolean => live.rule.mode === 'enforce';
const isExact = (rule: Rule): boolean => rule.scope === 'exact';
