import type { Pending } from '../core/stock/outbox.ts';
import { buriedMax } from '../core/stock/outbox.ts';
import { messageOf } from '../core/stock/reservation.ts';
import { wholeSku } from '../core/stock/shards.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import { UnavailableError } from '../ports/errors.ts';
import type { Backlog, BuriedMessage, Delivery, OrderQueue } from '../ports/order-queue.ts';
import type { InventoryEngine } from '../stores/memory/inventory-engine.ts';

export interface MemoryQueueOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  /** How long a consumer has a message for itself, ms. Default 30 s. */
  readonly visibilityMs?: number;
}

/** Messages in one receive. */
export const receiveMax = 1_000;

/**
 * The order queue of one process: the inventory store's own outbox, seen from the other side. A
 * message is given out only once its reservation is safe. Acknowledgements and counts of attempts
 * are journaled without waiting: one that a crash loses is given out again, which changes nothing.
 * Bounded by the outbox, which is bounded by the stock.
 */
export class MemoryOrderQueue implements OrderQueue {
  readonly #engine: InventoryEngine;
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly #visibleUs: number;
  #closed = false;

  constructor(engine: InventoryEngine, options: MemoryQueueOptions) {
    this.#engine = engine;
    this.#clock = options.clock;
    this.#timers = options.timers;
    this.#visibleUs = (options.visibilityMs ?? 30_000) * 1_000;
  }

  async receive(_consumer: string, max: number, waitMs: number): Promise<readonly Delivery[]> {
    if (!Number.isInteger(max) || max < 1 || max > receiveMax)
      throw new RangeError(`receive of ${max} messages; allowed is 1 to ${receiveMax}`);
    const untilUs = this.#clock.monoUs() + waitMs * 1_000;
    while (!this.#closed) {
      this.#engine.refuseIfEnded();
      const nowUs = this.#clock.monoUs();
      const { reply, step } = this.#engine.machine.give(max, nowUs, this.#visibleUs);
      if (reply.length > 0) {
        const deliveries = reply.map(deliveryOf);
        // Asked before the attempt is recorded: only the reservations must be safe.
        const safe = this.#engine.promised(false);
        this.#engine.record(step);
        await safe;
        return deliveries;
      }
      if (nowUs >= untilUs) return [];
      const expiryUs = this.#engine.machine.outbox.nextExpiryUs() ?? untilUs;
      await this.#sleep(Math.min(untilUs, expiryUs) - nowUs);
    }
    return [];
  }

  async acknowledge(deliveries: readonly Delivery[]): Promise<void> {
    this.#engine.refuseIfEnded();
    const numbers = deliveries.map((each) => handleOf(each).number);
    this.#engine.record(this.#engine.machine.acknowledge(numbers).step);
  }

  async bury(delivery: Delivery, reason: string): Promise<void> {
    const { machine } = this.#engine;
    if (machine.outbox.buried.size >= buriedMax)
      throw new UnavailableError(`${buriedMax} messages are buried; repair or forget some first`);
    const { number } = handleOf(delivery);
    await this.#engine.run(() => machine.bury(number, reason, this.#clock.wallMs()));
  }

  async giveBack(deliveries: readonly Delivery[]): Promise<void> {
    this.#engine.refuseIfEnded();
    let returned = false;
    for (const delivery of deliveries) {
      const { number, attempt } = handleOf(delivery);
      if (this.#engine.machine.outbox.giveBack(number, attempt)) returned = true;
    }
    if (returned) this.#engine.announceMessages();
  }

  async backlog(nowMs: number): Promise<Backlog> {
    const { outbox } = this.#engine.machine;
    let oldestAgeMs = 0;
    for (const { reservation } of outbox.pending.values()) {
      // The wall clock may have jumped back since.
      oldestAgeMs = Math.max(0, nowMs - reservation.reservedAtMs);
      break;
    }
    return {
      depth: outbox.pending.size,
      oldestAgeMs,
      buried: outbox.buried.size,
      producedTotal: outbox.produced,
      acknowledgedTotal: outbox.acknowledged,
    };
  }

  async buried(limit: number): Promise<readonly BuriedMessage[]> {
    this.#engine.refuseIfEnded();
    const newest = [...this.#engine.machine.outbox.buried.values()].reverse().slice(0, limit);
    await this.#engine.promised(false);
    return newest.map(({ message, reason, buriedAtMs }) => ({
      message: wholeSku(message),
      reason,
      buriedAtMs,
    }));
  }

  /** Ends the waiting of every `receive`; the outbox stays with the store. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#engine.announceMessages();
  }

  #sleep(forUs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        timer.cancel();
        stop();
        resolve();
      };
      const timer = this.#timers.after(Math.ceil(forUs / 1_000), wake);
      const stop = this.#engine.listen(wake);
    });
  }
}

function deliveryOf(pending: Pending): Delivery {
  return {
    deliveryId: `${pending.number}.${pending.attempts}`,
    attempt: pending.attempts,
    message: wholeSku(messageOf(pending.reservation, pending.extras)),
  };
}

/** The number says which message, the attempt who has it. */
function handleOf(delivery: Delivery): { readonly number: number; readonly attempt: number } {
  const match = /^(\d+)\.(\d+)$/.exec(delivery.deliveryId);
  if (match === null)
    throw new RangeError(`${delivery.deliveryId} is not a delivery of this queue`);
  return { number: Number(match[1]), attempt: Number(match[2]) };
}
