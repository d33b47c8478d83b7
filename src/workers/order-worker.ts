/**
 * Turns queued reservations into orders.
 *
 *     receive ─► commitBatch ─► settle ─► acknowledge
 *
 * Every arrow may be where we die. Before the commit: nothing happened, the message comes again.
 * After it: the message comes again too, the commit repeats the fate it decided before, and settling
 * twice changes nothing. Only when the inventory store knows and the durable side knows is the
 * message forgotten. A commit whose outcome nobody knows is treated as one that failed: the
 * redelivered message finds out.
 *
 * One message that can never be committed must not take its neighbours with it. A batch that the
 * database refuses for what is in it is halved until the culprits stand alone; they are left to the
 * queue's visibility time, which spaces their attempts, and buried after a few. What becomes of a
 * buried message's units is the reconciliation's business, past its deadline.
 */
import type { InventoryStore } from '../ports/inventory-store.ts';
import type { Delivery, OrderMessage, OrderQueue } from '../ports/order-queue.ts';
import type { CommitContext, CommitFate, OrderStore } from '../ports/order-store.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { Random } from '../ports/random.ts';
import { orderIdOf } from '../core/orders/ids.ts';
import { type PassResult, WorkLoop } from './loop.ts';
import { bySku, fateOf } from './settle.ts';
import { SteadyWall } from './steady-wall.ts';

export interface OrderWorkerParts {
  readonly queue: OrderQueue;
  readonly orders: Pick<OrderStore, 'commitBatch'>;
  readonly inventory: Pick<InventoryStore, 'settle'>;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** How long an order of this activity may wait for its payment, ms. */
  readonly paymentDeadlineMs: (activityId: string) => number;
  readonly onEvent?: (event: OrderWorkerEvent) => void;
  /** Both sides know these fates: whoever waits on them may go on. May be told again. */
  readonly onSettled?: (messages: readonly OrderMessage[], fates: readonly CommitFate[]) => void;
}

export interface OrderWorkerSettings {
  /** Names this consumer to the queue. */
  readonly consumer: string;
  /** Messages in one transaction. One batch is under way at a time: no more than one database slot. */
  readonly batchMax?: number;
  /** Longest wait of one receive, ms. */
  readonly waitMs?: number;
  /** Tries of one message before it is buried. */
  readonly attemptsMax?: number;
  /** Ceiling on messages per second while a backlog replays; none by default. */
  readonly messagesPerSecond?: number;
}

export type OrderWorkerEvent =
  | { readonly kind: 'committed'; readonly ordered: number; readonly released: number }
  /** Redelivered: their fate was decided before. */
  | { readonly kind: 'repeated'; readonly count: number }
  | { readonly kind: 'refused'; readonly reservationId: string; readonly error: unknown }
  | { readonly kind: 'buried'; readonly reservationId: string; readonly reason: string }
  /** The wall clock leapt forward; deadlines do not follow it yet. */
  | { readonly kind: 'clock_leapt'; readonly byMs: number }
  | {
      readonly kind: 'blocked';
      readonly part: 'orders' | 'inventory' | 'queue';
      readonly error: unknown;
    };

export interface OrderPass {
  readonly received: number;
  readonly ordered: number;
  readonly released: number;
  readonly buried: number;
  /** Left to the queue: refused by the database, not yet given up. */
  readonly left: number;
  /** A part did not answer; its messages come again. */
  readonly blocked: boolean;
}

export class OrderWorker {
  readonly #parts: OrderWorkerParts;
  readonly #settings: Required<Omit<OrderWorkerSettings, 'messagesPerSecond'>>;
  readonly #loop: WorkLoop;
  readonly #messagesPerSecond: number | undefined;
  readonly #wall: SteadyWall;
  #stopped = false;

