import type { Activity } from '../core/activity.ts';
import type { AdmissionCounts, AdmissionStore } from '../ports/admission-store.ts';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import type { InventoryStore } from '../ports/inventory-store.ts';
import type { Backlog, OrderQueue } from '../ports/order-queue.ts';
import type { OrderCounts, OrderStore } from '../ports/order-store.ts';

/** What the stores say of the sales, all of about the same moment. */
export interface SaleSample {
  readonly takenAtMs: number;
  readonly activities: readonly ActivitySample[];
  readonly queue: Backlog;
}

export interface ActivitySample {
  readonly activityId: string;
  readonly room: AdmissionCounts;
  readonly orders: OrderCounts;
  readonly skus: readonly SkuSample[];
}

/** Units of one SKU; `total = available + held + pending + paid` once queues are at rest. */
export interface SkuSample {
  readonly skuId: string;
  readonly total: number;
  readonly available: number;
  /** Reserved, no order yet. */
  readonly held: number;
  /** Ordered, not paid. */
  readonly pending: number;
  readonly paid: number;
  readonly stockEpoch: number;
}

export interface SampledStores {
  readonly admission: Pick<AdmissionStore, 'counts'>;
  readonly inventory: Pick<InventoryStore, 'mark'>;
  readonly orders: Pick<OrderStore, 'counts' | 'stock'>;
  readonly queue: Pick<OrderQueue, 'backlog'>;
}

/** Asks every store once. O(SKUs); rejects with the stores' errors. */
export async function takeSample(
  stores: SampledStores,
  activities: readonly Activity[],
  nowMs: number,
): Promise<SaleSample> {
  const sampled: ActivitySample[] = [];
  for (const { activityId, skus } of activities) {
    const [room, orders] = await Promise.all([
      stores.admission.counts(activityId),
      stores.orders.counts(activityId),
    ]);
    const samples: SkuSample[] = [];
    for (const { skuId } of skus) {
      const sku = { activityId, skuId };
      const [mark, durable] = await Promise.all([
        stores.inventory.mark(sku),
        stores.orders.stock(sku),
      ]);
      // Not loaded yet: nothing is known, and nothing is said.
      if (mark === undefined) continue;
      const paid = durable?.paid ?? 0;
      samples.push({
        skuId,
        total: mark.total,
        available: mark.available,
        held: mark.held,
        pending: mark.ordered - paid,
        paid,
        stockEpoch: mark.stockEpoch,
      });
    }
    sampled.push({ activityId, room, orders, skus: samples });
  }
  return { takenAtMs: nowMs, activities: sampled, queue: await stores.queue.backlog(nowMs) };
}

/** Older than this a sample is no measurement any more. */
export const sampleStaleMs = 10_000;

/**
 * Keeps the last sample at hand, so that a scrape or the operator's page never waits for a store, and
 * never asks one more often than the period. A store that hangs costs one pending question, not one
 * per period.
 */
export class Sampler {
  readonly #take: () => Promise<SaleSample>;
  readonly #clock: Clock;
  readonly #onError: (error: unknown) => void;
  readonly #timer: TimerHandle;
  #pending: Promise<void> | undefined;
  #last: SaleSample | undefined;
  #takenUs = 0;

  constructor(parts: {
    readonly take: () => Promise<SaleSample>;
    readonly clock: Clock;
    readonly timers: Timers;
    readonly periodMs: number;
    readonly onError: (error: unknown) => void;
  }) {
    this.#take = parts.take;
    this.#clock = parts.clock;
    this.#onError = parts.onError;
    this.#timer = parts.timers.every(parts.periodMs, () => this.refresh());
  }

  /** The last sample, unless it is stale. */
  get current(): SaleSample | undefined {
    const ageUs = this.#clock.monoUs() - this.#takenUs;
    return ageUs > sampleStaleMs * 1000 ? undefined : this.#last;
  }

  /** Asks now, unless a question is under way. */
  refresh(): void {
    this.#pending ??= this.#take()
      .then(
        (sample) => {
          this.#last = sample;
          this.#takenUs = this.#clock.monoUs();
        },
        (error: unknown) => this.#onError(error),
      )
      .finally(() => {
        this.#pending = undefined;
      });
  }

  /** Stops asking, and waits for the question under way: its stores are about to close. */
  async close(): Promise<void> {
    this.#timer.cancel();
    await this.#pending;
  }
}
