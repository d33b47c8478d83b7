import { createAlgorithm } from '../limit/algorithms/create.ts';
import { formatRate, perSecond, type Rate } from '../limit/rate.ts';
import { keyText } from './counter.ts';
import type { Match, OnLimit, Rule, RuleSet } from './model.ts';
import { readMethods, readRoutes } from './model.ts';
import { covers, mayOverlap, type TextPattern } from './pattern.ts';
import { steadyRate } from './read-limit.ts';
import type { RuleProblem } from './reader.ts';
import { nearest, Reader } from './reader.ts';
import { stageOf } from './stage.ts';

/**
 * What rules are to each other and to their deployment: names that match nothing, policies that a
 * route does not allow, rules that can never be reached. A problem keeps the set from being used; a
 * note does not.
 */
export interface Judgement {
  readonly problems: readonly RuleProblem[];
  readonly notes: readonly RuleProblem[];
}

/** What is known of the deployment; what is absent is not judged. */
export interface RuleContext {
  readonly routes?: readonly string[];
  /** What each of them can do past a limit; one that is not named can only reject. */
  readonly answers?: Readonly<Record<string, readonly OnLimit[]>>;
  readonly activities?: readonly string[];
  readonly skus?: readonly string[];
  readonly maxInstances?: number;
  /** Hard limit of each instance. */
  readonly ceiling?: Rate;
}

/** Below this a budget is asked for each request: a lease would hold too much of it. Tokens a second. */
const leasePerSecondLeast = 2_000;

/** @param path where the list of rules stands, for the problems. */
export function judgeRules(
  set: RuleSet,
  context: RuleContext,
  path: readonly (string | number)[] = [],
): Judgement {
  const problems = new Reader();
  const notes = new Reader();
  for (const [at, rule] of set.rules.entries()) {
    const here = [...path, at];
    judgeNames(rule, set, context, (key, found, allowed) =>
      problems.report([...here, 'match', key], found, allowed),
    );
    judgeScope(rule, (key, found, allowed) => problems.report([...here, key], found, allowed));
    judgeFailure(rule, set, context, (found, allowed) =>
      problems.report([...here, 'fail'], found, allowed),
    );
    judgeWaiting(rule, set, (key, found, allowed) =>
      problems.report([...here, key], found, allowed),
    );
    judgeAnswer(rule, set, context, (key, found, allowed) =>
      problems.report([...here, key], found, allowed),
    );
    const { limit } = rule;
    if (rule.scope === 'lease' && 'rate' in limit && perSecond(limit.rate) < leasePerSecondLeast) {
      notes.report(
        [...here, 'scope'],
        `a lease of ${formatRate(limit.rate)}`,
        `exact below ${leasePerSecondLeast}/s: leases of a small budget leave much of it unused`,
      );
    }
  }
  judgePairs(set, (at, key, found, allowed) => notes.report([...path, at, key], found, allowed));
  return { problems: problems.problems, notes: notes.problems };
}

type Say = (key: string, found: string, allowed: string) => void;

function judgeNames(rule: Rule, set: RuleSet, context: RuleContext, say: Say): void {
  for (const name of rule.match.group ?? []) {
    if (set.groups.has(name)) continue;
    const known = [...set.groups.keys()];
    const meant = nearest(name, known);
    const hint = meant === undefined ? '' : `${meant}? `;
    say(
      'group',
      `"${name}"`,
      `${hint}a group of this file: ${known.join(', ') || 'there are none'}`,
    );
  }
  const check = (key: 'route' | 'activity' | 'sku', known: readonly string[] | undefined): void => {
    for (const pattern of rule.match[key] ?? []) {
      if (known === undefined || known.some((name) => pattern.matches(name))) continue;
      // A path belongs to the service behind: its names are not known here.
      if (key === 'route' && pattern.source.startsWith('/')) continue;
      const meant = nearest(pattern.source, known);
      const hint = meant === undefined ? '' : `${meant}? `;
      say(key, `"${pattern.source}", which matches nothing`, `${hint}one of ${known.join(', ')}`);
    }
  };
  check('route', context.routes);
  check('activity', context.activities);
  check('sku', context.skus);
}

function judgeScope(rule: Rule, say: Say): void {
  const { scope, limit, key } = rule;
  if (scope === 'instance') return;
  if (limit.algorithm === 'concurrency') {
    say('scope', `${scope} of a concurrency limit`, 'instance: a process knows its own holders');
  }
  if (scope !== 'lease') return;
  if (limit.algorithm !== 'token_bucket') {
    say('scope', `lease of a ${limit.algorithm}`, 'token_bucket, or scope exact');
  }
  const many = key.find(({ kind }) => !['activity', 'sku', 'route'].includes(kind));
  if (many !== undefined) {
    say(
      'key',
      `"${keyText([many])}" in a leased budget`,
      'activity, sku, route or nothing: a lease for each caller would ask the store for each caller',
    );
  }
  if (rule.overrides.length > 0) say('overrides', 'overrides of a lease', 'a rule of their own');
}

