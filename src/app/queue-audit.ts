import {
  forgottenBy,
  judgeQueue,
  type QueueLook,
  type QueueVerdict,
} from '../core/ledger/ledger.ts';
import type { OrderQueue } from '../ports/order-queue.ts';
import type { OrderStore } from '../ports/order-store.ts';

export interface QueueAuditParts {
  readonly queue: Pick<OrderQueue, 'backlog'>;
  readonly orders: Pick<OrderStore, 'counts'>;
  readonly wallMs: () => number;
  /** Ids of what is on sale: a rehearsal that ends takes its queue's counters with it. */
  readonly activities: () => readonly string[];
}

/**
 * The queue's part of the ledger: every message that was produced has a fate, is a dead letter, or
 * waits.
 *
 * A queue may know of fewer messages than there are fates without anything being wrong now: a
 * rehearsal was put away with its counters, or a store that forgot was built anew from its orders. That
 * much is learnt when nothing is on its way, once after each start and each change of what is on sale,
 * and stands in the account as `forgotten`. More fates than that later, or fewer, is a finding.
 */
export class QueueAudit {
  readonly #parts: QueueAuditParts;
  #base: { readonly activities: string; readonly forgotten: number } | undefined;
  #learning: Promise<void> | undefined;

  constructor(parts: QueueAuditParts) {
    this.#parts = parts;
  }

  /** Learns what the queue has forgotten, where that is not known; call now and then. Never rejects. */
  learn(onError: (error: unknown) => void): void {
    if (this.#base?.activities === this.#activities()) return;
    this.#learning ??= this.#look()
      .then(
        (look) => this.#note(look),
        (error: unknown) => onError(error),
      )
      .finally(() => {
        this.#learning = undefined;
      });
  }

  /** The account at this moment: three questions to the stores. Rejects as they do. */
  async judge(): Promise<QueueVerdict> {
    const look = await this.#look();
    if (this.#base?.activities !== this.#activities()) this.#note(look);
    return judgeQueue(look, this.#base?.forgotten ?? 0);
  }

  async close(): Promise<void> {
    await this.#learning;
  }

  #note(look: QueueLook): void {
    const forgotten = forgottenBy(look);
    if (forgotten !== undefined) this.#base = { activities: this.#activities(), forgotten };
  }

  async #look(): Promise<QueueLook> {
    const { queue, orders, wallMs } = this.#parts;
    const before = await queue.backlog(wallMs());
    const { pending, paid, expired, cancelled, refunded, released } = await orders.counts();
    const after = await queue.backlog(wallMs());
    const ordered = pending + paid + expired + cancelled + refunded;
    return { before, after, ordered, released };
  }

  #activities(): string {
    return [...this.#parts.activities()].sort().join('\n');
  }
}
