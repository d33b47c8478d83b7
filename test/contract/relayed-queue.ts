import { MemoryOrderQueue } from '../../src/queues/memory-queue.ts';
import { RelayedQueue } from '../../src/queues/relayed-queue.ts';
import type { Delivery, OrderQueue, OrderQueueProducer } from '../../src/ports/order-queue.ts';
import { Relay } from '../../src/workers/relay.ts';
import { SeededRandom, World } from '../support/world.ts';
import { journaled } from './memory-inventory.ts';
import type { QueueHarness } from './order-queue.ts';

export interface BrokerUnderTest {
  readonly visibilityMs: number;
  open(world: World): Promise<OrderQueue & OrderQueueProducer>;
  /** The broker's half of the visibility time ends for these; what is acknowledged is not touched. */
  age(handed: readonly Delivery[]): Promise<void>;
  /** Kills the broker without warning and starts it again. */
  crash(): Promise<void>;
}

/** A broker, fed by a relay from the outbox of a store in this process; its leases on virtual time. */
export async function relayedQueue(broker: BrokerUnderTest): Promise<QueueHarness> {
  const inventory = await journaled(16 * 1024 * 1024);
  const world = new World();
  let handed: Delivery[] = [];
  const open = async () => {
    const outbox = new MemoryOrderQueue(inventory.store.engine, { clock: world, timers: world });
    const opened = await broker.open(world);
    const relay = new Relay(
      {
        outbox,
        broker: opened,
        clock: world,
        timers: world,
        random: new SeededRandom('relay'),
        leads: () => true,
      },
      { consumer: 'relay', outboxVisibilityMs: 0 },
    );
    const queue = new RelayedQueue(outbox, opened);
    const receive = queue.receive.bind(queue);
    queue.receive = async (...asked) => {
      const given = await receive(...asked);
      handed.push(...given);
      return given;
    };
    return { relay, queue, outbox };
  };
  let { relay, queue, outbox } = await open();
  return {
    get queue() {
      return queue;
    },
    get store() {
      return inventory.store;
    },
    carry: async () => {
      for (;;) {
        const pass = await relay.runOnce(0);
        if (pass.blocked) throw new Error('the relay is blocked');
        if (pass.received === 0) break;
      }
      // Waits until the trimming is on the disk: one that a power cut takes back is sent again.
      await outbox.buried(1);
    },
    passVisibility: async () => {
      await world.advance(broker.visibilityMs);
      await broker.age(handed);
      handed = [];
    },
    crash: async () => {
      await inventory.crash();
      await broker.crash();
      await queue.close();
      ({ relay, queue, outbox } = await open());
    },
    waitMs: 30,
    // The broker waits in real time; the virtual clock says when the wait is over.
    passWait: () => world.advance(30),
    forgetsEarly:
      'the outbox is empty once the broker has the message, and its fate is committed before the SKU is forgotten',
    dispose: async () => {
      await queue.close();
      await inventory.dispose();
    },
  };
}
