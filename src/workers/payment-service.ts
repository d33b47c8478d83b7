/**
 * Paying, cancelling, and what providers call back to say. Refusals are values; rejections are the
 * stores' own (UnavailableError, OutcomeUnknownError), after any of which the same call may be made
 * again: intents are asked for by a key that stays, events are deduplicated, transitions guarded.
 */
import type {
  Order,
  OrderStore,
  Payment,
  PaymentEvent,
  PaymentEventReply,
} from '../ports/order-store.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import { OutcomeUnknownError } from '../ports/errors.ts';
import type { IntentReply, PaymentProvider } from '../ports/payment-provider.ts';
import { type Random, newId } from '../ports/random.ts';
import { SteadyWall } from './steady-wall.ts';
import { withinMs } from './within.ts';

export interface PaymentServiceParts {
  readonly orders: Pick<OrderStore, 'orderById' | 'transition' | 'payments'>;
  /** The first is asked when the buyer names none. */
  readonly providers: readonly PaymentProvider[];
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** Longest wait for a provider, ms. Default 5,000. */
  readonly providerMs?: number;
  /** Units or money are due back: whoever returns them need not wait for its next look. */
  readonly onDue?: (what: 'units' | 'money') => void;
  readonly onEvent?: (event: PaymentServiceEvent) => void;
}

export type PaymentServiceEvent =
  | { readonly kind: 'applied'; readonly effect: string; readonly provider: string }
  /** Money that found no order: the operator is to look. */
  | { readonly kind: 'unmatched'; readonly provider: string }
  | { readonly kind: 'unknown_outcome'; readonly provider: string; readonly error: unknown };

export type PayResult =
  | { readonly kind: 'done'; readonly order: Order; readonly payment: Payment }
  /** The order cannot be paid now: paid already, past its deadline, cancelled, or money is held. */
  | { readonly kind: 'refused'; readonly order: Order };

export type CancelResult =
  | { readonly kind: 'done'; readonly order: Order }
  | { readonly kind: 'refused'; readonly order: Order };

export type CallbackResult =
  | { readonly kind: 'accepted'; readonly duplicate: boolean }
  | { readonly kind: 'unknown_provider' }
  | { readonly kind: 'bad_signature' }
  | { readonly kind: 'bad_body'; readonly detail: string }
  | { readonly kind: 'unknown_order' };

export class PaymentService {
  readonly #parts: PaymentServiceParts;
  readonly #providers: ReadonlyMap<string, PaymentProvider>;
  readonly #providerMs: number;
  readonly #wall: SteadyWall;

  constructor(parts: PaymentServiceParts) {
    this.#parts = parts;
    // What is stamped by a clock that has leapt ahead would be young until that time has come.
    this.#wall = new SteadyWall(parts.clock);
    this.#providers = new Map(parts.providers.map((provider) => [provider.name, provider]));
    this.#providerMs = parts.providerMs ?? 5_000;
  }

  /** True where buyers pay at the built-in demo provider. */
  get demo(): boolean {
    return this.#providers.has('demo');
  }

