import { Producer } from '@platformatic/kafka';
import { afterAll, describe, expect, test } from 'vitest';
import { systemClock, systemTimers } from '../../src/app/system.ts';
import { OutcomeUnknownError, UnavailableError } from '../../src/ports/errors.ts';
import type { Delivery, PublishOutcome } from '../../src/ports/order-queue.ts';
import type { KafkaQueue, KafkaQueueOptions } from '../../src/queues/kafka-queue.ts';
import { openKafkaQueue } from '../../src/queues/kafka-queue.ts';
import type { KafkaServer } from '../support/servers/kafka.ts';
import { messageFor, nowMs, requests, sku } from './stock-samples.ts';

const samples = (count: number, key = sku) => requests(count).map((wish) => messageFor(wish, key));
const kindsOf = (outcomes: readonly PublishOutcome[]): string[] => outcomes.map(({ kind }) => kind);
const idsOf = (given: readonly Delivery[]): string[] =>
  given.map(({ message }) => message.messageId);
async function drain(queue: KafkaQueue): Promise<Delivery[]> {
  const all: Delivery[] = [];
  for (;;) {
    const some = await queue.receive('a', 1_000, 0);
    if (some.length === 0) return all;
    all.push(...some);
  }
}

/** Tries until the client has its connection again; the broker is there. */
async function reached<T>(run: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof UnavailableError || error instanceof OutcomeUnknownError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** What Kafka does beyond the suite that all queues pass, and what is left when it fails. */
export function kafkaFailures(server: () => KafkaServer): void {
  describe('Kafka, beyond the suite', () => {
    let made = 0;
    const opened: KafkaQueue[] = [];
    afterAll(async () => {
      for (const queue of opened) await queue.close();
    });

    async function open(more: Partial<KafkaQueueOptions> = {}): Promise<KafkaQueue> {
      made += 1;
      const queue = await openKafkaQueue({
        urls: [server().url],
        clock: systemClock,
        timers: systemTimers,
        prefix: `failures-${process.pid}-${made}`,
        partitions: 2,
        sessionMs: 3_000,
        timeoutMs: 20_000,
        ...more,
      });
      opened.push(queue);
      return queue;
    }

    test('a full queue refuses what is past its bound, and takes it when there is room', async () => {
      const queue = await open({ messagesMax: 5 });
      const messages = samples(8);
      const outcomes = await queue.publish(messages);
      expect(kindsOf(outcomes)).toEqual([...Array(5).fill('stored'), ...Array(3).fill('again')]);
      expect(outcomes[5]).toMatchObject({
        error: new UnavailableError('5 messages wait in Kafka; it takes no more now'),
      });
      await queue.acknowledge((await drain(queue)).slice(0, 3));
      expect(new Set(kindsOf(await queue.publish(messages.slice(5))))).toEqual(new Set(['stored']));
      expect(idsOf(await drain(queue))).toEqual(
        messages.slice(5).map(({ messageId }) => messageId),
      );
    });

    test('what is no order message is set aside and stops nobody', async () => {
      const prefix = 'foreign';
      const queue = await open({ prefix, partitions: 1 });
      const [before, after] = samples(2);
      await queue.publish([before!]);
      const producer = new Producer({
        clientId: 'somebody',
        bootstrapBrokers: [`127.0.0.1:${server().port}`],
      });
      const topic = `${prefix}-orders`;
      for (const text of ['not JSON', '{"schemaVersion":1}', 'null'])
        await producer.send({
          acks: -1,
          messages: [{ topic, partition: 0, value: Buffer.from(text) }],
        });
      await producer.close();
      await queue.publish([after!]);
      const given = await drain(queue);
      expect(idsOf(given)).toEqual([before!.messageId, after!.messageId]);
      await queue.acknowledge(given);
      expect(await queue.backlog(nowMs)).toMatchObject({
        depth: 0,
        buried: 3,
        producedTotal: 5,
        acknowledgedTotal: 2,
      });
      expect(await queue.buried(10)).toEqual([]);
    });

    test('a message larger than a broker takes is refused, its neighbours go on', async () => {
      const queue = await open();
      const [small, large, other] = samples(3);
      const outcomes = await queue.publish([
        small!,
        { ...large!, personId: 'x'.repeat(1_000_000) },
        other!,
      ]);
      expect(kindsOf(outcomes)).toEqual(['stored', 'refused', 'stored']);
      await expect(queue.publish(samples(1_001))).rejects.toThrow(/allowed is up to 1000/);
      // Large ones that the broker does take, more than one request holds.
      const many = samples(4).map((message) => ({ ...message, personId: 'y'.repeat(400_000) }));
      expect(new Set(kindsOf(await queue.publish(many)))).toEqual(new Set(['stored']));
    });

    test('two processes share the partitions; what one leaves undone, the other gets', async () => {
      const prefix = 'shared';
      const one = await open({ prefix });
      const two = await open({ prefix });
      // Many SKUs, so that each partition has some.
      const messages = Array.from({ length: 40 }, (_, at) =>
        samples(1, { ...sku, skuId: `block-${at % 10}` }),
      ).flat();
      await one.publish(messages);
      // The first may not have heard yet that it has only a part; the second has its own for certain.
      const theirs: string[] = [];
      while (theirs.length === 0) theirs.push(...idsOf(await two.receive('a', 100, 100)));
      const seen = new Set(theirs);
      while (seen.size < messages.length)
        for (const queue of [one, two])
          for (const id of idsOf(await queue.receive('a', 100, 100))) seen.add(id);
      await two.close();
      // Its partitions come to the first, and with them what it had not acknowledged.
      const again = new Set<string>();
      while (!theirs.every((id) => again.has(id)))
        for (const id of idsOf(await one.receive('a', 100, 100))) again.add(id);
      expect(await one.backlog(nowMs)).toMatchObject({ depth: 40, producedTotal: 40 });
    });

    test('with a password, and with a wrong one', async () => {
      await expect(open({ urls: [server().securedUrl] })).resolves.toBeDefined();
      const wrong = server().securedUrl.replace('p%40ss', 'guess');
      await expect(open({ urls: [wrong], timeoutMs: 2_000 })).rejects.toThrow(UnavailableError);
    });

    test('what cannot be is said with what may be', async () => {
      await expect(open({ prefix: 'a b' })).rejects.toThrow(/"a b"; allowed is/);
      await expect(open({ urls: [] })).rejects.toThrow(/no address/);
      await expect(open({ urls: ['nats://127.0.0.1:1'] })).rejects.toThrow(
        /kafka:\/\/host:port is/,
      );
      await expect(open({ urls: ['kafka://a@x', 'kafka://b@x'] })).rejects.toThrow(/one user/);
      await expect(open({ urls: ['kafka://127.0.0.1:1'], timeoutMs: 500 })).rejects.toThrow(
        UnavailableError,
      );
    });

    test('a broker that is gone is said, and found again; nothing is lost', async () => {
      const queue = await open({ timeoutMs: 2_000 });
      const messages = samples(4);
      await queue.publish(messages.slice(0, 2));
      const [held] = await reached(() => queue.receive('a', 1, 1_000));
      await server().kill();
      const [outcome] = await queue.publish(messages.slice(2, 3));
      expect(outcome).toMatchObject({ kind: 'again' });
      await expect(queue.backlog(nowMs)).rejects.toThrow(UnavailableError);
      await expect(queue.acknowledge([held!])).rejects.toThrow(/^Kafka, /);
      await server().start();
      await reached(() => queue.backlog(nowMs));
      await reached(async () => {
        for (const each of await queue.publish(messages.slice(2)))
          if (each.kind === 'again') throw each.error;
      });
      await reached(() => queue.acknowledge([held!]));
      const seen = new Set<string>();
      while (seen.size < 3)
        for (const id of idsOf(await reached(() => queue.receive('a', 10, 100)))) seen.add(id);
      expect([...seen]).toEqual(messages.slice(1).map(({ messageId }) => messageId));
      // Acknowledged in spite of the failure: only the rest waits.
      expect(await reached(() => queue.backlog(nowMs))).toMatchObject({ depth: 3 });
    }, 60_000);
  });
}
