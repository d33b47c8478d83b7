import type { OrderMessage } from '../core/stock/model.ts';

export type { OrderMessage } from '../core/stock/model.ts';

/**
 * The road from a reservation to an order: at least once, acknowledged after the commit, bounded.
 * Where the inventory store's outbox is itself the queue (memory, Redis Streams) there is no
 * producer side here; brokers are fed by a relay, through `OrderQueueProducer`.
 */
export interface OrderQueue {
  /**
   * Up to `max` messages not given to another consumer, oldest first; waits at most `waitMs` when
   * there are none. A message not acknowledged within the visibility time is given out again.
   */
  receive(consumer: string, max: number, waitMs: number): Promise<readonly Delivery[]>;
  /** Forget these: their fate is committed. Repeating it changes nothing. */
  acknowledge(deliveries: readonly Delivery[]): Promise<void>;
  /** Put a message that can never succeed where an operator sees it; its neighbours go on. */
  bury(delivery: Delivery, reason: string): Promise<void>;
  /** Give back at once, for another try. */
  giveBack(deliveries: readonly Delivery[]): Promise<void>;
  backlog(nowMs: number): Promise<Backlog>;
  /** Buried messages, newest first. */
  buried(limit: number): Promise<readonly BuriedMessage[]>;
  close(): Promise<void>;
}

export interface Delivery {
  /** The queue's own handle; opaque. */
  readonly deliveryId: string;
  /** 1 at the first try. */
  readonly attempt: number;
  readonly message: OrderMessage;
}

export interface Backlog {
  /** Messages not acknowledged, given out or not. */
  readonly depth: number;
  /** Age of the oldest of them; 0 when there is none. */
  readonly oldestAgeMs: number;
  readonly buried: number;
  readonly producedTotal: number;
  readonly acknowledgedTotal: number;
  /** Where messages are moved to a broker: age of the oldest that has not been; 0 when there is none. */
  readonly outboxOldestAgeMs?: number;
}

export interface BuriedMessage {
  readonly message: OrderMessage;
  readonly reason: string;
  readonly buriedAtMs: number;
}

/** The side of a broker that a relay feeds. */
export interface OrderQueueProducer {
  /**
   * Stores these durably, those of one SKU in the order given; one outcome for each, by place. Never
   * more than `publishMax` at once. A message sent again, because nobody knows what became of it, is
   * stored once where the broker can tell, and twice where it cannot: consumers bear either.
   * Rejects only for nonsense; a broker that does not answer is an outcome.
   */
  publish(messages: readonly OrderMessage[]): Promise<readonly PublishOutcome[]>;
}

/** Messages in one publish. */
export const publishMax = 1_000;

export type PublishOutcome =
  /** Safe with the broker, now or before. */
  | { readonly kind: 'stored' }
  /** Not stored, or nobody knows: to be sent again, before any later message of its SKU. */
  | { readonly kind: 'again'; readonly error: Error }
  /** The broker will never take it as it is; its neighbours go on. */
  | { readonly kind: 'refused'; readonly reason: string };
