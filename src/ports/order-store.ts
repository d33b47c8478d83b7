import type { SkuKey } from '../core/activity.ts';
import type {
  CommitFate,
  Order,
  OrderState,
  Payment,
  PaymentEffect,
  PaymentEvent,
  PaymentState,
  ReleasableReservation,
} from '../core/orders/model.ts';
import type { OrderMessage } from './order-queue.ts';
import type { ReleaseReason } from './inventory-store.ts';

export type {
  CommitFate,
  Order,
  OrderState,
  Payment,
  PaymentEffect,
  PaymentEvent,
  PaymentState,
  ReleasableReservation,
} from '../core/orders/model.ts';

/**
 * The durable record. Only it says who bought. One row per reservation id, ORDERED or RELEASED,
 * whichever commits first; restock follows from that row, exactly once.
 */
export interface OrderStore {
  /**
   * Creates the durable stock row. An existing one takes the name and a higher generation; its total
   * stays, because only `adjustTotal` changes that.
   */
  declareSku(sku: SkuKey, row: { total: number; generation: number; name: string }): Promise<void>;
  /**
   * One transaction for a batch: decides each message's fate, or repeats the fate decided before.
   * `ordered` needs the person's limit and the SKU's stock to hold, and the request to have become no
   * order before; a message past its deadline or of an older generation is released.
   */
  commitBatch(
    messages: readonly OrderMessage[],
    context: CommitContext,
  ): Promise<readonly CommitFate[]>;
  /**
   * Decides RELEASED for reservations without an order (message lost or buried); where an order
   * was made meanwhile, repeats that. What this call decides leaves a restock due.
   */
  releaseUnordered(
    reservations: readonly {
      readonly message: ReleasableReservation;
      readonly reason: ReleaseReason;
    }[],
    nowMs: number,
  ): Promise<readonly CommitFate[]>;
  /** The fates decided so far of these reservations; undecided ones are left out. */
  fatesOf(reservationIds: readonly string[]): Promise<readonly CommitFate[]>;

  orderById(orderId: string): Promise<Order | undefined>;
  orderByReservation(reservationId: string): Promise<Order | undefined>;
  /**
   * What became of (activity, SKU, user, request id): its order if there is one, live or ended (a later
   * try, taken in by an inventory that had forgotten the first, was refused because of it), else the
   * newest fate, if any was decided.
   */
  fateOfRequest(sku: SkuKey, userId: string, requestId: string): Promise<RequestFate | undefined>;
  liveOfPerson(sku: SkuKey, personId: string): Promise<readonly Order[]>;

  /**
   * A guarded transition with its audit row. `refused` tells the state that stood in the way.
   * EXPIRED, CANCELLED and REFUNDED leave a restock due in the same transaction.
   */
  transition(orderId: string, change: Transition): Promise<TransitionReply>;
  /** The same for many orders in one transaction; replies in the order asked. At most 1,000. */
  transitionMany(
    orderIds: readonly string[],
    change: Transition,
  ): Promise<readonly TransitionReply[]>;
  /**
   * Orders past their deadline, oldest first; those with a payment in PROCESSING or UNKNOWN only
   * once the grace is over too.
   */
  dueForExpiry(nowMs: number, graceMs: number, limit: number): Promise<readonly Order[]>;
  /** What the inventory store has yet to be told of decided reservations; oldest first. */
  restocksDue(limit: number): Promise<readonly RestockDue[]>;
  /** Told. A row that has changed since (another version) stays due. */
  restocksDone(
    told: readonly { readonly reservationId: string; readonly version: number }[],
  ): Promise<void>;

  /** Live orders (pending or paid) by reservation id, for reconciliation and rebuilding. */
  liveOrders(sku: SkuKey, after: string | undefined, limit: number): Promise<readonly LiveOrder[]>;
  /** What the order rows themselves add up to; compared with the counters. O(orders of the SKU). */
  tally(sku: SkuKey): Promise<Tally>;

  stock(sku: SkuKey): Promise<DurableStock | undefined>;
  /** Records a change of total (idempotent by `adjustmentId`). */
  adjustTotal(
    sku: SkuKey,
    adjustmentId: string,
    delta: number,
    why: AuditContext,
  ): Promise<boolean>;
  /** Raises the durable generation, so that messages of older ones are refused. */
  raiseGeneration(sku: SkuKey, generation: number, why: AuditContext): Promise<boolean>;
  /**
   * Records that an operator has stopped this SKU's sale, or lets it go on; orders already reserved
   * are not touched. Whoever rebuilds the stock keeps it stopped. False where it stood so already.
   */
  setStopped(sku: SkuKey, stopped: boolean, why: AuditContext): Promise<boolean>;
  /** Of one activity, or of all that there ever were. */
  counts(activityId?: string): Promise<OrderCounts>;

  /** Orders as an operator looks for them, by order id; pages by `after`. At most 1,000 a page. */
  search(wanted: OrderSearch): Promise<readonly Order[]>;

  readonly payments: PaymentStore;
  readonly audit: AuditLog;
  close(): Promise<void>;
}

