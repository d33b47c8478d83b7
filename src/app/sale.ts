import { Leadership } from '../control/leadership.ts';
import type { Activity, Sku, SkuKey } from '../core/activity.ts';
import type { FindingClass } from '../core/orders/compare.ts';
import { homeShard } from '../core/stock/shards.ts';
import { type Mode, modes } from '../core/overload/mode.ts';
import { passVerifier } from '../pipeline/pass-verifier.ts';
import { ActivityPaths } from '../pipeline/path-index.ts';
import type { PassVerifier } from '../pipeline/stages/06-identify.ts';
import { RequestStatus } from '../pipeline/request-status.ts';
import { ReserveBatcher } from '../pipeline/reserve-batcher.ts';
import { epochIsSoldOut, readSnapshot, SoldOutFlags } from '../pipeline/sold-out-flags.ts';
import type { TimerHandle } from '../ports/clock.ts';
import type { Backlog } from '../ports/order-queue.ts';
import type { StockMark } from '../ports/inventory-store.ts';
import { type RebuildParts, rebuildSku } from '../workers/rebuild.ts';
import { Reconciliation, type ReconcileReport } from '../workers/reconciliation.ts';
import { Fleet } from './fleet.ts';
import { ForgottenStock } from './forgotten-stock.ts';
import { allRoles, type Role } from './roles.ts';
import { RoomNews } from './room-news.ts';
import { Rooms } from './rooms.ts';
import type { SaleParts } from './sale-parts.ts';
import { obeyDoors } from './doors.ts';
import { SaleWorkers } from './sale-workers.ts';
import { traceOrders } from './trace-orders.ts';
import { ServedActivities } from './served.ts';

/** What one reservation step may take before the waves slow down, ms. */
const reserveBudgetMs = 100;

/** Batches worked off before a rebuild: bounds the pause of the SKU. */
const drainPassesMax = 1_000;

/** A rebuild waits for what workers have in their hands at most so long, ms, and looks so often. */
const drainMaxMs = 5_000;
const drainLookMs = 50;
/** What a comparison finds that is mended by building the SKU anew. */
const builtAnew: ReadonlySet<FindingClass> = new Set([
  'inventory_forgot',
  'generation_behind',
  'paused_alone',
]);

/** Between two looks at stock and backlog, ms: the sold-out flags' heartbeat, well inside their TTL. */
const lookEveryMs = 500;

/**
 * One deployment's sales, put together: everything between the HTTP server and the stores. Real time,
 * real randomness and real stores come in as ports, so that a simulated world runs this very code.
 */
export class Sale {
  /** What is on sale here, rehearsals included. */
  readonly activities: ServedActivities;
  readonly flags: SoldOutFlags;
  readonly batcher: ReserveBatcher;
  readonly status: RequestStatus;
  readonly paths: ActivityPaths;
  readonly passes: PassVerifier;
  readonly rooms: Rooms;
  readonly workers: SaleWorkers;
  readonly reconciliation: Reconciliation;
  /** The processes beside this one, where there may be any. */
  readonly fleet: Fleet | undefined;
  readonly #parts: SaleParts;
  readonly #roles: readonly Role[];
  readonly #leadership: Leadership | undefined;
  readonly #forgotten: ForgottenStock;
  readonly #marks = new Map<string, { readonly sku: SkuKey; readonly mark: StockMark }>();
  readonly #rebuiltAtMs = new Map<string, number>();
  #backlog: Backlog | undefined;
  #timer: TimerHandle | undefined;
  #looking: Promise<void> | undefined;
  #counting: Promise<void> | undefined;
  #lookedAtUs: number | undefined;

