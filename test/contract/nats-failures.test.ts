import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock, systemTimers } from '../../src/app/system.ts';
import { OutcomeUnknownError, UnavailableError } from '../../src/ports/errors.ts';
import type { Delivery, PublishOutcome } from '../../src/ports/order-queue.ts';
import { MemoryOrderQueue } from '../../src/queues/memory-queue.ts';
import type { NatsQueue, NatsQueueOptions } from '../../src/queues/nats-queue.ts';
import { openNatsQueue } from '../../src/queues/nats-queue.ts';
import { Relay } from '../../src/workers/relay.ts';
import { startNats } from '../support/servers/nats.ts';
import type { NatsServer } from '../support/servers/nats.ts';
import { SeededRandom } from '../support/world.ts';
import { journaled } from './memory-inventory.ts';
import { messageFor, nowMs, otherSku, requests, reserve, sku, stockOf } from './stock-samples.ts';

/** What NATS does beyond the suite that all queues pass, and what is left when it fails. */
let server: NatsServer;
let made = 0;
const opened: NatsQueue[] = [];
beforeAll(async () => {
  server = await startNats();
});
afterAll(async () => {
  for (const queue of opened) await queue.close();
  await server.stop();
});

async function open(more: Partial<NatsQueueOptions> = {}): Promise<NatsQueue> {
  made += 1;
  const queue = await openNatsQueue({
    urls: [server.url],
    clock: systemClock,
    timers: systemTimers,
    prefix: `failures-${process.pid}-${made}`,
    timeoutMs: 20_000,
    ...more,
  });
  opened.push(queue);
  return queue;
}

const samples = (count: number, key = sku) => requests(count).map((wish) => messageFor(wish, key));
const kindsOf = (outcomes: readonly PublishOutcome[]): string[] => outcomes.map(({ kind }) => kind);
const idsOf = (given: readonly Delivery[]): string[] =>
  given.map(({ message }) => message.messageId);
async function drain(queue: NatsQueue): Promise<Delivery[]> {
  const all: Delivery[] = [];
  for (;;) {
    const some = await queue.receive('a', 1_000, 0);
    if (some.length === 0) return all;
    all.push(...some);
  }
}

