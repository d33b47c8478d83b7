import {
  type Judgement,
  judgeAcceptance,
  judgePaymentEvent,
} from '../../core/orders/judge-payment.ts';
import { assertPaymentWays, mayPayment, openPaymentStates } from '../../core/orders/states.ts';
import type {
  AuditContext,
  AuditRow,
  Order,
  OrderState,
  Payment,
  PaymentEvent,
  PaymentEventReply,
  PaymentState,
  PaymentStore,
} from '../../ports/order-store.ts';

/** What payments need of the orders beside them. */
export interface OrdersBeside {
  readonly order: (orderId: string) => Order | undefined;
  /** Could this order's units be taken again? */
  readonly canTake: (order: Order) => boolean;
  readonly move: (order: Order, to: OrderState, why: AuditContext, paidBy?: string) => Order;
  readonly note: (row: AuditRow) => void;
}

/** Payments of the reference model. */
export class MemoryPayments implements PaymentStore {
  readonly #beside: OrdersBeside;
  readonly #payments = new Map<string, Payment>();
  readonly #events = new Map<string, { event: PaymentEvent; applied: boolean }>();

  constructor(beside: OrdersBeside) {
    this.#beside = beside;
  }

  has(orderId: string, states: readonly PaymentState[]): boolean {
    return this.#of(orderId).some((payment) => states.includes(payment.state));
  }

