import { generateKeyPairSync } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { KeyRing } from '../core/pass/key-ring.ts';
import type { RingKey } from '../core/pass/key-ring.ts';
import type { Mac } from '../core/pass/path-id.ts';
import { tokenTypes } from '../core/pass/token.ts';
import type { TokenAlgorithm, TokenType } from '../core/pass/token.ts';
import { macOf, nodeTextCodec, tokenKey } from '../pipeline/keys.ts';
import type { KeyMaterial } from '../pipeline/keys.ts';
import type { Random } from '../ports/random.ts';

/**
 * Keys at rest: one file per token type in the data folder, mode 0600, replaced as a whole so that a
 * reader sees the old keys or the new ones and a crash leaves one of the two.
 *
 * `secrets.json` holds what must not rotate while a sale runs: the keys of path ids and nonces. A
 * nonce is recomputed from its attempt whenever a pass is asked for again; under another key the same
 * attempt would become a second permission.
 */

/** How long a key goes on verifying once another signs, ms: longer than its type's tokens live. */
export const verifiesAfterRotationMs: Readonly<Record<TokenType, number>> = {
  pass: 15 * 60_000,
  decision: 15 * 60_000,
  challenge: 15 * 60_000,
  user: 24 * 3_600_000,
  entry: 30 * 24 * 3_600_000,
};

/** Keys of one type at a time: bounds a folder that a script rotates in a loop. */
const keysPerTypeMax = 32;

/** A change that was cut short blocks the next one for no longer than this, ms. */
const lockStaleMs = 10_000;

export interface StoredKey {
  readonly kid: string;
  readonly created_at_ms: number;
  readonly verifies_until_ms?: number;
  readonly material: KeyMaterial;
}

interface KeyFile {
  readonly schema_version: 1;
  readonly type: TokenType;
  readonly signing: string;
  readonly keys: readonly StoredKey[];
}

/** What `sluice keys list` shows: never the key itself. */
export interface KeyInfo {
  readonly type: TokenType;
  readonly kid: string;
  readonly algorithm: TokenAlgorithm;
  readonly signs: boolean;
  readonly createdAtMs: number;
  readonly verifiesUntilMs: number | undefined;
}

/** All rings of a deployment, and the two MACs. */
export interface Keys {
  readonly rings: Readonly<Record<TokenType, KeyRing>>;
  readonly pathMac: Mac;
  readonly nonceMac: Mac;
}

export interface KeyContext {
  readonly nowMs: number;
  readonly random: Random;
}

const allTypes = Object.keys(tokenTypes) as TokenType[];

/** Reads every key of the folder, making those that are absent (HS256). */
export function openKeys(folder: string, context: KeyContext): Keys {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const rings = {
    user: new KeyRing('user', nodeTextCodec),
    entry: new KeyRing('entry', nodeTextCodec),
    pass: new KeyRing('pass', nodeTextCodec),
    decision: new KeyRing('decision', nodeTextCodec),
    challenge: new KeyRing('challenge', nodeTextCodec),
  };
  for (const type of allTypes) {
    if (!existsSync(fileOf(folder, type))) newKey(folder, type, 'HS256', context);
  }
  reloadKeys(folder, rings);
  const secrets = openSecrets(folder, context);
  return { rings, pathMac: macOf(secrets.path), nonceMac: macOf(secrets.nonce) };
}

/**
 * Brings rings up to the folder's state, in one step each: rotation without a restart. Throws, and
 * changes nothing, where a file cannot be read.
 */
export function reloadKeys(folder: string, rings: Readonly<Record<TokenType, KeyRing>>): void {
  const files = allTypes.map((type) => ({ type, file: readKeyFile(folder, type) }));
  for (const { type, file } of files) {
    rings[type].replace(
      file.keys.map(
        (stored): RingKey => ({
          key: tokenKey(stored.kid, stored.material),
          ...(stored.verifies_until_ms === undefined
            ? {}
            : { verifiesUntilMs: stored.verifies_until_ms }),
        }),
      ),
      file.signing,
    );
  }
}

/** Adds a key that verifies but does not sign yet (the first of its type signs). Returns its id. */
export function newKey(
  folder: string,
  type: TokenType,
  algorithm: TokenAlgorithm,
  context: KeyContext,
): string {
  return change(folder, type, context, (file) => {
    const made = makeKey(type, algorithm, context);
    return {
      kid: made.kid,
      file: {
        schema_version: 1,
        type,
        signing: file?.signing ?? made.kid,
        keys: [...(file?.keys ?? []), made],
      },
    };
  });
}

/**
 * Lets another key sign: the newest that waits, or a new one. Keys that signed before go on verifying
 * for {@link verifiesAfterRotationMs}. Returns the id of the key that signs now.
 */
export function rotateKeys(
  folder: string,
  type: TokenType,
  context: KeyContext,
  algorithm?: TokenAlgorithm,
): string {
  return change(folder, type, context, (file) => {
    const old = file?.keys.find((stored) => stored.kid === file.signing);
    const waiting = file?.keys.findLast(
      (stored) =>
        stored.verifies_until_ms === undefined &&
        stored.kid !== file.signing &&
        (algorithm === undefined || stored.material.alg === algorithm),
    );
    const next = waiting ?? makeKey(type, algorithm ?? old?.material.alg ?? 'HS256', context);
    const until = context.nowMs + verifiesAfterRotationMs[type];
    const keys = (file?.keys ?? [])
      .filter((stored) => (stored.verifies_until_ms ?? Infinity) > context.nowMs)
      .map((stored) =>
        stored.kid === file?.signing && stored.kid !== next.kid
          ? { ...stored, verifies_until_ms: until }
          : stored,
      );
    return {
      kid: next.kid,
      file: {
        schema_version: 1,
        type,
        signing: next.kid,
        keys: waiting === undefined ? [...keys, next] : keys,
      },
    };
  });
}

