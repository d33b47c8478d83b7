import type { OverloadLoop } from '../control/overload-loop.ts';
import type { Activity, SkuKey } from '../core/activity.ts';
import type { StageLedger } from '../core/ledger/ledger.ts';
import { passVerifier } from '../pipeline/pass-verifier.ts';
import { ActivityPaths } from '../pipeline/path-index.ts';
import type { PassVerifier } from '../pipeline/stages/06-identify.ts';
import type { ActivityDirectory } from '../pipeline/activities.ts';
import { RequestStatus } from '../pipeline/request-status.ts';
import { ReserveBatcher, type Trouble } from '../pipeline/reserve-batcher.ts';
import { SoldOutFlags } from '../pipeline/sold-out-flags.ts';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import type { Backlog, OrderMessage } from '../ports/order-queue.ts';
import type { CommitFate, RestockDue } from '../ports/order-store.ts';
import type { StockMark } from '../ports/inventory-store.ts';
import type { Random } from '../ports/random.ts';
import { type RebuildParts, rebuildSku } from '../workers/rebuild.ts';
import { Reconciliation, type ReconcileReport } from '../workers/reconciliation.ts';
import type { Stores } from './embedded-stores.ts';
import type { Keys } from './keys-folder.ts';
import { Rooms } from './rooms.ts';
import { SaleWorkers } from './sale-workers.ts';

/**
 * One deployment's sales, put together: everything between the HTTP server and the stores. Real time,
 * real randomness and real stores come in as ports, so that a simulated world runs this very code.
 */
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
}

/** What the sale tells its surroundings: logs, metrics, signals. */
export interface SaleHooks {
  onReserveCall(elapsedUs: number, size: number, failed: boolean): void;
  onTrouble(sku: SkuKey, trouble: Trouble): void;
  onSoldOut(sku: SkuKey, soldOut: boolean): void;
  onWorkerEvent(worker: string, event: { readonly kind: string }): void;
  onReconciled(report: ReconcileReport): void;
  onError(what: string, error: unknown): void;
}

/** What one reservation step may take before the waves slow down, ms. */
const reserveBudgetMs = 100;

/** Batches worked off before a rebuild: bounds the pause of the SKU. */
const drainPassesMax = 1_000;

/** Between two looks at stock and backlog, ms: the sold-out flags' heartbeat, well inside their TTL. */
const lookEveryMs = 500;

export class Sale {
  readonly activities: ActivityDirectory;
  readonly flags: SoldOutFlags;
  readonly batcher: ReserveBatcher;
  readonly status: RequestStatus;
  readonly paths: ActivityPaths;
  readonly passes: PassVerifier;
  readonly rooms: Rooms;
  readonly workers: SaleWorkers;
  readonly reconciliation: Reconciliation;
  readonly #parts: SaleParts;
  readonly #marks = new Map<string, { readonly sku: SkuKey; readonly mark: StockMark }>();
  readonly #rebuiltAtMs = new Map<string, number>();
  #backlog: Backlog | undefined;
  #timer: TimerHandle | undefined;
  #looking: Promise<void> | undefined;
  #lookedAtUs: number | undefined;

  constructor(parts: SaleParts) {
    this.#parts = parts;
    const { stores, clock, timers, random, keys, hooks } = parts;
    const byId = new Map(parts.activities.map((activity) => [activity.activityId, activity]));
    this.activities = { list: () => parts.activities, get: (id) => byId.get(id) };
    this.flags = new SoldOutFlags({
      store: stores.inventory,
      monoUs: () => clock.monoUs(),
      onChange: (sku, soldOut) => hooks.onSoldOut(sku, soldOut),
      onError: (sku, error) => hooks.onError(`sold-out snapshot of ${nameOf(sku)}`, error),
    });
    this.batcher = new ReserveBatcher({
      store: stores.inventory,
      wallMs: () => clock.wallMs(),
      monoUs: () => clock.monoUs(),
      timers,
      defer: parts.defer,
      onMark: (sku, mark) => this.#learn(sku, mark),
      onTrouble: (sku, trouble) => hooks.onTrouble(sku, trouble),
      onCall: (elapsedUs, size, failed) => hooks.onReserveCall(elapsedUs, size, failed),
      onError: (sku, error) => hooks.onError(`reserve of ${nameOf(sku)}`, error),
    });
    this.status = new RequestStatus({
      inventory: stores.inventory,
      orders: stores.orders,
      monoUs: () => clock.monoUs(),
      wallMs: () => clock.wallMs(),
      rebuiltAtMs: (sku) => this.#rebuiltAtMs.get(nameOf(sku)),
      onError: (part, error) => hooks.onError(`status from ${part}`, error),
    });
    this.paths = new ActivityPaths(keys.pathMac, parts.activities);
    this.rooms = new Rooms({
      activities: parts.activities,
      admission: stores.admission,
      keys,
      issuer: parts.issuer,
      audience: submitAudience,
      clock,
      timers,
      random,
      stock: (sku) => this.#marks.get(nameOf(sku))?.mark,
      mode: () => parts.overload.mode,
      backlogRatio: () =>
        this.#backlog === undefined ? undefined : this.#backlog.depth / parts.backlogCeiling,
      reserveRatio: () => (parts.overload.reading.reserveMs ?? 0) / reserveBudgetMs,
      onError: (what, error) => hooks.onError(what, error),
    });
    this.passes = passVerifier({
      ring: keys.rings.pass,
      issuer: parts.issuer,
      audience: submitAudience,
      isWaveRevoked: (activityId, wave) => this.rooms.isWaveRevoked(activityId, wave),
    });
    this.workers = new SaleWorkers({
      stores,
      activity: (id) => byId.get(id),
      paymentGraceMs: parts.paymentGraceMs,
      ...(parts.demoPayments ? { demoSecret: keys.pathMac('demo payment provider') } : {}),
      consumer: parts.instance,
      clock,
      timers,
      random,
      onEvent: (worker, event) => hooks.onWorkerEvent(worker, event),
      onSettled: (messages, fates) => this.#settled(messages, fates),
      onReturned: (returned) => this.#returned(returned),
    });
    this.reconciliation = new Reconciliation({
      ...this.#rebuildParts(),
      inventory: stores.inventory,
      queue: stores.queue,
      orders: stores.orders,
      clock,
      timers,
      random,
      skus: () => this.skus(),
      onReport: (report) => hooks.onReconciled(report),
      onError: (error) => hooks.onError('reconciliation', error),
    });
  }

