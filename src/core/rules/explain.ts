import { addressPrefix, canonicalAddress } from '../limit/address.ts';
import { createAlgorithm } from '../limit/algorithms/create.ts';
import { exactWaitMs } from '../limit/hint.ts';
import { formatDuration, formatMilli, formatRate } from '../limit/rate.ts';
import type { LimitSpec } from '../limit/algorithm.ts';
import { neverUs } from '../limit/token-bucket.ts';
import { encodeKey } from '../limit/key.ts';
import type { RequestFacts } from './facts.ts';
import { keyText } from './counter.ts';
import { costOf, inForce, mismatch, resolveKey } from './matching.ts';
import type { Risk, Rule, RuleSet } from './model.ts';
import { riskAssessor } from './risk.ts';
import { byLevel, levelOf, type RuleLevel, type RuleStage, ruleStages, stageOf } from './stage.ts';

/**
 * For a request that somebody describes: which rules apply, in which order, to which counter, at which
 * cost, and what each would answer to a caller it has not seen before.
 */
export interface DescribedRequest {
  readonly route: string;
  /** POST for `submit`, GET otherwise, when absent. */
  readonly method?: string;
  readonly address?: string;
  readonly activity?: string;
  readonly sku?: string;
  readonly user?: string;
  readonly device?: string;
  readonly pass?: string;
  readonly quantity?: number;
  /** Assessed from the other facts when absent. */
  readonly risk?: Risk;
  readonly retry?: boolean;
  readonly p0?: boolean;
  readonly fromTrustedProxy?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
  readonly claims?: Readonly<Record<string, string>>;
  /** Wall time, ms, for rules that begin and end. */
  readonly atMs: number;
}

export interface ExplainedRule {
  readonly id: string;
  readonly stage: RuleStage;
  readonly level: RuleLevel;
  readonly mode: Rule['mode'];
  readonly applies: boolean;
  /** The condition that fails, where it does not apply. */
  readonly because?: string;
  /** The counter: parts of the key, and their values in this request. */
  readonly key: readonly { readonly part: string; readonly value: string | null }[];
  readonly cost: number;
  readonly limit: string;
  /** Which limit it is: the rule's own, or that of a named value. */
  readonly from: 'rule' | 'override';
  /** Requests like this admitted at once, from a caller not seen before; null for no bound that matters. */
  readonly atOnce: number;
  /** What the next one is told, ms; null when no wait helps. */
  readonly thenRetryAfterMs: number | null;
  /** Exact for a caller's own counter; an earliest hint for a shared one. */
  readonly exact: boolean;
  readonly answer: string;
}

export interface Explanation {
  readonly risk: Risk;
  /** In the order in which they are asked; those that do not apply come after, in file order. */
  readonly rules: readonly ExplainedRule[];
}

/** More than this at once is said as it is, not counted out. */
const countedMax = 100_000;

/** Explains without touching any counter. O(rules). */
export function explain(set: RuleSet, request: DescribedRequest): Explanation {
  const facts = factsOf(set, request);
  const explained = set.rules.map((rule) => ({
    rule,
    says: explainRule(rule, set, facts, request),
  }));
  const applying = explained
    .filter(({ says }) => says.applies)
    .sort(
      (a, b) =>
        ruleStages.indexOf(a.says.stage) - ruleStages.indexOf(b.says.stage) ||
        byLevel(a.rule, b.rule),
    );
  const others = explained.filter(({ says }) => !says.applies);
  return { risk: facts.risk, rules: [...applying, ...others].map(({ says }) => says) };
}

