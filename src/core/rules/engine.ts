import { addressPrefix } from '../limit/address.ts';
import type { HashSeed } from '../limit/key.ts';
import type { OverflowLimit } from '../limit/keyed-limiter.ts';
import { SingleBucket } from '../limit/single-bucket.ts';
import { neverUs, tokenBucket, type WaitUs } from '../limit/token-bucket.ts';
import { RuleCounter } from './counter.ts';
import type { RequestFacts } from './facts.ts';
import { costOf, inForce, mismatchOfPlace, mismatchOfRest, resolveKey } from './matching.ts';
import type { OnLimit, Rule, RuleSet } from './model.ts';
import { byLevel, stageOf, type RuleStage } from './stage.ts';

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
  /** Told when a caller is penalised: for the audit, which bounds itself. */
  readonly onPenalty?: (rule: Rule, parts: readonly string[]) => void;
}

/** Why a request was refused. */
export type RuleReason = 'limit' | 'penalty' | 'absent_key' | 'ceiling';

/** A refusal: which rule, for how long, and how the caller is to be answered. */
export interface RuleRefusal {
  readonly ruleId: string;
  readonly reason: RuleReason;
  readonly waitUs: WaitUs;
  /** The counter is this caller's own: the wait is exact. Otherwise it is an earliest hint. */
  readonly own: boolean;
  readonly onLimit: OnLimit;
  readonly rule: Rule | undefined;
}

/** What a decision leaves behind, for callers that want it. */
export interface DecisionSink {
  /** Where each enforced rule stands: for `RateLimit` fields. */
  readonly standings: RuleStanding[];
  /** Places taken under `concurrency` rules: to be given back with `giveBack`, once, come what may. */
  readonly holds: RuleCharge[];
  /** Charges of all other rules: given back where the request turns out not to count. */
  readonly charges: RuleCharge[];
  /** How long the request has to be held back before it goes on, µs: the longest of its pacing rules. */
  delayUs: number;
}

export interface RuleCharge {
  readonly counter: RuleCounter;
  readonly parts: readonly string[];
  readonly costMilli: number;
  readonly chargedUs: number;
}

export function newSink(): DecisionSink {
  return { standings: [], holds: [], charges: [], delayUs: 0 };
}

/** Takes charges back, and forgets them, so that saying it twice changes nothing. */
export function giveBack(charges: RuleCharge[]): void {
  for (const { counter, parts, costMilli, chargedUs } of charges.splice(0)) {
    counter.give(parts, costMilli, chargedUs);
  }
}

/** Where a rule stands with a request that it has just decided on. */
export interface RuleStanding {
  readonly rule: Rule;
  /** The rule's own limit, or that of a named value. */
  readonly limit: Rule['limit'];
  readonly leftMilli: number;
  readonly waitUs: WaitUs;
  /** Until everything is left again. */
  readonly fullUs: number;
}

export interface RuleStats {
  readonly ruleId: string;
  readonly mode: Rule['mode'];
  readonly admitted: number;
  readonly refused: number;
  /** What a shadow rule would have refused. */
  readonly wouldRefuse: number;
  readonly entries: number;
  readonly overflow: number;
  readonly penalties: number;
}

/** A rule with its counters and its numbers. */
class Live {
  readonly counter: RuleCounter;
  readonly stage: RuleStage;
  readonly own: boolean;
  admitted = 0;
  refused = 0;
  wouldRefuse = 0;
  penalties = 0;
  // Of the request being decided.
  parts: readonly string[] = [];
  costMilli = 0;
  waitUs: WaitUs = 0;

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

/** Routes whose candidate rules are kept ready; where routes are paths there may be more. */
const rememberedPlacesMax = 2_000;

const noRules: RuleSet = { version: 0, groups: new Map(), risk: { prefixes: [] }, rules: [] };

/** Whether a set went in force, or which version stood in its way. */
export type ApplyResult =
  | { readonly applied: true }
  | { readonly applied: false; readonly live: number };

export class RuleEngine {
  readonly #options: RuleEngineOptions;
  readonly #ceiling: SingleBucket | undefined;
  #set: RuleSet = noRules;
  #lives: Live[] = [];
  /** By stage, then by `method route`. */
  #places = new Map<string, readonly Live[]>();
  #sweepNext = 0;

