import { MemoryBudgetStore } from '../../src/stores/limits/memory-budget-store.ts';
import { World } from '../support/world.ts';
import { type BudgetHarness, budgetStoreContract } from './budget-store.ts';
import { sharedHints } from './shared-hints.ts';

const inMemory = async (): Promise<BudgetHarness> => {
  let nowUs = 0;
  const clock = { wallMs: () => 0, monoUs: () => nowUs };
  const make = (): MemoryBudgetStore =>
    new MemoryBudgetStore({ clock, timers: new World(), hashSeed: [1, 2] });
  let store = make();
  return {
    get store() {
      return store;
    },
    setNowUs(value) {
      nowUs = value;
    },
    async forget() {
      await store.close();
      store = make();
    },
    unique: (name) => name,
    dispose: () => store.close(),
  };
};

budgetStoreContract('memory', inMemory, { numRuns: 30 });
sharedHints('memory', inMemory, 'here');
