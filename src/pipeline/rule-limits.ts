import type { LimitSpec } from '../core/limit/algorithm.ts';
import type { HeaderList } from '../core/limit/headers.ts';
import { exactWaitMs, sharedHintMs } from '../core/limit/hint.ts';
import type { RuleEngine } from '../core/rules/engine.ts';
import type { RuleRefusal } from '../core/rules/live.ts';
import type { KeyPart, Risk, Rule, RuleSet } from '../core/rules/model.ts';
import { riskAssessor, type RiskSigns } from '../core/rules/risk.ts';
import { giveBack, type Later, newSink } from '../core/rules/sink.ts';
import type { RuleStage } from '../core/rules/stage.ts';
import type { Clock } from '../ports/clock.ts';
import type { Scope } from '../wire/codes.ts';
import { challengeHeader, type LimitDesk, RequestVouchers, ticketHeader } from './limit-desk.ts';
import { admittedHeaders, refusedHeaders } from './limit-headers.ts';
import type { Caller, LimitedRequest, LimitRefusal, PathLimits } from './limits.ts';
import { RetrySpread } from './health.ts';
import { RetryBook } from './retry-book.ts';
import { Suspicions } from './suspicions.ts';

export interface RuleLimitsOptions {
  readonly engine: RuleEngine;
  readonly clock: Clock;
  /** Spreads the hints of shared counters. */
  readonly random: { float(): number };
  /** Gives out tickets and challenges. Without it a rule that needs one is an error. */
  readonly desk?: LimitDesk;
}

/** The rules as the path asks them. Nothing here waits but for rules of scope `exact`. */
export class RuleLimits implements PathLimits {
  readonly #engine: RuleEngine;
  readonly #clock: Clock;
  readonly #desk: LimitDesk | undefined;
  readonly #spread: RetrySpread;
  readonly #headers = new WeakMap<LimitSpec, ReturnType<typeof refusedHeaders>>();
  readonly #retries = new RetryBook();
  readonly #suspicions = new Suspicions();
  #known: RuleSet | undefined;
  #traits: Traits = noTraits;

  constructor(options: RuleLimitsOptions) {
    this.#engine = options.engine;
    this.#clock = options.clock;
    this.#desk = options.desk;
    this.#spread = new RetrySpread(options.random);
  }

  instance(request: LimitedRequest): LimitRefusal | undefined {
    return this.#ask('instance', request, request.arrivedUs, request.nowMs);
  }

  source(request: LimitedRequest): LimitRefusal | undefined {
    return this.#ask('source', request, request.arrivedUs, request.nowMs);
  }

  person(request: LimitedRequest): LimitRefusal | undefined {
    const { accountsPerDevice } = this.#engine.set.risk;
    const { device, user } = request;
    if (accountsPerDevice !== undefined && device !== undefined && user !== undefined) {
      this.#suspicions.account(device, user, accountsPerDevice.more + 1, this.#clock.monoUs());
    }
    return this.#ask('person', request, this.#clock.monoUs(), request.nowMs);
  }

