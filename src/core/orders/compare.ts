/**
 * What the inventory store and the durable side say of one SKU, held against each other.
 *
 * The two are never read in one instant, and between a commit and the telling of it they differ
 * rightly. So nothing younger than a margin is judged, nothing that is still due to be told, and sums
 * only while nothing moved between two looks: a finding is a fault, not a moment.
 *
 * Wherever they differ for good, the durable side is right.
 */
import type { RequestRecord, StockMark } from '../stock/model.ts';
import type { CommitFate, Order } from './model.ts';

export type FindingClass =
  /** Units taken, nothing decided, and the time for it is over: the message is lost or buried. */
  | 'reservation_without_order'
  /** Decided long ago, and the inventory store does not know. */
  | 'fate_not_told'
  /** A live order whose units the inventory store counts as free. */
  | 'order_without_reservation'
  /** The inventory store does not know a live order at all: it has forgotten. */
  | 'inventory_forgot'
  /** Money that found no order, or paid for one that is not paid. */
  | 'paid_without_order'
  /** Totals differ: a restock reached one side alone. */
  | 'total_differs'
  /** available + held + ordered is not total, or not what the durable side leaves. */
  | 'stock_does_not_add_up'
  /** More sold than there is, or less than nothing available. */
  | 'overbooked'
  /** The durable counters differ from the rows they count. */
  | 'counters_differ'
  /** The durable side has gone on to a later generation than the inventory store. */
  | 'generation_behind'
  /** Paused, and nobody has stopped it: whoever rebuilt it died before reopening, or a stop came late. */
  | 'paused_alone';

/** Every class, for who counts them. */
export const findingClasses = [
  'reservation_without_order',
  'fate_not_told',
  'order_without_reservation',
  'inventory_forgot',
  'paid_without_order',
  'total_differs',
  'stock_does_not_add_up',
  'overbooked',
  'counters_differ',
  'generation_behind',
  'paused_alone',
] as const satisfies readonly FindingClass[];

export interface Finding {
  readonly class: FindingClass;
  /** Reservation, order, payment event or SKU that it is about. */
  readonly subject: string;
  readonly found: string;
  readonly expected: string;
  /** What repairs it; `report` where only a person may decide. */
  readonly repair: 'release' | 'tell' | 'retake' | 'adjust' | 'rebuild' | 'report';
}

export interface SkuFacts {
  readonly nowMs: number;
  /** Younger than this, a difference is a moment. */
  readonly marginMs: number;
  readonly skuId: string;
  readonly mark: StockMark;
  /** Held and ordered records of the inventory store. */
  readonly live: readonly RequestRecord[];
  /** Decided fates of those records, by reservation id. */
  readonly fates: ReadonlyMap<string, CommitFate>;
  readonly orders: readonly Order[];
  /** What the inventory store says of live orders that are not among its live records. */
  readonly strangers: ReadonlyMap<string, RequestRecord>;
  readonly durable: DurableFacts;
  /** Reservations that the inventory store has yet to be told of. */
  readonly due: ReadonlySet<string>;
  /** Nothing changed on either side from the first look to the last. */
  readonly still: boolean;
  /** Since when it was seen paused at every look, though nobody has stopped it; undefined where it is not. */
  readonly pausedForMs?: number | undefined;
}

export interface DurableFacts {
  readonly total: number;
  readonly sold: number;
  readonly paid: number;
  readonly generation: number;
  /** Summed over the order rows. */
  readonly rowsSold: number;
  readonly rowsPaid: number;
  readonly personsWrong: number;
}

/** Findings of one SKU. O(live + orders). */
export function compareSku(facts: SkuFacts): readonly Finding[] {
  if (facts.mark.generation < facts.durable.generation) {
    // Nothing else of an older generation means anything.
    return [
      {
        class: 'generation_behind',
        subject: facts.skuId,
        found: `inventory generation ${facts.mark.generation}`,
        expected: `${facts.durable.generation}`,
        repair: 'rebuild',
      },
    ];
  }
  return [
    ...ofRecords(facts),
    ...ofOrders(facts),
    ...ofCounters(facts),
    ...ofSums(facts),
    ...ofPause(facts),
  ];
}

/** Whoever paused it may be rebuilding it: only a pause that lasts is a fault. */
function* ofPause({ skuId, pausedForMs, marginMs }: SkuFacts): Generator<Finding> {
  if (pausedForMs === undefined || pausedForMs <= marginMs) return;
  yield {
    class: 'paused_alone',
    subject: skuId,
    found: `paused for ${Math.round(pausedForMs)} ms at least`,
    expected: 'open, since nobody has stopped it',
    repair: 'rebuild',
  };
}

