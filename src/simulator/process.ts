import { demoIdentity } from '../gateway/identity/demo.ts';
import { operatorActions } from '../app/operator-actions.ts';
import type { Keys } from '../app/keys-folder.ts';
import { prepareStock } from '../app/prepare-stock.ts';
import type { Role } from '../app/roles.ts';
import { Sale } from '../app/sale.ts';
import type { Stores } from '../app/embedded-stores.ts';
import { OverloadLoop, overloadDefaults } from '../control/overload-loop.ts';
import type { OperatorActions } from '../control/admin/source.ts';
import { Ledger } from '../core/ledger/ledger.ts';
import { RuleEngine } from '../core/rules/engine.ts';
import { RetrySpread } from '../pipeline/health.ts';
import { type PathLimits, noLimits } from '../pipeline/limits.ts';
import { SubmitPipeline } from '../pipeline/pipeline.ts';
import { RuleLimits } from '../pipeline/rule-limits.ts';
import type { Submission, Verdict } from '../pipeline/stage.ts';
import { SharedBudgets } from '../stores/limits/shared-budgets.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import type { Broadcast } from '../ports/broadcast.ts';
import type { BudgetStore } from '../ports/budget-store.ts';
import type { InventoryStore } from '../ports/inventory-store.ts';
import type { LeaderLease } from '../ports/leader-lease.ts';
import type { OrderQueue } from '../ports/order-queue.ts';
import type { AuditLog, OrderStore, PaymentStore } from '../ports/order-store.ts';
import type { SeededRandom } from './chance.ts';
import { methodsOf, throughPort } from './calls.ts';
import type { PortName } from './faults.ts';
import { SimProbe } from './probe.ts';
import { SimEmergencyLedger } from './servers.ts';
import { type MachineClock, OwnedTimers, type Owner } from './time.ts';
import type { World } from './world.ts';

/**
 * One process of the simulated deployment: the product's own composition of a sale, and for a gateway
 * the product's own path and limits, over ports that lead into the world. It can die at any instant,
 * and is started again by whoever watches over it.
 */
export interface ProcessParts {
  readonly world: World;
  readonly index: number;
  readonly name: string;
  readonly roles: readonly Role[];
  readonly clock: MachineClock;
  readonly random: SeededRandom;
}

/** Of one life of a process. */
export interface Running {
  readonly sale: Sale;
  readonly overload: OverloadLoop;
  readonly ledger: Ledger;
  readonly probe: SimProbe;
  readonly actions: OperatorActions;
  readonly stores: Stores;
  readonly pipeline: SubmitPipeline | undefined;
  readonly shared: SharedBudgets | undefined;
}

interface PathParts {
  readonly sale: Sale;
  readonly stores: Stores;
  readonly overload: OverloadLoop;
  readonly ledger: Ledger;
  readonly keys: Keys;
}

/** A process that could not start, or has died, is started again after this, µs. */
const restartUs = [200_000, 4_000_000] as const;
/** Tokens that one outage may spend without the store. */
export const emergencyTokens = 3;

export class SimProcess implements Owner {
  readonly index: number;
  readonly name: string;
  readonly roles: readonly Role[];
  readonly clock: MachineClock;
  life = 0;
  pausedUntilUs = 0;
  /** Undefined while it is down, or on its way up. */
  running: Running | undefined;
  /** Submits that it has taken and not answered. */
  inSystem = 0;
  /** For the oracle: the newest epoch of each SKU that this process was seen to believe. */
  readonly seenEpochs: Record<string, { life: number; generation: number; stockEpoch: number }> =
    {};
  /** It stays down from now on. */
  retired = false;
  readonly #parts: ProcessParts;
  /** By which its clock is off when nobody has set it wrong, ms. */
  readonly #skewMs: number;
  /** What its disk remembers of emergency budgets. */
  readonly #markers = new SimEmergencyLedger();
  #grantedBefore = 0;

  constructor(parts: ProcessParts) {
    this.#parts = parts;
    this.index = parts.index;
    this.name = parts.name;
    this.roles = parts.roles;
    this.clock = parts.clock;
    this.#skewMs = parts.clock.skewMs;
  }

  /** Emergency budgets that this life was allowed to spend. */
  get emergencies(): number {
    return this.#markers.granted - this.#grantedBefore;
  }

  has(role: Role): boolean {
    return this.roles.includes(role);
  }

