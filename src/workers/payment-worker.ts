/**
 * Payments that do not come to an end by themselves: the callback was lost, the intent's answer never
 * came, money is due back. Asks the provider, at growing intervals, and decides by its answer. What
 * it cannot bring to an end stays listed, for the operator; nothing is decided by silence.
 */
import type { Clock, Timers } from '../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { OrderStore, Payment, PaymentState } from '../ports/order-store.ts';
import type { PaymentProvider } from '../ports/payment-provider.ts';
import type { Random } from '../ports/random.ts';
import { type PassResult, WorkLoop } from './loop.ts';
import type { PaymentService } from './payment-service.ts';
import { SteadyWall } from './steady-wall.ts';
import { inSlots, withinMs } from './within.ts';

export interface PaymentWorkerParts {
  readonly orders: Pick<OrderStore, 'payments'>;
  readonly service: Pick<PaymentService, 'applyEvent'>;
  readonly providers: readonly PaymentProvider[];
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly onEvent?: (event: PaymentWorkerEvent) => void;
}

export interface PaymentWorkerSettings {
  /** A payment this long without news is asked about, ms; the wait doubles with each try. */
  readonly askAfterMs?: number;
  /** The longest such wait, ms. */
  readonly askAtMostEveryMs?: number;
  /** Tries of a refund before the operator has to look. */
  readonly refundAttemptsMax?: number;
  /** Calls to providers at a time. */
  readonly slots?: number;
  readonly everyMs?: number;
  readonly batchMax?: number;
  readonly providerMs?: number;
}

export type PaymentWorkerEvent =
  | { readonly kind: 'asked'; readonly provider: string; readonly answer: string }
  | { readonly kind: 'refunded'; readonly provider: string }
  | { readonly kind: 'held'; readonly provider: string; readonly detail: string }
  /** The provider did not answer; asked again later. */
  | { readonly kind: 'no_answer'; readonly provider: string; readonly error: unknown }
  | { readonly kind: 'blocked'; readonly error: unknown };

export interface PaymentPass {
  readonly asked: number;
  readonly refunds: number;
}

const unfinished: readonly PaymentState[] = ['CREATED', 'PROCESSING', 'UNKNOWN'];
const who = 'worker:payments';

export class PaymentWorker {
  readonly #parts: PaymentWorkerParts;
  readonly #settings: Required<PaymentWorkerSettings>;
  readonly #providers: ReadonlyMap<string, PaymentProvider>;
  readonly #loop: WorkLoop;
  readonly #wall: SteadyWall;

  constructor(parts: PaymentWorkerParts, settings: PaymentWorkerSettings = {}) {
    this.#parts = parts;
    this.#wall = new SteadyWall(parts.clock);
    this.#settings = {
      askAfterMs: settings.askAfterMs ?? 5_000,
      askAtMostEveryMs: settings.askAtMostEveryMs ?? 300_000,
      refundAttemptsMax: settings.refundAttemptsMax ?? 10,
      slots: settings.slots ?? 8,
      everyMs: settings.everyMs ?? 1_000,
      batchMax: settings.batchMax ?? 200,
      providerMs: settings.providerMs ?? 5_000,
    };
    this.#providers = new Map(parts.providers.map((provider) => [provider.name, provider]));
    this.#loop = new WorkLoop({
      timers: parts.timers,
      random: parts.random,
      pass: () => this.#pass(),
      idleMs: this.#settings.everyMs,
      backOffMs: { first: 200, most: 30_000 },
      onError: (error) => parts.onEvent?.({ kind: 'blocked', error }),
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  nudge(): void {
    this.#loop.nudge();
  }

