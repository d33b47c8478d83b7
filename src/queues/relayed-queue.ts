import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { Backlog, BuriedMessage, Delivery, OrderQueue } from '../ports/order-queue.ts';

/**
 * An outbox and the broker that a relay moves it to, as the one queue that they are to workers and to
 * whoever watches the backlog: workers receive from the broker, and what is still in the outbox counts.
 *
 * A message that is in both, between the broker's answer and the trimming, counts twice; so the depth
 * is never too low.
 *
 * A broker that is away gets nothing from this outbox, and nobody can receive from it: so what it held
 * when it last answered is what it holds, but for a batch in flight, and the outbox alone grows. Then
 * its last answer is used, its oldest message ageing, until it answers again: a broker that restarts
 * must not make everybody blind to the backlog in front of it.
 */
export class RelayedQueue implements OrderQueue {
  readonly #outbox: Pick<OrderQueue, 'backlog' | 'buried'>;
  readonly #broker: OrderQueue;
  #known: { readonly backlog: Backlog; readonly atMs: number } | undefined;

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
      this.#brokerBacklog(nowMs),
    ]);
    return {
      depth: outbox.depth + broker.depth,
      oldestAgeMs: Math.max(outbox.oldestAgeMs, broker.oldestAgeMs),
      buried: outbox.buried + broker.buried,
      producedTotal: outbox.producedTotal,
      acknowledgedTotal: broker.acknowledgedTotal,
      outboxOldestAgeMs: outbox.oldestAgeMs,
    };
  }

  /** Rejects only until the broker has answered once. */
  async #brokerBacklog(nowMs: number): Promise<Backlog> {
    try {
      const backlog = await this.#broker.backlog(nowMs);
      this.#known = { backlog, atMs: nowMs };
      return backlog;
    } catch (error) {
      const known = this.#known;
      const away = error instanceof UnavailableError || error instanceof OutcomeUnknownError;
      if (known === undefined || !away) throw error;
      const { depth, oldestAgeMs } = known.backlog;
      const grownMs = depth === 0 ? 0 : Math.max(0, nowMs - known.atMs);
      return { ...known.backlog, oldestAgeMs: oldestAgeMs + grownMs };
    }
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
