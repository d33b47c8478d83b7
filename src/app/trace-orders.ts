import type { OrderMessage } from '../ports/order-queue.ts';
import type { CommitFate } from '../ports/order-store.ts';
import type { Tracer } from '../ports/tracer.ts';

/** One span for each message that became an order or did not, from its reservation to its fate. */
export function traceOrders(
  tracer: Tracer,
  messages: readonly OrderMessage[],
  fates: readonly CommitFate[],
): void {
  const decided = new Map(fates.map((fate) => [fate.reservationId, fate]));
  for (const message of messages) {
    if (message.traceparent === undefined) continue;
    const fate = decided.get(message.reservationId);
    if (fate === undefined) continue;
    tracer.record('order', message.traceparent, {
      startedAtMs: message.reservedAtMs,
      // Told again after a redelivery, it is the same span.
      key: message.reservationId,
      attributes: {
        'sluice.activity': message.activityId,
        'sluice.sku': message.skuId,
        'sluice.fate': fate.fate,
      },
    });
  }
}