  /** Begins to pay, or tells how the payment begun before stands. `method` is the provider's word. */
  async pay(order: Order, method?: string): Promise<PayResult> {
    const { orders, random } = this.#parts;
    const [provider] = this.#parts.providers;
    if (provider === undefined) return { kind: 'refused', order };
    const payment = await orders.payments.begin(
      order.orderId,
      provider.name,
      newId(random, 'pay'),
      this.#wall.nowMs(),
    );
    if (payment === undefined || payment.state === 'HELD') {
      return { kind: 'refused', order: await this.#fresh(order) };
    }
    if (payment.state === 'CREATED') await this.#askForIntent(provider, payment, method);
    return {
      kind: 'done',
      order: await this.#fresh(order),
      payment: (await orders.payments.byId(payment.paymentId)) ?? payment,
    };
  }

  async cancel(order: Order): Promise<CancelResult> {
    const reply = await this.#parts.orders.transition(order.orderId, {
      from: ['PENDING_PAYMENT'],
      to: 'CANCELLED',
      who: 'buyer',
      why: 'cancelled by the buyer',
      nowMs: this.#wall.nowMs(),
    });
    if (reply.kind === 'unknown') return { kind: 'refused', order };
    if (reply.kind === 'done') this.#parts.onDue?.('units');
    return reply;
  }

  /** Signature first; then the event, once, whatever the order in which events come. */
  async callback(
    providerName: string,
    rawBody: Uint8Array,
    headers: Readonly<Record<string, string | undefined>>,
  ): Promise<CallbackResult> {
    const provider = this.#providers.get(providerName);
    if (provider === undefined) return { kind: 'unknown_provider' };
    const verdict = provider.verifyCallback(rawBody, headers, this.#wall.nowMs());
    switch (verdict.kind) {
      case 'bad_signature':
        return { kind: 'bad_signature' };
      case 'bad_body':
        return verdict;
      case 'event':
        return this.applyEvent({ ...verdict.event, provider: providerName });
    }
  }

  /** An event that is already believed: from a verified callback or from a query. */
  async applyEvent(event: PaymentEvent): Promise<CallbackResult> {
    const { orders, onEvent } = this.#parts;
    const reply = await orders.payments.applyEvent(event, this.#wall.nowMs());
    if (reply.kind === 'unknown_order') {
      onEvent?.({ kind: 'unmatched', provider: event.provider });
      return { kind: 'unknown_order' };
    }
    if (reply.kind === 'duplicate') return { kind: 'accepted', duplicate: true };
    this.#tellApplied(reply, event.provider);
    return { kind: 'accepted', duplicate: false };
  }

  /** An operator gives a paid order's money back; the order follows once the provider has done it. */
  async refund(orderId: string, who: string, why: string): Promise<boolean> {
    const { orders, onDue } = this.#parts;
    const order = await orders.orderById(orderId);
    if (order?.paidBy === undefined) return false;
    const due = await orders.payments.setState(order.paidBy, ['CONFIRMED'], 'REFUND_DUE', {
      who,
      why,
      nowMs: this.#wall.nowMs(),
    });
    if (due) onDue?.('money');
    return due;
  }

  /** An operator takes held money as it is. False when it is not held (any more). */
  async acceptHeld(paymentId: string, who: string, why: string): Promise<boolean> {
    const { orders } = this.#parts;
    const reply = await orders.payments.accept(paymentId, { who, why, nowMs: this.#wall.nowMs() });
    if (reply.kind !== 'applied') return false;
    this.#tellApplied(reply, reply.payment.provider);
    return true;
  }

  /** An operator sends held money back. */
  async refundHeld(paymentId: string, who: string, why: string): Promise<boolean> {
    const { orders, onDue } = this.#parts;
    const due = await orders.payments.setState(paymentId, ['HELD'], 'REFUND_DUE', {
      who,
      why,
      nowMs: this.#wall.nowMs(),
    });
    if (due) onDue?.('money');
    return due;
  }

  async #askForIntent(
    provider: PaymentProvider,
    payment: Payment,
    method: string | undefined,
  ): Promise<void> {
    const { orders, timers, onEvent } = this.#parts;
    let reply: IntentReply;
    try {
      reply = await withinMs(timers, this.#providerMs, `intent at ${provider.name}`, () =>
        provider.createIntent({
          idempotencyKey: payment.paymentId,
          orderId: payment.orderId,
          amountMinor: payment.amountMinor,
          currency: payment.currency,
          ...(method === undefined ? {} : { method }),
        }),
      );
    } catch (error) {
      if (!(error instanceof OutcomeUnknownError)) throw error;
      // Not a failure: the worker asks the provider what became of it, and then decides.
      onEvent?.({ kind: 'unknown_outcome', provider: provider.name, error });
      await orders.payments.setState(payment.paymentId, ['CREATED'], 'UNKNOWN', {
        who: 'payment service',
        why: 'no answer to the intent',
        nowMs: this.#wall.nowMs(),
      });
      return;
    }
    await orders.payments.setIntent(
      payment.paymentId,
      reply.intentId,
      'PROCESSING',
      this.#wall.nowMs(),
    );
    if (reply.state !== 'processing') {
      await this.applyEvent({
        provider: provider.name,
        eventId: `intent:${payment.paymentId}:${reply.state}`,
        intentId: reply.intentId,
        orderId: payment.orderId,
        outcome: reply.state,
        amountMinor: payment.amountMinor,
        currency: payment.currency,
      });
    }
  }

  #tellApplied(reply: Extract<PaymentEventReply, { kind: 'applied' }>, provider: string): void {
    const { onDue, onEvent } = this.#parts;
    onEvent?.({ kind: 'applied', effect: reply.effect, provider });
    if (reply.payment.state === 'REFUND_DUE') onDue?.('money');
    if (reply.effect === 'order_paid_late' || reply.order.state === 'REFUNDED') onDue?.('units');
  }

  async #fresh(order: Order): Promise<Order> {
    return (await this.#parts.orders.orderById(order.orderId)) ?? order;
  }
}
