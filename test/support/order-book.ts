import type { SkuKey } from '../../src/core/activity.ts';
import type { ReleaseReason, RequestRecord } from '../../src/ports/inventory-store.ts';
import type { DurableStock, Order, OrderState, RequestFate } from '../../src/ports/order-store.ts';
import type { World } from './world.ts';

/** Orders as the gateway's tests need them: what PostgreSQL would say, said by hand. */
export class OrderBook {
  readonly #world: World;
  readonly #orders = new Map<string, Order>();
  readonly #released = new Map<string, { record: RequestRecord; reason: ReleaseReason }>();
  /** Set to make every read reject. */
  failure: Error | undefined;

  constructor(world: World) {
    this.#world = world;
  }

  /** The worker's part: an order of a reservation. */
  commit(sku: SkuKey, record: RequestRecord, state: OrderState = 'PENDING_PAYMENT'): Order {
    const order: Order = {
      orderId: `ord_${record.reservationId.slice(4)}`,
      reservationId: record.reservationId,
      requestId: record.requestId,
      activityId: sku.activityId,
      skuId: sku.skuId,
      userId: record.userId,
      personId: record.personId,
      quantity: record.quantity,
      amountMinor: 4500 * record.quantity,
      currency: 'EUR',
      state,
      createdAtMs: this.#world.wallMs(),
      payBeforeMs: this.#world.wallMs() + 900_000,
    };
    this.#orders.set(order.orderId, order);
    return order;
  }

  release(record: RequestRecord, reason: ReleaseReason): void {
    this.#released.set(record.reservationId, { record, reason });
  }

  move(
    orderId: string,
    from: readonly OrderState[],
    to: OrderState,
  ): { kind: 'done' | 'refused'; order: Order } {
    const order = this.#orders.get(orderId);
    if (order === undefined) throw new Error(`no order ${orderId}`);
    if (!from.includes(order.state)) return { kind: 'refused', order };
    const moved = { ...order, state: to };
    this.#orders.set(orderId, moved);
    return { kind: 'done', order: moved };
  }

  orderById(orderId: string): Promise<Order | undefined> {
    return this.#read(() => this.#orders.get(orderId));
  }

  orderByReservation(reservationId: string): Promise<Order | undefined> {
    return this.#read(() => this.#find((order) => order.reservationId === reservationId));
  }

  fateOfRequest(sku: SkuKey, userId: string, requestId: string): Promise<RequestFate | undefined> {
    return this.#read(() => {
      const order = this.#find(
        (one) =>
          one.activityId === sku.activityId &&
          one.skuId === sku.skuId &&
          one.userId === userId &&
          one.requestId === requestId,
      );
      if (order !== undefined) {
        const { reservationId, quantity } = order;
        return { reservationId, requestId, fingerprint: '', generation: 1, quantity, order };
      }
      for (const { record, reason } of this.#released.values()) {
        if (record.userId !== userId || record.requestId !== requestId) continue;
        const { reservationId, quantity, fingerprint, generation } = record;
        return {
          reservationId,
          requestId,
          fingerprint,
          generation,
          quantity,
          releasedReason: reason,
        };
      }
      return undefined;
    });
  }

  liveOfPerson(_sku: SkuKey, personId: string): Promise<readonly Order[]> {
    return this.#read(() =>
      [...this.#orders.values()].filter(
        (order) =>
          order.personId === personId &&
          (order.state === 'PENDING_PAYMENT' || order.state === 'PAID'),
      ),
    );
  }

  stock(): Promise<DurableStock | undefined> {
    return this.#read(() => {
      const orders = [...this.#orders.values()];
      const paid = orders
        .filter((order) => order.state === 'PAID')
        .reduce((sum, order) => sum + order.quantity, 0);
      return { total: 0, sold: orders.length, paid, generation: 1, stopped: false };
    });
  }

  #find(wanted: (order: Order) => boolean): Order | undefined {
    return [...this.#orders.values()].find(wanted);
  }

  #read<Value>(read: () => Value): Promise<Value> {
    return this.failure === undefined ? Promise.resolve(read()) : Promise.reject(this.failure);
  }
}
