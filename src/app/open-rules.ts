import { join } from 'node:path';
import type { BudgetStore } from '../ports/budget-store.ts';
import { type DataFolder, DataFolderLockedError, openDataFolder } from '../stores/data-folder.ts';
import { EmergencyFile } from '../stores/limits/emergency-file.ts';
import { MemoryBudgetStore } from '../stores/limits/memory-budget-store.ts';
import { LiveRules, type LiveRulesParts } from './live-rules.ts';

export interface OpenRulesParts extends Omit<LiveRulesParts, 'budgets' | 'ledger'> {
  /** Data folder: what was spent in an outage is remembered there. */
  readonly folder: string;
  /** Other processes use the folder too. */
  readonly shared: boolean;
  /** Where instances share budgets; of this process alone when absent. Closed with the rules. */
  readonly budgets?: BudgetStore;
}

/** The rules of a server, in force. @throws RulesFileError */
export async function openRules(parts: OpenRulesParts): Promise<LiveRules> {
  const { folder, clock, timers, random } = parts;
  const hashSeed = new Uint32Array(new Uint8Array(random.bytes(16)).buffer);
  const budgets = parts.budgets ?? new MemoryBudgetStore({ clock, timers, hashSeed });
  const place: Pick<DataFolder, 'path' | 'release'> = parts.shared
    ? await ownPlace(parts)
    : { path: folder, release: () => Promise.resolve() };
  const rules = new LiveRules({
    ...parts,
    budgets,
    ledger: new EmergencyFile(place.path),
    onClosed: () => place.release(),
  });
  try {
    await rules.start();
    return rules;
  } catch (error) {
    await rules.close();
    throw error;
  }
}

/**
 * Of processes that share a folder, each remembers its emergency budgets in a place of its own: the
 * first that nobody holds. Who comes after a process that died finds what that one has spent.
 */
async function ownPlace(parts: OpenRulesParts): Promise<DataFolder> {
  const { folder, random, config } = parts;
  const places = config.budgets.maxInstances;
  for (let at = 0; at < places; at += 1) {
    try {
      return await openDataFolder({ path: join(folder, 'limits', `instance-${at}`), random });
    } catch (error) {
      if (!(error instanceof DataFolderLockedError)) throw error;
    }
  }
  throw new Error(
    `found ${places} instances at work already; allowed is budgets.max_instances, ${places}`,
  );
}
