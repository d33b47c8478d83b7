import { afterAll, beforeAll } from 'vitest';
import { systemTimers } from '../../src/app/system.ts';
import { openNatsQueue } from '../../src/queues/nats-queue.ts';
import { startNats } from '../support/servers/nats.ts';
import type { NatsServer } from '../support/servers/nats.ts';
import { orderQueueContract } from './order-queue.ts';
import { relayedQueue } from './relayed-queue.ts';

const visibilityMs = 600_000;
let server: NatsServer;
let made = 0;
beforeAll(async () => {
  server = await startNats();
});
afterAll(() => server.stop());

orderQueueContract('NATS JetStream behind a relay', () => {
  made += 1;
  const prefix = `test-${process.pid}-${made}`;
  return relayedQueue({
    visibilityMs,
    open: (world) =>
      openNatsQueue({
        urls: [server.url],
        clock: world,
        timers: systemTimers,
        prefix,
        visibilityMs,
        // A loaded machine may be slow; nothing here waits for this.
        timeoutMs: 20_000,
      }),
    // The server's half of the visibility time ends by hand: it hears a "no" for all that is out.
    age: async (handed) => {
      const { connect } = await import('@nats-io/transport-node');
      const connection = await connect({ servers: `127.0.0.1:${server.port}` });
      for (const { deliveryId } of handed) await connection.request(deliveryId, '-NAK');
      await connection.close();
    },
    crash: () => server.crash(),
  });
});