  constructor(options: RuleEngineOptions, nowUs: number) {
    this.#options = options;
    const { ceiling } = options;
    if (ceiling !== undefined) {
      this.#ceiling = new SingleBucket(tokenBucket(ceiling.rate, ceiling.burstMilli), nowUs);
    }
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
      return next;
    });
    this.#lives.sort((a, b) => byLevel(a.rule, b.rule));
    this.#set = set;
    this.#places = new Map();
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
      const waitUs = this.#ceiling.probe(1000, nowUs);
      if (waitUs !== 0) {
        const base = { ruleId: 'ceiling', reason: 'ceiling', onLimit: 'reject' } as const;
        return { ...base, waitUs, own: false, rule: undefined };
      }
    }
    const candidates = this.#candidates(stage, facts);
    let asked: Live[] | undefined;
    let refusing: Live | undefined;
    let reason: RuleReason = 'limit';
    for (const live of candidates) {
      if (!inForce(live.rule, nowMs) || mismatchOfRest(live.rule.match, facts) !== undefined) {
        continue;
      }
      const why = this.#probe(live, facts, nowUs);
      (asked ??= []).push(live);
      if (live.waitUs === 0) continue;
      if (live.rule.mode === 'shadow') live.wouldRefuse += 1;
      else if (refusing === undefined || live.waitUs > refusing.waitUs) {
        refusing = live;
        reason = why;
      }
    }
    if (refusing === undefined) {
      if (stage === 'instance') this.#ceiling?.charge(1000);
      for (const live of asked ?? []) if (live.waitUs === 0) charge(live, sink);
    }
    if (sink !== undefined) note(asked ?? [], sink.standings);
    return refusing === undefined ? undefined : this.#refuse(refusing, reason, nowUs);
  }

  /** Forgets idle keys: a bounded slice of the next rule each time. Call from one timer. */
  sweep(nowUs: number, budget: number): void {
    const live = this.#lives[this.#sweepNext % Math.max(1, this.#lives.length)];
    this.#sweepNext += 1;
    live?.counter.sweep(nowUs, budget);
  }

  stats(): RuleStats[] {
    return this.#lives.map(({ rule, counter, admitted, refused, wouldRefuse, penalties }) => ({
      ruleId: rule.id,
      mode: rule.mode,
      admitted,
      refused,
      wouldRefuse,
      penalties,
      entries: counter.entries,
      overflow: counter.overflowTotal,
    }));
  }

  /** What a request's counter of one rule has left; `undefined` for a rule that does not exist. */
  peek(ruleId: string, facts: RequestFacts, nowUs: number): number | undefined {
    const live = this.#lives.find(({ rule }) => rule.id === ruleId);
    if (live === undefined) return undefined;
    return live.counter.peek(resolveKey(live.rule.key, facts, addressPrefix).parts, nowUs);
  }

  /** Leaves parts, cost and wait of this request in `live`; answers the reason, should it refuse. */
  #probe(live: Live, facts: RequestFacts, nowUs: number): RuleReason {
    const { rule, counter } = live;
    const { parts, absent } = resolveKey(rule.key, facts, addressPrefix);
    live.parts = parts;
    live.costMilli = costOf(rule.cost, facts);
    if (absent.length > 0 && rule.absent === 'refuse') {
      live.waitUs = neverUs;
      return 'absent_key';
    }
    live.waitUs = counter.penaltyUs(parts, nowUs);
    if (live.waitUs > 0) return 'penalty';
    live.waitUs = counter.probe(parts, live.costMilli, nowUs, keptShare(rule, facts));
    return 'limit';
  }

  #refuse(live: Live, reason: RuleReason, nowUs: number): RuleRefusal {
    const { rule, waitUs, own } = live;
    live.refused += 1;
    if (reason === 'limit' && live.counter.refused(live.parts, nowUs)) {
      live.penalties += 1;
      this.#options.onPenalty?.(rule, live.parts);
    }
    return { ruleId: rule.id, reason, waitUs, own, onLimit: rule.onLimit, rule };
  }

  /** Rules of the stage that route and method do not exclude, widest first. */
  #candidates(stage: RuleStage, facts: RequestFacts): readonly Live[] {
    const place = `${stage} ${facts.method} ${facts.route}`;
    const known = this.#places.get(place);
    if (known !== undefined) return known;
    const found = this.#lives.filter(
      (live) =>
        live.stage === stage &&
        mismatchOfPlace(live.rule.match, this.#set, facts.route, facts.method) === undefined,
    );
    if (this.#places.size < rememberedPlacesMax) this.#places.set(place, found);
    return found;
  }
}

/** Share of the burst that this request must leave for others, thousandths. */
function keptShare(rule: Rule, facts: RequestFacts): number {
  if (rule.reserve === undefined || facts.p0 === true) return 0;
  const { retriesMilli, p0Milli } = rule.reserve;
  return facts.retry === true ? p0Milli : p0Milli + retriesMilli;
}

function charge(live: Live, sink: DecisionSink | undefined): void {
  const { rule, counter, parts, costMilli } = live;
  const { viaOverflow, decidedUs: chargedUs } = counter;
  counter.charge(costMilli);
  const holds = rule.limit.algorithm === 'concurrency';
  if (holds && sink === undefined) {
    throw new Error(`rule ${rule.id} holds places, and nobody gives them back`);
  }
  // A charge of the shared overflow bucket is nobody's own: it is not given back.
  if (!viaOverflow && sink !== undefined) {
    (holds ? sink.holds : sink.charges).push({ counter, parts, costMilli, chargedUs });
  }
  if (rule.mode !== 'enforce') return;
  live.admitted += 1;
  if (sink !== undefined) sink.delayUs = Math.max(sink.delayUs, counter.delayUs);
}

function note(asked: readonly Live[], standings: RuleStanding[]): void {
  for (const { rule, counter, waitUs } of asked) {
    if (rule.mode !== 'enforce') continue;
    const { limit } = counter;
    const [leftMilli, fullUs] = [counter.leftMilli(), counter.fullUs()];
    standings.push({ rule, limit, leftMilli, waitUs, fullUs });
  }
}
