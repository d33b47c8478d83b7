import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Random } from '../../ports/random.ts';

/** Name of the credential's file in the data folder. */
export const adminTokenFile = 'admin-token';

const tokenPattern = /^[A-Za-z0-9_-]{32,128}$/;

/**
 * The admin credential, made where absent, readable by its owner only. Throws when what stands there
 * is not a credential, quoting its place but never its content. A file that others may read is
 * closed to them first: it may have been copied with too wide a mode.
 */
export function ensureAdminToken(dataFolder: string, random: Random): string {
  const path = join(dataFolder, adminTokenFile);
  mkdirSync(dataFolder, { recursive: true, mode: 0o700 });
  if (!existsSync(path)) {
    // Written whole beside its place, then put there in one step: a crash leaves no half credential,
    // and of two processes that start together one wins and both read the same.
    const fresh = `${path}.${Buffer.from(random.bytes(8)).toString('hex')}`;
    const file = openSync(fresh, 'wx', 0o600);
    try {
      writeSync(file, `${Buffer.from(random.bytes(32)).toString('base64url')}\n`);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    try {
      linkSync(fresh, path);
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    } finally {
      unlinkSync(fresh);
    }
  }
  if ((statSync(path).mode & 0o077) !== 0) chmodSync(path, 0o600);
  const token = readFileSync(path, 'utf8').trim();
  if (!tokenPattern.test(token))
    throw new Error(
      `${path}: found ${token.length} characters, allowed: 32 to 128 of A-Z a-z 0-9 _ -; remove the file and start again to have a new one made`,
    );
  return token;
}