function judgeFailure(
  rule: Rule,
  set: RuleSet,
  context: RuleContext,
  say: (found: string, allowed: string) => void,
): void {
  const { fail, scope, limit } = rule;
  if (fail === 'closed') return;
  if (fail === 'open') {
    if (!isReadOnly(rule.match, set)) {
      say(
        'open on routes that may reach stock',
        `closed, local or instance; or a match of reads alone (routes ${readRoutes.join(', ')}, or methods ${readMethods.join(', ')})`,
      );
    }
    return;
  }
  if (scope === 'instance') {
    say(`${fail} on scope instance`, 'closed: there is no shared store that could be away');
    return;
  }
  if (fail === 'local') {
    if (scope !== 'lease') say('local on scope exact', 'closed, instance, or scope lease');
    return;
  }
  // `instance`: what all instances admit together must stay within the budget.
  const { maxInstances, ceiling } = context;
  if (maxInstances === undefined || ceiling === undefined) {
    if (context.routes !== undefined) {
      say(
        'instance without known instance limits',
        'declared budgets.max_instances and server.ceiling',
      );
    }
    return;
  }
  const perInstance = Math.min(perSecond(ceiling), ...instanceLimits(set));
  const together = maxInstances * perInstance;
  const safe = perSecond(steadyRate(limit));
  if (together > safe) {
    say(
      `instance, with ${maxInstances} instances of ${perInstance}/s = ${together}/s against a budget of ${safe}/s`,
      `at most ${Math.floor(safe / maxInstances)}/s for each instance, or closed`,
    );
  }
}

/** What the rules of the instance stage that concern every request allow, per second. */
export function instanceLimits(set: RuleSet): number[] {
  return set.rules
    .filter(
      (rule) =>
        rule.mode === 'enforce' &&
        rule.key.length === 0 &&
        stageOf(rule) === 'instance' &&
        Object.keys(rule.match).length === 0 &&
        rule.effectiveAtMs === undefined &&
        rule.expiresAtMs === undefined,
    )
    .map((rule) => perSecond(steadyRate(rule.limit)));
}

function judgeWaiting(rule: Rule, set: RuleSet, say: Say): void {
  const { limit, onLimit } = rule;
  const waits = limit.algorithm === 'leaky_bucket' && limit.maxWaitUs > 0;
  if ((onLimit === 'delay' || onLimit === 'accept_later') && !waits) {
    say('on_limit', `${onLimit} of a ${limit.algorithm}`, 'leaky_bucket with a max_wait above 0');
  }
  if (waits && onLimit !== 'delay' && onLimit !== 'accept_later') {
    say('on_limit', `${onLimit} with a max_wait`, 'delay, accept_later, or max_wait 0s');
  }
  // A place ahead holds nothing open: only a held connection has no business in submit.
  if (waits && onLimit !== 'accept_later' && reachesSubmit(rule.match, set)) {
    say(
      'limit',
      'waiting on routes that may be submit',
      'routes other than submit, on_limit accept_later, or max_wait 0s',
    );
  }
  if (waits && rule.scope !== 'instance') {
    say('scope', `${rule.scope} of a limit that waits`, 'instance, or max_wait 0s');
  }
}

/** Every route that the rule may concern must be able to give its answer. */
function judgeAnswer(rule: Rule, set: RuleSet, context: RuleContext, say: Say): void {
  const { routes, answers } = context;
  const { onLimit } = rule;
  if ((onLimit === 'degrade' || onLimit === 'challenge') && rule.scope === 'exact') {
    say('on_limit', `${onLimit} on scope exact`, 'scope instance or lease, or reject');
  }
  if (routes === undefined || answers === undefined || onLimit === 'reject') return;
  const can = routes.filter((route) => answers[route]?.includes(onLimit) === true);
  const cannot = routes.filter(
    (route) => !can.includes(route) && mayConcern(rule.match, set, route),
  );
  if (cannot.length === 0) return;
  say(
    'on_limit',
    `${onLimit} on routes that may be ${cannot.join(', ')}`,
    can.length === 0
      ? 'reject: no route here can do that'
      : `reject, or a match of routes ${can.join(', ')}`,
  );
}