function* ofRecords({ live, fates, due, nowMs, marginMs }: SkuFacts): Generator<Finding> {
  for (const record of live) {
    if (due.has(record.reservationId)) continue;
    const fate = fates.get(record.reservationId);
    const subject = record.reservationId;
    if (fate === undefined) {
      // An "ordered" record without a row cannot come from us; it is as undecided as a held one.
      if (nowMs > record.deadlineMs + marginMs) {
        yield {
          class: 'reservation_without_order',
          subject,
          found: `${record.state}, undecided ${nowMs - record.deadlineMs} ms past its deadline`,
          expected: 'an order, or a release',
          repair: 'release',
        };
      }
      continue;
    }
    const told = fate.fate === 'ordered' ? record.state === 'ordered' : false;
    if (!told && nowMs > record.reservedAtMs + marginMs && isOld(fate, nowMs, marginMs)) {
      yield {
        class: 'fate_not_told',
        subject,
        found: record.state,
        expected: fate.fate,
        repair: 'tell',
      };
    }
  }
}

function isOld(fate: CommitFate, nowMs: number, marginMs: number): boolean {
  return fate.fate === 'released' || nowMs > fate.order.createdAtMs + marginMs;
}

function* ofOrders(facts: SkuFacts): Generator<Finding> {
  const { orders, live, strangers, due, nowMs, marginMs } = facts;
  const known = new Set(live.map((record) => record.reservationId));
  for (const order of orders) {
    const { reservationId } = order;
    if (known.has(reservationId) || due.has(reservationId)) continue;
    if (nowMs <= (order.paidAtMs ?? order.createdAtMs) + marginMs) continue;
    const stranger = strangers.get(reservationId);
    yield stranger?.reservationId === reservationId && stranger.state === 'released'
      ? {
          class: 'order_without_reservation',
          subject: order.orderId,
          found: 'units free in the inventory store',
          expected: `${order.quantity} taken for an order that is ${order.state}`,
          repair: 'retake',
        }
      : {
          class: 'inventory_forgot',
          subject: order.orderId,
          found: 'no such reservation in the inventory store',
          expected: `${order.quantity} taken for an order that is ${order.state}`,
          repair: 'rebuild',
        };
  }
}

function* ofCounters({ skuId, durable, mark }: SkuFacts): Generator<Finding> {
  const { total, sold, paid, rowsSold, rowsPaid, personsWrong } = durable;
  if (sold !== rowsSold || paid !== rowsPaid || personsWrong > 0) {
    yield {
      class: 'counters_differ',
      subject: skuId,
      found: `sold ${sold}, paid ${paid}, ${personsWrong} persons otherwise`,
      expected: `sold ${rowsSold}, paid ${rowsPaid}, as the order rows say`,
      repair: 'report',
    };
  }
  if (sold > total || mark.available < 0) {
    yield {
      class: 'overbooked',
      subject: skuId,
      found: `${sold} of ${total} sold, ${mark.available} available`,
      expected: 'sold within the total, available 0 or more',
      repair: 'report',
    };
  }
}

function* ofSums({ skuId, mark, durable, live, fates, due, still }: SkuFacts): Generator<Finding> {
  const own = mark.available + mark.held + mark.ordered;
  if (own !== mark.total) {
    yield {
      class: 'stock_does_not_add_up',
      subject: skuId,
      found: `${mark.available} available + ${mark.held} held + ${mark.ordered} ordered = ${own}`,
      expected: `${mark.total}`,
      repair: 'rebuild',
    };
    return;
  }
  if (!still) return;
  if (mark.total !== durable.total) {
    yield {
      class: 'total_differs',
      subject: skuId,
      found: `${mark.total} in the inventory store`,
      expected: `${durable.total}`,
      repair: 'adjust',
    };
    return;
  }
  if (due.size > 0) return;
  // Units reserved and not yet decided are the inventory store's alone.
  const undecided = live
    .filter((record) => !fates.has(record.reservationId))
    .reduce((sum, record) => sum + record.quantity, 0);
  const left = durable.total - durable.sold - undecided;
  if (mark.available !== left) {
    yield {
      class: 'stock_does_not_add_up',
      subject: skuId,
      found: `${mark.available} available`,
      expected: `${left}: ${durable.total} less ${durable.sold} sold and ${undecided} reserved`,
      repair: 'report',
    };
  }
}