function factsOf(set: RuleSet, request: DescribedRequest): RequestFacts {
  const headers = new Map(
    Object.entries(request.headers ?? {}).map(([name, value]) => [name.toLowerCase(), value]),
  );
  const address = canonicalAddress(request.address ?? '') ?? 'unknown';
  const edgeWord =
    set.risk.header === undefined || request.fromTrustedProxy !== true
      ? undefined
      : headers.get(set.risk.header);
  const assessed = riskAssessor(set.risk)({
    address,
    ...(edgeWord === undefined ? {} : { edgeWord }),
  });
  const { activity, sku, user, device, pass, quantity, retry, p0 } = request;
  return {
    route: request.route,
    method: request.method ?? (request.route === 'submit' ? 'POST' : 'GET'),
    address,
    ...(activity === undefined ? {} : { activity }),
    ...(sku === undefined ? {} : { sku }),
    ...(user === undefined ? {} : { user }),
    ...(device === undefined ? {} : { device }),
    ...(pass === undefined ? {} : { pass }),
    ...(quantity === undefined ? {} : { quantity }),
    ...(retry === undefined ? {} : { retry }),
    ...(p0 === undefined ? {} : { p0 }),
    risk: request.risk ?? assessed,
    fromTrustedProxy: request.fromTrustedProxy ?? false,
    header: (name) => headers.get(name),
    claim: (name) => request.claims?.[name],
  };
}

function explainRule(
  rule: Rule,
  set: RuleSet,
  facts: RequestFacts,
  request: DescribedRequest,
): ExplainedRule {
  const { parts, absent } = resolveKey(rule.key, facts, addressPrefix);
  const because = notInForce(rule, request.atMs) ?? mismatch(rule, set, facts);
  const named = rule.overrides.find((one) => encodeKey(one.parts) === encodeKey(parts));
  const limit = named?.limit ?? rule.limit;
  const costMilli = costOf(rule.cost, facts);
  const refused = absent.length > 0 && rule.absent === 'refuse';
  const { atOnce, waitUs } = refused
    ? { atOnce: 0, waitUs: neverUs }
    : exhaust(limit, costMilli, keptMilli(rule, limit, facts));
  const exact = rule.key.some(({ kind }) => !['activity', 'sku', 'route'].includes(kind));
  return {
    id: rule.id,
    stage: stageOf(rule),
    level: levelOf(rule),
    mode: rule.mode,
    applies: because === undefined,
    ...(because === undefined ? {} : { because }),
    key: rule.key.map((part, at) => {
      const part_ = keyText([part]);
      const name = 'name' in part ? part.name : part.kind;
      return { part: part_, value: absent.includes(name) ? null : (parts[at] ?? null) };
    }),
    cost: costMilli / 1000,
    limit: describeLimit(limit),
    from: named === undefined ? 'rule' : 'override',
    atOnce,
    thenRetryAfterMs: waitUs === neverUs ? null : exactWaitMs(waitUs),
    exact,
    answer: answerOf(rule),
  };
}

function notInForce(rule: Rule, atMs: number): string | undefined {
  if (inForce(rule, atMs)) return undefined;
  if (rule.mode === 'off') return 'mode is off';
  const { effectiveAtMs, expiresAtMs } = rule;
  return effectiveAtMs !== undefined && atMs < effectiveAtMs
    ? 'not yet effective'
    : `expired${expiresAtMs === undefined ? '' : ` ${(atMs - expiresAtMs) / 1000} s before`}`;
}

function keptMilli(rule: Rule, limit: LimitSpec, facts: RequestFacts): number {
  if (rule.reserve === undefined || facts.p0 === true) return 0;
  const { retriesMilli, p0Milli } = rule.reserve;
  const share = facts.retry === true ? p0Milli : p0Milli + retriesMilli;
  return Math.floor((createAlgorithm(limit).capacityMilli * share) / 1000);
}