/** Tries until the client has its connection again; the server is there. */
async function reached<T>(run: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof UnavailableError || error instanceof OutcomeUnknownError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

test('the visibility time ends by itself', async () => {
  const queue = await open({ visibilityMs: 300 });
  const [message] = samples(1);
  await queue.publish([message!]);
  expect((await queue.receive('a', 1, 0)).map(({ attempt }) => attempt)).toEqual([1]);
  const [again] = await queue.receive('b', 1, 60_000);
  expect(again).toMatchObject({ attempt: 2, message });
});

test('a message sent again is stored once, also beside new ones', async () => {
  const queue = await open();
  const messages = samples(160);
  expect(new Set(kindsOf(await queue.publish(messages.slice(0, 80))))).toEqual(new Set(['stored']));
  // Old and new in turns: the sequence numbers of those in flight fit only after asking again.
  const mixed = messages.flatMap((message, at) => (at < 80 ? [message, messages[at + 80]!] : []));
  expect(new Set(kindsOf(await queue.publish(mixed)))).toEqual(new Set(['stored']));
  expect(idsOf(await drain(queue))).toEqual(messages.map(({ messageId }) => messageId));
  expect(await queue.backlog(nowMs)).toMatchObject({ depth: 160, producedTotal: 160 });
});

test('a full stream refuses, and the order survives it', async () => {
  const queue = await open({ messagesMax: 60 });
  let waiting = samples(400);
  const wanted = waiting.map(({ messageId }) => messageId);
  const got: string[] = [];
  let sawFull = false;
  let publishing = true;
  const consumer = (async () => {
    while (publishing || (await queue.backlog(nowMs)).depth > 0) {
      const given = await queue.receive('a', 3, 5);
      await queue.acknowledge(given);
      got.push(...idsOf(given));
    }
  })();
  while (waiting.length > 0) {
    const outcomes = await queue.publish(waiting);
    const first = outcomes.findIndex(({ kind }) => kind !== 'stored');
    if (first < 0) break;
    const outcome = outcomes[first]!;
    expect(outcome).toMatchObject({ kind: 'again' });
    if (outcome.kind === 'again' && /maximum messages/.test(outcome.error.message)) sawFull = true;
    // What is behind the first that was refused was refused with it.
    expect(new Set(kindsOf(outcomes.slice(first)))).toEqual(new Set(['again']));
    waiting = waiting.slice(first);
  }
  publishing = false;
  await consumer;
  expect(sawFull).toBe(true);
  expect(got).toEqual(wanted);
});

test('without numbers on what is in flight, the order would not survive it', async () => {
  const queue = await open({ messagesMax: 20, prefix: 'control' });
  const connection = await connect({ servers: `127.0.0.1:${server.port}` });
  const [first, second, ...rest] = samples(22);
  await queue.publish(rest);
  const [held] = await queue.receive('a', 1, 0);
  const send = (message: typeof first) =>
    connection.request('control-orders.concert.floor', JSON.stringify(message));
  // Two in flight; between them a worker makes room.
  expect((await send(first)).json()).toMatchObject({ error: {} });
  await queue.acknowledge([held!]);
  expect((await send(second)).json()).not.toHaveProperty('error');
  await queue.acknowledge(await queue.receive('a', 1, 0));
  expect((await send(first)).json()).not.toHaveProperty('error');
  const order = idsOf(await drain(queue));
  expect(order.indexOf(second!.messageId)).toBeLessThan(order.indexOf(first!.messageId));
  await connection.close();
});

test('publishers at the same time only cost each other rounds', async () => {
  const one = await open();
  const two = await open({ prefix: `failures-${process.pid}-${made}` });
  const [mine, theirs] = [samples(200), samples(200, otherSku)];
  const all = async (queue: NatsQueue, messages: typeof mine): Promise<void> => {
    let waiting = messages;
    while (waiting.length > 0) {
      const outcomes = await queue.publish(waiting);
      const first = outcomes.findIndex(({ kind }) => kind !== 'stored');
      waiting = first < 0 ? [] : waiting.slice(first);
    }
  };
  await Promise.all([all(one, mine), all(two, theirs)]);
  const given = await drain(one);
  for (const sent of [mine, theirs])
    expect(idsOf(given).filter((id) => sent.some(({ messageId }) => messageId === id))).toEqual(
      sent.map(({ messageId }) => messageId),
    );
  expect(given).toHaveLength(400);
});

test('what is no order message is set aside and stops nobody', async () => {
  const prefix = 'foreign';
  const queue = await open({ prefix });
  const [before, after] = samples(2);
  await queue.publish([before!]);
  const connection = await connect({ servers: `127.0.0.1:${server.port}` });
  for (const text of ['not JSON', '{"schemaVersion":1}', 'null'])
    await connection.request(`${prefix}-orders.concert.floor`, text);
  await connection.close();
  await queue.publish([after!]);
  expect(idsOf(await drain(queue))).toEqual([before!.messageId, after!.messageId]);
  expect(await queue.backlog(nowMs)).toMatchObject({ depth: 2, buried: 3 });
  expect(await queue.buried(10)).toEqual([]);
});

test('a message larger than the server takes is refused, its neighbours go on', async () => {
  const queue = await open();
  const [small, large, other] = samples(3);
  const outcomes = await queue.publish([
    small!,
    { ...large!, personId: 'x'.repeat(1_100_000) },
    other!,
  ]);
  expect(kindsOf(outcomes)).toEqual(['stored', 'refused', 'stored']);
  expect(outcomes[1]).toMatchObject({ reason: expect.stringMatching(/bytes; the broker takes/) });
  await expect(queue.publish(samples(1_001))).rejects.toThrow(/allowed is up to 1000/);
});

test('a server that is gone is said at once, and found again', async () => {
  const queue = await open();
  const messages = samples(4);
  await queue.publish(messages.slice(0, 2));
  const waiting = queue.receive('a', 1, 60_000);
  const held = await waiting;
  const ended = queue.receive('b', 1, 60_000).then(
    (given) => given.length,
    (error: unknown) => error,
  );
  await server.kill();
  // Either the second message had come, or the wait ended with the connection.
  expect([1, 'UnavailableError']).toContain(
    await ended.then((end) => (end instanceof Error ? end.name : end)),
  );
  for (;;) {
    // The client notices on its own time; until then nobody can say.
    const [outcome] = await queue.publish(messages.slice(2, 3));
    expect(outcome).toMatchObject({ kind: 'again' });
    if (outcome?.kind === 'again' && outcome.error instanceof UnavailableError) break;
  }
  await expect(queue.acknowledge(held)).rejects.toThrow(UnavailableError);
  await expect(queue.backlog(nowMs)).rejects.toThrow(UnavailableError);
  await expect(queue.buried(1)).rejects.toThrow(UnavailableError);
  await server.start();
  await reached(() => queue.backlog(nowMs));
  expect(new Set(kindsOf(await reached(() => queue.publish(messages))))).toEqual(
    new Set(['stored']),
  );
  await queue.acknowledge(held);
  expect(await queue.backlog(nowMs)).toMatchObject({ depth: 3, producedTotal: 4 });
});

test('a server that answers too late leaves it unknown; sending again stores nothing twice', async () => {
  const queue = await open({ timeoutMs: 150 });
  const messages = samples(20);
  await reached(async () => {
    const [outcome] = await queue.publish(messages.slice(0, 1));
    if (outcome?.kind === 'again') throw outcome.error;
  });
  await server.pause();
  let outcomes: readonly PublishOutcome[];
  try {
    outcomes = await queue.publish(messages.slice(1));
  } finally {
    server.resume();
  }
  expect(new Set(kindsOf(outcomes))).toEqual(new Set(['again']));
  expect(outcomes[0]).toMatchObject({ error: expect.any(OutcomeUnknownError) });
  await reached(async () => {
    for (const outcome of await queue.publish(messages.slice(1)))
      if (outcome.kind === 'again') throw outcome.error;
  });
  expect(idsOf(await reached(() => drain(queue)))).toEqual(
    messages.map(({ messageId }) => messageId),
  );
});

test('a second process with other limits sets them; another kind of stream is refused', async () => {
  const prefix = 'limits';
  await open({ prefix, messagesMax: 10 });
  const later = await open({ prefix, messagesMax: 30 });
  expect(new Set(kindsOf(await later.publish(samples(30))))).toEqual(new Set(['stored']));
  const connection = await connect({ servers: `127.0.0.1:${server.port}` });
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: 'odd-orders', subjects: ['odd'], storage: 'memory' });
  await expect(open({ prefix: 'odd' })).rejects.toThrow(
    /odd-orders has storage memory; allowed is file/,
  );
  await connection.close();
});

