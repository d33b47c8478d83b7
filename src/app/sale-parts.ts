import type { OverloadLoop } from '../control/overload-loop.ts';
import type { Activity, SkuKey } from '../core/activity.ts';
import type { StageLedger } from '../core/ledger/ledger.ts';
import type { Trouble } from '../pipeline/reserve-batcher.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { PaymentProvider } from '../ports/payment-provider.ts';
import type { Tracer } from '../ports/tracer.ts';
import type { Random } from '../ports/random.ts';
import type { ReconcileReport } from '../workers/reconciliation.ts';
import type { Stores } from './embedded-stores.ts';
import type { InstanceReport } from './fleet.ts';
import type { Keys } from './keys-folder.ts';
import type { Role } from './roles.ts';
import type { RoomsParts } from './rooms.ts';

/** What a {@link Sale} is made of. */
export interface SaleParts {
  readonly activities: readonly Activity[];
  readonly paymentGraceMs: number;
  /** Order messages that may wait. */
  readonly backlogCeiling: number;
  readonly stores: Stores;
  readonly keys: Keys;
  /** Names this deployment in tokens. */
  readonly issuer: string;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** After the I/O that is already there, at most 1 ms from now. */
  readonly defer: (task: () => void) => void;
  readonly overload: OverloadLoop;
  readonly ledger: StageLedger;
  /** Buyers pay at the built-in demo provider. */
  readonly demoPayments: boolean;
  readonly instance: string;
  readonly hooks: SaleHooks;
  /** Who vouches for people, for rooms that ask for it. */
  readonly challengeProvider?: RoomsParts['challengeProvider'];
  /** What this process does; everything by default. */
  readonly roles?: readonly Role[];
  /** What this process says of itself to others, where there are any. */
  readonly report?: () => InstanceReport;
  /** The inventory is on a server that may fail over and forget: then the leader rebuilds it. */
  readonly inventoryMayForget?: boolean;
  /** Absent: nothing is traced. */
  readonly tracer?: Tracer;
  /** The way out to a payment provider. */
  readonly guardProvider?: (provider: PaymentProvider) => PaymentProvider;
}

/** What the sale tells its surroundings: logs, metrics, signals. */
export interface SaleHooks {
  /** A reservation is sent to the store, and has waited so long to be. */
  onReserveWait(waitedUs: number): void;
  onReserveCall(elapsedUs: number, size: number, failed: boolean): void;
  onTrouble(sku: SkuKey, trouble: Trouble): void;
  onSoldOut(sku: SkuKey, soldOut: boolean): void;
  onWorkerEvent(worker: string, event: { readonly kind: string }): void;
  onReconciled(report: ReconcileReport): void;
  /** This process leads from now on, or does not any more. */
  onLeading(leads: boolean, epoch: number): void;
  /** The leader begins to rebuild a SKU whose stock has been forgotten. */
  onForgotten(sku: SkuKey, generation: number): void;
  onError(what: string, error: unknown): void;
}