/** Spends a fresh counter to its end, all at one instant. */
function exhaust(
  limit: LimitSpec,
  costMilli: number,
  keepMilli: number,
): { atOnce: number; waitUs: number } {
  const algorithm = createAlgorithm(limit);
  if (algorithm.capacityMilli === 0) return { atOnce: 0, waitUs: neverUs };
  const cells = new Float64Array(algorithm.width);
  algorithm.fresh(cells, 0, 0);
  // Most of a large burst at one stroke; the rest call by call.
  let atOnce = 0;
  const left = algorithm.leftMilli(cells, 0, 0) - keepMilli;
  const many = limit.algorithm === 'token_bucket' ? Math.floor(left / costMilli) : 0;
  if (many > 0) {
    algorithm.charge(cells, 0, 0, many * costMilli);
    atOnce = many;
  }
  for (; atOnce < countedMax; atOnce += 1) {
    const waitUs = algorithm.wait(cells, 0, 0, costMilli + keepMilli);
    if (waitUs > 0) return { atOnce, waitUs };
    algorithm.charge(cells, 0, 0, costMilli);
  }
  return { atOnce, waitUs: algorithm.wait(cells, 0, 0, costMilli + keepMilli) };
}

function answerOf(rule: Rule): string {
  if (rule.mode === 'shadow') return 'nothing: shadow rules only count';
  switch (rule.onLimit) {
    case 'reject':
      return '429 RATE_LIMITED';
    case 'queue':
      return '202 with where to stand in the waiting room';
    case 'delay':
      return 'held back until its turn, then 429 past max_wait';
    case 'challenge':
      return '403 CHALLENGE_REQUIRED, and past the rule with the answer';
    case 'degrade':
      return 'a cheaper answer, marked as such';
    case 'accept_later':
      return '202 ACCEPTED_LATER with a ticket for the next free place, then 429 past max_wait';
  }
}

/** A limit in a few words. */
export function describeLimit(limit: LimitSpec): string {
  switch (limit.algorithm) {
    case 'token_bucket':
      return `token_bucket ${formatRate(limit.rate)}, burst ${formatMilli(limit.burstMilli)}`;
    case 'fixed_window':
    case 'sliding_window':
    case 'sliding_log':
      return `${limit.algorithm} ${formatMilli(limit.limitMilli)} per ${formatDuration(limit.windowUs)}`;
    case 'leaky_bucket':
      return `leaky_bucket ${formatRate(limit.rate)}, max wait ${formatDuration(limit.maxWaitUs)}`;
    case 'warm_up':
      return `warm_up ${formatRate(limit.rate)}, burst ${formatMilli(limit.burstMilli)}, warm after ${formatDuration(limit.warmUpUs)}`;
    case 'concurrency':
      return `concurrency ${formatMilli(limit.limitMilli)}`;
  }
}

/** The explanation as a person reads it. */
export function renderExplanation(explanation: Explanation): string {
  const lines: string[] = [];
  let stage: RuleStage | undefined;
  const applying = explanation.rules.filter(({ applies }) => applies);
  for (const rule of applying) {
    if (rule.stage !== stage) lines.push(`stage ${rule.stage}`);
    stage = rule.stage;
    const counter = rule.key.map(({ part, value }) => `${part}=${value ?? '(absent: anonymous)'}`);
    const then =
      rule.thenRetryAfterMs === null
        ? 'no wait helps'
        : `retry after ${rule.exact ? '' : 'at least '}${rule.thenRetryAfterMs} ms`;
    const limit = rule.from === 'override' ? `${rule.limit} (override)` : rule.limit;
    lines.push(
      `  ${rule.id}  [${rule.mode}, ${rule.level}]  ${limit}`,
      `    counter  ${counter.length === 0 ? 'one for all' : counter.join(', ')}`,
      `    cost     ${rule.cost}`,
      `    answers  admits ${rule.atOnce} at once; then ${rule.answer}, ${then}`,
    );
  }
  if (applying.length === 0) lines.push('no rule applies');
  const others = explanation.rules.filter(({ applies }) => !applies);
  if (others.length > 0) lines.push('rules that do not apply');
  for (const { id, because } of others) lines.push(`  ${id}  because of ${because ?? 'nothing'}`);
  lines.push(`risk of the caller: ${explanation.risk}`);
  return lines.join('\n');
}