  /** Every SKU on sale. */
  skus(): readonly SkuKey[] {
    return this.#parts.activities.flatMap(({ activityId, skus }) =>
      skus.map(({ skuId }) => ({ activityId, skuId })),
    );
  }

  /** Builds one SKU's inventory anew from the durable orders, as a new generation. */
  async rebuild(sku: SkuKey, who: string, why: string): Promise<void> {
    const { inventory, orders } = this.#parts.stores;
    const parts = { inventory, orders, clock: this.#parts.clock, ...this.#rebuildParts() };
    const mark = await rebuildSku(parts, sku, { who, why });
    this.#rebuiltAtMs.set(nameOf(sku), this.#parts.clock.wallMs());
    this.#learn(sku, mark);
  }

  /** What the queue still holds is turned into orders first: those people lose nothing. */
  #rebuildParts(): Pick<RebuildParts, 'drain' | 'seats'> {
    return {
      drain: async () => {
        for (let pass = 0; pass < drainPassesMax; pass += 1) {
          const { received, blocked } = await this.workers.orders.runOnce(0);
          if (received === 0 || blocked) return;
        }
      },
      seats: ({ activityId, skuId }) =>
        this.activities.get(activityId)?.skus.find((sku) => sku.skuId === skuId)?.seats,
    };
  }

  /** Everything begins; resolves once stock has been looked at and every room has a release state. */
  async start(): Promise<void> {
    await this.#look();
    await this.rooms.start();
    this.workers.start();
    this.reconciliation.start();
    this.#timer = this.#parts.timers.every(lookEveryMs, () => {
      this.#looking ??= this.#look().finally(() => {
        this.#looking = undefined;
      });
    });
  }

  /** Ends every loop after the step it is in. What is unfinished is taken up by the next start. */
  async stop(): Promise<void> {
    this.#timer?.cancel();
    await this.#looking;
    await Promise.all([this.rooms.stop(), this.workers.stop(), this.reconciliation.stop()]);
  }

  /** Messages between reservation and order, as last looked at. */
  get backlog(): Backlog | undefined {
    return this.#backlog;
  }

  /** Age of the last good look at stock and queue, ms; undefined before the first. */
  get lookAgeMs(): number | undefined {
    if (this.#lookedAtUs === undefined) return undefined;
    return (this.#parts.clock.monoUs() - this.#lookedAtUs) / 1000;
  }

  /** A told fate frees a place in the room, or gives its holder another try. */
  #settled(messages: readonly OrderMessage[], fates: readonly CommitFate[]): void {
    const fateById = new Map(fates.map((fate) => [fate.reservationId, fate]));
    for (const message of messages) {
      const fate = fateById.get(message.reservationId);
      if (fate === undefined) continue;
      const { activityId, personId, nonce } = message;
      const bought = fate.fate === 'ordered';
      this.#tellRoom(this.rooms.finish(activityId, personId, bought ? 'bought' : 'failed'));
      if (!bought) this.#tellRoom(this.rooms.endAttempt(message, personId, nonce));
    }
  }

  #returned(returned: readonly RestockDue[]): void {
    for (const due of returned) this.#tellRoom(this.#endAttemptOf(due));
  }

  async #endAttemptOf(due: RestockDue): Promise<void> {
    const record = await this.#parts.stores.inventory.find(due, due.userId, due.requestId);
    if (record === undefined || record.reservationId !== due.reservationId) return;
    await this.rooms.endAttempt(due, record.personId, record.nonce);
  }

  /**
   * The room learns of ends beside the path, and loses nothing if it misses one: a pass that is used
   * up expires, and its place is offered again.
   */
  #tellRoom(telling: Promise<void>): void {
    telling.catch((error: unknown) => this.#parts.hooks.onError('telling the room', error));
  }

  /** Stock as last seen, of every SKU that has been. */
  eachMark(tell: (sku: SkuKey, mark: StockMark) => void): void {
    for (const { sku, mark } of this.#marks.values()) tell(sku, mark);
  }

  #learn(sku: SkuKey, mark: StockMark): void {
    this.#marks.set(nameOf(sku), { sku, mark });
    this.flags.observe(sku, mark);
  }

  async #look(): Promise<void> {
    const { stores, clock, hooks } = this.#parts;
    try {
      for (const { activityId, skus } of this.#parts.activities) {
        for (const { skuId } of skus) {
          const sku = { activityId, skuId };
          const mark = await stores.inventory.mark(sku);
          if (mark !== undefined) this.#learn(sku, mark);
        }
      }
      this.#backlog = await stores.queue.backlog(clock.wallMs());
      this.#lookedAtUs = clock.monoUs();
    } catch (error) {
      hooks.onError('look at stock and queue', error);
    }
  }
}

/** The audience of every pass: whoever takes submits in this deployment. */
export const submitAudience = 'sluice-submit';

function nameOf({ activityId, skuId }: SkuKey): string {
  return `${activityId}/${skuId}`;
}
