import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { listKeys, newKey, retireKey, rotateKeys } from '../app/keys-folder.ts';
import type { KeyContext } from '../app/keys-folder.ts';
import { systemRandom } from '../app/system.ts';
import { tokenTypes } from '../core/pass/token.ts';
import type { TokenAlgorithm, TokenType } from '../core/pass/token.ts';
import { needConfig } from './configuration.ts';
import { UsageError, exitOk } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

export interface KeysOptions {
  readonly config?: string;
  readonly data?: string;
  readonly algorithm?: string;
  readonly json?: boolean;
}

const types = Object.keys(tokenTypes) as readonly TokenType[];
const algorithms: readonly TokenAlgorithm[] = ['HS256', 'EdDSA'];

/** `sluice keys new TYPE`: a key that verifies and does not sign yet. */
export function makeKey(type: string, options: KeysOptions, surroundings: Surroundings): number {
  const kid = newKey(
    folderOf(options, surroundings),
    typeOf(type),
    algorithmOf(options.algorithm) ?? 'HS256',
    contextOf(surroundings),
  );
  return report(
    { type, kid, signs: false },
    `${kid} verifies ${type} tokens and waits to sign.`,
    options,
    surroundings,
  );
}

/** `sluice keys rotate TYPE`: the waiting key, or a new one, signs from the next reload on. */
export function rotateKey(type: string, options: KeysOptions, surroundings: Surroundings): number {
  const algorithm = algorithmOf(options.algorithm);
  const kid = rotateKeys(
    folderOf(options, surroundings),
    typeOf(type),
    contextOf(surroundings),
    ...(algorithm === undefined ? [] : [algorithm]),
  );
  return report(
    { type, kid, signs: true },
    `${kid} signs ${type} tokens now.`,
    options,
    surroundings,
  );
}

/** `sluice keys retire KID`: its tokens are refused from the next reload on. */
export function dropKey(kid: string, options: KeysOptions, surroundings: Surroundings): number {
  const type = retireKey(folderOf(options, surroundings), kid, contextOf(surroundings));
  return report(
    { type, kid, retired: true },
    `${kid} is retired: ${type} tokens of it are refused.`,
    options,
    surroundings,
  );
}

/** `sluice keys list`: ids, ages and uses; never a key. */
export function showKeys(options: KeysOptions, surroundings: Surroundings): number {
  const keys = listKeys(folderOf(options, surroundings));
  if (options.json === true) {
    const rows = keys.map((key) => ({
      type: key.type,
      kid: key.kid,
      algorithm: key.algorithm,
      signs: key.signs,
      created_at: new Date(key.createdAtMs).toISOString(),
      verifies_until:
        key.verifiesUntilMs === undefined ? null : new Date(key.verifiesUntilMs).toISOString(),
    }));
    surroundings.out(`${JSON.stringify({ keys: rows })}\n`);
    return exitOk;
  }
  for (const key of keys) {
    const use = key.signs
      ? 'signs'
      : key.verifiesUntilMs === undefined
        ? 'waits'
        : `verifies until ${new Date(key.verifiesUntilMs).toISOString()}`;
    const made = new Date(key.createdAtMs).toISOString();
    surroundings.out(
      `${key.type.padEnd(10)}${key.kid.padEnd(20)}${key.algorithm.padEnd(7)}made ${made}  ${use}\n`,
    );
  }
  if (keys.length === 0) surroundings.err('No keys yet: the first start of a server makes them.\n');
  return exitOk;
}

function report(
  fact: object,
  sentence: string,
  options: KeysOptions,
  surroundings: Surroundings,
): number {
  surroundings.out(options.json === true ? `${JSON.stringify(fact)}\n` : `${sentence}\n`);
  return exitOk;
}

/** Keys belong to a deployment: its data folder must be there, or a typo would start a second set. */
function folderOf(options: KeysOptions, surroundings: Surroundings): string {
  const overrides = options.data === undefined ? {} : { data: options.data };
  const { config } = needConfig(options.config, overrides, surroundings);
  if (!existsSync(config.dataFolder))
    throw new UsageError(
      `--data: found "${config.dataFolder}", but there is no such folder; allowed: the data folder of a server that has run (see "data" in its configuration)`,
    );
  return join(config.dataFolder, 'keys');
}

function typeOf(text: string): TokenType {
  const type = types.find((one) => one === text);
  if (type !== undefined) return type;
  throw new UsageError(`TYPE: found "${text}"; allowed: ${types.join(', ')}`);
}

function algorithmOf(text: string | undefined): TokenAlgorithm | undefined {
  if (text === undefined) return undefined;
  const algorithm = algorithms.find((one) => one.toLowerCase() === text.toLowerCase());
  if (algorithm !== undefined) return algorithm;
  throw new UsageError(`--algorithm: found "${text}"; allowed: ${algorithms.join(', ')}`);
}

function contextOf(surroundings: Surroundings): KeyContext {
  return { nowMs: surroundings.nowMs(), random: systemRandom };
}
