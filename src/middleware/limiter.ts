import {
  clientAddress,
  noProxies,
  trustedProxies,
  type TrustedProxies,
} from '../core/limit/address.ts';
import type { HeaderList, LimitStanding } from '../core/limit/headers.ts';
import { rateLimitHeaders, retryAfterHeader, wholeAgainUs } from '../core/limit/headers.ts';
import { exactWaitMs, sharedHintMs } from '../core/limit/hint.ts';
import { milli } from '../core/limit/rate.ts';
import type { RequestFacts } from '../core/rules/facts.ts';
import { RuleEngine } from '../core/rules/engine.ts';
import type { RuleRefusal } from '../core/rules/live.ts';
import { riskAssessor } from '../core/rules/risk.ts';
import { type DecisionSink, giveBack, newSink } from '../core/rules/sink.ts';
import { ruleStages } from '../core/rules/stage.ts';
import { codes } from '../wire/codes.ts';
import { type RateLimitOptions, type RefusalInfo, settle, type Settings } from './options.ts';

/** A request as every framework can tell it. */
export interface PlainRequest {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** The other end of the connection. */
  readonly peer: string | undefined;
  header(name: string): string | undefined;
}

/** What is known of the caller's limit, for the application (`request.rateLimit`). */
export interface RateLimitInfo {
  readonly limit: number;
  readonly used: number;
  readonly remaining: number;
  /** When everything is left again. */
  readonly resetTime: Date;
  /** A rule said that this answer should be a cheaper one. */
  readonly degraded: boolean;
}

export interface Admitted {
  readonly admitted: true;
  readonly headers: HeaderList;
  readonly info: RateLimitInfo | undefined;
  /** Hold the request back for so long before it goes on, ms. */
  readonly delayMs: number;
  /** Must be called once, when the response is over. */
  finished(status: number): void;
}

export interface Refused {
  readonly admitted: false;
  readonly status: number;
  readonly headers: HeaderList;
  readonly contentType: string;
  readonly body: string;
  readonly info: RefusalInfo;
}

export type Verdict = Admitted | Refused;

/** Between two slices of forgetting idle keys, ms. */
const sweepEveryMs = 100;
const sweepSlots = 2_000;

/** The part of the middleware that knows no framework. */
export class RateLimiter<Request, Response = unknown> {
  readonly #options: RateLimitOptions<Request, Response>;
  readonly #settings: Settings<Request>;
  readonly #engine: RuleEngine;
  readonly #proxies: TrustedProxies;
  readonly #riskOf: ReturnType<typeof riskAssessor>;
  #stopSweeping: (() => void) | undefined;

  /** @throws RateLimitOptionError, RangeError */
  constructor(options: RateLimitOptions<Request, Response>) {
    this.#options = options;
    this.#settings = settle(options);
    const { set, world } = this.#settings;
    const shared = options.shared === undefined ? {} : { shared: options.shared };
    this.#engine = new RuleEngine({ hashSeed: world.seed(), ...shared }, world.monoUs());
    this.#engine.apply(set, world.monoUs());
    // What is known before anybody asks is held by then: no first caller is refused for the want of it.
    for (const rule of set.rules) {
      if (rule.scope === 'lease' && rule.key.length === 0) options.shared?.lease(rule, []);
    }
    this.#riskOf = riskAssessor(set.risk);
    this.#proxies =
      options.trustedProxies === undefined
        ? noProxies
        : trustedProxies(options.trustedProxies, options.hops ?? 1);
  }

