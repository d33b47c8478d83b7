import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ofOneProcess } from '../config/config.ts';
import type { Random } from '../ports/random.ts';
import { DataFolderLockedError, openDataFolder } from '../stores/data-folder.ts';
import { needConfig } from './configuration.ts';
import { UsageError } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

/** Where the operator's side of a running server is, and the credential for it. */
export interface AdminAccess {
  readonly url: string;
  readonly token: string;
}

export interface AdminOptions {
  readonly config?: string;
  readonly data?: string;
}

/** Where the operator's side of the last server of a data folder listened; written by `sluice up`. */
export const adminUrlFile = 'admin-url';

/** The server's credential in its data folder, readable by its owner alone. */
export const tokenFile = 'admin-token';

const hint =
  'allowed: the data folder of a running server (--data, or "data" in its configuration), or SLUICE_ADMIN_URL and SLUICE_ADMIN_TOKEN';

/**
 * From the environment, else from the data folder: its lock says whether a server runs, and a file
 * beside it where; the credential lies there too.
 * @throws UsageError when no running server can be found
 */
export async function findAdmin(
  options: AdminOptions,
  surroundings: Surroundings,
  random: Random,
): Promise<AdminAccess> {
  const url = surroundings.environment['SLUICE_ADMIN_URL'];
  const token = surroundings.environment['SLUICE_ADMIN_TOKEN'];
  if (url && token) return { url: url.replace(/\/+$/, ''), token };
  if (url || token)
    throw new UsageError(
      `found only ${url ? 'SLUICE_ADMIN_URL' : 'SLUICE_ADMIN_TOKEN'} in the environment; allowed: both, or neither`,
    );
  const overrides = options.data === undefined ? {} : { data: options.data };
  const { config } = needConfig(options.config, overrides, surroundings);
  const folder = config.dataFolder;
  if (!existsSync(folder)) throw new UsageError(`found no folder "${folder}"; ${hint}`);
  const { adminHost, adminPort } = config.server;
  // A folder that several processes share is locked by none of them: only control says where it is.
  const shared = ofOneProcess(config.stores) === undefined;
  const holderUrl = shared
    ? readUrl(folder)
    : ((await urlOfHolder(folder, random)) ?? readUrl(folder));
  const configured = adminPort === 0 ? undefined : `http://${hostInUrl(adminHost)}:${adminPort}`;
  const found = holderUrl ?? configured;
  if (found === undefined)
    throw new UsageError(`the server of "${folder}" does not say where it listens; ${hint}`);
  return { url: found.replace(/\/+$/, ''), token: readToken(folder) };
}

/** Asks whoever holds the folder's lock. Undefined: it holds it and does not say. */
async function urlOfHolder(folder: string, random: Random): Promise<string | undefined> {
  try {
    const ours = await openDataFolder({ path: folder, random });
    await ours.release();
  } catch (error) {
    if (error instanceof DataFolderLockedError) return error.adminUrl;
    throw error;
  }
  throw new UsageError(`no server is running on the data folder "${folder}"; ${hint}`);
}

function readUrl(folder: string): string | undefined {
  const path = join(folder, adminUrlFile);
  if (!existsSync(path)) return undefined;
  const text = readFileSync(path, 'utf8').trim();
  return /^https?:\/\/\S+$/.test(text) ? text : undefined;
}

function readToken(folder: string): string {
  const path = join(folder, tokenFile);
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
    throw new UsageError(`the credential ${path} cannot be read (${why}); ${hint}`);
  }
}

function hostInUrl(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

/** Bytes of an answer that are read. */
const answerMaxBytes = 16 * 1024 * 1024;

/** Asks the admin API; the answer must be JSON. @throws UsageError when it cannot be had */
export async function askAdmin(
  access: AdminAccess,
  method: 'GET' | 'POST',
  path: string,
  timeoutMs: number,
  body?: object,
): Promise<unknown> {
  const what = `${method} ${access.url}${path}`;
  let response: Response;
  let text: string;
  try {
    response = await fetch(`${access.url}${path}`, {
      method,
      redirect: 'error',
      signal: AbortSignal.timeout(timeoutMs),
      headers: {
        accept: 'application/json',
        authorization: `Bearer ${access.token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    text = await response.text();
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    throw new UsageError(`${what}: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
  if (text.length > answerMaxBytes)
    throw new UsageError(`${what}: found ${text.length} characters, at most ${answerMaxBytes}`);
  if (!response.ok)
    throw new UsageError(`${what}: answered ${response.status} ${text.slice(0, 300)}`);
  try {
    return JSON.parse(text);
  } catch (cause) {
    const error = new UsageError(
      `${what}: expected JSON, found ${JSON.stringify(text.slice(0, 80))}`,
    );
    error.cause = cause;
    throw error;
  }
}
