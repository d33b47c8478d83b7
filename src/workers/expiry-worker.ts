/**
 * Ends what has run out of time, and tells the inventory store what the durable side has decided:
 * orders past their payment deadline expire (with a grace while money is on its way), and units due
 * back, from whatever cause, go back.
 */
import type { Clock, Timers } from '../ports/clock.ts';
import type { InventoryStore } from '../ports/inventory-store.ts';
import type { OrderStore, RestockDue } from '../ports/order-store.ts';
import type { Random } from '../ports/random.ts';
import { type PassResult, WorkLoop } from './loop.ts';
import { settleDue } from './settle.ts';
import { SteadyWall } from './steady-wall.ts';

export interface ExpiryWorkerParts {
  readonly orders: Pick<
    OrderStore,
    'dueForExpiry' | 'transitionMany' | 'restocksDue' | 'restocksDone'
  >;
  readonly inventory: Pick<InventoryStore, 'settle' | 'find'>;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly onEvent?: (event: ExpiryWorkerEvent) => void;
  /** Units of these reservations are back: their people may try again. May be told again. */
  readonly onReturned?: (returned: readonly RestockDue[]) => void;
}

export interface ExpiryWorkerSettings {
  /** Past the deadline, how long a payment in PROCESSING or UNKNOWN keeps its order, ms. */
  readonly graceMs?: number;
  /** Between two looks, ms. */
  readonly everyMs?: number;
  /** Orders in one transaction, and units told in one pass. */
  readonly batchMax?: number;
}

export type ExpiryWorkerEvent =
  | { readonly kind: 'expired'; readonly count: number }
  | { readonly kind: 'told'; readonly count: number }
  | { readonly kind: 'waiting'; readonly count: number }
  /** The wall clock leapt forward; deadlines do not follow it yet. */
  | { readonly kind: 'clock_leapt'; readonly byMs: number }
  | { readonly kind: 'blocked'; readonly error: unknown };

export interface ExpiryPass {
  readonly expired: number;
  readonly told: number;
  /** Units of late payers that somebody else holds in the inventory store. */
  readonly waiting: number;
}

export const graceDefaultMs = 60_000;

export class ExpiryWorker {
  readonly #parts: ExpiryWorkerParts;
  readonly #graceMs: number;
  readonly #batchMax: number;
  readonly #loop: WorkLoop;
  readonly #wall: SteadyWall;

  constructor(parts: ExpiryWorkerParts, settings: ExpiryWorkerSettings = {}) {
    this.#parts = parts;
    this.#wall = new SteadyWall(parts.clock, {
      onLeap: (byMs) => parts.onEvent?.({ kind: 'clock_leapt', byMs }),
    });
    this.#graceMs = settings.graceMs ?? graceDefaultMs;
    this.#batchMax = settings.batchMax ?? 500;
    this.#loop = new WorkLoop({
      timers: parts.timers,
      random: parts.random,
      pass: () => this.#pass(),
      idleMs: settings.everyMs ?? 500,
      backOffMs: { first: 200, most: 10_000 },
      onError: (error) => parts.onEvent?.({ kind: 'blocked', error }),
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** Something was cancelled or refunded: its unit need not wait for the next look. */
  nudge(): void {
    this.#loop.nudge();
  }

  /** One bounded look. Rejects when a store does not answer; nothing is lost by that. */
  async runOnce(): Promise<ExpiryPass> {
    const { orders, inventory, onEvent } = this.#parts;
    const nowMs = this.#wall.nowMs();
    const due = await orders.dueForExpiry(nowMs, this.#graceMs, this.#batchMax);
    const replies = await orders.transitionMany(
      due.map((order) => order.orderId),
      {
        from: ['PENDING_PAYMENT'],
        to: 'EXPIRED',
        who: 'worker:expiry',
        why: 'payment deadline passed',
        nowMs,
      },
    );
    const expired = replies.filter((reply) => reply.kind === 'done').length;
    if (expired > 0) onEvent?.({ kind: 'expired', count: expired });
    const { told, waiting, returned } = await settleDue(orders, inventory, nowMs, this.#batchMax);
    if (returned.length > 0) this.#parts.onReturned?.(returned);
    if (told > 0) onEvent?.({ kind: 'told', count: told });
    if (waiting > 0) onEvent?.({ kind: 'waiting', count: waiting });
    return { expired, told, waiting };
  }

  async #pass(): Promise<PassResult> {
    const pass = await this.runOnce();
    const full = pass.expired >= this.#batchMax || pass.told >= this.#batchMax;
    return full ? 'more' : 'idle';
  }
}
