import { holdsUnits, mayOrder } from '../core/orders/states.ts';
import { skuName } from '../core/stock/stock-machine.ts';
import type { Delivery, OrderMessage } from '../ports/order-queue.ts';
import type { CommitFate, Order, OrderState, PaymentState } from '../ports/order-store.ts';
import type { Oracle } from './oracle.ts';
import { type World, activityId } from './world.ts';

/** Orders and money as the durable side keeps them. */
export class OrderWatch {
  /** Orders by state, as in `stateIndex`. */
  readonly counts = [0, 0, 0, 0, 0];
  readonly #world: World;
  readonly #oracle: Oracle;
  readonly #orderStates = new Map<string, OrderState>();
  readonly #paymentStates = new Map<string, PaymentState>();

  constructor(world: World, oracle: Oracle) {
    this.#world = world;
    this.#oracle = oracle;
  }

  /** Nobody is released for a deadline that has not come, whatever clocks say. */
  committed(messages: readonly OrderMessage[], fates: readonly CommitFate[]): void {
    for (const [at, fate] of fates.entries()) {
      const message = messages[at];
      if (message === undefined || !fate.fresh) continue;
      if (fate.fate === 'ordered') {
        const stock = this.#world.servers.orders.stockNow(message);
        this.#oracle.check(
          stock === undefined || message.generation >= stock.generation,
          '1',
          () =>
            `${message.reservationId} of generation ${message.generation} became an order in ` +
            `generation ${stock?.generation ?? 0}`,
        );
        continue;
      }
      this.#oracle.edge(`released ${fate.reason}`);
      this.#oracle.check(
        fate.reason !== 'deadline' || this.#world.trueMs > message.deadlineMs - clockToleranceMs,
        'deadline',
        () => `${message.reservationId} was released long before its deadline`,
      );
    }
  }

  /** Forgotten by the queue: then both sides know what became of it. */
  acknowledged(deliveries: readonly Delivery[]): void {
    const { orders, inventory } = this.#world.servers;
    for (const { message } of deliveries) {
      const { reservationId, activityId: act, skuId } = message;
      this.#oracle.check(
        orders.isDecided(reservationId),
        '12',
        () => `${reservationId} was acknowledged, and nobody has decided its fate`,
      );
      if (this.#oracle.forgotten > 0) continue;
      const stock = inventory.engine.machine.skus.get(skuName({ activityId: act, skuId }))?.stock;
      this.#oracle.check(
        stock?.byId(reservationId)?.state !== 'held',
        '12',
        () => `${reservationId} was acknowledged, and the inventory does not know its fate`,
      );
    }
  }

  look(): void {
    const { orders } = this.#world.servers;
    const sold = new Map<string, number>();
    const persons = new Map<string, number>();
    const nonceOwners = new Map<string, string>();
    const seats = new Map<string, string>();
    const requests = new Map<string, string>();
    for (const order of orders.everyOrder()) {
      const before = this.#orderStates.get(order.orderId);
      if (before !== order.state) {
        this.#orderStates.set(order.orderId, order.state);
        if (before !== undefined) this.#countOrder(before, -1);
        this.#countOrder(order.state, 1);
        this.#oracle.edge(`order ${before ?? 'new'} → ${order.state}`);
        this.#oracle.check(
          before === undefined ? order.state === 'PENDING_PAYMENT' : mayOrder(before, order.state),
          'order states',
          () => `order ${order.orderId} went from ${before ?? 'nothing'} to ${order.state}`,
        );
        this.#mayMove(order);
      }
      if (!holdsUnits(order.state)) continue;
      sold.set(order.skuId, (sold.get(order.skuId) ?? 0) + order.quantity);
      const person = `${order.skuId} ${order.personId}`;
      persons.set(person, (persons.get(person) ?? 0) + order.quantity);
      const request = `${order.skuId} ${order.userId} ${order.requestId}`;
      const twin = requests.get(request);
      this.#oracle.check(
        twin === undefined,
        '4',
        () => `${request} has orders ${twin ?? ''} and ${order.orderId}`,
      );
      requests.set(request, order.orderId);
      for (const seat of order.seats ?? []) {
        const other = seats.get(`${order.skuId} ${seat}`);
        this.#oracle.check(
          other === undefined,
          '1',
          () => `seat ${seat}: ${other ?? ''}, ${order.orderId}`,
        );
        seats.set(`${order.skuId} ${seat}`, order.orderId);
      }
    }
    this.#lookAtFates();
    for (const { facts } of orders.everyFate()) {
      const owner = `${facts.skuId} ${facts.userId} ${facts.requestId}`;
      const other = nonceOwners.get(facts.nonce);
      this.#oracle.check(
        other === undefined || other === owner || this.#oracle.forgotten > 0,
        '3',
        () => `nonce ${facts.nonce} serves ${other ?? ''} and ${owner}`,
      );
      nonceOwners.set(facts.nonce, owner);
    }
    for (const payment of orders.everyPayment()) {
      const before = this.#paymentStates.get(payment.paymentId);
      if (before === payment.state) continue;
      this.#paymentStates.set(payment.paymentId, payment.state);
      this.#oracle.edge(`payment ${before ?? 'new'} → ${payment.state}`);
    }
    const { maxPerPerson } = this.#world.plan.shape;
    for (const { skuId } of this.#world.plan.shape.skus) {
      const durable = orders.stockNow({ activityId, skuId });
      const units = sold.get(skuId) ?? 0;
      this.#oracle.check(
        durable === undefined || (units === durable.sold && units <= durable.total),
        '1',
        () => `${skuId}: orders hold ${units} units; the books say ${JSON.stringify(durable)}`,
      );
    }
    for (const [person, units] of persons) {
      this.#oracle.check(
        units <= maxPerPerson,
        '2',
        () => `${person} has ${units}; allowed ${maxPerPerson}`,
      );
    }
  }

  /** Nothing expires before its time, and money goes back only for a reason. */
  #mayMove(order: Order): void {
    const { trueMs, plan } = this.#world;
    if (order.state === 'EXPIRED') {
      this.#oracle.check(
        trueMs > order.payBeforeMs - clockToleranceMs,
        'deadline',
        () => `order ${order.orderId} expired ${order.payBeforeMs - trueMs} ms too early`,
      );
    }
    if (order.state === 'REFUNDED') {
      this.#oracle.check(
        plan.items.some((item) => item.kind === 'act' && item.act === 'refund_order'),
        '12',
        () => `order ${order.orderId} was paid, and refunded without a reason`,
      );
    }
  }

  /** Told is told: what is due no more is known on the other side. */
  #lookAtFates(): void {
    if (this.#oracle.forgotten > 0) return;
    const { orders, inventory } = this.#world.servers;
    for (const { facts, live, due } of orders.everyFate()) {
      if (due || live) continue;
      const stock = inventory.engine.machine.skus.get(skuName(facts))?.stock;
      const known = stock?.byId(facts.reservationId);
      this.#oracle.check(
        known === undefined || known.state === 'released',
        'one restock',
        () =>
          `${facts.reservationId} is released, which the inventory was told, ` +
          `and it is ${known?.state ?? ''} there`,
      );
    }
  }

  /** Whatever was given out to be ordered was safe in the journal before. */
  lookAtJournal(): void {
    if (this.#oracle.forgotten > 0) return;
    const { orders, inventory } = this.#world.servers;
    for (const { facts, live } of orders.everyFate()) {
      const stock = inventory.engine.machine.skus.get(skuName(facts))?.stock;
      this.#oracle.check(
        !live || stock?.byId(facts.reservationId) !== undefined,
        '1',
        () => `${facts.reservationId} is ordered, and the journal does not know of it`,
      );
    }
  }

  #countOrder(state: OrderState, by: number): void {
    const at = stateIndex[state];
    this.counts[at] = (this.counts[at] ?? 0) + by;
  }
}

/** Clocks are off by so much at most, and a leap of less is believed, ms. */
const clockToleranceMs = 9_000;

const stateIndex: Readonly<Record<OrderState, number>> = {
  PENDING_PAYMENT: 0,
  PAID: 1,
  EXPIRED: 2,
  CANCELLED: 3,
  REFUNDED: 4,
};