  /** The body may have taken its time: what is leased is judged by the clock of now. */
  budget(request: LimitedRequest): LimitRefusal | undefined | Promise<LimitRefusal | undefined> {
    if (!this.#engine.needsStore('budget', request)) {
      return this.#remember(
        request,
        this.#ask('budget', request, this.#clock.monoUs(), this.#clock.wallMs()),
      );
    }
    return this.#askShared(request);
  }

  end(request: LimitedRequest): void {
    const holds = request.sink?.holds;
    if (holds !== undefined && holds.length > 0) giveBack(holds);
  }

  headers(request: LimitedRequest): HeaderList {
    return request.sink === undefined ? [] : admittedHeaders(request.sink.standings);
  }

  risk(caller: Caller): Risk {
    const { assess, set } = this.#traitsNow();
    if (assess === undefined) return 'low';
    const nowUs = this.#clock.monoUs();
    const { header, accountsPerDevice, forgedPass } = set.risk;
    const { address, device } = caller;
    // Only a trusted edge can say it: a caller would call itself trusted.
    const word =
      header !== undefined && caller.fromTrustedProxy ? caller.header(header) : undefined;
    const signs: RiskSigns = {
      address,
      ...(word === undefined ? {} : { edgeWord: word }),
      ...(accountsPerDevice !== undefined && device !== undefined
        ? { accounts: this.#suspicions.accountsOf(device, nowUs) }
        : {}),
      ...(forgedPass !== undefined && this.#suspicions.hasForged(address, nowUs)
        ? { forgedPass: true }
        : {}),
    };
    return assess(signs);
  }

  forged(address: string): void {
    if (this.#engine.set.risk.forgedPass === undefined) return;
    this.#suspicions.forged(address, this.#clock.monoUs());
  }

  /** Is this a repetition of a request that was admitted before? Known where a rule keeps a reserve. */
  #isRetry(request: LimitedRequest): boolean {
    const { user, requestId } = request;
    if (user === undefined || requestId === undefined) return false;
    return this.#traitsNow().reserves && this.#retries.knows(user, requestId);
  }

  #remember(request: LimitedRequest, refusal: LimitRefusal | undefined): LimitRefusal | undefined {
    const { user, requestId } = request;
    if (refusal === undefined && user !== undefined && requestId !== undefined) {
      if (this.#traitsNow().reserves) this.#retries.note(user, requestId, this.#clock.monoUs());
    }
    return refusal;
  }

  #ask(
    stage: RuleStage,
    request: LimitedRequest,
    nowUs: number,
    nowMs: number,
  ): LimitRefusal | undefined {
    this.#prepare(stage, request);
    const engine = this.#engine;
    const refusal = engine.decide(stage, request, nowUs, nowMs, request.sink);
    if (refusal === undefined && engine.hasCharged) {
      // Made only now, so that a refused flood does not pay for it.
      request.sink ??= newSink({ degrades: true });
      engine.noteAdmitted(request.sink.standings);
    }
    return this.#answer(refusal, stage, request);
  }

  async #askShared(request: LimitedRequest): Promise<LimitRefusal | undefined> {
    this.#prepare('budget', request);
    request.sink ??= newSink({ degrades: true });
    const now = () => ({ us: this.#clock.monoUs(), ms: this.#clock.wallMs() });
    const refusal = await this.#engine.decideShared('budget', request, now, request.sink);
    return this.#remember(request, this.#answer(refusal, 'budget', request));
  }

  #prepare(stage: RuleStage, request: LimitedRequest): void {
    const traits = this.#traitsNow();
    if (traits.sinks) {
      request.sink ??= newSink({
        degrades: true,
        vouchers: traits.vouchers ? this.#vouchersOf(request) : undefined,
      });
    }
    if (stage === 'budget' && traits.reserves) request.retry = this.#isRetry(request);
  }

  #vouchersOf(request: LimitedRequest): RequestVouchers {
    if (this.#desk === undefined) {
      throw new TypeError(
        'found rules that challenge or accept later; allowed without a desk: others',
      );
    }
    return this.#desk.vouchersOf(request, () => this.#clock.wallMs());
  }

  /** What the engine said of one stage, as the path hears it. */
  #answer(
    refusal: RuleRefusal | undefined,
    stage: RuleStage,
    request: LimitedRequest,
  ): LimitRefusal | undefined {
    const { sink } = request;
    const vouchers = sink?.vouchers;
    if (vouchers instanceof RequestVouchers) {
      vouchers.settle(refusal === undefined);
      const { later } = sink ?? {};
      if (refusal === undefined && later !== undefined) {
        return this.#placeAhead(later, vouchers, stage, request);
      }
    }
    return refusal === undefined ? undefined : this.#say(refusal, stage, request);
  }

  /** A place was taken: the caller comes back for it. */
  #placeAhead(
    later: Later,
    vouchers: RequestVouchers,
    stage: RuleStage,
    request: LimitedRequest,
  ): LimitRefusal | undefined {
    const [first] = later.places;
    const desk = this.#desk;
    if (first === undefined || desk === undefined) return undefined;
    const nowMs = this.#clock.wallMs();
    const ticket = desk.ticket(later, vouchers.paid, request.route, nowMs);
    const retryAfterMs = Math.max(1, ticket.notBeforeMs - nowMs);
    return acceptedLater(first.rule, stage, retryAfterMs, ticket);
  }

  #challengeOf(
    { rule, parts, reason }: RuleRefusal,
    request: LimitedRequest,
  ): LimitRefusal['extra'] {
    const desk = this.#desk;
    if (rule?.onLimit !== 'challenge' || reason !== 'limit' || desk === undefined) return undefined;
    const vouchers = request.sink?.vouchers;
    const why = vouchers instanceof RequestVouchers ? vouchers.whyNot : 'none';
    const challenge = desk.challenge(rule, parts, request, why, this.#clock.wallMs());
    return { challenge, answer_header: challengeHeader };
  }

  #say(refusal: RuleRefusal, stage: RuleStage, request: LimitedRequest): LimitRefusal {
    const { rule, ruleId, reason, waitUs, own, limit } = refusal;
    const vouchers = request.sink?.vouchers;
    if (reason === 'early' && rule !== undefined && vouchers instanceof RequestVouchers) {
      const { ticket } = vouchers;
      if (ticket !== undefined) return acceptedLater(rule, stage, exactWaitMs(waitUs), ticket);
    }
    const retryAfterMs = own ? exactWaitMs(waitUs) : this.#hintMs(waitUs, rule);
    let headers = this.#headers.get(limit);
    if (headers === undefined) {
      headers = refusedHeaders(ruleId, limit);
      this.#headers.set(limit, headers);
    }
    const shared = rule !== undefined && rule.scope !== 'instance';
    const extra = rule?.onLimit === 'challenge' ? this.#challengeOf(refusal, request) : undefined;
    // One shape for all of them: this is made for every refused request of a flood.
    return {
      scope: rule === undefined ? 'instance' : scopeOf(rule, stage),
      ruleId,
      retryAfterMs,
      headers: headers(retryAfterMs),
      reason,
      answer: extra !== undefined ? 'challenge' : rule?.onLimit === 'queue' ? 'queue' : 'reject',
      extra,
      // A shared budget that is used up points to where one can stand meanwhile.
      activityId: shared || rule?.onLimit === 'queue' ? request.activity : undefined,
    };
  }

  #hintMs(waitUs: number, rule: Rule | undefined): number {
    const shared = rule !== undefined && rule.scope !== 'instance';
    return sharedHintMs(waitUs, shared, this.#spread.draw());
  }

  /** What the set in force needs done; worked out once per set. */
  #traitsNow(): Traits {
    const { set } = this.#engine;
    if (set !== this.#known) {
      this.#known = set;
      this.#traits = traitsOf(set);
    }
    return this.#traits;
  }
}

