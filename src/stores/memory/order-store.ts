/**
 * The reference model of the order store: what the SQL does, said plainly, in memory and in one
 * turn. It passes the same contract suite as the real ones and serves worlds that run thousands of
 * histories. Keeps everything until it is dropped.
 */
import type { SkuKey } from '../../core/activity.ts';
import {
  decideBatch,
  personKey,
  requestKey,
  seatKey,
  skuKey,
} from '../../core/orders/decide-batch.ts';
import { assertOrderWays, holdsUnits, openPaymentStates } from '../../core/orders/states.ts';
import { UnknownSkuError } from '../../ports/errors.ts';
import type { ReleaseReason } from '../../ports/inventory-store.ts';
import type { OrderMessage } from '../../ports/order-queue.ts';
import type {
  AuditContext,
  AuditLog,
  AuditRow,
  CommitContext,
  CommitFate,
  DurableStock,
  LiveOrder,
  Order,
  OrderCounts,
  OrderSearch,
  OrderState,
  OrderStore,
  Payment,
  PaymentStore,
  ReleasableReservation,
  RequestFate,
  RestockDue,
  Tally,
  Transition,
  TransitionReply,
} from '../../ports/order-store.ts';
import { MemoryPayments } from './payments.ts';

interface Row {
  readonly facts: ReleasableReservation;
  readonly atMs: number;
  order: Order | undefined;
  readonly reason: ReleaseReason | undefined;
  due: 'release' | 'retake' | undefined;
  dueAtMs: number;
  version: number;
}

interface StockRow extends DurableStock {
  name: string;
  total: number;
  sold: number;
  paid: number;
  generation: number;
  stopped: boolean;
  readonly released: { count: number };
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const reasons: Partial<Record<OrderState, ReleaseReason>> = {
  EXPIRED: 'expired',
  CANCELLED: 'cancelled',
  REFUNDED: 'refunded',
};

export class MemoryOrderStore implements OrderStore {
  readonly payments: PaymentStore;
  readonly audit: AuditLog;
  readonly #rows = new Map<string, Row>();
  readonly #byOrder = new Map<string, Row>();
  readonly #stock = new Map<string, StockRow>();
  readonly #persons = new Map<string, { units: number; limit: number }>();
  readonly #seats = new Map<string, string>();
  /** Requests that have become an order, live or ended. */
  readonly #ordered = new Set<string>();
  readonly #adjustments = new Map<string, number>();
  readonly #audit: AuditRow[] = [];
  readonly #money: MemoryPayments;