  /** Somebody sets the clock as right as clocks are here. */
  setClockRight(): void {
    this.clock.set(this.#skewMs);
  }

  /** Begins a life; resolves when it serves, or has failed to (and then it will be tried again). */
  async start(): Promise<void> {
    const { world } = this.#parts;
    this.life += 1;
    const { life } = this;
    this.#grantedBefore = this.#markers.granted;
    // A machine is given the time before anything is started on it.
    this.setClockRight();
    try {
      const running = await this.#boot();
      if (this.life === life) this.running = running;
    } catch (error) {
      if (this.life !== life) return;
      world.oracle.trouble(this.name, 'start', error);
      world.crash(this);
    }
  }

  /** Ends this life, without a word; another begins by itself unless it is retired. */
  die(): void {
    const { world } = this.#parts;
    this.life += 1;
    this.running = undefined;
    this.inSystem = 0;
    this.pausedUntilUs = 0;
    if (this.retired) return;
    const us = restartUs[0] + world.chance.below(restartUs[1] - restartUs[0]);
    world.time.after(us, `start ${this.name}`, () => void this.start(), this);
  }

  /** Ends in order, as when an operator stops it. */
  async stop(): Promise<void> {
    const { running, life } = this;
    const { world } = this.#parts;
    this.retired = true;
    if (running === undefined) {
      this.die();
      return;
    }
    await running.shared?.close();
    await running.sale.stop();
    running.overload.stop();
    if (this.life !== life) return;
    world.closed();
    this.die();
  }

  /** A submit over the path. Undefined where nobody serves. */
  async submit(submission: Submission): Promise<Verdict | undefined> {
    const { running, life } = this;
    if (running?.pipeline === undefined) return undefined;
    this.inSystem += 1;
    const verdict = await running.pipeline.run(submission);
    // A process that has died answers nobody.
    if (this.life !== life) return new Promise<never>(() => undefined);
    this.inSystem -= 1;
    this.#parts.world.oracle.submitEnded(this);
    return verdict;
  }

  async #boot(): Promise<Running> {
    const { world, clock, random: own } = this.#parts;
    const { plan, activities } = world;
    const keys = world.openKeys();
    const random = own.fork(`life ${this.life}`);
    const timers = new OwnedTimers(world.time, clock.rate, this.name, this);
    const base = { clock, timers, random };
    const stores = this.#stores();
    const lost = this.has('control') ? await prepareStock(stores, activities) : [];
    const probe = new SimProbe(() => sale.backlog);
    const overload = new OverloadLoop({
      clock,
      probe,
      settings: { ...overloadDefaults, admitPerSecond: 2_000 },
      onModeChange: (from, to) => world.oracle.modeChanged(this, from, to),
    });
    const ledger = new Ledger(() => this.inSystem);
    const embedded = plan.shape.deployment === 'embedded';
    const sale: Sale = new Sale({
      ...base,
      activities,
      paymentGraceMs: world.graceMs,
      backlogCeiling: 1_000,
      stores,
      keys,
      issuer: world.issuer,
      // At the end of the instant: requests that are there already go together.
      defer: (task) => void world.time.after(random.below(1_000), 'gather', task, this),
      overload,
      ledger,
      demoPayments: true,
      instance: `${this.name}-${this.life}`,
      roles: this.roles,
      report: () => ({
        instance: `${this.name}-${this.life}`,
        roles: this.roles,
        startedAtMs: clock.wallMs(),
        mode: overload.mode,
        reserveMs: overload.reading.reserveMs ?? null,
        inFlight: overload.slots.submit.inflight,
        inFlightLimit: overload.slots.submit.limitInForce,
        loopDelayMs: 0,
        memoryBytes: 0,
        rulesVersion: 1,
        ledger: ledger.snapshot(),
      }),
      inventoryMayForget: !embedded,
      hooks: {
        onReserveWait: (us) => probe.waited(us / 1_000),
        onReserveCall: (us, _size, failed) => probe.reserved(us / 1_000, failed),
        onTrouble: (_sku, trouble) => world.oracle.edge(`trouble ${trouble}`),
        onSoldOut: (_sku, soldOut) => world.oracle.edge(soldOut ? 'flag set' : 'flag cleared'),
        onWorkerEvent: (worker, event) => world.oracle.workerEvent(this, worker, event),
        onReconciled: (report) => world.oracle.reconciled(report),
        onLeading: (leads) => world.oracle.edge(leads ? 'leads' : 'leads no more'),
        onForgotten: () => world.oracle.edge('rebuild of forgotten stock'),
        onError: (what, error) => world.oracle.trouble(this.name, what, error),
      },
    });
    overload.start(timers);
    for (const sku of lost) {
      if (embedded) await sale.rebuild(sku, 'server', 'lost at start');
      else sale.noteLost(sku);
    }
    await sale.start();
    const serves = this.has('gateway')
      ? this.#path({ sale, stores, overload, ledger, keys }, base)
      : {};
    const actions = operatorActions({
      stores,
      activity: (id) => sale.activities.get(id),
      rooms: sale.rooms,
      overload,
      clock,
      onUnitsDue: () => sale.workers.expiry.nudge(),
    });
    return {
      sale,
      overload,
      ledger,
      probe,
      actions,
      stores,
      pipeline: undefined,
      shared: undefined,
      ...serves,
    };
  }

