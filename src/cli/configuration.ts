import { existsSync, readFileSync } from 'node:fs';
import { sideFileProblems } from '../app/side-files.ts';
import { loadConfig } from '../config/load.ts';
import type { Loaded, Overrides } from '../config/load.ts';
import { ConfigError } from '../config/problems.ts';
import { UsageError } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

/** Taken when it is there and no other is named. */
export const defaultConfigFile = 'sluice.yaml';

/** A configuration and where it came from, for messages: a file name, or `(defaults)`. */
export interface FoundConfig {
  readonly name: string;
  readonly loaded: Loaded;
}

/** Reads the named file, else `sluice.yaml` here, else the defaults. @throws UsageError when unreadable */
export function findConfig(
  file: string | undefined,
  overrides: Overrides,
  surroundings: Pick<Surroundings, 'environment' | 'nowMs'>,
): FoundConfig {
  const found = file ?? (existsSync(defaultConfigFile) ? defaultConfigFile : undefined);
  const name = found ?? '(defaults)';
  const text = found === undefined ? '' : read(found);
  const loaded = loadConfig({
    text,
    name,
    environment: surroundings.environment,
    overrides,
    nowMs: surroundings.nowMs(),
  });
  if (!loaded.ok) return { name, loaded };
  const problems = sideFileProblems(loaded.config, surroundings.environment);
  return { name, loaded: problems.length === 0 ? loaded : { ok: false, problems } };
}

/** As `findConfig`, for commands that cannot go on without a good one. @throws ConfigError */
export function needConfig(
  file: string | undefined,
  overrides: Overrides,
  surroundings: Pick<Surroundings, 'environment' | 'nowMs'>,
): Extract<Loaded, { ok: true }> & { readonly name: string } {
  const { name, loaded } = findConfig(file, overrides, surroundings);
  if (!loaded.ok) throw new ConfigError(loaded.problems);
  return { ...loaded, name };
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    const what =
      why === 'ENOENT' ? 'there is no such file' : why === 'EISDIR' ? 'it is a folder' : why;
    throw new UsageError(
      `--config: found "${file}", but ${what}; allowed: a readable YAML file (try examples/concert.yaml, or leave it out for a demo sale)`,
    );
  }
}
