import { existsSync, statSync } from 'node:fs';
import { buildAll, newestSourceMs, stampFile } from '../../scripts/build.mjs';

/** Gives the system tests a dist/ that is at least as new as its sources. */
export async function setup(): Promise<void> {
  if (!existsSync(stampFile) || statSync(stampFile).mtimeMs < newestSourceMs()) await buildAll();
}
