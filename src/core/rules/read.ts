import { milli } from '../limit/rate.ts';
import { slidingLogMax } from '../limit/algorithms/sliding-log.ts';
import type { Cost, HotValues, Override, Penalty, Rule, RuleSet } from './model.ts';
import {
  failPolicies,
  maxKeysMax,
  modes,
  onLimits,
  overridesMax,
  priorities,
  rulesMax,
  scopes,
} from './model.ts';
import { idPattern, readGroups, readKey, readMatch, readName, readRisk } from './read-match.ts';
import { capacityOf, defaultOverflow, readLimit, readOverflow } from './read-limit.ts';
import type { Mapping, Path, RuleProblem } from './reader.ts';
import { quote, Reader } from './reader.ts';

/**
 * From what an operator wrote to rules: every problem at once, each with its path, what was found and
 * what is allowed. Problems between rules, and between a rule and its deployment, are in judge.ts.
 */
export interface RulesRead {
  /** Meaningless where there are problems. */
  readonly set: RuleSet;
  readonly problems: readonly RuleProblem[];
}

/** Every key that a rule may have. */
export const ruleKeys: readonly string[] = [
  'id',
  'match',
  'key',
  'limit',
  'cost',
  'max_cost',
  'scope',
  'overrides',
  'hot',
  'absent',
  'max_keys',
  'overflow',
  'penalty',
  'reserve',
  'on_limit',
  'fail',
  'mode',
  'priority',
  'effective_at',
  'expires_at',
];

/** Keys that a rule remembers unless it says otherwise: 9 MB for a token bucket. */
const maxKeysDefault = 200_000;

/**
 * Reads a rule set: a list of rules, or a mapping `{version, groups, risk, rules}`.
 * @param path where the value stands in its file, for the problems.
 */
export function readRules(value: unknown, path: Path = []): RulesRead {
  const reader = new Reader();
  if (Array.isArray(value) || value === undefined || value === null) {
    const rules = readList(reader, value ?? [], path);
    const set = { version: 0, groups: new Map(), risk: { prefixes: [] }, rules };
    return { set, problems: reader.problems };
  }
  const map = reader.mapping(value, path, ['version', 'groups', 'risk', 'rules']);
  const set: RuleSet = {
    version: map?.optional('version', (v, p) => reader.whole(v, p, 0, 1e12), 0) ?? 0,
    groups: map?.optional('groups', (v, p) => readGroups(reader, v, p), undefined) ?? new Map(),
    risk: map?.optional('risk', (v, p) => readRisk(reader, v, p), undefined) ?? { prefixes: [] },
    rules: map?.optional('rules', (v, p) => readList(reader, v, p), []) ?? [],
  };
  return { set, problems: reader.problems };
}

function readList(reader: Reader, value: unknown, path: Path): Rule[] {
  const seen = new Map<string, number>();
  return (reader.list(value, path, rulesMax) ?? []).flatMap((item, at) => {
    const rule = readRule(reader, item, [...path, at]);
    if (rule === undefined) return [];
    const first = seen.get(rule.id);
    if (first !== undefined) {
      reader.report(
        [...path, at, 'id'],
        `"${rule.id}", the id of rule ${first}`,
        'an id of its own',
      );
    }
    seen.set(rule.id, at);
    return [rule];
  });
}

function readRule(reader: Reader, value: unknown, path: Path): Rule | undefined {
  const map = reader.mapping(value, path, ruleKeys);
  if (map === undefined) return undefined;
  const id = map.required('id', 'an id of letters, digits, ".", "_" and "-"', (v, p) =>
    reader.text(v, p, idPattern, 'an id of 1 to 64 letters, digits, ".", "_" and "-"'),
  );
  const limit = map.required('limit', 'a limit such as { rate: 5/s, burst: 10 }', (v, p) =>
    readLimit(reader, v, p),
  );
  const key = map.optional('key', (v, p) => readKey(reader, v, p), []);
  const match = map.optional('match', (v, p) => readMatch(reader, v, p), {});
  const maxKeys = map.optional(
    'max_keys',
    (v, p) => reader.whole(v, p, 1, maxKeysMax),
    key.length === 0 ? 1 : maxKeysDefault,
  );
  if (id === undefined || limit === undefined) return undefined;
  const overflow = map.optional(
    'overflow',
    (v, p) => readOverflow(reader, v, p),
    defaultOverflow(limit, maxKeys),
  );
  const hot = map.optional('hot', (v, p) => readHot(reader, v, p), undefined);
  const penalty = map.optional('penalty', (v, p) => readPenalty(reader, v, p), undefined);
  const reserve = map.optional('reserve', (v, p) => readReserve(reader, v, p), undefined);
  const effectiveAtMs = map.optional('effective_at', (v, p) => reader.instant(v, p), undefined);
  const expiresAtMs = map.optional('expires_at', (v, p) => reader.instant(v, p), undefined);
  const rule: Rule = {
    id,
    match,
    key,
    limit,
    cost: readCost(reader, map),
    scope: map.optional('scope', (v, p) => reader.oneOf(v, p, scopes), 'instance'),
    overrides: map.optional('overrides', (v, p) => readOverrides(reader, v, p, key.length), []),
    ...(hot === undefined ? {} : { hot }),
    absent: map.optional(
      'absent',
      (v, p) => reader.oneOf(v, p, ['anonymous', 'refuse']),
      'anonymous',
    ),
    maxKeys,
    overflow,
    ...(penalty === undefined ? {} : { penalty }),
    ...(reserve === undefined ? {} : { reserve }),
    onLimit: map.optional('on_limit', (v, p) => reader.oneOf(v, p, onLimits), 'reject'),
    fail: map.optional('fail', (v, p) => reader.oneOf(v, p, failPolicies), 'closed'),
    mode: map.optional('mode', (v, p) => reader.oneOf(v, p, modes), 'enforce'),
    priority: map.optional('priority', (v, p) => reader.oneOf(v, p, priorities), 'P1'),
    ...(effectiveAtMs === undefined ? {} : { effectiveAtMs }),
    ...(expiresAtMs === undefined ? {} : { expiresAtMs }),
  };
  judgeRule(reader, rule, map);
  return rule;
}