/** A place ahead is theirs: when, and what to bring along. */
function acceptedLater(
  rule: Rule,
  stage: RuleStage,
  retryAfterMs: number,
  ticket: { readonly text: string; readonly notBeforeMs: number; readonly expiresAtMs: number },
): LimitRefusal {
  return {
    scope: scopeOf(rule, stage),
    ruleId: rule.id,
    retryAfterMs,
    answer: 'accept_later',
    extra: {
      ticket: ticket.text,
      ticket_header: ticketHeader,
      not_before: new Date(ticket.notBeforeMs).toISOString(),
      expires_at: new Date(ticket.expiresAtMs).toISOString(),
    },
  };
}

interface Traits {
  readonly set: RuleSet;
  /** Some rule holds, delays, degrades, or lets past. */
  readonly sinks: boolean;
  /** Some rule gives out tickets or challenges. */
  readonly vouchers: boolean;
  /** Some rule keeps a part for retries. */
  readonly reserves: boolean;
  /** Absent where no rule asks for the risk. */
  readonly assess: ((signs: RiskSigns) => Risk) | undefined;
}

const noTraits: Traits = {
  set: { version: 0, groups: new Map(), risk: { prefixes: [] }, rules: [] },
  sinks: false,
  vouchers: false,
  reserves: false,
  assess: undefined,
};

function traitsOf(set: RuleSet): Traits {
  const { rules } = set;
  return {
    set,
    sinks: rules.some(
      ({ limit, onLimit }) =>
        limit.algorithm === 'concurrency' || !['reject', 'queue'].includes(onLimit),
    ),
    vouchers: rules.some(({ onLimit }) => onLimit === 'challenge' || onLimit === 'accept_later'),
    reserves: rules.some(({ reserve }) => reserve !== undefined),
    assess: rules.some(({ match }) => match.risk !== undefined)
      ? riskAssessor(set.risk)
      : undefined,
  };
}

const scopeOfPart: Readonly<Record<KeyPart['kind'], Scope>> = {
  user: 'user',
  claim: 'user',
  device: 'device',
  pass: 'pass',
  ip: 'source',
  ip_prefix: 'source',
  header: 'source',
  sku: 'sku',
  activity: 'activity',
  route: 'route',
};

/** From whom to whom: who is named first says whose limit it is. */
const named = Object.keys(scopeOfPart) as KeyPart['kind'][];

/** Whose limit said no. */
function scopeOf({ key, match, scope }: Rule, stage: RuleStage): Scope {
  const part = named.find((kind) => key.some((one) => one.kind === kind));
  if (part !== undefined) return scopeOfPart[part];
  if (match.sku !== undefined) return 'sku';
  if (match.activity !== undefined) return 'activity';
  if (scope !== 'instance') return 'region';
  return stage === 'source' ? 'source' : 'instance';
}