  constructor() {
    this.#money = new MemoryPayments({
      order: (orderId) => this.#byOrder.get(orderId)?.order,
      canTake: (order) => this.#canTake(order),
      move: (order, to, why, paidBy) => this.#move(order, to, why, paidBy),
      note: (row) => this.#audit.push(row),
    });
    this.payments = this.#money;
    this.audit = {
      append: async (row) => void this.#audit.push(row),
      list: async (subject, limit) =>
        this.#audit
          .filter((row) => subject === undefined || row.subject === subject)
          .toReversed()
          .slice(0, limit),
    };
  }

  async declareSku(
    sku: SkuKey,
    row: { total: number; generation: number; name: string },
  ): Promise<void> {
    const known = this.#stock.get(skuKey(sku));
    if (known === undefined) {
      this.#stock.set(skuKey(sku), {
        ...row,
        sold: 0,
        paid: 0,
        stopped: false,
        released: { count: 0 },
      });
      return;
    }
    known.name = row.name;
    known.generation = Math.max(known.generation, row.generation);
  }

  async commitBatch(
    messages: readonly OrderMessage[],
    context: CommitContext,
  ): Promise<readonly CommitFate[]> {
    const decisions = decideBatch(
      messages,
      {
        fates: new Map(
          messages.flatMap(({ reservationId }) => {
            const row = this.#rows.get(reservationId);
            return row === undefined ? [] : [[reservationId, fateOf(row)] as const];
          }),
        ),
        personUnits: new Map(
          messages.map((message) => [
            personKey(message),
            this.#persons.get(personKey(message))?.units ?? 0,
          ]),
        ),
        stock: this.#stock,
        seats: new Set(this.#seats.keys()),
        ordered: this.#ordered,
      },
      context.nowMs,
    );
    for (const decision of decisions) {
      if (decision.kind === 'unknown_sku') {
        throw new UnknownSkuError(decision.message.activityId, decision.message.skuId);
      }
    }
    return decisions.map((decision): CommitFate => {
      switch (decision.kind) {
        case 'unknown_sku':
          throw new Error('refused above');
        case 'repeat':
          return decision.fate;
        case 'same_as':
          return { ...fateOf(this.#row(decision.reservationId)), fresh: false };
        case 'release':
          this.#release(decision.message, decision.reason, context.nowMs);
          return { ...fateOf(this.#row(decision.message.reservationId)), fresh: true };
        case 'order': {
          const order = newOrder(decision.message, context);
          const row = this.#keep(decision.message, context.nowMs, order, undefined);
          this.#byOrder.set(order.orderId, row);
          this.#ordered.add(requestKey(order));
          this.#take(order, decision.message.limit);
          return { reservationId: order.reservationId, fate: 'ordered', order, fresh: true };
        }
      }
    });
  }

  async releaseUnordered(
    reservations: Parameters<OrderStore['releaseUnordered']>[0],
    nowMs: number,
  ): Promise<readonly CommitFate[]> {
    return reservations.map(({ message, reason }) => {
      const known = this.#rows.get(message.reservationId);
      if (known !== undefined) return fateOf(known);
      this.#release(message, reason, nowMs);
      return { reservationId: message.reservationId, fate: 'released', reason, fresh: true };
    });
  }

  async fatesOf(reservationIds: readonly string[]): Promise<readonly CommitFate[]> {
    return [...new Set(reservationIds)].flatMap((id) => {
      const row = this.#rows.get(id);
      return row === undefined ? [] : [fateOf(row)];
    });
  }

  async orderById(orderId: string): Promise<Order | undefined> {
    return this.#byOrder.get(orderId)?.order;
  }

  async orderByReservation(reservationId: string): Promise<Order | undefined> {
    return this.#rows.get(reservationId)?.order;
  }

  async fateOfRequest(
    sku: SkuKey,
    userId: string,
    requestId: string,
  ): Promise<RequestFate | undefined> {
    const [newest] = [...this.#rows.values()]
      .filter(
        ({ facts }) =>
          facts.userId === userId && facts.requestId === requestId && skuKey(facts) === skuKey(sku),
      )
      .toSorted(
        (a, b) =>
          Number(b.order !== undefined) - Number(a.order !== undefined) ||
          b.atMs - a.atMs ||
          b.facts.generation - a.facts.generation,
      );
    if (newest === undefined) return undefined;
    const { reservationId, fingerprint, generation, quantity } = newest.facts;
    return {
      reservationId,
      requestId,
      fingerprint,
      generation,
      quantity,
      ...(newest.order === undefined
        ? { releasedReason: newest.reason ?? 'refused' }
        : { order: newest.order }),
    };
  }

  async liveOfPerson(sku: SkuKey, personId: string): Promise<readonly Order[]> {
    return this.#live(sku).filter((order) => order.personId === personId);
  }

  async transition(orderId: string, change: Transition): Promise<TransitionReply> {
    const [reply] = await this.transitionMany([orderId], change);
    return reply ?? { kind: 'unknown' };
  }

  async transitionMany(
    orderIds: readonly string[],
    change: Transition,
  ): Promise<readonly TransitionReply[]> {
    assertOrderWays(change.from, change.to);
    const done = new Map<string, TransitionReply>();
    for (const orderId of new Set(orderIds)) {
      const order = this.#byOrder.get(orderId)?.order;
      if (order === undefined) done.set(orderId, { kind: 'unknown' });
      else if (!change.from.includes(order.state)) done.set(orderId, { kind: 'refused', order });
      else {
        done.set(orderId, { kind: 'done', order: this.#move(order, change.to, change) });
      }
    }
    return orderIds.map((orderId) => done.get(orderId) ?? { kind: 'unknown' });
  }

  async dueForExpiry(nowMs: number, graceMs: number, limit: number): Promise<readonly Order[]> {
    return this.#orders()
      .filter(
        (order) =>
          order.state === 'PENDING_PAYMENT' &&
          order.payBeforeMs < nowMs &&
          (order.payBeforeMs < nowMs - graceMs ||
            !this.#money.has(order.orderId, openPaymentStates)),
      )
      .toSorted((a, b) => a.payBeforeMs - b.payBeforeMs)
      .slice(0, limit);
  }

  async restocksDue(limit: number): Promise<readonly RestockDue[]> {
    return [...this.#rows.values()]
      .filter((row) => row.due !== undefined)
      .toSorted(
        (a, b) => a.dueAtMs - b.dueAtMs || byText(a.facts.reservationId, b.facts.reservationId),
      )
      .slice(0, limit)
      .map((row) => {
        const { reservationId, activityId, skuId, userId, requestId, quantity } = row.facts;
        return {
          kind: row.due ?? 'release',
          version: row.version,
          reservationId,
          activityId,
          skuId,
          userId,
          requestId,
          quantity,
          reason: reasonOf(row),
        };
      });
  }

  async restocksDone(
    told: readonly { readonly reservationId: string; readonly version: number }[],
  ): Promise<void> {
    for (const { reservationId, version } of told) {
      const row = this.#rows.get(reservationId);
      if (row?.version === version) row.due = undefined;
    }
  }

  async liveOrders(
    sku: SkuKey,
    after: string | undefined,
    limit: number,
  ): Promise<readonly LiveOrder[]> {
    return this.#live(sku)
      .filter((order) => order.reservationId > (after ?? ''))
      .toSorted((a, b) => byText(a.reservationId, b.reservationId))
      .slice(0, limit)
      .map((order) => {
        const { nonce, fingerprint, generation } = this.#row(order.reservationId).facts;
        return { order, nonce, fingerprint, generation };
      });
  }

  async tally(sku: SkuKey): Promise<Tally> {
    const live = this.#live(sku);
    const units = (orders: readonly Order[]): number =>
      orders.reduce((sum, order) => sum + order.quantity, 0);
    let personsWrong = 0;
    for (const [key, { units: held }] of this.#persons) {
      if (!key.startsWith(`${skuKey(sku)} `)) continue;
      if (held !== units(live.filter((order) => personKey(order) === key))) personsWrong += 1;
    }
    return {
      sold: units(live),
      paid: units(live.filter((order) => order.state === 'PAID')),
      personsWrong,
    };
  }

  async stock(sku: SkuKey): Promise<DurableStock | undefined> {
    const row = this.#stock.get(skuKey(sku));
    if (row === undefined) return undefined;
    const { total, sold, paid, generation, stopped } = row;
    return { total, sold, paid, generation, stopped };
  }

  async adjustTotal(
    sku: SkuKey,
    adjustmentId: string,
    delta: number,
    why: AuditContext,
  ): Promise<boolean> {
    const earlier = this.#adjustments.get(adjustmentId);
    if (earlier !== undefined) {
      if (earlier === delta) return true;
      throw new RangeError(
        `adjustment ${adjustmentId} was made before with ${earlier}, found ${delta}`,
      );
    }
    const row = this.#stockOf(sku);
    if (row.total + delta < row.sold) return false;
    row.total += delta;
    this.#adjustments.set(adjustmentId, delta);
    const detail = { sku_id: sku.skuId, delta, adjustment_id: adjustmentId };
    this.#note(why, 'stock adjusted', sku.activityId, detail);
    return true;
  }

  async raiseGeneration(sku: SkuKey, generation: number, why: AuditContext): Promise<boolean> {
    const row = this.#stockOf(sku);
    if (row.generation >= generation) return false;
    row.generation = generation;
    this.#note(why, 'generation raised', sku.activityId, { sku_id: sku.skuId, generation });
    return true;
  }

  async setStopped(sku: SkuKey, stopped: boolean, why: AuditContext): Promise<boolean> {
    const row = this.#stock.get(skuKey(sku));
    if (row === undefined || row.stopped === stopped) return false;
    row.stopped = stopped;
    const what = stopped ? 'sale stopped' : 'sale reopened';
    this.#note(why, what, sku.activityId, { sku_id: sku.skuId });
    return true;
  }

  async counts(activityId?: string): Promise<OrderCounts> {
    const isOf = (id: string): boolean => activityId === undefined || id === activityId;
    const orders = this.#orders().filter((order) => isOf(order.activityId));
    const inState = (state: OrderState): number =>
      orders.filter((order) => order.state === state).length;
    let released = 0;
    for (const row of this.#rows.values()) {
      if (row.order === undefined && isOf(row.facts.activityId)) released += 1;
    }
    return {
      pending: inState('PENDING_PAYMENT'),
      paid: inState('PAID'),
      expired: inState('EXPIRED'),
      cancelled: inState('CANCELLED'),
      refunded: inState('REFUNDED'),
      released,
    };
  }

  async search(wanted: OrderSearch): Promise<readonly Order[]> {
    const { activityId, state, text, overdueAtMs, after, limit } = wanted;
    return this.#orders()
      .filter(
        (order) =>
          (activityId === undefined || order.activityId === activityId) &&
          (state === undefined || order.state === state) &&
          (after === undefined || order.orderId > after) &&
          (text === undefined ||
            [order.orderId, order.reservationId, order.requestId, order.userId].includes(text)) &&
          (overdueAtMs === undefined ||
            (order.state === 'PENDING_PAYMENT' && order.payBeforeMs < overdueAtMs)),
      )
      .toSorted((a, b) => byText(a.orderId, b.orderId))
      .slice(0, Math.min(1_000, Math.max(1, Math.floor(limit))));
  }

  async close(): Promise<void> {}

  /** Everything there is, at this instant: for whoever looks at a whole world. O(1), then O(orders). */
  *everyOrder(): Generator<Order> {
    for (const row of this.#rows.values()) if (row.order !== undefined) yield row.order;
  }

  /** Reservations with a fate, and the nonce that each was bound to. */
  *everyFate(): Generator<{
    readonly facts: ReleasableReservation;
    readonly live: boolean;
    readonly due: boolean;
  }> {
    for (const row of this.#rows.values()) {
      const live = row.order !== undefined && holdsUnits(row.order.state);
      yield { facts: row.facts, live, due: row.due !== undefined };
    }
  }

  isDecided(reservationId: string): boolean {
    return this.#rows.has(reservationId);
  }

  everyPayment(): readonly Payment[] {
    return this.#money.all();
  }

  stockNow(sku: SkuKey): DurableStock | undefined {
    return this.#stock.get(skuKey(sku));
  }

  #canTake(order: Order): boolean {
    const stock = this.#stockOf(order);
    const person = this.#persons.get(personKey(order)) ?? { units: 0, limit: 0 };
    return (
      person.units + order.quantity <= person.limit &&
      stock.sold + order.quantity <= stock.total &&
      !order.seats?.some((seat) => this.#seats.has(seatKey(order, seat)))
    );
  }

  #move(order: Order, to: OrderState, why: AuditContext, paidBy?: string): Order {
    const row = this.#row(order.reservationId);
    const stock = this.#stockOf(order);
    const person = this.#persons.get(personKey(order)) ?? { units: 0, limit: 0 };
    const back = holdsUnits(order.state) && !holdsUnits(to);
    const again = !holdsUnits(order.state) && holdsUnits(to);
    if (again) this.#take(order, person.limit);
    if (back) {
      stock.sold -= order.quantity;
      person.units -= order.quantity;
      for (const seat of order.seats ?? []) this.#seats.delete(seatKey(order, seat));
    }
    if (order.state === 'PAID') stock.paid -= order.quantity;
    if (to === 'PAID') stock.paid += order.quantity;
    if (back || again) {
      row.due = again ? 'retake' : 'release';
      row.dueAtMs = why.nowMs;
      row.version += 1;
    }
    const { closedAtMs: _, ...open } = order;
    row.order =
      to === 'PAID'
        ? { ...open, state: to, paidAtMs: why.nowMs, ...(paidBy === undefined ? {} : { paidBy }) }
        : { ...order, state: to, closedAtMs: why.nowMs };
    const detail = paidBy === undefined ? undefined : { payment_id: paidBy };
    this.#note(why, `order ${order.state} -> ${to}`, order.orderId, detail);
    return row.order;
  }

  #take(order: Order, limit: number): void {
    const stock = this.#stockOf(order);
    const units = (this.#persons.get(personKey(order))?.units ?? 0) + order.quantity;
    if (stock.sold + order.quantity > stock.total || units > limit) {
      throw new Error(`the model would oversell order ${order.orderId}`);
    }
    stock.sold += order.quantity;
    this.#persons.set(personKey(order), { units, limit });
    for (const seat of order.seats ?? []) {
      this.#seats.set(seatKey(order, seat), order.reservationId);
    }
  }

  #release(facts: ReleasableReservation, reason: ReleaseReason, atMs: number): void {
    const row = this.#keep(facts, atMs, undefined, reason);
    row.due = 'release';
    row.dueAtMs = atMs;
    row.version = 1;
  }

  #keep(
    facts: ReleasableReservation,
    atMs: number,
    order: Order | undefined,
    reason: ReleaseReason | undefined,
  ): Row {
    const row: Row = { facts, atMs, order, reason, due: undefined, dueAtMs: 0, version: 0 };
    this.#rows.set(facts.reservationId, row);
    return row;
  }

  #row(reservationId: string): Row {
    const row = this.#rows.get(reservationId);
    if (row === undefined) throw new Error(`the model lost reservation ${reservationId}`);
    return row;
  }

  #stockOf(sku: SkuKey): StockRow {
    const row = this.#stock.get(skuKey(sku));
    if (row === undefined) throw new UnknownSkuError(sku.activityId, sku.skuId);
    return row;
  }

  #orders(): readonly Order[] {
    return [...this.#byOrder.values()].flatMap((row) =>
      row.order === undefined ? [] : [row.order],
    );
  }

  #live(sku: SkuKey): readonly Order[] {
    return this.#orders().filter(
      (order) => skuKey(order) === skuKey(sku) && holdsUnits(order.state),
    );
  }

  #note(
    why: AuditContext,
    what: string,
    subject: string,
    detail?: Readonly<Record<string, unknown>>,
  ): void {
    const row = { at: why.nowMs, who: why.who, what, why: why.why, subject };
    this.#audit.push(detail === undefined ? row : { ...row, detail });
  }
}

function newOrder(message: OrderMessage, context: CommitContext): Order {
  const { reservationId, requestId, activityId, skuId, userId, personId, quantity } = message;
  return {
    orderId: context.orderId(message),
    reservationId,
    requestId,
    activityId,
    skuId,
    userId,
    personId,
    quantity,
    amountMinor: message.unitAmountMinor * quantity,
    currency: message.currency,
    state: 'PENDING_PAYMENT',
    createdAtMs: context.nowMs,
    payBeforeMs: context.nowMs + context.paymentDeadlineMs(activityId),
    ...(message.seats === undefined ? {} : { seats: message.seats }),
  };
}

function reasonOf(row: Row): ReleaseReason {
  return (row.order && reasons[row.order.state]) ?? row.reason ?? 'refused';
}

function fateOf(row: Row): CommitFate {
  const { reservationId } = row.facts;
  return row.order !== undefined && holdsUnits(row.order.state)
    ? { reservationId, fate: 'ordered', order: row.order, fresh: false }
    : { reservationId, fate: 'released', reason: reasonOf(row), fresh: false };
}
