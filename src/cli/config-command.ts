import { renderProblems } from '../config/problems.ts';
import { publishedSchema } from '../config/schema.ts';
import { showYaml, showable } from '../config/show.ts';
import { findConfig, needConfig } from './configuration.ts';
import { exitNo, exitOk, paintFor } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

/** `sluice config check [FILE]`: every problem at once; exit 1 when there is one. */
export function checkConfig(
  file: string | undefined,
  options: { readonly json?: boolean },
  surroundings: Surroundings,
): number {
  const { name, loaded } = findConfig(file, {}, surroundings);
  if (options.json === true) {
    const problems = loaded.ok ? [] : loaded.problems;
    surroundings.out(`${JSON.stringify({ file: name, ok: loaded.ok, problems })}\n`);
  } else if (loaded.ok) {
    const { activities } = loaded.config;
    const units = activities.flatMap(({ skus }) => skus).reduce((sum, { stock }) => sum + stock, 0);
    const { good } = paintFor(surroundings);
    surroundings.out(
      `${good('ok')}  ${name}: ${count(activities.length, 'activity', 'activities')}, ${count(units, 'unit', 'units')} on sale\n`,
    );
  } else surroundings.err(`${renderProblems(loaded.problems)}\n`);
  return loaded.ok ? exitOk : exitNo;
}

/** `sluice config show [FILE]`: what is in force, secrets hidden. */
export function showConfig(
  file: string | undefined,
  options: { readonly json?: boolean },
  surroundings: Surroundings,
): number {
  const { written } = needConfig(file, {}, surroundings);
  surroundings.out(
    options.json === true ? `${JSON.stringify(showable(written))}\n` : showYaml(written),
  );
  return exitOk;
}

/** `sluice config schema`: JSON Schema for editors. */
export function printSchema(surroundings: Surroundings): number {
  surroundings.out(`${JSON.stringify(publishedSchema(), undefined, 2)}\n`);
  return exitOk;
}

function count(amount: number, one: string, many: string): string {
  return `${amount} ${amount === 1 ? one : many}`;
}
