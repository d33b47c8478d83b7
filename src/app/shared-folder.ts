import type { Timers } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { type DataFolder, DataFolderLockedError, openDataFolder } from '../stores/data-folder.ts';

/** How long to wait for another process that prepares the same folder, and how often to look, ms. */
const waitMaxMs = 15_000;
const lookEveryMs = 50;

/**
 * The lock of a data folder that several processes prepare one after the other: keys are made by
 * whoever comes first and read by the rest, and then nobody needs the lock any more. Waits for a
 * while; throws DataFolderLockedError where somebody keeps it, such as a server with embedded stores.
 */
export async function lockInTurn(
  path: string,
  { random, timers }: { readonly random: Random; readonly timers: Timers },
): Promise<DataFolder> {
  for (let waitedMs = 0; ; waitedMs += lookEveryMs) {
    try {
      return await openDataFolder({ path, random });
    } catch (error) {
      if (!(error instanceof DataFolderLockedError) || waitedMs >= waitMaxMs) throw error;
    }
    await new Promise<void>((resolve) => void timers.after(lookEveryMs, resolve));
  }
}
