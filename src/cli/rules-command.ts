import { readFileSync } from 'node:fs';
import { renderProblems } from '../config/problems.ts';
import { checkRules } from '../config/rules-file.ts';
import type { CheckedRules } from '../config/rules-file.ts';
import { parseInstant } from '../config/values.ts';
import { explain } from '../core/rules/explain.ts';
import type { DescribedRequest, ExplainedRule } from '../core/rules/explain.ts';
import type { RuleContext } from '../core/rules/judge.ts';
import { risks, routeAnswers, routeNames } from '../core/rules/model.ts';
import { needConfig } from './configuration.ts';
import { UsageError, exitNo, exitOk, paintFor } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

export interface RulesOptions {
  /** A configuration whose activities, SKUs and ceiling the rules are judged against. */
  readonly config?: string;
  readonly json?: boolean;
}

export interface ExplainOptions extends RulesOptions {
  readonly route: string;
  readonly method?: string;
  readonly address?: string;
  readonly activity?: string;
  readonly sku?: string;
  readonly user?: string;
  readonly device?: string;
  readonly pass?: string;
  readonly quantity?: string;
  readonly risk?: string;
  readonly header?: readonly string[];
  readonly claim?: readonly string[];
  readonly at?: string;
  readonly retry?: boolean;
  readonly trustedProxy?: boolean;
}

/** Every route that a rule may name. */
const routes: readonly string[] = routeNames;

/** `sluice rules check FILE`: every problem at once, then notes; exit 1 when there is a problem. */
export function checkRulesFile(
  file: string,
  options: RulesOptions,
  surroundings: Surroundings,
): number {
  const checked = readRulesFile(file, options, surroundings);
  const problems = checked.ok ? [] : checked.problems;
  if (options.json === true) {
    const { notes } = checked;
    surroundings.out(`${JSON.stringify({ file, ok: checked.ok, problems, notes })}\n`);
    return checked.ok ? exitOk : exitNo;
  }
  const { good, faint } = paintFor(surroundings);
  for (const note of checked.notes)
    surroundings.err(
      `${note.source}:${note.line}:${note.column}  ${note.path}\n    ${faint('note')}     ${note.found}; ${note.allowed}\n`,
    );
  if (checked.ok) surroundings.out(`${good('ok')}  ${file}: ${checked.set.rules.length} rules\n`);
  else surroundings.err(`${renderProblems(problems)}\n`);
  return checked.ok ? exitOk : exitNo;
}

/** `sluice rules explain FILE --route …`: which rules apply, in which order, and what each would say. */
export function explainRules(
  file: string,
  options: ExplainOptions,
  surroundings: Surroundings,
): number {
  const checked = readRulesFile(file, options, surroundings);
  if (!checked.ok) {
    surroundings.err(`${renderProblems(checked.problems)}\n`);
    return exitNo;
  }
  const explanation = explain(checked.set, described(options, surroundings));
  if (options.json === true) {
    surroundings.out(`${JSON.stringify(toWire(explanation))}\n`);
    return exitOk;
  }
  const { bold, faint } = paintFor(surroundings);
  const applying = explanation.rules.filter((rule) => rule.applies);
  surroundings.out(
    `risk ${explanation.risk}; ${applying.length} of ${explanation.rules.length} rules apply, in this order\n`,
  );
  for (const rule of applying) surroundings.out(ruleText(rule, bold));
  for (const rule of explanation.rules)
    if (!rule.applies)
      surroundings.out(
        faint(`  –        ${rule.id} does not apply: ${rule.because ?? 'unknown'}`) + '\n',
      );
  return exitOk;
}

function ruleText(rule: ExplainedRule, bold: (text: string) => string): string {
  const key = rule.key.map(({ part, value }) => `${part}=${value ?? '(absent)'}`).join(' ');
  const then =
    rule.thenRetryAfterMs === null
      ? 'no wait helps'
      : `then ${rule.answer}, again ${rule.exact ? 'after exactly' : 'at the earliest after'} ${rule.thenRetryAfterMs} ms`;
  const mode = rule.mode === 'enforce' ? '' : ` (${rule.mode})`;
  return (
    `  ${rule.stage.padEnd(9)}${bold(rule.id)}${mode}\n` +
    `             counts ${key === '' ? 'everybody together' : key}, cost ${rule.cost}\n` +
    `             ${rule.limit}${rule.from === 'override' ? ', of a named value' : ''}: ${rule.atOnce} at once, ${then}\n`
  );
}

function readRulesFile(
  file: string,
  options: RulesOptions,
  surroundings: Surroundings,
): CheckedRules {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
    throw new UsageError(`FILE: found "${file}" (${why}); allowed: a readable YAML file of rules`);
  }
  return checkRules(text, file, contextOf(options, surroundings), surroundings.environment);
}

function contextOf(options: RulesOptions, surroundings: Surroundings): RuleContext {
  if (options.config === undefined) return { routes, answers: routeAnswers };
  const { config } = needConfig(options.config, {}, surroundings);
  return {
    routes,
    answers: routeAnswers,
    activities: config.activities.map(({ activityId }) => activityId),
    skus: config.activities.flatMap(({ skus }) => skus.map(({ skuId }) => skuId)),
    ceiling: config.server.ceiling,
  };
}

function described(options: ExplainOptions, surroundings: Surroundings): DescribedRequest {
  if (!routes.includes(options.route))
    throw new UsageError(`--route: found "${options.route}"; allowed: ${routes.join(', ')}`);
  const { method, address, activity, sku, user, device, pass, retry, trustedProxy } = options;
  const risk = risks.find((one) => one === options.risk);
  if (options.risk !== undefined && risk === undefined)
    throw new UsageError(`--risk: found "${options.risk}"; allowed: ${risks.join(', ')}`);
  const quantity = options.quantity === undefined ? undefined : Number(options.quantity);
  if (quantity !== undefined && !(Number.isInteger(quantity) && quantity >= 1))
    throw new UsageError(`--quantity: found "${options.quantity}"; allowed: a whole number from 1`);
  return {
    route: options.route,
    ...present({ method, address, activity, sku, user, device, pass, retry, risk, quantity }),
    ...(trustedProxy === true ? { fromTrustedProxy: true } : {}),
    headers: pairs('--header', options.header ?? [], ':'),
    claims: pairs('--claim', options.claim ?? [], '='),
    atMs: atMs(options.at, surroundings),
  };
}

function atMs(text: string | undefined, surroundings: Surroundings): number {
  if (text === undefined) return surroundings.nowMs();
  const instant = parseInstant(text);
  if (instant?.kind === 'absolute') return instant.atMs;
  if (instant?.kind === 'relative') return surroundings.nowMs() + instant.offsetMs;
  throw new UsageError(
    `--at: found "${text}"; allowed: an instant with its offset (2027-05-01T10:00:00Z), or from now (+30s)`,
  );
}

function pairs(
  flag: string,
  words: readonly string[],
  between: string,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    words.map((word) => {
      const at = word.indexOf(between);
      if (at < 1)
        throw new UsageError(`${flag}: found "${word}"; allowed: name${between}value, repeated`);
      return [word.slice(0, at).trim(), word.slice(at + 1).trim()];
    }),
  );
}

type Present<Values> = { [Key in keyof Values]?: Exclude<Values[Key], undefined> };

function present<Values extends object>(values: Values): Present<Values> {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as Present<Values>;
}

function toWire(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toWire);
  if (typeof value !== 'object' || value === null) return value;
  const rows = Object.entries(value).map(([key, one]) => [
    key.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    toWire(one),
  ]);
  return Object.fromEntries(rows) as unknown;
}