  #path(
    { sale, stores, overload, ledger, keys }: PathParts,
    base: { clock: MachineClock; timers: OwnedTimers; random: SeededRandom },
  ): Pick<Running, 'pipeline' | 'shared'> {
    const { world } = this.#parts;
    const { limits, shared } = this.#limits(base);
    const spread = new RetrySpread(base.random);
    const pipeline = new SubmitPipeline({
      paths: sale.paths,
      passes: sale.passes,
      batcher: sale.batcher,
      orders: stores.orders,
      activities: sale.activities,
      status: sale.status,
      random: base.random,
      spread,
      health: overload,
      limits: world.oracle.countingLimits(this, limits),
      flags: sale.flags,
      identity: demoIdentity(keys.rings.user, world.issuer),
      backlog: () => sale.backlog?.depth,
      backlogCeiling: 1_000,
      ledger,
      onError: (what, error) => world.oracle.trouble(this.name, what, error),
    });
    return { pipeline, shared };
  }

  #limits(base: { clock: MachineClock; timers: OwnedTimers; random: SeededRandom }): {
    limits: PathLimits;
    shared: SharedBudgets | undefined;
  } {
    const { world } = this.#parts;
    const { clock, timers, random } = base;
    if (world.rules === undefined) return { limits: noLimits, shared: undefined };
    const shared = new SharedBudgets({
      store: this.#port<BudgetStore>('budgets', () => world.servers.budgets),
      clock,
      timers,
      random,
      ledger: this.#markers,
      emergencyTokens,
      onTrouble: (error) => world.oracle.trouble(this.name, 'budgets', error),
    });
    const engine = new RuleEngine(
      { hashSeed: new Uint32Array(new Uint8Array(random.bytes(16)).buffer), shared },
      clock.monoUs(),
    );
    engine.apply(world.rules, clock.monoUs());
    return { limits: new RuleLimits({ engine, clock, random }), shared };
  }

  #stores(): Stores {
    const { world } = this.#parts;
    const { servers } = world;
    const orders = this.#port<OrderStore>('orders', () => servers.orders);
    const shared = {
      inventory: this.#port<InventoryStore>('inventory', () => servers.inventory.inventory),
      queue: this.#port<OrderQueue>('queue', () => servers.inventory.queue),
      admission: this.#port<AdmissionStore>('admission', () => servers.admission.store),
      orders: {
        ...orders,
        payments: this.#port<PaymentStore>('payments', () => servers.orders.payments),
        audit: throughPort<AuditLog>(
          { world, process: this, port: 'orders', local: false },
          methodsOf.audit,
          () => servers.orders.audit,
        ),
      },
      close: () => Promise.resolve(),
    };
    if (world.plan.shape.deployment === 'embedded') return shared;
    return {
      ...shared,
      lease: this.#port<LeaderLease>('lease', () => servers.lease),
      broadcast: {
        ...this.#port<Broadcast>('broadcast', () => servers.words),
        listen: (listener) => world.listen(this, listener),
      },
    };
  }

  #port<Port extends object>(port: PortName, real: () => Port): Port {
    const { world } = this.#parts;
    const embedded = world.plan.shape.deployment === 'embedded';
    const local = embedded && port !== 'orders' && port !== 'payments';
    return throughPort({ world, process: this, port, local }, methodsOf[port], real);
  }
}