test('what cannot be is said with what may be', async () => {
  await expect(open({ prefix: 'a b' })).rejects.toThrow(/"a b"; allowed is/);
  await expect(open({ urls: [] })).rejects.toThrow(/no address/);
  await expect(open({ urls: ['redis://127.0.0.1:1'] })).rejects.toThrow(/nats:\/\/host:port is/);
  await expect(open({ urls: ['nats://a@x', 'nats://b@x'] })).rejects.toThrow(/one user/);
  await expect(open({ urls: ['nats://127.0.0.1:1'] })).rejects.toThrow(UnavailableError);
  const queue = await open();
  const [message] = samples(1);
  await expect(
    queue.acknowledge([{ deliveryId: '7', attempt: 1, message: message! }]),
  ).rejects.toThrow(/7 is not a delivery of this queue/);
});

test('a server without JetStream, and one with a password', async () => {
  const plain = await startNats({ jetStream: false, words: ['--user', 'shop', '--pass', 'p@ss'] });
  const secured = await startNats({ words: ['--user', 'shop', '--pass', 'p@ss'] });
  const at = (port: number, user: string) => [`nats://${user}127.0.0.1:${port}`];
  await expect(open({ urls: at(plain.port, 'shop:p%40ss@') })).rejects.toThrow(UnavailableError);
  await expect(open({ urls: at(secured.port, '') })).rejects.toThrow(UnavailableError);
  await expect(open({ urls: at(secured.port, 'shop:p%40ss@') })).resolves.toBeDefined();
  for (const queue of opened.splice(-1)) await queue.close();
  await plain.stop();
  await secured.stop();
});

test('a relay and its server killed again and again: everything there, in order', async () => {
  const prefix = 'relayed';
  const inventory = await journaled(16 * 1024 * 1024);
  await inventory.store.preload(sku, stockOf(1_000));
  const random = new SeededRandom('deaths');
  const life = async () => {
    const broker = await open({ prefix, timeoutMs: 300, visibilityMs: 60_000 });
    const outbox = new MemoryOrderQueue(inventory.store.engine, {
      clock: systemClock,
      timers: systemTimers,
    });
    const relay = new Relay(
      {
        outbox,
        broker,
        clock: systemClock,
        timers: systemTimers,
        random,
        leads: () => true,
      },
      { consumer: 'relay', outboxVisibilityMs: 0, batchMax: 40 },
    );
    return { broker, outbox, relay };
  };
  let now = await life();
  const wished: string[] = [];
  for (let round = 0; round < 12; round += 1) {
    const wishes = requests(30);
    await reserve(inventory.store, wishes);
    wished.push(...wishes.map((wish) => messageFor(wish).messageId));
    const passing = now.relay.runOnce(0);
    if (round % 4 === 1) await server.crash();
    if (round % 4 === 3) {
      // The process: what it had said to the server may have arrived, what it had trimmed not.
      void passing.catch(() => undefined);
      await inventory.crash();
      await now.broker.close();
      now = await life();
    } else await passing;
  }
  await reached(async () => {
    for (;;) {
      const pass = await now.relay.runOnce(0);
      if (pass.blocked) throw new UnavailableError('not yet');
      if (pass.received === 0 && pass.moved === 0) return;
    }
  });
  expect(await now.outbox.backlog(nowMs)).toMatchObject({ depth: 0 });
  const given = idsOf(await reached(() => drain(now.broker)));
  expect([...new Set(given)]).toEqual(wished);
});