function mayConcern(match: Match, set: RuleSet, route: string): boolean {
  const here = (patterns: readonly TextPattern[]): boolean =>
    patterns.some((pattern) => pattern.matches(route));
  if (match.route !== undefined && !here(match.route)) return false;
  return match.group?.some((name) => here(set.groups.get(name) ?? [])) ?? true;
}

/** Pairs of which one can never be the one that refuses. */
function judgePairs(
  set: RuleSet,
  say: (at: number, key: string, found: string, allowed: string) => void,
): void {
  const { rules } = set;
  for (const [at, rule] of rules.entries()) {
    if (rule.mode !== 'enforce') continue;
    for (const [other, tighter] of rules.entries()) {
      if (other === at || tighter.mode !== 'enforce' || rule.scope !== tighter.scope) continue;
      if (!alwaysWith(rule, tighter) || !isTighter(tighter, rule)) continue;
      // Of two that are equal, the first is the one that stays.
      if (isTighter(rule, tighter) && alwaysWith(tighter, rule) && at < other) continue;
      say(
        at,
        'limit',
        `a rule that never refuses: "${tighter.id}" counts the same, for all of its requests, and allows no more`,
        'a tighter limit, another key, or no rule',
      );
      break;
    }
    const denies = createAlgorithm(rule.limit).capacityMilli === 0;
    for (const [other, denied] of rules.entries()) {
      if (!denies || other === at || denied.mode !== 'enforce' || rule.key.length > 0) continue;
      if (!matchCovers(rule.match, denied.match) || isDenying(denied)) continue;
      say(
        other,
        'match',
        `a rule whose requests "${rule.id}" refuses all`,
        'requests that some rule lets through',
      );
    }
  }
}

const isDenying = (rule: Rule): boolean => createAlgorithm(rule.limit).capacityMilli === 0;

/** Is `tighter` asked, on the same counter, whenever `rule` is? */
function alwaysWith(rule: Rule, tighter: Rule): boolean {
  if (keyText(rule.key) !== keyText(tighter.key)) return false;
  if (rule.cost.kind !== 'fixed' || tighter.cost.kind !== 'fixed') return false;
  if (rule.cost.costMilli !== tighter.cost.costMilli) return false;
  if (tighter.effectiveAtMs !== undefined || tighter.expiresAtMs !== undefined) return false;
  if (tighter.overrides.length > 0 || rule.overrides.length > 0) return false;
  if (rule.hot !== undefined || rule.penalty !== undefined || rule.reserve !== undefined)
    return false;
  return matchCovers(tighter.match, rule.match);
}

/** Both token buckets, and `a` never lets through what `b` refuses. */
function isTighter(a: Rule, b: Rule): boolean {
  const [x, y] = [a.limit, b.limit];
  if (x.algorithm !== 'token_bucket' || y.algorithm !== 'token_bucket') return false;
  return perSecond(x.rate) <= perSecond(y.rate) && x.burstMilli <= y.burstMilli;
}

/** Does `outer` concern every request that `inner` concerns? Unknown counts as no. */
export function matchCovers(outer: Match, inner: Match): boolean {
  const lists = ['route', 'activity', 'sku'] as const;
  for (const key of lists) {
    const [out, within] = [outer[key], inner[key]];
    if (out === undefined) continue;
    if (within === undefined) return false;
    if (!within.every((pattern) => out.some((one) => covers(one, pattern)))) return false;
  }
  for (const key of ['method', 'risk', 'group'] as const) {
    const [out, within] = [outer[key], inner[key]];
    if (out === undefined) continue;
    if (
      within === undefined ||
      !within.every((word) => (out as readonly string[]).includes(word))
    ) {
      return false;
    }
  }
  return outer.header === undefined && outer.claim === undefined;
}

/** Does the match leave nothing but reads? */
export function isReadOnly(match: Match, set: RuleSet): boolean {
  const reads = (patterns: readonly TextPattern[]): boolean =>
    patterns.length > 0 &&
    patterns.every(({ kind, source }) => kind === 'exact' && readRoutes.includes(source));
  if (match.route !== undefined && reads(match.route)) return true;
  if (match.group?.every((name) => reads(set.groups.get(name) ?? [])) === true) return true;
  return match.method?.every((method) => readMethods.includes(method)) === true;
}

function reachesSubmit(match: Match, set: RuleSet): boolean {
  const submit: TextPattern = { source: 'submit', kind: 'exact', matches: (t) => t === 'submit' };
  const may = (patterns: readonly TextPattern[]): boolean =>
    patterns.some((pattern) => mayOverlap(pattern, submit));
  if (match.route !== undefined && !may(match.route)) return false;
  if (match.group !== undefined && !match.group.some((name) => may(set.groups.get(name) ?? []))) {
    return false;
  }
  return match.method === undefined || match.method.includes('POST');
}