  async begin(
    orderId: string,
    provider: string,
    paymentId: string,
    nowMs: number,
  ): Promise<Payment | undefined> {
    const order = this.#beside.order(orderId);
    if (order === undefined) return undefined;
    const open = this.#of(orderId).find(
      (payment) =>
        payment.provider === provider && [...openPaymentStates, 'HELD'].includes(payment.state),
    );
    if (open !== undefined) return open;
    if (order.state !== 'PENDING_PAYMENT' || nowMs > order.payBeforeMs) return undefined;
    return this.#make(order, provider, paymentId, '', nowMs);
  }

  async setIntent(
    paymentId: string,
    intentId: string,
    state: PaymentState,
    nowMs: number,
  ): Promise<void> {
    const payment = this.#payments.get(paymentId);
    if (payment === undefined) return;
    const may = mayPayment(payment.state, state);
    this.#payments.set(paymentId, {
      ...payment,
      intentId: payment.intentId || intentId,
      updatedAtMs: nowMs,
      ...(may ? { state, attempts: 0 } : {}),
    });
  }

  async noteAttempt(paymentId: string, nowMs: number): Promise<number> {
    const payment = this.#payments.get(paymentId);
    if (payment === undefined) return 0;
    const attempts = payment.attempts + 1;
    this.#payments.set(paymentId, { ...payment, attempts, updatedAtMs: nowMs });
    return attempts;
  }

  async setState(
    paymentId: string,
    from: readonly PaymentState[],
    to: PaymentState,
    why: AuditContext,
  ): Promise<boolean> {
    assertPaymentWays(from, to);
    const payment = this.#payments.get(paymentId);
    if (payment === undefined || !from.includes(payment.state)) return false;
    this.#set(payment, { state: to, reason: why.why }, why);
    return true;
  }

  async applyEvent(event: PaymentEvent, nowMs: number): Promise<PaymentEventReply> {
    const key = `${event.provider} ${event.eventId}`;
    const order = this.#beside.order(event.orderId);
    const payment = order === undefined ? undefined : this.#ofEvent(order, event, nowMs);
    if (order === undefined || payment === undefined) {
      if (!this.#events.has(key)) this.#events.set(key, { event, applied: false });
      return { kind: 'unknown_order' };
    }
    if (this.#events.get(key)?.applied === true) return { kind: 'duplicate' };
    this.#events.set(key, { event, applied: true });

    const paidOrder = order.paidBy === payment.paymentId;
    const judged = judgePaymentEvent(order.state, { ...payment, paidOrder }, event);
    const { amountMinor, currency } = event;
    return this.#apply(order, payment, judged, { amountMinor, currency }, (effect) => ({
      who: `provider:${event.provider}`,
      why: effect,
      nowMs,
    }));
  }

  async accept(paymentId: string, why: AuditContext): Promise<PaymentEventReply> {
    const payment = this.#payments.get(paymentId);
    if (payment === undefined) return { kind: 'unknown_order' };
    const order = this.#beside.order(payment.orderId);
    if (order === undefined || payment.state !== 'HELD') return { kind: 'duplicate' };
    return this.#apply(order, payment, judgeAcceptance(order.state), {}, () => why);
  }

  #apply(
    order: Order,
    payment: Payment,
    judged: Judgement,
    came: Partial<Payment>,
    whyOf: (effect: string) => AuditContext,
  ): PaymentEventReply {
    const decided =
      judged.kind === 'move'
        ? judged.move
        : this.#beside.canTake(order)
          ? judged.taken
          : judged.gone;
    const { effect } = decided;
    const why = whyOf(effect);
    let kept = payment;
    if (decided.payment !== undefined) {
      const change = {
        state: decided.payment,
        reason: decided.payment === 'REFUNDED' ? payment.reason : effect,
      };
      kept = this.#set(payment, decided.payment === 'HELD' ? { ...change, ...came } : change, why);
    }
    let after = order;
    if (decided.order !== undefined) {
      const paidBy = decided.order === 'PAID' ? payment.paymentId : undefined;
      after = this.#beside.move(order, decided.order, why, paidBy);
    }
    return { kind: 'applied', payment: kept, order: after, effect };
  }

  async inState(
    states: readonly PaymentState[],
    updatedBeforeMs: number,
    limit: number,
  ): Promise<readonly Payment[]> {
    return this.all()
      .filter((one) => states.includes(one.state) && one.updatedAtMs < updatedBeforeMs)
      .toSorted((a, b) => a.updatedAtMs - b.updatedAtMs)
      .slice(0, limit);
  }

  async startedBefore(
    states: readonly PaymentState[],
    createdBeforeMs: number,
    limit: number,
  ): Promise<readonly Payment[]> {
    return this.all()
      .filter((one) => states.includes(one.state) && one.createdAtMs < createdBeforeMs)
      .slice(0, limit);
  }

  async ofOrder(orderId: string): Promise<readonly Payment[]> {
    return this.#of(orderId);
  }

  async byId(paymentId: string): Promise<Payment | undefined> {
    return this.#payments.get(paymentId);
  }

  async misplaced(limit: number): Promise<readonly Payment[]> {
    return this.all()
      .filter((one) => one.state === 'CONFIRMED')
      .filter((one) => {
        const order = this.#beside.order(one.orderId);
        return order?.state !== 'PAID' || order.paidBy !== one.paymentId;
      })
      .slice(0, limit);
  }

  async unmatched(limit: number): Promise<readonly PaymentEvent[]> {
    return [...this.#events.values()]
      .filter((entry) => !entry.applied)
      .map((entry) => entry.event)
      .slice(0, limit);
  }

  /** Every payment, in the order in which they were begun. */
  all(): readonly Payment[] {
    return [...this.#payments.values()];
  }

  #of(orderId: string): readonly Payment[] {
    return this.all().filter((payment) => payment.orderId === orderId);
  }

  #ofEvent(order: Order, event: PaymentEvent, nowMs: number): Payment | undefined {
    const ofProvider = this.all().filter((one) => one.provider === event.provider);
    const known = ofProvider.find((one) => one.intentId === event.intentId);
    if (known !== undefined) return known.orderId === order.orderId ? known : undefined;
    const nameless = ofProvider.findLast(
      (one) => one.orderId === order.orderId && one.intentId === '',
    );
    if (nameless === undefined) {
      const id = `pay_${event.provider}_${event.intentId}`;
      return this.#make(order, event.provider, id, event.intentId, nowMs);
    }
    const named = { ...nameless, intentId: event.intentId };
    this.#payments.set(named.paymentId, named);
    return named;
  }

  #make(
    order: Order,
    provider: string,
    paymentId: string,
    intentId: string,
    nowMs: number,
  ): Payment {
    const payment: Payment = {
      paymentId,
      orderId: order.orderId,
      provider,
      intentId,
      amountMinor: order.amountMinor,
      currency: order.currency,
      state: 'CREATED',
      reason: '',
      attempts: 0,
      createdAtMs: nowMs,
      updatedAtMs: nowMs,
    };
    this.#payments.set(paymentId, payment);
    return payment;
  }

  #set(payment: Payment, change: Partial<Payment>, why: AuditContext): Payment {
    const after = { ...payment, ...change, attempts: 0, updatedAtMs: why.nowMs };
    this.#payments.set(payment.paymentId, after);
    this.#beside.note({
      at: why.nowMs,
      who: why.who,
      what: `payment ${payment.state} -> ${after.state}`,
      why: why.why,
      subject: payment.orderId,
      detail: { payment_id: payment.paymentId },
    });
    return after;
  }
}