export interface OrderSearch {
  readonly activityId?: string;
  readonly state?: OrderState;
  /** Whole order, reservation, request or user id. */
  readonly text?: string;
  /** Pending, and past its deadline at this instant. */
  readonly overdueAtMs?: number;
  /** Order id after which to go on. */
  readonly after?: string;
  readonly limit: number;
}

export interface CommitContext {
  readonly nowMs: number;
  readonly paymentDeadlineMs: (activityId: string) => number;
  /** Makes the order id of a message; must be the same for the same reservation. */
  readonly orderId: (message: OrderMessage) => string;
}

export interface RequestFate {
  readonly reservationId: string;
  readonly requestId: string;
  readonly fingerprint: string;
  readonly generation: number;
  readonly quantity: number;
  readonly order?: Order;
  readonly releasedReason?: ReleaseReason;
}

export interface AuditContext {
  /** `buyer`, `worker:expiry`, an operator's name … never a user id. */
  readonly who: string;
  readonly why: string;
  readonly nowMs: number;
}

export interface Transition extends AuditContext {
  readonly from: readonly OrderState[];
  readonly to: OrderState;
}

export type TransitionReply =
  | { readonly kind: 'done'; readonly order: Order }
  | { readonly kind: 'refused'; readonly order: Order }
  | { readonly kind: 'unknown' };

export interface LiveOrder {
  readonly order: Order;
  readonly nonce: string;
  readonly fingerprint: string;
  readonly generation: number;
}

/** Units, summed over rows. */
export interface Tally {
  readonly sold: number;
  readonly paid: number;
  /** Persons whose guarded quantity differs from the sum of their live orders. */
  readonly personsWrong: number;
}

/**
 * One thing the inventory store has yet to be told: `release` gives the units back, `retake` takes
 * them again (late money for an expired order).
 */
export interface RestockDue {
  readonly kind: 'release' | 'retake';
  /** Grows with each new thing to tell of the same reservation. */
  readonly version: number;
  readonly userId: string;
  readonly requestId: string;
  readonly reservationId: string;
  readonly activityId: string;
  readonly skuId: string;
  readonly quantity: number;
  readonly reason: ReleaseReason;
}

export interface DurableStock {
  readonly total: number;
  /** Units of live orders. */
  readonly sold: number;
  readonly paid: number;
  readonly generation: number;
  /** By an operator: reservations stay refused, whatever the inventory store remembers. */
  readonly stopped: boolean;
}

export interface OrderCounts {
  readonly pending: number;
  readonly paid: number;
  readonly expired: number;
  readonly cancelled: number;
  readonly refunded: number;
  readonly released: number;
}

export type PaymentEventReply =
  | {
      readonly kind: 'applied';
      readonly payment: Payment;
      readonly order: Order;
      readonly effect: PaymentEffect;
    }
  | { readonly kind: 'duplicate' }
  | { readonly kind: 'unknown_order' };

export interface PaymentStore {
  /** The order's open payment at this provider, made if there is none: one intent however often asked. */
  begin(
    orderId: string,
    provider: string,
    paymentId: string,
    nowMs: number,
  ): Promise<Payment | undefined>;
  /**
   * Keeps what the provider answered to the intent. The state moves only where it still may (a
   * callback may have been faster); the intent id is kept either way.
   */
  setIntent(paymentId: string, intentId: string, state: PaymentState, nowMs: number): Promise<void>;
  /** Counts a call to the provider; answers how many since the state was entered. */
  noteAttempt(paymentId: string, nowMs: number): Promise<number>;
  setState(
    paymentId: string,
    from: readonly PaymentState[],
    to: PaymentState,
    why: AuditContext,
  ): Promise<boolean>;
  /** One transaction: remembers the event id, moves payment and order, leaves audit rows. */
  applyEvent(event: PaymentEvent, nowMs: number): Promise<PaymentEventReply>;
  /**
   * An operator takes held money as it is: it pays the order where that still can be, and is due back
   * where not. `duplicate` when it is not held (any more), `unknown_order` when there is no such
   * payment.
   */
  accept(paymentId: string, why: AuditContext): Promise<PaymentEventReply>;
  inState(
    states: readonly PaymentState[],
    updatedBeforeMs: number,
    limit: number,
  ): Promise<readonly Payment[]>;
  /** In these states, and begun before; oldest first: what has not come to an end. */
  startedBefore(
    states: readonly PaymentState[],
    createdBeforeMs: number,
    limit: number,
  ): Promise<readonly Payment[]>;
  ofOrder(orderId: string): Promise<readonly Payment[]>;
  byId(paymentId: string): Promise<Payment | undefined>;
  /** Confirmed payments whose order is not paid by them: none, unless something is broken. */
  misplaced(limit: number): Promise<readonly Payment[]>;
  /** Money that found no order: remembered, for the operator; oldest first. */
  unmatched(limit: number): Promise<readonly PaymentEvent[]>;
}

export interface AuditRow {
  readonly at: number;
  readonly who: string;
  readonly what: string;
  readonly why: string;
  readonly subject: string;
  readonly detail?: Readonly<Record<string, unknown>>;
}

export interface AuditLog {
  append(row: AuditRow): Promise<void>;
  /** Newest first; `subject` narrows to one order, activity or rule. */
  list(subject: string | undefined, limit: number): Promise<readonly AuditRow[]>;
}