  /** Decides on a request. Answers at once where no shared store has to be asked. */
  check(request: Request, plain: PlainRequest): Verdict | undefined | Promise<Verdict | undefined> {
    this.#stopSweeping ??= this.#startSweeping();
    const { skip } = this.#options;
    const skipped = skip?.(request) ?? false;
    if (skipped === true) return undefined;
    if (skipped === false) return this.#decide(request, plain);
    return skipped.then((yes) => (yes ? undefined : this.#decide(request, plain)));
  }

  /** Waits as long as a pacing rule asks. */
  sleep(delayMs: number): Promise<void> {
    return this.#settings.world.sleep(delayMs);
  }

  /** Stops the timer that forgets idle keys. It never keeps a process alive. */
  close(): void {
    this.#stopSweeping?.();
    this.#stopSweeping = undefined;
  }

  #startSweeping(): () => void {
    const { world } = this.#settings;
    return world.every(sweepEveryMs, () => this.#engine.sweep(world.monoUs(), sweepSlots));
  }

  #decide(request: Request, plain: PlainRequest): Verdict | Promise<Verdict> {
    const { world } = this.#settings;
    const facts = this.#factsOf(request, plain);
    const sink = newSink({ degrades: true, notesAll: true, charges: true });
    for (const [at, stage] of ruleStages.entries()) {
      if (this.#engine.needsStore(stage, facts)) {
        return this.#decideFrom(at, request, facts, sink);
      }
      const refusal = this.#engine.decide(stage, facts, world.monoUs(), world.wallMs(), sink);
      if (refusal !== undefined) return this.#refused(request, refusal, sink);
    }
    return this.#admitted(sink);
  }

  /** The same from the nth stage on, where the store is asked. */
  async #decideFrom(
    from: number,
    request: Request,
    facts: RequestFacts,
    sink: DecisionSink,
  ): Promise<Verdict> {
    const { world } = this.#settings;
    const now = (): { us: number; ms: number } => ({ us: world.monoUs(), ms: world.wallMs() });
    for (const stage of ruleStages.slice(from)) {
      const refusal = await this.#engine.decideShared(stage, facts, now, sink);
      if (refusal !== undefined) return this.#refused(request, refusal, sink);
    }
    return this.#admitted(sink);
  }

  #admitted(sink: DecisionSink): Admitted {
    const { skipSuccessfulRequests, skipFailedRequests } = this.#options;
    const standings = standingsOf(sink, undefined);
    return {
      admitted: true,
      headers: this.#headers(standings),
      info: infoOf(standings, this.#settings.world.wallMs(), sink.degradedBy !== undefined),
      delayMs: Math.ceil(sink.delayUs / 1000),
      finished: (status) => {
        giveBack(sink.holds);
        const failed = status >= 400;
        if (failed ? skipFailedRequests : skipSuccessfulRequests) giveBack(sink.charges ?? []);
      },
    };
  }

  #refused(request: Request, refusal: RuleRefusal, sink: DecisionSink): Refused {
    // Charges of earlier stages stand; places that were taken on the way do not.
    giveBack(sink.holds);
    const { world } = this.#settings;
    const retryAfterMs = this.#waitMs(refusal);
    const standings = standingsOf(sink, { ruleId: refusal.ruleId, retryAfterMs });
    const scope = scopeOf(refusal);
    const info = { ruleId: refusal.ruleId, scope, reason: refusal.reason, retryAfterMs };
    this.#options.onRefused?.(request, info);
    const away = refusal.reason === 'store_away';
    const code = away
      ? 'DEPENDENCY_UNAVAILABLE'
      : refusal.onLimit === 'challenge'
        ? 'CHALLENGE_REQUIRED'
        : 'RATE_LIMITED';
    const entry = codes[code];
    const status = code === 'RATE_LIMITED' ? (this.#options.statusCode ?? 429) : entry.http;
    const { message } = this.#options;
    const problem = {
      type: `urn:sluice:problem:${code.toLowerCase()}`,
      title: entry.title,
      status,
      detail: detailOf(refusal),
      code,
      scope,
      reason: refusal.reason,
      rule_id: refusal.ruleId,
      retryable: entry.retryable,
      retry_after_ms: retryAfterMs,
      next_action: entry.nextAction,
      server_time: new Date(world.wallMs()).toISOString(),
    };
    const plain = typeof message === 'string';
    return {
      admitted: false,
      status,
      headers: [
        ...this.#headers(standings),
        ...retryAfterHeader(retryAfterMs),
        ...(away ? [] : ([['Sluice-Limited', scope]] as const)),
        ['Cache-Control', 'no-store'],
      ],
      contentType: plain
        ? 'text/plain; charset=utf-8'
        : message === undefined
          ? 'application/problem+json'
          : 'application/json',
      body: plain ? message : JSON.stringify(message ?? problem),
      info,
    };
  }

  #waitMs(refusal: RuleRefusal): number {
    if (refusal.own) return exactWaitMs(refusal.waitUs);
    const shared = refusal.rule !== undefined && refusal.rule.scope !== 'instance';
    return sharedHintMs(refusal.waitUs, shared, this.#settings.world.float());
  }