/** Takes a key out: its tokens are refused from the next reload on. The signing key stays. */
export function retireKey(folder: string, kid: string, context: KeyContext): TokenType {
  for (const type of allTypes) {
    if (!existsSync(fileOf(folder, type))) continue;
    if (!readKeyFile(folder, type).keys.some((stored) => stored.kid === kid)) continue;
    change(folder, type, context, (file) => {
      if (file === undefined || file.signing === kid) {
        throw new Error(`key "${kid}" is signing ${type} tokens; rotate first, then retire it`);
      }
      return { kid, file: { ...file, keys: file.keys.filter((stored) => stored.kid !== kid) } };
    });
    return type;
  }
  const known = listKeys(folder).map((info) => info.kid);
  throw new Error(`no key has the id "${kid}"; there are: ${known.join(', ') || 'none'}`);
}

export function listKeys(folder: string): readonly KeyInfo[] {
  return allTypes
    .filter((type) => existsSync(fileOf(folder, type)))
    .flatMap((type) => {
      const file = readKeyFile(folder, type);
      return file.keys.map((stored) => ({
        type,
        kid: stored.kid,
        algorithm: stored.material.alg,
        signs: stored.kid === file.signing,
        createdAtMs: stored.created_at_ms,
        verifiesUntilMs: stored.verifies_until_ms,
      }));
    });
}

function makeKey(type: TokenType, algorithm: TokenAlgorithm, context: KeyContext): StoredKey {
  const kid = `${type}-${Buffer.from(context.random.bytes(6)).toString('base64url')}`;
  return { kid, created_at_ms: context.nowMs, material: makeMaterial(algorithm, context.random) };
}

function makeMaterial(algorithm: TokenAlgorithm, random: Random): KeyMaterial {
  if (algorithm === 'HS256') {
    return { alg: 'HS256', k: Buffer.from(random.bytes(32)).toString('base64url') };
  }
  const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  if (jwk.x === undefined || jwk.d === undefined) throw new Error('Ed25519 key without x or d');
  return { alg: 'EdDSA', x: jwk.x, d: jwk.d };
}

function openSecrets(folder: string, context: KeyContext): { path: Buffer; nonce: Buffer } {
  const path = join(folder, 'secrets.json');
  if (!existsSync(path)) {
    const fresh = (): string => Buffer.from(context.random.bytes(32)).toString('base64url');
    replaceFile(path, { schema_version: 1, path: fresh(), nonce: fresh() });
  }
  const stored = readPrivate(path) as { path?: unknown; nonce?: unknown };
  if (typeof stored.path !== 'string' || typeof stored.nonce !== 'string') {
    throw new Error(`${path} lacks "path" or "nonce"`);
  }
  return {
    path: Buffer.from(stored.path, 'base64url'),
    nonce: Buffer.from(stored.nonce, 'base64url'),
  };
}

function fileOf(folder: string, type: TokenType): string {
  return join(folder, `${type}.json`);
}

function readKeyFile(folder: string, type: TokenType): KeyFile {
  const path = fileOf(folder, type);
  const file = readPrivate(path) as Partial<KeyFile>;
  if (file.schema_version !== 1 || file.type !== type || !Array.isArray(file.keys)) {
    throw new Error(`${path} is not a key file of version 1 for ${type} tokens`);
  }
  if (typeof file.signing !== 'string') throw new Error(`${path} names no signing key`);
  return file as KeyFile;
}

function readPrivate(path: string): unknown {
  const mode = statSync(path).mode & 0o777;
  if (process.platform !== 'win32' && (mode & 0o077) !== 0) {
    throw new Error(
      `${path} can be read by others (mode ${mode.toString(8)}); allowed: 600. Run: chmod 600 ${path}`,
    );
  }
  return JSON.parse(readFileSync(path, 'utf8'));
}

/** Reads, changes and replaces a key file while holding its lock. */
function change(
  folder: string,
  type: TokenType,
  context: KeyContext,
  edit: (file: KeyFile | undefined) => { kid: string; file: KeyFile },
): string {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const path = fileOf(folder, type);
  const unlock = lock(`${path}.lock`, context.nowMs);
  try {
    const { kid, file } = edit(existsSync(path) ? readKeyFile(folder, type) : undefined);
    if (file.keys.length > keysPerTypeMax) {
      throw new Error(
        `${path} would hold ${file.keys.length} keys; at most ${keysPerTypeMax}. Retire some first.`,
      );
    }
    replaceFile(path, file);
    return kid;
  } finally {
    unlock();
  }
}

function lock(path: string, nowMs: number): () => void {
  if (existsSync(path) && nowMs - statSync(path).mtimeMs > lockStaleMs) rmSync(path);
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch (cause) {
    throw new Error(`another change of these keys is under way (${path} exists)`, { cause });
  }
  return () => rmSync(path, { force: true });
}

/** Written apart, flushed, moved into place, and the move flushed too. */
function replaceFile(path: string, value: unknown): void {
  const fresh = `${path}.new`;
  rmSync(fresh, { force: true });
  const file = openSync(fresh, 'wx', 0o600);
  try {
    writeSync(file, `${JSON.stringify(value, undefined, 2)}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(fresh, path);
  const folder = openSync(dirname(path), 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
