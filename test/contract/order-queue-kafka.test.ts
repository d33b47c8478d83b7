import { afterAll, beforeAll } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { openKafkaQueue } from '../../src/queues/kafka-queue.ts';
import { startKafka } from '../support/servers/kafka.ts';
import type { KafkaServer } from '../support/servers/kafka.ts';
import { kafkaFailures } from './kafka-failures.ts';
import { orderQueueContract } from './order-queue.ts';
import { relayedQueue } from './relayed-queue.ts';

const visibilityMs = 600_000;
let server: KafkaServer;
let made = 0;
beforeAll(async () => {
  server = await startKafka();
}, 120_000);
afterAll(() => server.stop());

orderQueueContract('Kafka behind a relay', () => {
  made += 1;
  const prefix = `test-${process.pid}-${made}`;
  return relayedQueue({
    visibilityMs,
    open: (world) =>
      openKafkaQueue({
        urls: [server.url],
        clock: world,
        timers: systemTimers,
        prefix,
        visibilityMs,
        partitions: 3,
        sessionMs: 3_000,
        // A loaded machine may be slow; nothing here waits for this.
        timeoutMs: 20_000,
      }),
    // Who has what is known in the process alone, on virtual time.
    age: async () => undefined,
    crash: () => server.crash(),
  });
});

kafkaFailures(() => server);
