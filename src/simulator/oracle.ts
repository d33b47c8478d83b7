import { type Mode, modes } from '../core/overload/mode.ts';
import type { PathLimits } from '../pipeline/limits.ts';
import type { CommitFate } from '../ports/order-store.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import type { Delivery, OrderMessage } from '../ports/order-queue.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { ReserveReply } from '../ports/inventory-store.ts';
import type { ReconcileReport } from '../workers/reconciliation.ts';
import type { BudgetStore } from '../ports/budget-store.ts';
import { BudgetWatch } from './budget-watch.ts';
import { methodsOf } from './calls.ts';
import { OrderWatch } from './order-watch.ts';
import { StockWatch } from './stock-watch.ts';
import type { SimProcess } from './process.ts';
import type { SkuKey } from '../core/activity.ts';
import type { Epoch } from '../pipeline/sold-out-flags.ts';
import { Promises } from './promises.ts';
import { RoomWatch } from './room-watch.ts';
import type { World } from './world.ts';

/** Something that must never be, was. */
export class Violation extends Error {
  override readonly name = 'Violation';
  readonly invariant: string;

  constructor(invariant: string, detail: string) {
    super(`invariant ${invariant}: ${detail}`);
    this.invariant = invariant;
  }
}

/**
 * Looks at the whole world after every event, as nobody inside it can, and keeps books of its own:
 * what the stores have answered, what was promised to whom, what was let through. It never asks the
 * code under test whether the code under test is right.
 *
 * Invariants by number are those of the guide's chapter on trust; the others have names.
 */
export class Oracle {
  readonly promises: Promises;
  readonly budgets: BudgetWatch;
  readonly stock: StockWatch;
  readonly orders: OrderWatch;
  readonly room: RoomWatch;
  /** Edges of states that were walked, and how often. */
  readonly edges = new Map<string, number>();
  /** Shapes in which the world was seen. */
  readonly states = new Set<number>();
  readonly #world: World;
  #failed: Violation | undefined;
  /** Failovers and crashes that may have lost acknowledged or unflushed writes. */
  #forgotten = 0;
  #rebuilt = 0;
  #forgottenAtUs = -Infinity;
  #ordersTouched = false;
  #anyTouched = false;
  readonly #ledgers = new Set<SimProcess>();

  constructor(world: World) {
    this.#world = world;
    this.promises = new Promises(world, this);
    this.budgets = new BudgetWatch(world, this);
    this.stock = new StockWatch(world, this);
    this.orders = new OrderWatch(world, this);
    this.room = new RoomWatch(world, this);
  }

  /** How often acknowledged writes may have been lost so far. */
  get forgotten(): number {
    return this.#forgotten + this.#rebuilt;
  }

  /** When that was last, µs. */
  get forgottenAtUs(): number {
    return this.#forgottenAtUs;
  }

  fail(invariant: string, detail: string): void {
    this.#failed ??= new Violation(invariant, detail);
  }

  check(holds: boolean, invariant: string, detail: () => string): void {
    if (!holds) this.fail(invariant, detail());
  }

  edge(name: string): void {
    this.edges.set(name, (this.edges.get(name) ?? 0) + 1);
  }

  /** Something in a process went wrong: fine where a port may fail so, a fault of ours otherwise. */
  trouble(where: string, what: string, error: unknown): void {
    if (isPortFailure(error)) {
      this.edge(`handled failure: ${what.split(' ')[0] ?? what}`);
      return;
    }
    const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    if (expected.some((pattern) => pattern.test(text))) return;
    const stack = error instanceof Error ? (error.stack ?? '').split('\n').slice(1, 4) : [];
    this.fail(
      'no surprise',
      `${where}, ${what}: ${text} ${stack.join(' ').replaceAll(/\s+/g, ' ')}`,
    );
  }

  modeChanged(process: SimProcess, from: Mode, to: Mode): void {
    this.edge(`mode ${from} → ${to}`);
    this.#world.note('mode', `${process.name} ${from} → ${to}`);
  }