  /** Payments without an end for longer than `stuckMs`, oldest first: for the console and an alarm. */
  stuck(stuckMs: number, limit: number): Promise<readonly Payment[]> {
    const before = this.#wall.nowMs() - stuckMs;
    return this.#parts.orders.payments.startedBefore(
      [...unfinished, 'REFUND_DUE', 'HELD'],
      before,
      limit,
    );
  }

  /** One bounded look. Rejects when the order store does not answer. */
  async runOnce(): Promise<PaymentPass> {
    const nowMs = this.#wall.nowMs();
    const { payments } = this.#parts.orders;
    const { askAfterMs, slots, batchMax } = this.#settings;
    const silent = await payments.inState(unfinished, nowMs - askAfterMs, batchMax);
    const ask = silent.filter((payment) => this.#isTime(payment, nowMs, askAfterMs));
    await inSlots(ask, slots, (payment) => this.#ask(payment));
    const owed = await payments.inState(['REFUND_DUE'], nowMs + 1, batchMax);
    const refunds = owed.filter(
      (payment) => payment.attempts === 0 || this.#isTime(payment, nowMs, askAfterMs),
    );
    await inSlots(refunds, slots, (payment) => this.#refund(payment));
    return { asked: ask.length, refunds: refunds.length };
  }

  async #pass(): Promise<PassResult> {
    await this.runOnce();
    return 'idle';
  }

  /** Each try doubles the wait, up to the ceiling; the count survives restarts with the payment. */
  #isTime(payment: Payment, nowMs: number, firstMs: number): boolean {
    const waitMs = Math.min(
      firstMs * 2 ** Math.min(payment.attempts, 20),
      this.#settings.askAtMostEveryMs,
    );
    return nowMs - payment.updatedAtMs >= waitMs;
  }

  async #ask(payment: Payment): Promise<void> {
    const provider = this.#providers.get(payment.provider);
    if (provider === undefined) return;
    const { orders, service, timers, onEvent } = this.#parts;
    await orders.payments.noteAttempt(payment.paymentId, this.#wall.nowMs());
    const status = await this.#call(payment, () =>
      withinMs(timers, this.#settings.providerMs, `query at ${provider.name}`, () =>
        provider.query({ idempotencyKey: payment.paymentId, intentId: payment.intentId }),
      ),
    );
    if (status === undefined) return;
    onEvent?.({
      kind: 'asked',
      provider: provider.name,
      answer: status.kind === 'known' ? status.state : status.kind,
    });
    const nowMs = this.#wall.nowMs();
    if (status.kind === 'unknown_intent') {
      // No intent, no money: the buyer may try again.
      await orders.payments.setState(payment.paymentId, unfinished, 'FAILED', {
        who,
        why: 'the provider knows no such intent',
        nowMs,
      });
    } else if (status.state === 'processing') {
      await orders.payments.setIntent(payment.paymentId, status.intentId, 'PROCESSING', nowMs);
    } else {
      await service.applyEvent({
        provider: provider.name,
        eventId: `query:${payment.paymentId}:${status.state}`,
        intentId: status.intentId,
        orderId: payment.orderId,
        outcome: status.state,
        amountMinor: status.amountMinor,
        currency: status.currency,
      });
    }
  }

  async #refund(payment: Payment): Promise<void> {
    const provider = this.#providers.get(payment.provider);
    if (provider === undefined) return;
    const { orders, service, timers, onEvent } = this.#parts;
    const attempts = await orders.payments.noteAttempt(payment.paymentId, this.#wall.nowMs());
    const reply = await this.#call(payment, () =>
      withinMs(timers, this.#settings.providerMs, `refund at ${provider.name}`, () =>
        provider.refund({
          idempotencyKey: `refund:${payment.paymentId}`,
          intentId: payment.intentId,
          amountMinor: payment.amountMinor,
          currency: payment.currency,
        }),
      ),
    );
    if (reply?.state === 'refunded') {
      await service.applyEvent({
        provider: provider.name,
        eventId: `refund:${payment.paymentId}`,
        intentId: payment.intentId,
        orderId: payment.orderId,
        outcome: 'refunded',
        amountMinor: payment.amountMinor,
        currency: payment.currency,
      });
      onEvent?.({ kind: 'refunded', provider: provider.name });
      return;
    }
    const givenUp = attempts >= this.#settings.refundAttemptsMax;
    if (reply?.state !== 'refused' && !givenUp) return;
    const detail = reply?.state === 'refused' ? reply.detail : `${attempts} tries without an end`;
    await orders.payments.setState(payment.paymentId, ['REFUND_DUE'], 'HELD', {
      who,
      why: `refund: ${detail}`,
      nowMs: this.#wall.nowMs(),
    });
    onEvent?.({ kind: 'held', provider: provider.name, detail });
  }

  /** Undefined when the provider did not answer: that decides nothing. */
  async #call<Reply>(payment: Payment, call: () => Promise<Reply>): Promise<Reply | undefined> {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof UnavailableError) && !(error instanceof OutcomeUnknownError)) {
        throw error;
      }
      this.#parts.onEvent?.({ kind: 'no_answer', provider: payment.provider, error });
      return undefined;
    }
  }
}
