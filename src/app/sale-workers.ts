import type { Activity } from '../core/activity.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { OrderMessage } from '../ports/order-queue.ts';
import type { CommitFate, RestockDue } from '../ports/order-store.ts';
import type { PaymentProvider } from '../ports/payment-provider.ts';
import type { Random } from '../ports/random.ts';
import { DemoProvider } from '../workers/demo-provider.ts';
import { ExpiryWorker } from '../workers/expiry-worker.ts';
import { OrderWorker } from '../workers/order-worker.ts';
import { PaymentService } from '../workers/payment-service.ts';
import { PaymentWorker } from '../workers/payment-worker.ts';
import type { Stores } from './embedded-stores.ts';
import { Relaying } from './relaying.ts';

export interface SaleWorkersParts {
  readonly stores: Stores;
  readonly activity: (activityId: string) => Activity | undefined;
  readonly paymentGraceMs: number;
  /** Signs the demo provider's callbacks; without it buyers cannot pay here. */
  readonly demoSecret?: string;
  /** The way out to a provider; straight to it when absent. */
  readonly guardProvider?: (provider: PaymentProvider) => PaymentProvider;
  readonly consumer: string;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly onEvent: (worker: string, event: { readonly kind: string }) => void;
  readonly onSettled: (messages: readonly OrderMessage[], fates: readonly CommitFate[]) => void;
  readonly onReturned: (returned: readonly RestockDue[]) => void;
}

/** What an order of an activity that is no longer configured gets, ms. */
const orphanPaymentDeadlineMs = 15 * 60_000;

/** Everything that turns reservations into orders, ends them, and moves money; each with one loop. */
export class SaleWorkers {
  readonly payments: PaymentService;
  readonly orders: OrderWorker;
  readonly expiry: ExpiryWorker;
  readonly money: PaymentWorker;
  /** Where the queue is a broker. */
  readonly relaying: Relaying | undefined;
  readonly #demo: DemoProvider | undefined;

  constructor(parts: SaleWorkersParts) {
    const { stores, clock, timers, random, onEvent } = parts;
    const world = { clock, timers, random };
    this.#demo =
      parts.demoSecret === undefined
        ? undefined
        : new DemoProvider({
            secret: parts.demoSecret,
            clock,
            timers,
            deliver: async (body, headers) => {
              await this.payments.callback('demo', body, headers);
            },
            onError: (error) => onEvent('demo_provider', tagged('blocked', error)),
          });
    const { guardProvider = (provider) => provider } = parts;
    const providers = this.#demo === undefined ? [] : [guardProvider(this.#demo)];
    this.payments = new PaymentService({
      ...world,
      orders: stores.orders,
      providers,
      onDue: (what) => (what === 'units' ? this.expiry : this.money).nudge(),
      onEvent: (event) => onEvent('payments', event),
    });
    this.orders = new OrderWorker(
      {
        ...world,
        queue: stores.queue,
        orders: stores.orders,
        inventory: stores.inventory,
        paymentDeadlineMs: (activityId) =>
          parts.activity(activityId)?.paymentDeadlineMs ?? orphanPaymentDeadlineMs,
        onEvent: (event) => onEvent('orders', event),
        onSettled: parts.onSettled,
      },
      { consumer: parts.consumer },
    );
    this.expiry = new ExpiryWorker(
      {
        ...world,
        orders: stores.orders,
        inventory: stores.inventory,
        onEvent: (event) => onEvent('expiry', event),
        onReturned: parts.onReturned,
      },
      { graceMs: parts.paymentGraceMs },
    );
    this.money = new PaymentWorker({
      ...world,
      orders: stores.orders,
      service: this.payments,
      providers,
      onEvent: (event) => onEvent('money', event),
    });
    this.relaying =
      stores.relay === undefined
        ? undefined
        : new Relaying({
            ...world,
            ...stores.relay,
            instance: parts.consumer,
            onEvent: (event) => onEvent('relay', event),
          });
  }

  start(): void {
    this.orders.start();
    this.expiry.start();
    this.money.start();
    this.relaying?.start();
  }

  /** Finishes what is under way in each loop. */
  async stop(): Promise<void> {
    this.#demo?.close();
    await Promise.all([
      this.relaying?.stop(),
      this.orders.stop(),
      this.expiry.stop(),
      this.money.stop(),
    ]);
  }
}

function tagged(kind: string, error: unknown): { readonly kind: string; readonly error: unknown } {
  return { kind, error };
}