/** What parts of one rule must be to each other. */
function judgeRule(reader: Reader, rule: Rule, map: Mapping): void {
  const { limit, cost, key, overflow } = rule;
  const capacity = capacityOf(limit);
  const most = cost.maxMilli;
  if (most > capacity && capacity > 0) {
    reader.report(
      map.at(cost.kind === 'fixed' ? 'cost' : 'max_cost'),
      `cost up to ${most / milli} against a limit that holds ${capacity / milli}`,
      `a cost that can fit: at most ${capacity / milli}`,
    );
  }
  if (map.has('overflow') && most > overflow.burstMilli) {
    reader.report(
      map.at('overflow'),
      `a burst of ${overflow.burstMilli / milli} for costs up to ${most / milli}`,
      `a burst of at least ${most / milli}`,
    );
  }
  const kept = (rule.reserve?.retriesMilli ?? 0) + (rule.reserve?.p0Milli ?? 0);
  const others = rule.overrides.map((one, at) => ({ ...one, at: [...map.at('overrides'), at] }));
  if (rule.hot !== undefined)
    others.push({ parts: [], ...rule.hot, at: [...map.at('hot'), 'limit'] });
  for (const other of others) {
    const holds = capacityOf(other.limit);
    if (holds > 0 && most > holds * (1 - kept / milli)) {
      reader.report(
        other.at,
        `a limit that holds ${holds / milli} for costs up to ${most / milli}`,
        `one that holds at least ${most / milli / (1 - kept / milli)}, or 0 to refuse`,
      );
    }
  }
  const logs = [limit, ...others.map((other) => other.limit)];
  if (logs.some(({ algorithm }) => algorithm === 'sliding_log') && most % milli !== 0) {
    const allowed = 'whole costs under sliding_log, because each call is stored';
    reader.report(map.at('cost'), String(most / milli), allowed);
  }
  if (limit.algorithm === 'sliding_log') {
    const bytes = rule.maxKeys * (limit.limitMilli / milli + 3) * 8;
    if (bytes > 2 ** 30) {
      reader.report(
        map.at('max_keys'),
        `${rule.maxKeys} keys that each store ${limit.limitMilli / milli} calls (${Math.round(bytes / 2 ** 20)} MiB)`,
        `at most 1 GiB: fewer keys, or sliding_window; the log is for few, valuable calls (limit at most ${slidingLogMax})`,
      );
    }
  }
  for (const part of ['overrides', 'hot', 'penalty'] as const) {
    if (map.has(part) && key.length === 0) {
      reader.report(map.at(part), `${part} of a rule without a key`, 'a key whose values it names');
    }
  }
  if (rule.reserve !== undefined) {
    if (limit.algorithm !== 'token_bucket') {
      reader.report(map.at('reserve'), `a reserve of a ${limit.algorithm}`, 'token_bucket alone');
    } else if (kept >= milli || limit.burstMilli * (1 - kept / milli) < most) {
      reader.report(
        map.at('reserve'),
        `${kept / 10}% of a burst of ${limit.burstMilli / milli}`,
        `reserves that leave ordinary work at least the largest cost, ${most / milli}`,
      );
    }
  }
  const { effectiveAtMs, expiresAtMs } = rule;
  if (effectiveAtMs !== undefined && expiresAtMs !== undefined && expiresAtMs <= effectiveAtMs) {
    reader.report(map.at('expires_at'), 'an end before the beginning', 'after effective_at');
  }
}

