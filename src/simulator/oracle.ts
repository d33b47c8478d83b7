import { type Mode, modes } from '../core/overload/mode.ts';
import { holdsUnits, mayOrder } from '../core/orders/states.ts';
import type { PathLimits } from '../pipeline/limits.ts';
import type { CommitFate, Order, OrderState, PaymentState } from '../ports/order-store.ts';
import type { Delivery, OrderMessage } from '../ports/order-queue.ts';
import { skuName } from '../core/stock/stock-machine.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { ReserveReply, ReserveRequest } from '../ports/inventory-store.ts';
import type { ReconcileReport } from '../workers/reconciliation.ts';
import type { BudgetStore } from '../ports/budget-store.ts';
import { BudgetWatch } from './budget-watch.ts';
import type { SimProcess } from './process.ts';
import type { SkuKey } from '../core/activity.ts';
import type { Epoch } from '../pipeline/sold-out-flags.ts';
import { Promises } from './promises.ts';
import { RoomWatch } from './room-watch.ts';
import { type World, activityId } from './world.ts';

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
  readonly #sequences = new Map<string, number>();
  #ordersTouched = false;
  #anyTouched = false;
  readonly #orderStates = new Map<string, OrderState>();
  readonly #orderCounts = [0, 0, 0, 0, 0];
  readonly #paymentStates = new Map<string, PaymentState>();
  /** Nonce → (user, request id) that a store has bound it to. */
  readonly #nonces = new Map<string, { readonly key: string; readonly forgotten: number }>();
  /** (SKU, user, request id) → its reservation. */
  readonly #reservations = new Map<
    string,
    { readonly id: string; readonly fingerprint: string; readonly forgotten: number }
  >();
  readonly #ledgers = new Set<SimProcess>();

  constructor(world: World) {
    this.#world = world;
    this.promises = new Promises(world, this);
    this.budgets = new BudgetWatch(world, this);
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

  /** Stock is not what it was, whatever its sequence says. */
  lookAnew(): void {
    this.#sequences.clear();
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

  /** What a store has just done and answered, whoever hears of it. */
  observe(port: string, method: string, given: readonly unknown[], value: unknown): void {
    this.#anyTouched = true;
    switch (`${port}.${method}`) {
      case 'inventory.reserve':
        this.#reserved(given, value as ReserveReply);
        return;
      case 'orders.commitBatch':
        this.#ordersTouched = true;
        this.#committed(given[0] as readonly OrderMessage[], value as readonly CommitFate[]);
        return;
      case 'queue.acknowledge':
        this.#acknowledged(given[0] as readonly Delivery[]);
        return;
      case 'orders.raiseGeneration':
      case 'inventory.rebuild':
        // From the first of them on, reservations without an order are given up.
        this.#rebuilt += 1;
        this.#forgottenAtUs = this.#world.time.nowUs;
        this.#ordersTouched = true;
        this.edge(`${port} goes on to another generation`);
        return;
      case 'budgets.renew':
        this.budgets.renewed(
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
      case 'admission.saveState':
        this.room.saved(given[0] as string, given[1] as string, value as boolean);
        return;
      default:
        if (port === 'orders' || port === 'payments') this.#ordersTouched = true;
    }
  }

  /** After every event. Throws the first violation. */
  look(): void {
    this.#lookAtStock();
    if (this.#ordersTouched) this.#lookAtOrders();
    this.#lookAtProcesses();
    if (this.#ledgers.size > 0) this.#lookAtLedgers();
    if (this.#anyTouched) this.#noteState();
    this.#ordersTouched = false;
    this.#anyTouched = false;
    if (this.#failed !== undefined) throw this.#failed;
  }

  #reserved(given: readonly unknown[], reply: ReserveReply): void {
    const [sku, batch] = given as [{ skuId: string }, readonly ReserveRequest[]];
    if (reply.kind !== 'done') {
      this.edge(`reserve ${reply.kind}`);
      return;
    }
    for (const [at, outcome] of reply.outcomes.entries()) {
      const request = batch[at];
      if (request === undefined) continue;
      this.edge(`reserve ${outcome.kind}`);
      if (outcome.kind !== 'reserved' && outcome.kind !== 'existing') continue;
      const { record } = outcome;
      const key = `${sku.skuId} ${request.userId} ${request.requestId}`;
      const known = this.#reservations.get(key);
      if (outcome.kind === 'reserved') {
        this.check(
          !reply.mark.paused,
          'stopped',
          () => `${key} reserved while the sale is stopped`,
        );
        this.#withinLimit(request, { activityId, skuId: sku.skuId });
        const bound = this.#nonces.get(request.nonce);
        this.check(
          bound === undefined || bound.key === key || bound.forgotten < this.forgotten,
          '3',
          () => `nonce ${request.nonce} served ${bound?.key ?? ''} and now ${key}`,
        );
        this.check(
          known === undefined || known.forgotten < this.forgotten,
          '3',
          () => `${key} reserved twice: ${known?.id ?? ''} and ${record.reservationId}`,
        );
        this.#nonces.set(request.nonce, { key, forgotten: this.forgotten });
        this.#reservations.set(key, {
          id: record.reservationId,
          fingerprint: record.fingerprint,
          forgotten: this.forgotten,
        });
      } else if (known !== undefined) {
        this.check(
          known.id === record.reservationId || known.forgotten < this.forgotten,
          '3',
          () => `${key} has reservation ${known.id}, and is told ${record.reservationId}`,
        );
        this.check(
          request.fingerprint === record.fingerprint,
          '3',
          () => `${key} was replayed with another content`,
        );
      }
    }
  }

  /** Everything live of a person, with what they have just got. */
  #withinLimit(request: ReserveRequest, sku: SkuKey): void {
    const stock = this.#world.servers.inventory.engine.machine.skus.get(skuName(sku))?.stock;
    let units = 0;
    for (const { personId, state, quantity } of stock?.order ?? []) {
      if (personId === request.personId && state !== 'released') units += quantity;
    }
    this.check(
      units <= request.limit,
      '2',
      () => `${request.personId} holds ${units} units; allowed ${request.limit}`,
    );
  }

  /** Nobody is released for a deadline that has not come, whatever clocks say. */
  #committed(messages: readonly OrderMessage[], fates: readonly CommitFate[]): void {
    for (const [at, fate] of fates.entries()) {
      const message = messages[at];
      if (message === undefined || fate.fate !== 'released' || !fate.fresh) continue;
      this.edge(`released ${fate.reason}`);
      this.check(
        fate.reason !== 'deadline' || this.#world.trueMs > message.deadlineMs - clockToleranceMs,
        'deadline',
        () => `${message.reservationId} was released long before its deadline`,
      );
    }
  }

  /** Forgotten by the queue: then both sides know what became of it. */
  #acknowledged(deliveries: readonly Delivery[]): void {
    const { orders, inventory } = this.#world.servers;
    for (const { message } of deliveries) {
      const { reservationId, activityId: act, skuId } = message;
      this.check(
        orders.isDecided(reservationId),
        '12',
        () => `${reservationId} was acknowledged, and nobody has decided its fate`,
      );
      if (this.forgotten > 0) continue;
      const stock = inventory.engine.machine.skus.get(skuName({ activityId: act, skuId }))?.stock;
      this.check(
        stock?.byId(reservationId)?.state !== 'held',
        '12',
        () => `${reservationId} was acknowledged, and the inventory does not know its fate`,
      );
    }
  }

  #lookAtStock(): void {
    const { engine } = this.#world.servers.inventory;
    for (const { key, stock } of engine.machine.skus.values()) {
      if (this.#sequences.get(key.skuId) === stock.sequence) continue;
      this.#sequences.set(key.skuId, stock.sequence);
      this.#anyTouched = true;
      let [held, ordered] = [0, 0];
      const persons = new Map<string, number>();
      for (const { state, quantity, personId } of stock.order) {
        if (state === 'released') continue;
        if (state === 'held') held += quantity;
        else ordered += quantity;
        persons.set(personId, (persons.get(personId) ?? 0) + quantity);
      }
      const { available, total } = stock;
      this.check(
        available >= 0 && held === stock.held && ordered === stock.ordered,
        '1',
        () =>
          `${key.skuId}: ${JSON.stringify(stock.mark())}, and records hold ${held} and ${ordered}`,
      );
      this.check(
        available + held + ordered === total,
        '1',
        () => `${key.skuId}: ${available} available + ${held} held + ${ordered} ordered ≠ ${total}`,
      );
    }
  }

  #lookAtOrders(): void {
    const { orders } = this.#world.servers;
    const sold = new Map<string, number>();
    const persons = new Map<string, number>();
    const nonceOwners = new Map<string, string>();
    const seats = new Map<string, string>();
    const requests = new Map<string, string>();
    for (const order of orders.everyOrder()) {
      const before = this.#orderStates.get(order.orderId);
      if (before !== order.state) {
        this.#orderStates.set(order.orderId, order.state);
        if (before !== undefined) this.#countOrder(before, -1);
        this.#countOrder(order.state, 1);
        this.edge(`order ${before ?? 'new'} → ${order.state}`);
        this.check(
          before === undefined ? order.state === 'PENDING_PAYMENT' : mayOrder(before, order.state),
          'order states',
          () => `order ${order.orderId} went from ${before ?? 'nothing'} to ${order.state}`,
        );
        this.#mayMove(order);
      }
      if (!holdsUnits(order.state)) continue;
      sold.set(order.skuId, (sold.get(order.skuId) ?? 0) + order.quantity);
      const person = `${order.skuId} ${order.personId}`;
      persons.set(person, (persons.get(person) ?? 0) + order.quantity);
      const request = `${order.skuId} ${order.userId} ${order.requestId}`;
      const twin = requests.get(request);
      this.check(
        twin === undefined,
        '4',
        () => `${request} has orders ${twin ?? ''} and ${order.orderId}`,
      );
      requests.set(request, order.orderId);
      for (const seat of order.seats ?? []) {
        const other = seats.get(`${order.skuId} ${seat}`);
        this.check(
          other === undefined,
          '1',
          () => `seat ${seat}: ${other ?? ''}, ${order.orderId}`,
        );
        seats.set(`${order.skuId} ${seat}`, order.orderId);
      }
    }
    this.#lookAtFates();
    for (const { facts } of orders.everyFate()) {
      const owner = `${facts.skuId} ${facts.userId} ${facts.requestId}`;
      const other = nonceOwners.get(facts.nonce);
      this.check(
        other === undefined || other === owner || this.forgotten > 0,
        '3',
        () => `nonce ${facts.nonce} serves ${other ?? ''} and ${owner}`,
      );
      nonceOwners.set(facts.nonce, owner);
    }
    for (const payment of orders.everyPayment()) {
      const before = this.#paymentStates.get(payment.paymentId);
      if (before === payment.state) continue;
      this.#paymentStates.set(payment.paymentId, payment.state);
      this.edge(`payment ${before ?? 'new'} → ${payment.state}`);
    }
    const { maxPerPerson } = this.#world.plan.shape;
    for (const { skuId } of this.#world.plan.shape.skus) {
      const durable = orders.stockNow({ activityId, skuId });
      const units = sold.get(skuId) ?? 0;
      this.check(
        durable === undefined || (units === durable.sold && units <= durable.total),
        '1',
        () => `${skuId}: orders hold ${units} units; the books say ${JSON.stringify(durable)}`,
      );
    }
    for (const [person, units] of persons) {
      this.check(
        units <= maxPerPerson,
        '2',
        () => `${person} has ${units}; allowed ${maxPerPerson}`,
      );
    }
  }

  /** Nothing expires before its time, and money goes back only for a reason. */
  #mayMove(order: Order): void {
    const { trueMs, plan } = this.#world;
    if (order.state === 'EXPIRED') {
      this.check(
        trueMs > order.payBeforeMs - clockToleranceMs,
        'deadline',
        () => `order ${order.orderId} expired ${order.payBeforeMs - trueMs} ms too early`,
      );
    }
    if (order.state === 'REFUNDED') {
      this.check(
        plan.items.some((item) => item.kind === 'act' && item.act === 'refund_order'),
        '12',
        () => `order ${order.orderId} was paid, and refunded without a reason`,
      );
    }
  }

  /** Told is told: what is due no more is known on the other side. */
  #lookAtFates(): void {
    if (this.forgotten > 0) return;
    const { orders, inventory } = this.#world.servers;
    for (const { facts, live, due } of orders.everyFate()) {
      if (due || live) continue;
      const stock = inventory.engine.machine.skus.get(skuName(facts))?.stock;
      const known = stock?.byId(facts.reservationId);
      this.check(
        known === undefined || known.state === 'released',
        'one restock',
        () =>
          `${facts.reservationId} is released, which the inventory was told, ` +
          `and it is ${known?.state ?? ''} there`,
      );
    }
  }

  #countOrder(state: OrderState, by: number): void {
    const at = stateIndex[state];
    this.#orderCounts[at] = (this.#orderCounts[at] ?? 0) + by;
  }

  #lookAtProcesses(): void {
    let leaders = 0;
    for (const process of this.#world.processes) {
      const { running } = process;
      if (running === undefined) continue;
      if (process.roles.length === 1 && running.sale.leads) leaders += 1;
      if (running.pipeline === undefined) continue;
      for (const sku of this.#world.skus) {
        const epoch = running.sale.flags.epochOf(sku);
        if (epoch !== undefined) this.#lookAtFlag(process, sku, epoch);
      }
    }
    this.check(leaders <= 1, 'one leader', () => `${leaders} processes lead at once`);
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
    for (const count of this.#orderCounts) mix(Math.min(3, count));
    this.states.add(state);
  }
}

/** Clocks are off by so much at most, and a leap of less is believed, ms. */
const clockToleranceMs = 9_000;

const stateIndex: Readonly<Record<OrderState, number>> = {
  PENDING_PAYMENT: 0,
  PAID: 1,
  EXPIRED: 2,
  CANCELLED: 3,
  REFUNDED: 4,
};

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
