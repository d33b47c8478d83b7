import { messageOf } from '../../src/core/stock/reservation.ts';
import { InventoryEngine } from '../../src/stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../../src/stores/memory/inventory-store.ts';
import { FaultDisk } from '../support/fault-disk.ts';
import type { InventoryHarness } from './inventory-store.ts';

export interface MemoryHarness extends InventoryHarness {
  readonly store: MemoryInventoryStore;
}

/** Journaled on a disk that loses power at each crash: only what was promised comes back. */
export async function journaled(compactAtBytes: number): Promise<MemoryHarness> {
  const disk = new FaultDisk();
  const open = () =>
    MemoryInventoryStore.open({
      folder: '/inventory',
      fsync: 'always',
      compactAtBytes,
      disk: disk.session(),
    });
  let store = await open();
  return {
    get store() {
      return store;
    },
    messages: async () =>
      [...store.engine.machine.outbox.pending.values()].map(({ reservation, extras }) =>
        messageOf(reservation, extras),
      ),
    crash: async () => {
      disk.losePower(nothingSurvives);
      store = await open();
    },
    dispose: async () => undefined,
  };
}

/** Of what was not synced, keeps nothing: the harshest of all power cuts. */
const nothingSurvives = {
  float: () => 0,
  below: (bound: number) => (bound === 2 ? 1 : 0),
  bytes: (count: number) => new Uint8Array(count),
  fork: () => nothingSurvives,
};

/** Over a log in memory, as a simulated world has it. */
export async function simulated(): Promise<MemoryHarness> {
  const records: string[] = [];
  const log = {
    append: (record: string) => void records.push(record),
    durable: () => Promise.resolve(),
    failure: undefined,
  };
  let store = new MemoryInventoryStore(InventoryEngine.over(log));
  return {
    get store() {
      return store;
    },
    messages: async () =>
      [...store.engine.machine.outbox.pending.values()].map(({ reservation, extras }) =>
        messageOf(reservation, extras),
      ),
    crash: async () => {
      store = new MemoryInventoryStore(InventoryEngine.over(log, [...records]));
    },
    dispose: async () => undefined,
  };
}
