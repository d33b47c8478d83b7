import type { RuleContext } from '../core/rules/judge.ts';
import { judgeRules } from '../core/rules/judge.ts';
import type { RuleSet } from '../core/rules/model.ts';
import { readRules } from '../core/rules/read.ts';
import type { RuleProblem } from '../core/rules/reader.ts';
import type { Problem } from './problems.ts';
import { pathText, readSource, type Source } from './source.ts';

/** A rules file, read whole. */
export type CheckedRules =
  | { readonly ok: true; readonly set: RuleSet; readonly notes: readonly Problem[] }
  | {
      readonly ok: false;
      readonly problems: readonly Problem[];
      readonly notes: readonly Problem[];
    };

/**
 * Reads rules from YAML: a list of rules, a mapping `{version, groups, risk, rules}`, or a whole
 * configuration file, of which it takes `rules`. Every problem at once, with file, line and path.
 */
export function checkRules(
  text: string,
  fileName: string,
  context: RuleContext = {},
  environment: Readonly<Record<string, string | undefined>> = {},
): CheckedRules {
  const source = readSource(text, fileName, environment);
  if (source.problems.length > 0) return { ok: false, problems: source.problems, notes: [] };
  const { value, path, list } = place(source.value);
  const { set, problems } = readRules(value, path);
  const judged = judgeRules(set, context, list);
  const all = located(source, [...problems, ...judged.problems]);
  const notes = located(source, judged.notes);
  return all.length === 0 ? { ok: true, set, notes } : { ok: false, problems: all, notes };
}

/** Where the rule set stands in the tree, and where the list of its rules does. */
function place(tree: unknown): {
  value: unknown;
  path: readonly string[];
  list: readonly string[];
} {
  if (typeof tree !== 'object' || tree === null || Array.isArray(tree)) {
    return { value: tree, path: [], list: [] };
  }
  const known = ['version', 'groups', 'risk', 'rules'];
  if (Object.keys(tree).every((key) => known.includes(key)) || !('rules' in tree)) {
    return { value: tree, path: [], list: ['rules'] };
  }
  const { rules } = tree;
  return Array.isArray(rules)
    ? { value: rules, path: ['rules'], list: ['rules'] }
    : { value: rules, path: ['rules'], list: ['rules', 'rules'] };
}

function located(source: Source, problems: readonly RuleProblem[]): Problem[] {
  return problems
    .map(({ path, found, allowed }) => ({
      ...source.where(path, found.startsWith('unknown key') ? 'key' : 'value'),
      path: pathText(path),
      found,
      allowed,
    }))
    .sort((a, b) => a.line - b.line || a.column - b.column);
}