function readCost(reader: Reader, map: Mapping): Cost {
  const value = map.raw('cost') ?? 1;
  const most = map.optional('max_cost', (v, p) => reader.whole(v, p, 1, 1_000_000), undefined);
  if (typeof value === 'number') {
    const costMilli = reader.thousandths(value, map.at('cost'), 0.001, 1_000_000) ?? milli;
    if (most !== undefined) {
      reader.report(map.at('max_cost'), 'max_cost beside a fixed cost', 'leave it out');
    }
    return { kind: 'fixed', costMilli, maxMilli: costMilli };
  }
  const maxMilli = (most ?? 1) * milli;
  const needsMost = (): void => {
    if (most === undefined) {
      reader.report(
        map.at('max_cost'),
        'nothing',
        'the most that one request may cost, such as 10',
      );
    }
  };
  if (value === 'quantity') {
    needsMost();
    return { kind: 'quantity', maxMilli };
  }
  const header = typeof value === 'string' ? /^header:(.*)$/.exec(value)?.[1] : undefined;
  const name =
    header === undefined ? undefined : readName(reader, header, map.at('cost'), 'header');
  if (name !== undefined) {
    needsMost();
    return { kind: 'header', name, maxMilli };
  }
  if (header === undefined) {
    reader.report(map.at('cost'), quote(value), 'a number, quantity, or header:NAME');
  }
  return { kind: 'fixed', costMilli: milli, maxMilli: milli };
}

function readOverrides(
  reader: Reader,
  value: unknown,
  path: Path,
  parts: number,
): Override[] | undefined {
  const seen = new Set<string>();
  return reader.list(value, path, overridesMax)?.flatMap((item, at) => {
    const here = [...path, at];
    const limit = readLimit(reader, item, here, ['value']);
    const raw: unknown =
      typeof item === 'object' && item !== null ? Reflect.get(item, 'value') : undefined;
    const values = (Array.isArray(raw) ? raw : [raw]).map((one: unknown) =>
      typeof one === 'number' ? String(one) : one,
    );
    const texts = values.filter(
      (one): one is string => typeof one === 'string' && one.length <= 256,
    );
    if (texts.length !== values.length || texts.length !== parts) {
      const allowed =
        parts === 1 ? 'a text' : `a list of ${parts} texts, one for each part of the key`;
      reader.report([...here, 'value'], quote(raw), allowed);
      return [];
    }
    const joined = JSON.stringify(texts);
    if (seen.has(joined)) reader.report([...here, 'value'], `${joined} twice`, 'each value once');
    seen.add(joined);
    return limit === undefined ? [] : [{ parts: texts, limit }];
  });
}

function readHot(reader: Reader, value: unknown, path: Path): HotValues | undefined {
  const map = reader.mapping(value, path, ['top', 'share', 'half_life', 'limit']);
  const limit = map?.required('limit', 'a limit such as { rate: 5/s }', (v, p) =>
    readLimit(reader, v, p),
  );
  if (map === undefined || limit === undefined) return undefined;
  return {
    top: map.optional('top', (v, p) => reader.whole(v, p, 1, 1_000), 20),
    shareMilli: map.optional('share', (v, p) => reader.share(v, p), 10),
    halfLifeUs: map.optional(
      'half_life',
      (v, p) => reader.duration(v, p, 100_000, 3_600_000_000),
      10_000_000,
    ),
    limit,
  };
}

function readPenalty(reader: Reader, value: unknown, path: Path): Penalty | undefined {
  const map = reader.mapping(value, path, ['after', 'within', 'for']);
  const after = map?.required('after', 'a number of refusals, such as 20', (v, p) =>
    reader.whole(v, p, 1, 1_000_000),
  );
  const hour = 3_600_000_000;
  const withinUs = map?.required('within', 'a time such as 10s', (v, p) =>
    reader.duration(v, p, 1_000, hour),
  );
  // An hour at most: longer is a ban, and a ban is somebody's decision.
  const forUs = map?.required('for', 'a time such as 60s', (v, p) =>
    reader.duration(v, p, 1_000, hour),
  );
  if (after === undefined || withinUs === undefined || forUs === undefined) return undefined;
  return { after, withinUs, forUs };
}

function readReserve(
  reader: Reader,
  value: unknown,
  path: Path,
): { retriesMilli: number; p0Milli: number } | undefined {
  const map = reader.mapping(value, path, ['retries', 'p0']);
  if (map === undefined) return undefined;
  return {
    retriesMilli: map.optional('retries', (v, p) => reader.share(v, p), 200),
    p0Milli: map.optional('p0', (v, p) => reader.share(v, p), 0),
  };
}