  constructor(parts: SaleParts) {
    this.#parts = parts;
    this.#roles = parts.roles ?? allRoles;
    const { stores, clock, timers, random, keys, hooks } = parts;
    this.activities = new ServedActivities({
      activities: parts.activities,
      stores,
      clock,
      onChange: async (served, gone) => {
        for (const sku of skusOf(gone)) this.#marks.delete(nameOf(sku));
        this.paths.replace(served);
        await this.rooms.serve(served);
      },
    });
    this.flags = new SoldOutFlags({
      store: stores.inventory,
      monoUs: () => clock.monoUs(),
      onChange: (sku, soldOut, epoch) => {
        hooks.onSoldOut(sku, soldOut);
        this.fleet?.tellEpoch(sku, epoch);
      },
      onError: (sku, error) => hooks.onError(`sold-out snapshot of ${nameOf(sku)}`, error),
    });
    this.batcher = new ReserveBatcher({
      store: stores.inventory,
      placeOf: (sku, { personId }) => homeShard(personId, this.#skuOf(sku)?.shards ?? 1),
      wallMs: () => clock.wallMs(),
      monoUs: () => clock.monoUs(),
      timers,
      defer: parts.defer,
      onMark: (sku, mark) => this.#learn(sku, mark),
      onTrouble: (sku, trouble, mark) => {
        hooks.onTrouble(sku, trouble);
        if (trouble === 'forgotten') this.#noteForgotten(sku, mark?.generation ?? 0);
      },
      onSent: (waitedUs) => hooks.onReserveWait(waitedUs),
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
      defer: parts.defer,
      unitsOf: async (sku, personId) => {
        const live = await stores.orders.liveOfPerson(sku, personId);
        return live.reduce((sum, { quantity }) => sum + quantity, 0);
      },
      stock: (sku) => this.#marks.get(nameOf(sku))?.mark,
      mode: () => this.#worstMode(),
      backlogRatio: () =>
        this.#backlog === undefined ? undefined : this.#backlog.depth / parts.backlogCeiling,
      reserveRatio: () => this.#slowestReserveMs() / reserveBudgetMs,
      ...(stores.lease === undefined
        ? {}
        : { leads: () => this.leads, leader: () => this.#leadership?.leader }),
      ...(parts.challengeProvider === undefined
        ? {}
        : { challengeProvider: parts.challengeProvider }),
      onPublished: (state) => this.fleet?.tellRelease(state),
      onError: (what, error) => hooks.onError(what, error),
    });
    this.passes = passVerifier({
      ring: keys.rings.pass,
      issuer: parts.issuer,
      audience: submitAudience,
      isWaveRevoked: (activityId, wave) => this.rooms.isWaveRevoked(activityId, wave),
      bindsDevice: (activityId) => this.activities.get(activityId)?.room.bindDevice === true,
    });
    const news = new RoomNews({
      rooms: this.rooms,
      inventory: stores.inventory,
      orders: stores.orders,
      onError: (error) => hooks.onError('telling the room', error),
    });
    this.workers = new SaleWorkers({
      stores,
      activity: (id) => this.activities.get(id),
      paymentGraceMs: parts.paymentGraceMs,
      ...(parts.demoPayments ? { demoSecret: keys.pathMac('demo payment provider') } : {}),
      ...(parts.guardProvider === undefined ? {} : { guardProvider: parts.guardProvider }),
      consumer: parts.instance,
      clock,
      timers,
      random,
      onEvent: (worker, event) => hooks.onWorkerEvent(worker, event),
      onSettled: (messages, fates) => {
        news.settled(messages, fates);
        if (parts.tracer !== undefined) traceOrders(parts.tracer, messages, fates);
      },
      onReturned: (returned) => news.returned(returned),
    });
    this.#forgotten = this.#watchForgotten();
    this.fleet = this.#openFleet();
    this.#leadership = this.#lead();
    this.reconciliation = new Reconciliation({
      ...this.#rebuildParts(),
      inventory: stores.inventory,
      queue: stores.queue,
      orders: stores.orders,
      clock,
      timers,
      random,
      skus: () => this.skus(),
      onReport: (report) => {
        this.#noteFindings(report);
        hooks.onReconciled(report);
      },
      onError: (error) => hooks.onError('reconciliation', error),
    });
  }

  /** May this process act for all? Where there is one only, it leads. */
  get leads(): boolean {
    return this.#leadership?.leads ?? this.#roles.includes('control');
  }

  /** Every SKU on sale. */
  skus(): readonly SkuKey[] {
    return skusOf(this.activities.list());
  }

  /** SKUs of the configuration whose stock nobody has shown us yet. */
  unseen(): readonly SkuKey[] {
    return skusOf(this.#parts.activities).filter((sku) => !this.#marks.has(nameOf(sku)));
  }

  /** The inventory does not know this SKU, although orders of it exist: the leader builds it anew. */
  noteLost(sku: SkuKey): void {
    this.#noteForgotten(sku, 0);
  }

  /** Builds one SKU's inventory anew from the durable orders, as a new generation. */
  async rebuild(sku: SkuKey, who: string, why: string): Promise<void> {
    const { inventory, orders } = this.#parts.stores;
    const parts = { inventory, orders, clock: this.#parts.clock, ...this.#rebuildParts() };
    const mark = await rebuildSku(parts, sku, { who, why });
    this.#rebuiltAtMs.set(nameOf(sku), this.#parts.clock.wallMs());
    this.#learn(sku, mark);
    this.fleet?.tellEpoch(sku, mark);
  }

  /** What the queue still holds is turned into orders first: those people lose nothing. */
  #rebuildParts(): Pick<RebuildParts, 'drain' | 'seats' | 'shards'> {
    return {
      drain: async () => {
        const { clock, timers, stores } = this.#parts;
        const untilUs = clock.monoUs() + drainMaxMs * 1_000;
        // A broker gives messages to workers alone: whoever else asked would be counted among them,
        // and what is dealt out to it would wait for it.
        const receives = stores.relay === undefined || this.#roles.includes('worker');
        for (let pass = 0; pass < drainPassesMax; pass += 1) {
          const { received, blocked } = receives
            ? await this.workers.orders.runOnce(0)
            : { received: 0, blocked: false };
          if (blocked || clock.monoUs() >= untilUs) return;
          if (received > 0) continue;
          // What other workers have in their hands is theirs to finish.
          const { depth } = await stores.queue.backlog(clock.wallMs());
          if (depth === 0 || stores.broadcast === undefined) return;
          await new Promise<void>((resolve) => void timers.after(drainLookMs, resolve));
        }
      },
      seats: (sku) => this.#skuOf(sku)?.seats,
      shards: (sku) => this.#skuOf(sku)?.shards,
    };
  }

  #skuOf({ activityId, skuId }: SkuKey): Sku | undefined {
    return this.activities.get(activityId)?.skus.find((sku) => sku.skuId === skuId);
  }

  /**
   * What its roles ask of this process begins; resolves once stock has been looked at, and where it
   * leads every room has a release state.
   */
  async start(): Promise<void> {
    await this.#look();
    await this.#counting;
    await this.fleet?.start();
    if (this.#leadership !== undefined) await this.#leadership.start();
    else if (this.#roles.includes('control')) await this.rooms.lead();
    if (this.#roles.includes('worker')) {
      this.workers.start();
      this.reconciliation.start();
    }
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
    await this.#counting;
    await this.#forgotten.settled();
    await this.#leadership?.stop();
    await Promise.all([this.rooms.stop(), this.workers.stop(), this.reconciliation.stop()]);
    await this.fleet?.stop();
  }

  /** Messages between reservation and order, as last looked at. */
  get backlog(): Backlog | undefined {
    return this.#backlog;
  }

  /** Parts that have failed for good; only a restart helps. */
  failures(): readonly string[] {
    return this.#parts.stores.failures?.() ?? [];
  }

  /** Age of the last good look at stock, ms; undefined before the first. */
  get lookAgeMs(): number | undefined {
    if (this.#lookedAtUs === undefined) return undefined;
    return (this.#parts.clock.monoUs() - this.#lookedAtUs) / 1000;
  }

  /** Stock as last seen, of every SKU that has been. */
  eachMark(tell: (sku: SkuKey, mark: StockMark) => void): void {
    for (const { sku, mark } of this.#marks.values()) tell(sku, mark);
  }

  #learn(sku: SkuKey, mark: StockMark): void {
    const name = nameOf(sku);
    const known = this.#marks.get(name)?.mark;
    if (known !== undefined && mark.generation > known.generation) {
      // Rebuilt, here or elsewhere: what the new stock does not know may have been lost with the old.
      this.#rebuiltAtMs.set(name, this.#parts.clock.wallMs());
    }
    // An answer that was overtaken by a newer one says nothing new.
    if (known !== undefined && isOlder(mark, known)) return;
    this.#marks.set(name, { sku, mark });
    this.flags.observe(sku, mark);
  }

  /** The store's own word on a SKU at this moment; the leader notices what it has forgotten. */
  #see(sku: SkuKey, mark: StockMark | undefined): void {
    const known = this.#marks.get(nameOf(sku))?.mark;
    if (mark === undefined) {
      if (known !== undefined) this.#noteForgotten(sku, known.generation);
      return;
    }
    if (known !== undefined && isOlder(mark, known)) this.#noteForgotten(sku, mark.generation);
    this.#learn(sku, mark);
  }

  /** That this generation of a SKU's stock has lost what it had acknowledged. */
  #noteForgotten(sku: SkuKey, generation: number): void {
    if (this.#parts.inventoryMayForget === true) this.#forgotten.note(sku, generation);
  }

  /**
   * What only building a SKU anew mends. Orders that the inventory does not know: it has forgotten, and
   * everybody who could have told by its sequence has been restarted since; or nothing was forgotten, and
   * an order that had expired before a rebuild was paid late after it. And a SKU that stays paused though
   * nobody has stopped it: a rebuild died before it reopened, or a stop was carried out late.
   */
  #noteFindings(report: ReconcileReport): void {
    for (const { class: kind, repaired, activityId, skuId } of report.findings) {
      if (repaired || !builtAnew.has(kind)) continue;
      const sku = { activityId, skuId };
      const mark = this.#marks.get(nameOf(sku))?.mark;
      if (mark !== undefined) this.#forgotten.note(sku, mark.generation);
    }
  }

  #watchForgotten(): ForgottenStock {
    const { stores, hooks } = this.#parts;
    return new ForgottenStock({
      inventory: stores.inventory,
      leads: () => this.leads,
      tell: (sku, generation) => this.fleet?.tellForgot(sku, generation),
      rebuild: async (sku, generation) => {
        hooks.onForgotten(sku, generation);
        await this.rebuild(sku, 'control', 'the inventory store forgot acknowledged writes');
      },
      onRebuilt: (sku, mark) => this.#learn(sku, mark),
      onError: (sku, error) => hooks.onError(`rebuilding ${nameOf(sku)}`, error),
    });
  }

  #lead(): Leadership | undefined {
    const { stores, clock, timers, instance, hooks } = this.#parts;
    if (stores.lease === undefined || !this.#roles.includes('control')) return undefined;
    return new Leadership({
      lease: stores.lease,
      holder: instance,
      clock,
      timers,
      onGained: async (epoch) => {
        hooks.onLeading(true, epoch);
        await this.rooms.lead();
      },
      onLost: async () => {
        hooks.onLeading(false, 0);
        await this.rooms.stop();
      },
      onError: (error) => hooks.onError('leadership', error),
    });
  }

  #openFleet(): Fleet | undefined {
    const { stores, clock, timers, instance, hooks, report } = this.#parts;
    const { broadcast } = stores;
    if (broadcast === undefined || report === undefined) return undefined;
    return new Fleet({
      broadcast,
      instance,
      roles: this.#roles,
      activities: () => this.activities.list(),
      skus: () => this.skus(),
      clock,
      timers,
      report,
      onRelease: (state, ageMs) => this.rooms.hear(state, ageMs),
      onEpoch: (sku, epoch) => this.flags.observe(sku, epoch),
      onHolders: (snapshot) => this.flags.load(snapshot),
      onDoors: (word, ageMs) => obeyDoors(this.#parts.overload, word, ageMs),
      onForgot: (sku, generation) => this.#noteForgotten(sku, generation),
      onError: (what, error) => hooks.onError(what, error),
    });
  }

  /** Of this process and of the gateways: whoever is worst off decides how many are let in. */
  #worstMode(): Mode {
    const gateways = this.fleet?.others().filter(({ roles }) => roles.includes('gateway')) ?? [];
    return gateways.reduce<Mode>(
      (worst, { mode }) => (modes.indexOf(mode) > modes.indexOf(worst) ? mode : worst),
      this.#parts.overload.modeForWaves,
    );
  }

  #slowestReserveMs(): number {
    const own = this.#parts.overload.reading.reserveMs ?? 0;
    const others = this.fleet?.others().map(({ reserveMs }) => reserveMs ?? 0) ?? [];
    return Math.max(own, ...others);
  }

  /** The leader tells gateways who holds units of what is sold out, so that none has to ask. */
  async #tellHolders(): Promise<void> {
    const { fleet } = this;
    const epoch = this.#leadership?.epoch ?? 0;
    if (fleet === undefined || !this.leads) return;
    for (const { sku, mark } of this.#marks.values()) {
      if (!epochIsSoldOut(mark.stockEpoch)) continue;
      const snapshot = await readSnapshot(this.#parts.stores.inventory, sku);
      if (snapshot?.holders !== undefined) fleet.tellHolders(snapshot, epoch);
    }
  }

  /** Beside the looks at stock, which must not wait for a broker that is slow to fail. */
  #countBacklog(): Promise<void> {
    const { stores, clock, hooks } = this.#parts;
    this.#counting ??= stores.queue
      .backlog(clock.wallMs())
      .then(
        (backlog) => {
          this.#backlog = backlog;
        },
        (error: unknown) => hooks.onError('look at the queue', error),
      )
      .finally(() => {
        this.#counting = undefined;
      });
    return this.#counting;
  }

  async #look(): Promise<void> {
    const { stores, clock, hooks } = this.#parts;
    void this.#countBacklog();
    try {
      await this.activities.hear();
      for (const sku of this.skus()) this.#see(sku, await stores.inventory.mark(sku));
      this.#lookedAtUs = clock.monoUs();
      await this.#tellHolders();
    } catch (error) {
      hooks.onError('look at stock', error);
    }
    this.#forgotten.look();
  }
}

function skusOf(activities: readonly Activity[]): readonly SkuKey[] {
  return activities.flatMap(({ activityId, skus }) =>
    skus.map(({ skuId }) => ({ activityId, skuId })),
  );
}

/** Was this said before that? Sequences of different generations are not comparable. */
function isOlder(one: StockMark, other: StockMark): boolean {
  if (one.generation !== other.generation) return one.generation < other.generation;
  return one.sequence < other.sequence;
}

/** The audience of every pass: whoever takes submits in this deployment. */
export const submitAudience = 'sluice-submit';

function nameOf({ activityId, skuId }: SkuKey): string {
  return `${activityId}/${skuId}`;
}
