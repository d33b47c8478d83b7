import { writeFileSync } from 'node:fs';
import { k6Script } from './k6-script.ts';
import { BadLogError } from './rush/arrivals.ts';
import { arrivalsOf } from './rush/command.ts';
import { parseRushOptions } from './rush/options.ts';
import type { RawOptions } from './rush/options.ts';
import { CannotStartError, messageOf } from './rush/sale.ts';

export interface ExportSurroundings {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
}

/** Where a script points when no target is named; k6 takes another with `-e TARGET=…`. */
const defaultTarget = 'http://127.0.0.1:8080';

/**
 * `sluice export k6`: the crowd that `sluice rush` would send with the same options, as a script for
 * k6, on standard output or in the file named by `output`.
 * @returns 0, or 2 when the options cannot be.
 */
export function exportK6Command(raw: RawOptions, around: ExportSurroundings): number {
  const { output, ...rest } = raw;
  const parsed = parseRushOptions({
    ...rest,
    ...(rest['target'] === undefined ? { target: defaultTarget } : {}),
  });
  if (!parsed.ok) {
    around.err(`${parsed.errors.map((error) => `sluice export k6: ${error}`).join('\n')}\n`);
    return 2;
  }
  try {
    const { options } = parsed;
    const script = k6Script(options, arrivalsOf(options), options.target ?? defaultTarget);
    if (typeof output === 'string') save(output, script);
    else around.out(script);
    return 0;
  } catch (error) {
    if (!(error instanceof CannotStartError) && !(error instanceof BadLogError)) throw error;
    around.err(`sluice export k6: ${error.message}\n`);
    return 2;
  }
}

function save(file: string, text: string): void {
  try {
    writeFileSync(file, text);
  } catch (error) {
    throw new CannotStartError(`--output: ${messageOf(error)}`);
  }
}
