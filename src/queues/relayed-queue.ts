import type { Backlog, BuriedMessage, Delivery, OrderQueue } from '../ports/order-queue.ts';

/**
 * An outbox and the broker that a relay moves it to, as the one queue that they are to workers and to
 * whoever watches the backlog: workers receive from the broker, and what is still in the outbox counts.
 *
 * A message that is in both, between the broker's answer and the trimming, counts twice; so the depth
 * is never too low.
 */
export class RelayedQueue implements OrderQueue {
  readonly #outbox: Pick<OrderQueue, 'backlog' | 'buried'>;
  readonly #broker: OrderQueue;

  constructor(outbox: Pick<OrderQueue, 'backlog' | 'buried'>, broker: OrderQueue) {
    this.#outbox = outbox;
    this.#broker = broker;
  }

  receive(consumer: string, max: number, waitMs: number): Promise<readonly Delivery[]> {
    return this.#broker.receive(consumer, max, waitMs);
  }

  acknowledge(deliveries: readonly Delivery[]): Promise<void> {
    return this.#broker.acknowledge(deliveries);
  }

  bury(delivery: Delivery, reason: string): Promise<void> {
    return this.#broker.bury(delivery, reason);
  }

  giveBack(deliveries: readonly Delivery[]): Promise<void> {
    return this.#broker.giveBack(deliveries);
  }

  async backlog(nowMs: number): Promise<Backlog> {
    const [outbox, broker] = await Promise.all([
      this.#outbox.backlog(nowMs),
      this.#broker.backlog(nowMs),
    ]);
    return {
      depth: outbox.depth + broker.depth,
      oldestAgeMs: Math.max(outbox.oldestAgeMs, broker.oldestAgeMs),
      buried: outbox.buried + broker.buried,
      producedTotal: outbox.producedTotal,
      acknowledgedTotal: broker.acknowledgedTotal,
    };
  }

  async buried(limit: number): Promise<readonly BuriedMessage[]> {
    const both = await Promise.all([this.#outbox.buried(limit), this.#broker.buried(limit)]);
    return both
      .flat()
      .sort((a, b) => b.buriedAtMs - a.buriedAtMs)
      .slice(0, Math.max(0, limit));
  }

  /** Closes the broker's side. The outbox belongs to the relay. */
  close(): Promise<void> {
    return this.#broker.close();
  }
}
