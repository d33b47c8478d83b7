import type { StepLog } from '../stores/memory/inventory-engine.ts';
import { InventoryEngine } from '../stores/memory/inventory-engine.ts';
import { type FactLog, MemoryAdmissionStore, noJournal } from '../stores/memory/admission-store.ts';
import { MemoryBroadcast } from '../stores/memory/broadcast.ts';
import { MemoryInventoryStore } from '../stores/memory/inventory-store.ts';
import { MemoryLeaderLease } from '../stores/memory/leader-lease.ts';
import { MemoryOrderStore } from '../stores/memory/order-store.ts';
import { MemoryBudgetStore } from '../stores/limits/memory-budget-store.ts';
import { MemoryOrderQueue } from '../queues/memory-queue.ts';
import type { Delivery, OrderMessage } from '../ports/order-queue.ts';
import type { CommitContext, CommitFate } from '../ports/order-store.ts';
import type { EmergencyLedger } from '../ports/emergency-ledger.ts';
import type { SeededRandom } from './chance.ts';
import type { MachineClock, VirtualTime } from './time.ts';
import { parseStep } from '../core/stock/steps.ts';
import { OwnedTimers } from './time.ts';

/**
 * What stands behind the ports of a simulated deployment: the memory stores that pass the same contract
 * suites as the real ones, with what makes the real ones dangerous around them. A store on a server
 * outlives every process and may fail over to a copy that has not heard of the last writes. A store in
 * a process is a journal: what was not flushed when the process died is there in part, or not.
 */

/** Writes younger than this may be forgotten by a failover, µs. */
const replicaLagUs = 10_000_000;

/** How long one flush of a journal takes, µs, drawn anew for each. */
interface Flush {
  readonly random: SeededRandom;
  readonly fromUs: number;
  readonly toUs: number;
}

/** A log of lines, the older of which are safe. */
export class SimLog implements StepLog {
  readonly records: string[] = [];
  readonly #times: number[] = [];
  readonly #time: VirtualTime;
  /** Undefined: on a server, where a line is safe as soon as it is written. */
  readonly #flush: Flush | undefined;
  #safe = 0;
  /** Counts cuts: a flush of what has been cut away says nothing of what came after. */
  #cuts = 0;
  #flushing: Promise<void> | undefined;
  readonly failure = undefined;

  constructor(time: VirtualTime, flush?: Flush) {
    this.#time = time;
    this.#flush = flush;
  }

  append(record: string): void {
    this.records.push(record);
    this.#times.push(this.#time.nowUs);
    if (this.#flush === undefined) this.#safe = this.records.length;
  }

  durable(): Promise<void> {
    if (this.#flush === undefined || this.#safe === this.records.length) return settled;
    if (this.#flushing !== undefined) {
      // What came after the flush began is in the next one.
      return this.#flushing.then(() => this.durable());
    }
    const { random, fromUs, toUs } = this.#flush;
    const upTo = this.records.length;
    const cuts = this.#cuts;
    const us = fromUs + random.below(toUs - fromUs);
    this.#flushing = new Promise((resolve) => {
      this.#time.after(us, 'flush', () => {
        if (cuts === this.#cuts) {
          this.#safe = Math.max(this.#safe, upTo);
          this.#flushing = undefined;
        }
        resolve();
      });
    });
    return this.#flushing;
  }

  /** Everything is safe: its process has ended in order. */
  flushed(): void {
    this.#safe = this.records.length;
  }

  /** The process has died: what was not safe is there in part. */
  crash(random: SeededRandom): void {
    const kept = this.#safe + random.below(this.records.length - this.#safe + 1);
    this.#cut(kept);
    this.#safe = kept;
  }

  /** Another copy takes over: some of the newest lines are not there. Answers how many. */
  failover(most: number): number {
    const oldestUs = this.#time.nowUs - replicaLagUs;
    let lost = 0;
    while (lost < most && (this.#times.at(-1 - lost) ?? -Infinity) >= oldestUs) lost += 1;
    this.#cut(this.records.length - lost);
    this.#safe = this.records.length;
    return lost;
  }

  #cut(length: number): void {
    this.#cuts += 1;
    this.#flushing = undefined;
    this.records.length = length;
    this.#times.length = length;
  }
}

