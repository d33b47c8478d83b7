import { readFileSync } from 'node:fs';
import type { Config } from '../config/config.ts';
import type { Problem } from '../config/problems.ts';
import { ruleContext } from '../config/rule-context.ts';
import { checkRules } from '../config/rules-file.ts';
import { readSource, type Source } from '../config/source.ts';
import { defaultTheme, parseTheme, type Theme } from '../gateway/pages/theme.ts';

/** Files that a configuration names: looked at together with it, so that a check is a whole check. */
export function sideFileProblems(
  config: Config,
  environment: Readonly<Record<string, string | undefined>>,
): readonly Problem[] {
  const problems: Problem[] = [];
  if (config.rules.kind === 'file') {
    const { path } = config.rules;
    const text = textOf(path);
    if (text === undefined) problems.push(unreadable('rules_file', path));
    else {
      const checked = checkRules(text, path, ruleContext(config), environment);
      if (!checked.ok) problems.push(...checked.problems);
    }
  }
  const { themeFile } = config.pages;
  if (themeFile !== undefined) {
    const text = textOf(themeFile);
    if (text === undefined) problems.push(unreadable('pages.theme', themeFile));
    else {
      const read = readTheme(text, themeFile, environment);
      if ('problems' in read) problems.push(...read.problems);
    }
  }
  return problems;
}

/** The branding of the pages. @throws Error that lists what is wrong */
export function themeOf(
  config: Pick<Config, 'pages'>,
  environment: Readonly<Record<string, string | undefined>>,
): Theme {
  const { themeFile } = config.pages;
  if (themeFile === undefined) return defaultTheme;
  const read = readTheme(readFileSync(themeFile, 'utf8'), themeFile, environment);
  if ('theme' in read) return read.theme;
  throw new Error(read.problems.map(({ found, allowed }) => `${found}; ${allowed}`).join('\n'));
}

function readTheme(
  text: string,
  name: string,
  environment: Readonly<Record<string, string | undefined>>,
): { readonly theme: Theme } | { readonly problems: readonly Problem[] } {
  const source = readSource(text, name, environment);
  if (source.problems.length > 0) return { problems: source.problems };
  try {
    return { theme: parseTheme(source.value ?? {}) };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return {
      problems: error.message.split('\n').map((line) => themeProblem(source, line)),
    };
  }
}

/** `theme.accent: found …, allowed: …` as the place where it stands. */
function themeProblem(source: Source, line: string): Problem {
  const [, key = '', found = line, allowed = 'a theme'] =
    /^theme\.?([^:]*): (?:found )?(.*), allowed:? (?:is )?(.*)$/.exec(line) ?? [];
  const path = key === '' ? [] : [key];
  return { ...source.where(path, 'value'), path: key, found, allowed };
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error) return undefined;
    throw error;
  }
}

function unreadable(setting: string, path: string): Problem {
  return {
    source: path,
    line: 0,
    column: 0,
    path: setting,
    found: `"${path}", which cannot be read`,
    allowed: 'a readable file; its name is relative to where sluice is started',
  };
}
