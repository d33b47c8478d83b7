import type { Risk, routeNames } from '../core/rules/model.ts';
import type { RequestFacts } from '../core/rules/facts.ts';
import type { HeaderList } from '../core/limit/headers.ts';
import type { RuleReason } from '../core/rules/live.ts';
import type { DecisionSink } from '../core/rules/sink.ts';
import type { Scope } from '../wire/codes.ts';

/**
 * The limits as the path sees them: one question per stage, in the order of the path, about a request
 * of which more is known at each. What stands behind it (rule-limits.ts) is composed outside.
 *
 * Only `budget` may have to wait: rules that ask a shared store for every request all stand there.
 */
export interface PathLimits {
  /** This instance's own capacity, and rules that need to know nothing of the caller. */
  instance(request: LimitedRequest): LimitRefusal | undefined;
  /** Client address and its prefix, headers, risk; penalties. */
  source(request: LimitedRequest): LimitRefusal | undefined;
  /** The verified user, and the device where one is known. All or none are charged. */
  person(request: LimitedRequest): LimitRefusal | undefined;
  /** Shared budgets of activity and SKU, quantities, exact limits. */
  budget(request: LimitedRequest): LimitRefusal | undefined | Promise<LimitRefusal | undefined>;
  /**
   * The request has ended, however: places that it held are given back. Calling it twice, or for a
   * request that no limit has seen, changes nothing.
   */
  end(request: LimitedRequest): void;
  /**
   * `RateLimit` and `RateLimit-Policy` of a request that no limit refused: where each of them that
   * counted it stands now. Empty where none did, or none can say.
   */
  headers(request: LimitedRequest): HeaderList;
  /** How suspect a caller is, by its signs. */
  risk(caller: Caller): Risk;
  /** A pass that nobody here signed came from this address. */
  forged(address: string): void;
}

/** What of a request its risk is read from. */
export type Caller = Pick<RequestFacts, 'address' | 'device' | 'fromTrustedProxy' | 'header'>;

/** Names that rules match on; closed, and few, because they are metric labels too. */
export type RouteName = (typeof routeNames)[number];

/** A request, as far as the path has come, and what limits have noted down for it. */
export interface LimitedRequest extends RequestFacts {
  /** Monotonic, µs. */
  readonly arrivedUs: number;
  readonly nowMs: number;
  /** Places held and waits due; made by the limits when a rule needs it. */
  sink: DecisionSink | undefined;
  /** Id of what is asked for, the same in every repetition. */
  readonly requestId?: string | undefined;
  /** Whether it is a repetition; noted by the limits where a rule asks. */
  retry?: boolean | undefined;
}

/** How long a request that was let through has to be held back before its work begins, ms. */
export function delayMsOf(request: LimitedRequest): number {
  return request.sink === undefined ? 0 : Math.ceil(request.sink.delayUs / 1000);
}

/** A request that was let through is to get the cheaper answer: the rule that says so. */
export function degradedBy(request: LimitedRequest): string | undefined {
  return request.sink?.degradedBy;
}

export interface LimitRefusal {
  readonly scope: Scope;
  readonly ruleId: string;
  /** Earliest useful moment, ms from now, at least 1. Exact where the counter is the caller's own. */
  readonly retryAfterMs: number;
  /** `RateLimit` and `RateLimit-Policy`, ready to send. */
  readonly headers?: HeaderList;
  /** Why; `limit` when absent. */
  readonly reason?: RuleReason;
  /**
   * What is answered instead of a plain no; `reject` when absent. `queue` points to the waiting room,
   * `accept_later` gives a place ahead, `challenge` something to be answered first.
   */
  readonly answer?: 'reject' | 'queue' | 'accept_later' | 'challenge';
  /** More members of the answer, in wire form: a ticket, a challenge. */
  readonly extra?: Readonly<Record<string, unknown>> | undefined;
  /** Where to stand meanwhile, where that is known. */
  readonly activityId?: string | undefined;
}

/** No limits at all: for tests of other stages. */
export const noLimits: PathLimits = {
  instance: () => undefined,
  source: () => undefined,
  person: () => undefined,
  budget: () => undefined,
  end: () => undefined,
  headers: () => [],
  risk: () => 'low',
  forged: () => undefined,
};