  constructor(parts: OrderWorkerParts, settings: OrderWorkerSettings) {
    this.#parts = parts;
    this.#wall = new SteadyWall(parts.clock, {
      onLeap: (byMs) => this.#tell({ kind: 'clock_leapt', byMs }),
    });
    this.#settings = {
      consumer: settings.consumer,
      batchMax: settings.batchMax ?? 500,
      waitMs: settings.waitMs ?? 1_000,
      attemptsMax: settings.attemptsMax ?? 5,
    };
    this.#messagesPerSecond = settings.messagesPerSecond;
    this.#loop = new WorkLoop({
      timers: parts.timers,
      random: parts.random,
      pass: () => this.#pass(),
      // `receive` waits by itself.
      idleMs: 0,
      backOffMs: { first: 50, most: 5_000 },
      onError: (error) => this.#tell({ kind: 'blocked', part: 'queue', error }),
    });
  }

  start(): void {
    this.#loop.start();
  }

  /** Finishes the batch under way. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#loop.stop();
  }

  /** One batch. Rejects only when the queue does not answer. */
  async runOnce(waitMs: number = this.#settings.waitMs): Promise<OrderPass> {
    const { queue } = this.#parts;
    const { consumer, batchMax } = this.#settings;
    const deliveries = await queue.receive(consumer, batchMax, waitMs);
    const tally = {
      received: deliveries.length,
      ordered: 0,
      released: 0,
      buried: 0,
      left: 0,
      blocked: false,
    };
    if (deliveries.length > 0) await this.#work(deliveries, tally);
    return tally;
  }

  async #pass(): Promise<PassResult> {
    if (this.#stopped) return 'idle';
    const pass = await this.runOnce();
    if (pass.blocked) return 'blocked';
    await this.#pace(pass.received);
    return 'more';
  }

  /** Leaves room for live orders while a backlog replays. */
  #pace(messages: number): Promise<void> {
    if (this.#messagesPerSecond === undefined || messages === 0) return Promise.resolve();
    const ms = (messages / this.#messagesPerSecond) * 1_000;
    return new Promise((resume) => {
      this.#parts.timers.after(ms, resume);
    });
  }

  async #work(deliveries: readonly Delivery[], tally: Mutable<OrderPass>): Promise<void> {
    let fates: readonly CommitFate[];
    try {
      fates = await this.#parts.orders.commitBatch(
        deliveries.map((delivery) => delivery.message),
        this.#context(),
      );
    } catch (error) {
      if (error instanceof UnavailableError || error instanceof OutcomeUnknownError) {
        await this.#returnAll(deliveries, 'orders', error, tally);
      } else if (deliveries.length === 1) {
        await this.#refused(deliveries[0], error, tally);
      } else {
        const half = Math.ceil(deliveries.length / 2);
        await this.#work(deliveries.slice(0, half), tally);
        await this.#work(deliveries.slice(half), tally);
      }
      return;
    }
    const fresh = fates.filter((fate) => fate.fresh);
    const ordered = fresh.filter((fate) => fate.fate === 'ordered').length;
    tally.ordered += ordered;
    tally.released += fresh.length - ordered;
    this.#tell({ kind: 'committed', ordered, released: fresh.length - ordered });
    if (fresh.length < fates.length) {
      this.#tell({ kind: 'repeated', count: fates.length - fresh.length });
    }
    if (!(await this.#settle(deliveries, fates, tally))) return;
    this.#parts.onSettled?.(
      deliveries.map((delivery) => delivery.message),
      fates,
    );
    await this.#acknowledge(deliveries, tally);
  }

  #context(): CommitContext {
    return {
      nowMs: this.#wall.nowMs(),
      paymentDeadlineMs: this.#parts.paymentDeadlineMs,
      orderId: (message) => orderIdOf(message.reservationId),
    };
  }

  async #settle(
    deliveries: readonly Delivery[],
    fates: readonly CommitFate[],
    tally: Mutable<OrderPass>,
  ): Promise<boolean> {
    const fateById = new Map(fates.map((fate) => [fate.reservationId, fate]));
    try {
      for (const { sku, items } of bySku(deliveries.map((delivery) => delivery.message))) {
        const told = items.flatMap((message) => {
          const fate = fateById.get(message.reservationId);
          return fate === undefined ? [] : [fateOf(fate)];
        });
        await this.#parts.inventory.settle(sku, told, this.#parts.clock.wallMs());
      }
      return true;
    } catch (error) {
      await this.#returnAll(deliveries, 'inventory', error, tally);
      return false;
    }
  }

  async #acknowledge(deliveries: readonly Delivery[], tally: Mutable<OrderPass>): Promise<void> {
    try {
      await this.#parts.queue.acknowledge(deliveries);
    } catch (error) {
      // Committed and settled: they come again, and nothing changes.
      tally.blocked = true;
      this.#tell({ kind: 'blocked', part: 'queue', error });
    }
  }

  async #refused(
    delivery: Delivery | undefined,
    error: unknown,
    tally: Mutable<OrderPass>,
  ): Promise<void> {
    if (delivery === undefined) return;
    const { reservationId } = delivery.message;
    this.#tell({ kind: 'refused', reservationId, error });
    if (delivery.attempt < this.#settings.attemptsMax) {
      tally.left += 1;
      return;
    }
    const reason = error instanceof Error ? error.message : String(error);
    try {
      await this.#parts.queue.bury(delivery, reason);
      tally.buried += 1;
      this.#tell({ kind: 'buried', reservationId, reason });
    } catch (buryError) {
      tally.left += 1;
      this.#tell({ kind: 'blocked', part: 'queue', error: buryError });
    }
  }

  async #returnAll(
    deliveries: readonly Delivery[],
    part: 'orders' | 'inventory',
    error: unknown,
    tally: Mutable<OrderPass>,
  ): Promise<void> {
    tally.blocked = true;
    this.#tell({ kind: 'blocked', part, error });
    try {
      await this.#parts.queue.giveBack(deliveries);
    } catch (giveBackError) {
      // The visibility time gives them back instead.
      this.#tell({ kind: 'blocked', part: 'queue', error: giveBackError });
    }
  }

  #tell(event: OrderWorkerEvent): void {
    this.#parts.onEvent?.(event);
  }
}

type Mutable<Fields> = { -readonly [Name in keyof Fields]: Fields[Name] };