  #headers(standings: readonly LimitStanding[]): HeaderList {
    return this.#settings.versions.flatMap((version) => rateLimitHeaders(version, standings));
  }

  #factsOf(request: Request, plain: PlainRequest): RequestFacts {
    const address = clientAddress(plain.peer, plain.header('x-forwarded-for'), this.#proxies);
    const header = (name: string): string | undefined => plain.header(name);
    const { keyOf, set } = this.#settings;
    if (keyOf !== undefined) {
      const key = keyOf.of(request, address);
      return {
        ...nothingKnown,
        route: plain.path,
        method: plain.method,
        address: keyOf.kind === 'ip' ? (key ?? 'unknown') : address,
        header,
        ...(keyOf.kind === 'user' && key !== undefined ? { user: key } : {}),
      };
    }
    const fromTrustedProxy = plain.peer !== undefined && this.#proxies.contains(plain.peer);
    const word =
      set.risk.header !== undefined && fromTrustedProxy ? header(set.risk.header) : undefined;
    const risk = this.#riskOf({ address, ...(word === undefined ? {} : { edgeWord: word }) });
    return {
      ...nothingKnown,
      route: plain.path,
      method: plain.method,
      risk,
      fromTrustedProxy,
      ...this.#options.facts?.(request),
      address,
      header,
    };
  }
}

const nothingKnown = {
  risk: 'low',
  fromTrustedProxy: false,
  claim: () => undefined,
} as const;

function standingsOf(
  sink: DecisionSink,
  refused: { readonly ruleId: string; readonly retryAfterMs: number } | undefined,
): LimitStanding[] {
  return sink.standings.map(({ rule, limit, leftMilli, fullUs, waitUs }) => ({
    name: rule.id,
    limit,
    leftMilli: waitUs > 0 ? Math.min(leftMilli, milli - 1) : leftMilli,
    fullUs,
    ...(refused?.ruleId === rule.id ? { retryAfterMs: refused.retryAfterMs } : {}),
  }));
}

function infoOf(
  standings: readonly LimitStanding[],
  nowMs: number,
  degraded: boolean,
): RateLimitInfo | undefined {
  let tightest: LimitStanding | undefined;
  for (const standing of standings) {
    if (tightest === undefined || standing.leftMilli < tightest.leftMilli) tightest = standing;
  }
  if (tightest === undefined) return undefined;
  const { limit } = tightest;
  const capacity =
    'limitMilli' in limit ? limit.limitMilli : 'burstMilli' in limit ? limit.burstMilli : milli;
  const remaining = Math.max(0, Math.floor(tightest.leftMilli / milli));
  const most = Math.floor(capacity / milli);
  return {
    limit: most,
    used: Math.max(0, most - remaining),
    remaining,
    resetTime: new Date(
      nowMs + Math.min(8.64e14, Math.ceil((tightest.fullUs ?? wholeAgainUs(limit)) / 1000)),
    ),
    degraded,
  };
}

/** Whose limit it was, in the words of the wire. */
function scopeOf({ rule }: RuleRefusal): string {
  const kinds = new Set(rule?.key.map(({ kind }) => kind));
  for (const kind of ['user', 'device', 'pass', 'sku', 'activity', 'route'] as const) {
    if (kinds.has(kind)) return kind;
  }
  if (kinds.has('ip') || kinds.has('ip_prefix')) return 'source';
  if (kinds.has('claim') || kinds.has('header')) return 'user';
  return rule === undefined || rule.scope === 'instance' ? 'instance' : 'system';
}

function detailOf({ ruleId, reason }: RuleRefusal): string {
  switch (reason) {
    case 'limit':
      return `limit "${ruleId}" is used up for the moment`;
    case 'penalty':
      return `limit "${ruleId}" was ignored too often; its penalty runs`;
    case 'absent_key':
      return `limit "${ruleId}" needs to know who is asking, and the request does not say`;
    case 'ceiling':
      return 'this process takes no more for the moment';
    case 'early':
      return `the turn that limit "${ruleId}" gave has not come`;
    case 'store_away':
      return `limit "${ruleId}" cannot be checked at the moment`;
  }
}
