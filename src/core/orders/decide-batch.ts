/**
 * What becomes of each message of a batch, given what the durable side knew when it was read.
 *
 * Judged strictly in order, each message against what those before it left: the 40th message of a
 * batch may be refused because the 10th was the same person's, and the 41st is none the worse. This
 * is why the decision is made here and not by sums in SQL: a refused message must not count against
 * the ones after it.
 *
 * The decision alone protects nothing. It is written under guards (one row per reservation, one order per
 * request, quantity per person, `sold + n ≤ total`), and when one of them does not hold any more, because
 * another worker was faster, everything is read and decided anew.
 */
import type { OrderMessage, ReleaseReason } from '../stock/model.ts';
import type { CommitFate } from './model.ts';

export interface Known {
  /** Fates decided earlier, by reservation id. */
  readonly fates: ReadonlyMap<string, CommitFate>;
  /** Live units of a person, by `personKey`. */
  readonly personUnits: ReadonlyMap<string, number>;
  /** By `skuKey`. */
  readonly stock: ReadonlyMap<string, KnownStock>;
  /** Seats held by live orders, by `seatKey`. */
  readonly seats: ReadonlySet<string>;
  /** Requests that have become an order, live or ended, by `requestKey`. */
  readonly ordered: ReadonlySet<string>;
}

export interface KnownStock {
  readonly total: number;
  readonly sold: number;
  readonly generation: number;
}

export type Decision =
  | { readonly kind: 'order'; readonly message: OrderMessage }
  | { readonly kind: 'release'; readonly message: OrderMessage; readonly reason: ReleaseReason }
  | { readonly kind: 'repeat'; readonly fate: CommitFate }
  /** The same reservation stands earlier in this batch: its fate is this one's. */
  | { readonly kind: 'same_as'; readonly reservationId: string }
  | { readonly kind: 'unknown_sku'; readonly message: OrderMessage };

export interface Keyed {
  readonly activityId: string;
  readonly skuId: string;
}

// Ids are [A-Za-z0-9_-] and never hold a space; a person or a user, which may, comes last.
export const skuKey = (of: Keyed): string => `${of.activityId} ${of.skuId}`;
export const personKey = (of: Keyed & { readonly personId: string }): string =>
  `${skuKey(of)} ${of.personId}`;
export const requestKey = (
  of: Keyed & { readonly requestId: string; readonly userId: string },
): string => `${skuKey(of)} ${of.requestId} ${of.userId}`;
export const seatKey = (of: Keyed, seat: string): string => `${skuKey(of)} ${seat}`;

/** One decision per message, in order. O(messages + seats). */
export function decideBatch(
  messages: readonly OrderMessage[],
  known: Known,
  nowMs: number,
): readonly Decision[] {
  const decided = new Set<string>();
  const sold = new Map<string, number>();
  const units = new Map<string, number>();
  const seats = new Set(known.seats);
  const ordered = new Set<string>();
  return messages.map((message): Decision => {
    const earlier = known.fates.get(message.reservationId);
    if (earlier !== undefined) return { kind: 'repeat', fate: earlier };
    if (decided.has(message.reservationId)) {
      return { kind: 'same_as', reservationId: message.reservationId };
    }
    const sku = skuKey(message);
    const stock = known.stock.get(sku);
    if (stock === undefined) return { kind: 'unknown_sku', message };
    decided.add(message.reservationId);

    const person = personKey(message);
    const soldNow = sold.get(sku) ?? stock.sold;
    const unitsNow = units.get(person) ?? known.personUnits.get(person) ?? 0;
    const request = requestKey(message);
    // A retry that an inventory took in again because it had forgotten the first.
    const again = known.ordered.has(request) || ordered.has(request);
    const reason = whyNot(message, stock, soldNow, unitsNow, seats, again, nowMs);
    if (reason !== undefined) return { kind: 'release', message, reason };
    ordered.add(request);
    sold.set(sku, soldNow + message.quantity);
    units.set(person, unitsNow + message.quantity);
    for (const seat of message.seats ?? []) seats.add(seatKey(message, seat));
    return { kind: 'order', message };
  });
}

function whyNot(
  message: OrderMessage,
  stock: KnownStock,
  soldNow: number,
  unitsNow: number,
  seats: ReadonlySet<string>,
  again: boolean,
  nowMs: number,
): ReleaseReason | undefined {
  if (message.generation < stock.generation) return 'lost';
  if (again) return 'refused';
  if (nowMs > message.deadlineMs) return 'deadline';
  if (unitsNow + message.quantity > message.limit) return 'refused';
  if (soldNow + message.quantity > stock.total) return 'refused';
  if (message.seats?.some((seat) => seats.has(seatKey(message, seat)))) return 'refused';
  return undefined;
}
