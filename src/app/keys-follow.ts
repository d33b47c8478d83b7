import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { KeyRing } from '../core/pass/key-ring.ts';
import { type TokenType, tokenTypes } from '../core/pass/token.ts';
import type { Timers } from '../ports/clock.ts';
import { reloadKeys } from './keys-folder.ts';

/** How soon a running server knows of a rotation, or of a key that leaked, ms. */
export const followKeysEveryMs = 1_000;

const types = Object.keys(tokenTypes) as TokenType[];

export interface FollowKeysOptions {
  readonly folder: string;
  readonly rings: Readonly<Record<TokenType, KeyRing>>;
  readonly timers: Timers;
  readonly onReload: () => void;
  /** Files that cannot be read: the rings stay as they are. Told once per state of the files. */
  readonly onError: (error: unknown) => void;
}

/**
 * Keeps rings at what the key folder says while a server runs. Files are replaced as a whole, so a new
 * inode, size or time is a new state; asking for these costs a few microseconds, and unlike a watch it
 * misses nothing on network file systems or after a rename. Returns what ends it.
 */
export function followKeys(options: FollowKeysOptions): () => void {
  const { folder, rings, timers, onReload, onError } = options;
  let seen = stateOf(folder);
  const timer = timers.every(followKeysEveryMs, () => {
    const now = stateOf(folder);
    if (now === seen) return;
    seen = now;
    try {
      reloadKeys(folder, rings);
      onReload();
    } catch (error) {
      onError(error);
    }
  });
  return () => timer.cancel();
}

/** Taken before the files are read: a change in between is met at the next look. */
function stateOf(folder: string): string {
  return types
    .map((type) => {
      const found = statSync(join(folder, `${type}.json`), { throwIfNoEntry: false });
      return found === undefined ? 'none' : `${found.ino}:${found.size}:${found.mtimeMs}`;
    })
    .join(' ');
}
