import type { Phase } from '../../core/activity.ts';
import type { Order, OrderState, Payment } from '../../ports/order-store.ts';

/**
 * What the operator's page is shown, and what it may do. Both are narrow on purpose: the page never
 * reaches into stores, and whoever composes the process decides what stands behind.
 *
 * All counts are since the process started (or since the record began) and only grow; rates are made
 * of their differences by the history, so that no number is counted twice.
 */
export interface ConsoleSource {
  /** The present, from what is at hand: never waits for a store. Called once a second. O(rows). */
  overview(): Overview;
}

export interface Overview {
  readonly takenAtMs: number;
  readonly counters: Counters;
  /** From the edge to the paid order, in the order of the path. */
  readonly funnel: readonly FunnelStep[];
  /** Refusals by stage and reason; both are words from closed sets. */
  readonly refusals: readonly RefusalRow[];
  /** Empty while nobody knows. */
  readonly stock: readonly StockRow[];
  readonly mode: ModeState;
  readonly rooms: readonly RoomRow[];
  /** null while nobody knows. */
  readonly queue: QueueState | null;
  readonly latency: {
    readonly admitted: LatencyState | null;
    readonly refused: LatencyState | null;
  };
  readonly instances: readonly InstanceRow[];
  /** What does not add up in the ledger; null where nobody has counted. */
  readonly ledgerResidual: number | null;
}

export interface Counters {
  /** Requests that came in. */
  readonly arrivals: number;
  readonly handled: number;
  readonly rejected: number;
  readonly failed: number;
  /** Answered 429: a configured limit said no. */
  readonly limited: number;
  /** Answered 503: health said no. */
  readonly shed: number;
  readonly reserved: number;
  readonly ordered: number;
  readonly paid: number;
}

/** Names of the funnel's steps. */
export type FunnelName =
  | 'arrived'
  | 'joined'
  | 'released'
  | 'claimed'
  | 'submitted'
  | 'reserved'
  | 'ordered'
  | 'paid';

export interface FunnelStep {
  readonly step: FunnelName;
  readonly count: number;
}

export interface RefusalRow {
  readonly stage: string;
  readonly reason: string;
  readonly count: number;
}

/** Units of one SKU. `total = paid + pending + held + available`, or the console says that it is not so. */
export interface StockRow {
  readonly activityId: string;
  readonly skuId: string;
  readonly name: string;
  readonly total: number;
  readonly paid: number;
  readonly pending: number;
  readonly held: number;
  readonly available: number;
}

export type ModeName = 'NORMAL' | 'DEGRADED' | 'QUEUE_ONLY' | 'CLOSED';

export interface ModeState {
  readonly mode: ModeName;
  readonly sinceMs: number;
  /** The signal nearest to its limit, with its distance `z` (0 calm, 1 full); null: no data. */
  readonly driver: { readonly signal: string; readonly value: number; readonly z: number } | null;
  /** Set while an operator holds the mode. */
  readonly pinnedUntilMs?: number;
  /** Share of the budget in force while coming back, 0 to 1. */
  readonly ramp?: number;
}

export interface RoomRow {
  readonly activityId: string;
  readonly name: string;
  readonly phase: Phase;
  readonly rule: string;
  readonly state: 'running' | 'paused' | 'hold' | 'stopped';
  readonly joined: number;
  readonly waiting: number;
  readonly released: number;
  readonly claimed: number;
  readonly finished: number;
  readonly left: number;
  readonly waves: number;
}

export interface QueueState {
  readonly depth: number;
  readonly oldestAgeMs: number;
  readonly buried: number;
}

/** Of the last seconds, not since the start. */
export interface LatencyState {
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
}

export interface InstanceRow {
  readonly instance: string;
  readonly roles: readonly string[];
  readonly uptimeMs: number;
  readonly mode: ModeName;
  readonly inFlight: number;
  readonly inFlightLimit: number;
  readonly loopDelayMs: number;
  readonly memoryBytes: number;
  readonly rulesVersion: number;
}

/** Roles, each allowed what those before it are. */
export type Role = 'viewer' | 'operator' | 'approver' | 'admin';

export const roles: readonly Role[] = ['viewer', 'operator', 'approver', 'admin'];

/** What an operator can do to a sale. */
export type OperatorAction =
  | { readonly kind: 'pause'; readonly activityId: string }
  | { readonly kind: 'resume'; readonly activityId: string }
  | { readonly kind: 'hold'; readonly activityId: string }
  /** One switch: waves, submits and producers stop together; `reopen` brings them back by the ramp. */
  | { readonly kind: 'stop'; readonly activityId: string }
  | { readonly kind: 'reopen'; readonly activityId: string }
  | { readonly kind: 'close'; readonly activityId: string }
  | {
      readonly kind: 'restock';
      readonly activityId: string;
      readonly skuId: string;
      /** Units to add, or to take back where negative. */
      readonly delta: number;
    }
  | { readonly kind: 'pin_mode'; readonly mode: ModeName; readonly forMs: number }
  | { readonly kind: 'unpin_mode' }
  | { readonly kind: 'cancel_order'; readonly orderId: string }
  | { readonly kind: 'refund_order'; readonly orderId: string };

export type OperatorActionKind = OperatorAction['kind'];

/** The least role that may do it. */
export const actionRoles: Readonly<Record<OperatorActionKind, Role>> = {
  pause: 'operator',
  resume: 'operator',
  hold: 'operator',
  stop: 'operator',
  reopen: 'operator',
  close: 'approver',
  restock: 'approver',
  pin_mode: 'approver',
  unpin_mode: 'approver',
  cancel_order: 'operator',
  refund_order: 'approver',
};

export interface OperatorContext {
  readonly who: string;
  readonly why: string;
  /** The operator's id for this one action: repeating it changes nothing more. */
  readonly actionId: string;
}

export type ActionReply =
  | { readonly kind: 'done'; readonly detail: string }
  | { readonly kind: 'refused'; readonly detail: string }
  | { readonly kind: 'unknown'; readonly detail: string };

export interface OperatorActions {
  /** What is wired here; the console offers nothing else. */
  readonly offered: readonly OperatorActionKind[];
  /** Idempotent by `context.actionId`. Rejects with the stores' errors. */
  perform(action: OperatorAction, context: OperatorContext): Promise<ActionReply>;
}

/** Orders as the operator searches them. */
export interface OrdersDesk {
  search(query: OrderQuery): Promise<OrderPage>;
  find(orderId: string): Promise<Order | undefined>;
  payments(orderId: string): Promise<readonly Payment[]>;
}

export interface OrderQuery {
  readonly activityId?: string;
  readonly state?: OrderState;
  /** An order, reservation or request id, or a user id; whole, never a pattern. */
  readonly text?: string;
  /** Only orders past their deadline. */
  readonly overdue?: boolean;
  readonly after?: string;
  readonly limit: number;
}

export interface OrderPage {
  readonly orders: readonly Order[];
  /** Give it as `after` to go on; absent at the end. */
  readonly next?: string;
}
