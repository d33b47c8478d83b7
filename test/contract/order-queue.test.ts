import { MemoryOrderQueue } from '../../src/queues/memory-queue.ts';
import { World } from '../support/world.ts';
import { journaled, simulated } from './memory-inventory.ts';
import type { MemoryHarness } from './memory-inventory.ts';
import type { QueueHarness } from './order-queue.ts';
import { orderQueueContract } from './order-queue.ts';

async function memoryQueue(inner: Promise<MemoryHarness>): Promise<QueueHarness> {
  const inventory = await inner;
  const world = new World();
  const open = () =>
    new MemoryOrderQueue(inventory.store.engine, {
      clock: world,
      timers: world,
      visibilityMs: 10_000,
    });
  let queue = open();
  return {
    get queue() {
      return queue;
    },
    get store() {
      return inventory.store;
    },
    carry: async () => undefined,
    passVisibility: () => world.advance(10_000),
    crash: async () => {
      await inventory.crash();
      queue = open();
    },
    waitMs: 500,
    passWait: () => world.advance(500),
    dispose: () => inventory.dispose(),
  };
}

orderQueueContract('memory, journaled', () => memoryQueue(journaled(16 * 1024 * 1024)));
orderQueueContract('memory, a snapshot at every step', () => memoryQueue(journaled(0)));
orderQueueContract('memory, over a log of the caller', () => memoryQueue(simulated()));
