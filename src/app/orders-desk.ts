import type { OrdersDesk } from '../control/admin/source.ts';
import type { Clock } from '../ports/clock.ts';
import type { OrderStore } from '../ports/order-store.ts';

/** The operator's search over the durable orders, page by page. */
export function ordersDesk(
  orders: Pick<OrderStore, 'search' | 'orderById' | 'payments'>,
  clock: Pick<Clock, 'wallMs'>,
): OrdersDesk {
  return {
    async search({ limit, overdue, ...wanted }) {
      // One more than asked tells whether there is a next page.
      const found = await orders.search({
        ...wanted,
        limit: limit + 1,
        ...(overdue === true ? { overdueAtMs: clock.wallMs() } : {}),
      });
      const page = found.slice(0, limit);
      const last = page.at(-1);
      return found.length > limit && last !== undefined
        ? { orders: page, next: last.orderId }
        : { orders: page };
    },
    find: (orderId) => orders.orderById(orderId),
    payments: (orderId) => orders.payments.ofOrder(orderId),
  };
}
