import type { Match, Rule } from './model.ts';
import { priorities } from './model.ts';

/**
 * Where on the path a rule is asked: at the first stage that knows everything it needs. Rules of one
 * stage are charged together or not at all; charges of earlier stages stand, or a refused flood would
 * get its identity checks for nothing.
 */
export const ruleStages = ['instance', 'source', 'person', 'budget'] as const;
export type RuleStage = (typeof ruleStages)[number];

export function stageOf(rule: Rule): RuleStage {
  const { match, key, cost, scope, penalty } = rule;
  const keyed = (...kinds: string[]): boolean => key.some(({ kind }) => kinds.includes(kind));
  // Shared budgets, what they are spent on, and what only the body says.
  if (scope !== 'instance' || cost.kind === 'quantity' || keyed('activity', 'sku')) return 'budget';
  if (keyed('user', 'device', 'claim', 'pass')) return 'person';
  // Activity and SKU of a request are known once its path has been read, after the source stage.
  if (match.activity !== undefined || match.sku !== undefined || match.claim !== undefined) {
    return 'person';
  }
  if (keyed('ip', 'ip_prefix', 'header') || penalty !== undefined) return 'source';
  if (match.header !== undefined || match.risk !== undefined || cost.kind === 'header') {
    return 'source';
  }
  return 'instance';
}

/**
 * Order within a stage, from the wide to the narrow: region, activity, SKU, operation, person, cost.
 * It decides which rule is named when several refuse for equally long.
 */
export const ruleLevels = ['region', 'activity', 'sku', 'operation', 'person', 'cost'] as const;
export type RuleLevel = (typeof ruleLevels)[number];

export function levelOf(rule: Rule): RuleLevel {
  const { key, match, cost } = rule;
  if (cost.kind !== 'fixed' || cost.costMilli !== 1000) return 'cost';
  const kinds = new Set(key.map(({ kind }) => kind));
  for (const kind of ['user', 'device', 'ip', 'ip_prefix', 'pass', 'claim', 'header'] as const) {
    if (kinds.has(kind)) return 'person';
  }
  if (kinds.has('sku') || match.sku !== undefined) return 'sku';
  if (kinds.has('activity') || match.activity !== undefined) return 'activity';
  return isOperation(match) || kinds.has('route') ? 'operation' : 'region';
}

function isOperation(match: Match): boolean {
  return match.route !== undefined || match.group !== undefined || match.method !== undefined;
}

/**
 * The order in which rules of one stage are looked at: by level, then by `priority`, then as written. It
 * says which rule is named where several refuse for equally long.
 */
export function byLevel(a: Rule, b: Rule): number {
  const levels = ruleLevels.indexOf(levelOf(a)) - ruleLevels.indexOf(levelOf(b));
  return levels !== 0 ? levels : priorities.indexOf(a.priority) - priorities.indexOf(b.priority);
}
