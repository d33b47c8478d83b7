import type { Clock } from '../ports/clock.ts';
import { UnavailableError } from '../ports/errors.ts';
import type { OrderMessage, OrderQueueProducer, PublishOutcome } from '../ports/order-queue.ts';
import { publishMax } from '../ports/order-queue.ts';
import type { KafkaLink } from './kafka-link.ts';
import { encodeMessage } from './order-message.ts';

export interface KafkaPublisherSettings {
  readonly topic: string;
  readonly partitions: number;
  readonly clock: Clock;
  /** Messages that wait; past it publishing is refused. */
  readonly messagesMax: number;
}

/** Bytes of one batch and of one message; brokers take 1 MiB unless told otherwise. */
const batchBytesMax = 500_000;
const messageBytesMax = 900_000;
/** How old the count of waiting messages may be, ms. */
const depthFreshMs = 250;

/** The producer's side of the order queue on Kafka: each SKU's messages in order, up to the bound. */
export class KafkaPublisher implements OrderQueueProducer {
  readonly #link: KafkaLink;
  readonly #settings: KafkaPublisherSettings;
  #publishing: Promise<unknown> = Promise.resolve();
  #depth: { readonly atUs: number; count: number } | undefined;

  constructor(link: KafkaLink, settings: KafkaPublisherSettings) {
    this.#link = link;
    this.#settings = settings;
  }

  async publish(messages: readonly OrderMessage[]): Promise<readonly PublishOutcome[]> {
    if (messages.length > publishMax)
      throw new RangeError(
        `publish of ${messages.length} messages; allowed is up to ${publishMax}`,
      );
    // One at a time: a later batch of a SKU must not overtake an earlier one.
    const mine = this.#publishing.then(() => this.#publish(messages));
    this.#publishing = mine.catch(() => undefined); // Told to whom it concerns by `mine`.
    return mine;
  }

  async #publish(messages: readonly OrderMessage[]): Promise<readonly PublishOutcome[]> {
    const outcomes = new Map<number, PublishOutcome>();
    let room: number;
    try {
      room = await this.#room();
    } catch (error) {
      return messages.map(() => ({ kind: 'again', error: asError(error) }));
    }
    const lanes = new Map<number, { at: number; key: string; text: string; atMs: number }[]>();
    for (const [at, message] of messages.entries()) {
      const text = encodeMessage(message);
      const bytes = Buffer.byteLength(text);
      if (bytes > messageBytesMax) {
        const reason = `a message of ${bytes} bytes; the broker takes up to ${messageBytesMax}`;
        outcomes.set(at, { kind: 'refused', reason });
      } else if (room <= 0) {
        const { messagesMax } = this.#settings;
        const error = new UnavailableError(
          `${messagesMax} messages wait in Kafka; it takes no more now`,
        );
        outcomes.set(at, { kind: 'again', error });
      } else {
        room -= 1;
        const key = `${message.activityId}/${message.skuId}`;
        const partition = hashOf(key) % this.#settings.partitions;
        const lane = lanes.get(partition) ?? [];
        lane.push({ at, key, text, atMs: message.reservedAtMs });
        lanes.set(partition, lane);
      }
    }
    await Promise.all(
      [...lanes].map(async ([partition, lane]) => {
        let failure: Error | undefined;
        for (const batch of batchesOf(lane)) {
          try {
            // Past a failure nothing of the lane is sent: the order would be lost.
            if (failure === undefined)
              await this.#link.produce(this.#settings.topic, partition, batch);
          } catch (error) {
            failure = asError(error);
          }
          for (const { at } of batch)
            outcomes.set(
              at,
              failure === undefined ? { kind: 'stored' } : { kind: 'again', error: failure },
            );
        }
      }),
    );
    const stored = [...outcomes.values()].filter(({ kind }) => kind === 'stored').length;
    if (this.#depth !== undefined) this.#depth.count += stored;
    return messages.map((_, at) => outcomes.get(at) ?? { kind: 'again', error: unsaid });
  }

  /** How many more messages may wait. */
  async #room(): Promise<number> {
    const { clock, messagesMax } = this.#settings;
    const nowUs = clock.monoUs();
    if (
      this.#depth === undefined ||
      nowUs - this.#depth.atUs > depthFreshMs * 1_000 ||
      this.#depth.count >= messagesMax
    ) {
      const { topic, partitions } = this.#settings;
      const [{ first, last }, committed] = await Promise.all([
        this.#link.ends(topic),
        this.#link.committed(topic, partitions),
      ]);
      const count = last.reduce(
        (sum, end, at) => sum + end - Math.max(committed[at] ?? 0, first[at] ?? 0),
        0,
      );
      this.#depth = { atUs: nowUs, count };
    }
    return messagesMax - this.#depth.count;
  }
}

const unsaid = new UnavailableError('Kafka, publish: nothing was said of it');

const asError = (error: unknown): Error =>
  error instanceof Error ? error : new UnavailableError(String(error));

/** FNV-1a, 32 bits: which partition has a SKU. Never to change while a topic lives. */
function hashOf(text: string): number {
  let hash = 2_166_136_261;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 16_777_619);
  return hash >>> 0;
}

/** In order, none of too many bytes. */
function batchesOf<Item extends { readonly text: string }>(lane: readonly Item[]): Item[][] {
  const batches: Item[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const item of lane) {
    const more = Buffer.byteLength(item.text) + 100;
    if (bytes + more > batchBytesMax) {
      batches.push([]);
      bytes = 0;
    }
    batches.at(-1)?.push(item);
    bytes += more;
  }
  return batches;
}