const settled = Promise.resolve();

/** Inventory and the queue over its outbox, in one place. */
export class InventoryPlace {
  readonly log: SimLog;
  engine: InventoryEngine;
  inventory: MemoryInventoryStore;
  queue: MemoryOrderQueue;
  /** Counts its lives. */
  life = 0;
  readonly #time: VirtualTime;
  readonly #clock: MachineClock;
  readonly #trouble: Trouble;

  constructor(time: VirtualTime, clock: MachineClock, log: SimLog, trouble: Trouble) {
    this.#time = time;
    this.#clock = clock;
    this.#trouble = trouble;
    this.log = log;
    this.engine = InventoryEngine.over(log);
    this.inventory = new MemoryInventoryStore(this.engine);
    this.queue = this.#queue();
  }

  /** Ends this life: whoever waits in it hears so, and nothing is written any more. */
  shut(): void {
    void this.engine.close();
    void this.queue.close();
  }

  /** A new life over what the log still has. */
  reopen(): void {
    const { nextNumber } = this.engine.machine.outbox;
    this.shut();
    this.life += 1;
    const { records } = this.log;
    // A stream's numbers are never given twice, whatever has been forgotten: an acknowledgement that
    // is still on its way must not mean another message.
    this.#skips = this.#skips.filter(({ at }) => at < records.length);
    this.#skips.push({ at: records.length, nextNumber });
    this.engine = InventoryEngine.over(this.log);
    this.#replay(records);
    this.inventory = new MemoryInventoryStore(this.engine);
    this.queue = this.#queue();
  }

  /** Numbers that no message has. */
  numbersSkipped = 0;
  /** From which line on numbers go on from where. */
  #skips: { readonly at: number; readonly nextNumber: number }[] = [];

  #replay(records: readonly string[]): void {
    const { machine } = this.engine;
    const { outbox } = machine;
    const skips = [...this.#skips];
    this.numbersSkipped = 0;
    for (let at = 0; at <= records.length; at += 1) {
      while (skips[0]?.at === at) {
        const next = skips.shift()?.nextNumber ?? 0;
        this.numbersSkipped += Math.max(0, next - outbox.nextNumber);
        outbox.nextNumber = Math.max(next, outbox.nextNumber);
      }
      const record = records[at];
      if (record !== undefined) machine.apply(parseStep(record));
    }
  }

