import type { BudgetStore } from '../ports/budget-store.ts';
import { EmergencyFile } from '../stores/limits/emergency-file.ts';
import { MemoryBudgetStore } from '../stores/limits/memory-budget-store.ts';
import { LiveRules, type LiveRulesParts } from './live-rules.ts';

export interface OpenRulesParts extends Omit<LiveRulesParts, 'budgets' | 'ledger'> {
  /** Data folder: what was spent in an outage is remembered there. */
  readonly folder: string;
  /** Where instances share budgets; of this process alone when absent. Closed with the rules. */
  readonly budgets?: BudgetStore;
}

/** The rules of a server, in force. @throws RulesFileError */
export async function openRules(parts: OpenRulesParts): Promise<LiveRules> {
  const { folder, clock, timers, random } = parts;
  const hashSeed = new Uint32Array(new Uint8Array(random.bytes(16)).buffer);
  const budgets = parts.budgets ?? new MemoryBudgetStore({ clock, timers, hashSeed });
  const rules = new LiveRules({ ...parts, budgets, ledger: new EmergencyFile(folder) });
  try {
    await rules.start();
    return rules;
  } catch (error) {
    await rules.close();
    throw error;
  }
}