  workerEvent(process: SimProcess, worker: string, event: { readonly kind: string }): void {
    this.edge(`${worker}: ${event.kind}`);
    const error: unknown = 'error' in event ? event.error : undefined;
    if (error !== undefined) this.trouble(process.name, worker, error);
  }

  reconciled(report: ReconcileReport): void {
    for (const finding of report.findings) {
      this.edge(`finding ${finding.class}${finding.repaired ? ' repaired' : ''}`);
      this.#world.note(
        'finding',
        `${finding.class} ${finding.subject}: found ${finding.found}, expected ${finding.expected}`,
      );
    }
  }

  /** Writes that were answered may be gone from now on. */
  forgot(): void {
    this.#forgotten += 1;
    this.#forgottenAtUs = this.#world.time.nowUs;
    this.lookAnew();
  }

  /** A process with journals has died, and its journals were read again. */
  crashedWithJournals(): void {
    this.lookAnew();
    this.orders.lookAtJournal();
  }

  /** Stock is not what it was, whatever its sequence says. */
  lookAnew(): void {
    this.stock.lookAnew();
  }

  /** A submit has ended at this gateway. */
  submitEnded(process: SimProcess): void {
    this.#ledgers.add(process);
  }

  countingLimits(process: SimProcess, limits: PathLimits): PathLimits {
    return {
      instance: (request) => limits.instance(request),
      source: (request) => limits.source(request),
      person: (request) => limits.person(request),
      budget: (request) => {
        const said = limits.budget(request);
        if (!(said instanceof Promise)) {
          if (said === undefined) this.budgets.admitted(process);
          return said;
        }
        return said.then((later) => {
          if (later === undefined) this.budgets.admitted(process);
          return later;
        });
      },
      headers: (...asked) => limits.headers(...asked),
      end: (request) => limits.end(request),
      risk: (caller) => limits.risk(caller),
      forged: (address) => limits.forged(address),
    };
  }

  /** What a store has just done and answered, whoever hears of it: the port and its method. */
  observe(call: string, given: readonly unknown[], value: unknown, process: SimProcess): void {
    this.#anyTouched = true;
    switch (call) {
      case 'inventory.reserve':
        this.stock.reserved(given, value as ReserveReply);
        return;
      case 'orders.commitBatch':
        this.#ordersTouched = true;
        this.orders.committed(given[0] as readonly OrderMessage[], value as readonly CommitFate[]);
        return;
      case 'queue.acknowledge':
        this.orders.acknowledged(given[0] as readonly Delivery[]);
        return;
      case 'orders.raiseGeneration':
      case 'inventory.rebuild':
        // From the first of them on, reservations without an order are given up.
        this.#rebuilt += 1;
        this.#forgottenAtUs = this.#world.time.nowUs;
        this.#ordersTouched = true;
        this.edge(`${call.split('.')[0] ?? call} goes on to another generation`);
        return;
      case 'budgets.renew':
        this.budgets.renewed(
          process,
          given as Parameters<BudgetStore['renew']>,
          value as Awaited<ReturnType<BudgetStore['renew']>>,
        );
        return;
      case 'budgets.take':
        this.budgets.taken(value as Awaited<ReturnType<BudgetStore['take']>>);
        return;
      case 'budgets.giveBack':
        this.budgets.gaveBack();
        return;
      case 'admission.join':
        this.room.joined(
          given as Parameters<AdmissionStore['join']>,
          value as Awaited<ReturnType<AdmissionStore['join']>>,
        );
        return;
      case 'admission.leave':
        this.room.left(given[1] as string);
        return;
      case 'admission.endAttempt':
        this.room.ended(given[1] as string, given[3] as number);
        return;
      case 'admission.takePass':
        this.room.taken(
          given as Parameters<AdmissionStore['takePass']>,
          value as Awaited<ReturnType<AdmissionStore['takePass']>>,
        );
        return;
      case 'admission.saveState':
        this.room.saved(given[0] as string, given[1] as string, value as boolean);
        return;
      default:
        // Who only asks changes nothing.
        if (changing.has(call)) this.#ordersTouched = true;
    }
  }

  /** After every event. Throws the first violation. */
  look(): void {
    if (this.stock.look()) {
      this.#anyTouched = true;
      this.#ordersTouched = true;
    }
    if (this.#ordersTouched) this.orders.look();
    this.#lookAtProcesses();
    if (this.#ledgers.size > 0) this.#lookAtLedgers();
    if (this.#anyTouched) this.#noteState();
    this.#ordersTouched = false;
    this.#anyTouched = false;
    if (this.#failed !== undefined) throw this.#failed;
  }

  #lookAtProcesses(): void {
    const { processes, time } = this.#world;
    const { actor } = time;
    let leaders = 0;
    for (const process of processes) {
      const { running } = process;
      if (running === undefined) continue;
      if (process.roles.length === 1 && running.sale.leads) leaders += 1;
      // What happens to one process changes nothing in the memory of another.
      if (running.pipeline === undefined || (actor !== undefined && actor !== process)) continue;
      for (const sku of this.#world.skus) {
        const epoch = running.sale.flags.epochOf(sku);
        if (epoch !== undefined) this.#lookAtFlag(process, sku, epoch);
      }
    }
    if (leaders > 1) this.fail('one leader', `${leaders} processes lead at once`);
  }

  /** Only a higher epoch replaces another, in one life of a process. */
  #lookAtFlag(process: SimProcess, { skuId }: SkuKey, { generation, stockEpoch }: Epoch): void {
    const seen = (process.seenEpochs[skuId] ??= { life: 0, generation: 0, stockEpoch: 0 });
    if (seen.life === process.life) {
      if (seen.generation === generation && seen.stockEpoch === stockEpoch) return;
      this.check(
        generation > seen.generation ||
          (generation === seen.generation && stockEpoch > seen.stockEpoch),
        '8',
        () =>
          `${process.name} ${skuId}: epoch ${seen.generation}/${seen.stockEpoch} was replaced by ` +
          `${generation}/${stockEpoch}`,
      );
    }
    seen.life = process.life;
    seen.generation = generation;
    seen.stockEpoch = stockEpoch;
  }

  #lookAtLedgers(): void {
    for (const process of this.#ledgers) {
      const residual = process.running?.ledger.residual() ?? 0;
      this.check(residual === 0, '11', () => `${process.name}: residual ${residual}`);
    }
    this.#ledgers.clear();
  }

  /** The world as one number of few facts, to count how many different ones were seen. */
  #noteState(): void {
    const { servers, processes } = this.#world;
    let state = 0x811c9dc5;
    const mix = (value: number): void => {
      state = Math.imul(state ^ value, 0x01000193);
    };
    for (const { stock } of servers.inventory.engine.machine.skus.values()) {
      mix(Math.min(stock.available, 3) | (Math.min(stock.held, 3) << 2));
      mix(Math.min(stock.ordered, 3) | (Math.min(stock.waiting, 3) << 2));
      mix(Math.min(stock.generation, 4) | ((stock.stockEpoch % 2) << 3) | (stock.paused ? 16 : 0));
    }
    for (const { running } of processes) {
      mix(
        running === undefined
          ? 99
          : modes.indexOf(running.overload.mode) | (running.sale.leads ? 8 : 0),
      );
    }
    for (const count of this.orders.counts) mix(Math.min(3, count));
    this.states.add(state);
  }
}

/** What changes orders or money. */
const changing: ReadonlySet<string> = new Set(
  (['orders', 'payments'] as const).flatMap((port) =>
    methodsOf[port].writes.map((method) => `${port}.${method}`),
  ),
);

export function isPortFailure(error: unknown): boolean {
  return error instanceof UnavailableError || error instanceof OutcomeUnknownError;
}

/** What else may go wrong in a process that is well: each is somebody's answer to a fault. */
const expected: readonly RegExp[] = [
  // Another control has taken over.
  /^DeposedError/,
  // The SKU is not loaded yet, at the very beginning.
  /^UnknownSkuError/,
  // A SKU was rebuilt while it was paged.
  /^RangeError: No reservation .* was rebuilt; begin again/,
  // A message that the database cannot take.
  /^Error: invalid input in message/,
];