  #queue(): MemoryOrderQueue {
    const timers = new OwnedTimers(this.#time, this.#clock.rate, 'queue');
    return new SimQueue(this.engine, { clock: this.#clock, timers }, this.#trouble);
  }
}

/** What may go wrong at a server beyond its calls. */
export interface Trouble {
  /** These messages are given out a second time, while their consumer still has them. */
  readonly givesTwice: () => boolean;
  /** The database refuses this message for what is in it. */
  readonly refusesMessage: (message: OrderMessage) => boolean;
}

/** A queue that now and then gives to another what one consumer still has. */
class SimQueue extends MemoryOrderQueue {
  readonly #trouble: Trouble;

  constructor(
    engine: InventoryEngine,
    options: ConstructorParameters<typeof MemoryOrderQueue>[1],
    trouble: Trouble,
  ) {
    super(engine, options);
    this.#trouble = trouble;
  }

  override async receive(
    consumer: string,
    max: number,
    waitMs: number,
  ): Promise<readonly Delivery[]> {
    const given = await super.receive(consumer, max, waitMs);
    if (given.length > 0 && this.#trouble.givesTwice()) await this.giveBack(given);
    return given;
  }
}

/** A database that cannot take some messages. */
class SimOrderStore extends MemoryOrderStore {
  readonly #trouble: Trouble;

  constructor(trouble: Trouble) {
    super();
    this.#trouble = trouble;
  }

  override async commitBatch(
    messages: readonly OrderMessage[],
    context: CommitContext,
  ): Promise<readonly CommitFate[]> {
    const sick = messages.find((message) => this.#trouble.refusesMessage(message));
    if (sick !== undefined) throw new Error(`invalid input in message ${sick.messageId}`);
    return super.commitBatch(messages, context);
  }
}

/** Entries, claims, passes. */
export class AdmissionPlace {
  readonly log: SimLog;
  store: MemoryAdmissionStore;

  constructor(log: SimLog) {
    this.log = log;
    this.store = this.#open();
  }

  reopen(): void {
    this.store = this.#open();
  }

  #open(): MemoryAdmissionStore {
    const store = new MemoryAdmissionStore();
    for (const record of this.log.records) store.replay.onRecord(record);
    const { log } = this;
    const journal: FactLog = {
      ...noJournal(),
      append: (record) => log.append(record),
      durable: () => log.durable(),
    };
    return store.attach(journal);
  }
}

/** Everything that processes share. */
export interface Servers {
  readonly inventory: InventoryPlace;
  readonly admission: AdmissionPlace;
  readonly orders: MemoryOrderStore;
  readonly lease: MemoryLeaderLease;
  readonly words: MemoryBroadcast;
  budgets: MemoryBudgetStore;
  /** Budgets start empty, knowing of nothing. */
  forgetBudgets(): void;
}

export interface ServersParts {
  readonly time: VirtualTime;
  readonly clock: MachineClock;
  readonly random: SeededRandom;
  /** The stores are in a process, and journaled there by flushes that take so long; else undefined. */
  readonly flushUs: readonly [number, number] | undefined;
  readonly trouble: Trouble;
}

export function openServers(parts: ServersParts): Servers {
  const { time, clock, random, flushUs, trouble } = parts;
  const log = (name: string): SimLog =>
    new SimLog(
      time,
      flushUs && { random: random.fork(name), fromUs: flushUs[0], toUs: flushUs[1] },
    );
  const hashSeed = new Uint32Array(new Uint8Array(random.fork('hash').bytes(16)).buffer);
  const openBudgets = (): MemoryBudgetStore =>
    // Its sweeper only saves memory, and is no part of any promise.
    new MemoryBudgetStore({ clock, timers: noTimers, hashSeed });
  const servers: Servers = {
    inventory: new InventoryPlace(time, clock, log('inventory'), trouble),
    admission: new AdmissionPlace(log('admission')),
    orders: new SimOrderStore(trouble),
    lease: new MemoryLeaderLease(clock),
    words: new MemoryBroadcast(clock),
    budgets: openBudgets(),
    forgetBudgets: () => {
      servers.budgets = openBudgets();
    },
  };
  return servers;
}

const noTimers = {
  after: () => ({ cancel: () => undefined }),
  every: () => ({ cancel: () => undefined }),
};

/** Markers of emergency budgets, on the disk of one machine. */
export class SimEmergencyLedger implements EmergencyLedger {
  readonly #armed = new Map<string, number>();
  readonly #unspent = new Set<string>();
  /** How often somebody was allowed to spend. */
  granted = 0;

  async arm(budget: string, epoch: number): Promise<void> {
    if ((this.#armed.get(budget) ?? 0) >= epoch) return;
    this.#armed.set(budget, epoch);
    this.#unspent.add(budget);
  }

  async spend(budget: string): Promise<boolean> {
    const found = this.#unspent.delete(budget);
    if (found) this.granted += 1;
    return found;
  }

  async rearm(budget: string): Promise<void> {
    if (this.#armed.has(budget)) this.#unspent.add(budget);
  }
}
