import type { BreakerState } from '../core/outbound/breaker.ts';
import { guardPort } from '../outbound/guard.ts';
import { Outbound, type OutboundOptions } from '../outbound/outbound.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import type { Broadcast } from '../ports/broadcast.ts';
import type { BudgetStore } from '../ports/budget-store.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import { NotAskedError, OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { InventoryStore } from '../ports/inventory-store.ts';
import type { LeaderLease } from '../ports/leader-lease.ts';
import type { OrderQueue, OrderQueueProducer, PublishOutcome } from '../ports/order-queue.ts';
import type { AuditLog, OrderStore, PaymentStore } from '../ports/order-store.ts';
import type { PaymentProvider } from '../ports/payment-provider.ts';
import type { Random } from '../ports/random.ts';
import type { RelayRoad, Stores } from './embedded-stores.ts';

/**
 * Everything that this process asks of others, each behind its own way out: deadline, rate, slots,
 * breaker, one bounded attempt, a retry budget for what may be repeated.
 *
 * The adapters below have time limits of their own, made for their protocol; those here are a little
 * longer, so that an adapter that knows more about a failure speaks first, and one that hangs is cut.
 */
export type DependencyName =
  | 'admission'
  | 'inventory'
  | 'queue'
  | 'outbox'
  | 'broker'
  | 'orders'
  | 'budgets'
  | 'broadcast'
  | 'lease'
  | 'identity_keys'
  | 'collector'
  | `payment_${string}`;

/** A store speaks through its adapter's two errors; everything else is about the question asked. */
function isFailure(error: unknown): boolean {
  if (error instanceof NotAskedError) return false;
  return error instanceof UnavailableError || error instanceof OutcomeUnknownError;
}

/** Stores are near, and asked all the time: soon given up, and soon asked again. */
const storeBreaker = {
  window: 100,
  minimumCalls: 10,
  failureRate: 0.5,
  slowRate: 0.9,
  slowMs: 2_000,
  openMs: 250,
  openCapMs: 2_000,
  probes: 2,
} as const;

const settings = {
  // A crowd that joins has a call each in progress; the adapter bounds its own line below this.
  admission: { timeoutMs: 4_000, slots: 20_000 },
  // One call in progress per SKU, and the reads of statuses.
  inventory: { timeoutMs: 2_000, slots: 8_192 },
  queue: { timeoutMs: 4_000, slots: 256 },
  // Where the queue is a broker, between it and the inventory: one batch at a time.
  outbox: { timeoutMs: 4_000, slots: 8 },
  // A batch is stored by several of a broker's servers before it says so.
  broker: { timeoutMs: 12_000, slots: 4 },
  // A transaction may wait for a connection, and its statement end at the server after 5 s.
  orders: { timeoutMs: 9_000, slots: 1_024 },
  budgets: { timeoutMs: 1_000, slots: 4_096 },
  broadcast: { timeoutMs: 1_000, slots: 256 },
  lease: { timeoutMs: 9_000, slots: 4 },
} as const;

/** A provider is far away and has limits of its own: slower to be given up, and never pressed. */
const providerSettings = {
  timeoutMs: 4_900,
  slots: 32,
  rate: { rate: { tokensMilli: 200_000, periodUs: 1_000_000 }, burst: 50 },
  breaker: { window: 50, minimumCalls: 10, slowMs: 3_000, openMs: 1_000, openCapMs: 30_000 },
} as const;

const keySetSettings = {
  timeoutMs: 5_500,
  slots: 2,
  breaker: { window: 10, minimumCalls: 3, slowMs: 5_000, openMs: 2_000, openCapMs: 30_000 },
} as const;

const collectorSettings = {
  timeoutMs: 3_000,
  slots: 1,
  breaker: { window: 10, minimumCalls: 3, slowMs: 2_000, openMs: 5_000, openCapMs: 60_000 },
} as const;

export interface DependenciesParts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** Whether this process may repeat calls by itself: not while it is overloaded. */
  readonly mayRetry: () => boolean;
}

/** Retries are judged over at least so long, ms. */
const amplificationSpanMs = 10_000;

export class Dependencies {
  readonly #parts: DependenciesParts;
  #before = { atMs: 0, begun: 0, attempts: 0 };
  #amplification: number | undefined;
  readonly #all = new Map<DependencyName, Outbound>();
  readonly #unwellSinceMs = new Map<DependencyName, number>();

  constructor(parts: DependenciesParts) {
    this.#parts = parts;
  }

  /** Every way out that was made, by name. */
  get all(): ReadonlyMap<DependencyName, Outbound> {
    return this.#all;
  }

  /** The stores of a deployment, each behind its way out. */
  guard(stores: Stores): Stores {
    const { admission, inventory, queue, orders, broadcast, budgets, lease, relay } = stores;
    const leases =
      lease === undefined && relay?.lease === undefined ? undefined : this.#store('lease');
    // What a consumer asks of a broker may take as long there as a batch that is handed to it.
    const patience = relay === undefined ? {} : { timeoutMs: settings.broker.timeoutMs };
    return {
      ...stores,
      admission: guardAdmission(admission, this.#store('admission')),
      inventory: guardInventory(inventory, this.#store('inventory')),
      queue: guardQueue(queue, this.#store('queue', patience)),
      orders: guardOrders(orders, this.#store('orders')),
      ...(broadcast === undefined
        ? {}
        : { broadcast: guardBroadcast(broadcast, this.#store('broadcast')) }),
      ...(budgets === undefined ? {} : { budgets: guardBudgets(budgets, this.#store('budgets')) }),
      ...(lease === undefined || leases === undefined ? {} : { lease: guardLease(lease, leases) }),
      ...(relay === undefined ? {} : { relay: this.#guardRelay(relay, leases) }),
    };
  }

  #guardRelay(relay: RelayRoad, leases: Outbound | undefined): RelayRoad {
    const { outbox, broker, lease } = relay;
    return {
      ...relay,
      outbox: guardQueue(outbox, this.#store('outbox')),
      broker: guardBroker(broker, this.#store('broker')),
      ...(lease === undefined || leases === undefined ? {} : { lease: guardLease(lease, leases) }),
    };
  }

  provider(provider: PaymentProvider): PaymentProvider {
    const outbound = this.#open(`payment_${provider.name}`, providerSettings);
    // Repeated by the worker that owns the payment, and by nobody else.
    return guardPort(provider, outbound, {
      createIntent: 'write',
      query: 'write',
      refund: 'write',
    });
  }

  /** Reads the keys of an identity provider; the caller's cool-down decides how often. */
  keySet(fetchKeys: () => Promise<unknown>): () => Promise<unknown> {
    const outbound = this.#open('identity_keys', keySetSettings);
    return () => outbound.call(() => fetchKeys());
  }

  /** Where traces go: never asked for long, and soon left alone. */
  collector(): Outbound {
    return this.#open('collector', collectorSettings);
  }

  /** How long this dependency has not been answering, ms; 0 while it does, or was never asked. */
  unwellMs(name: DependencyName): number {
    const nowMs = this.#nowMs();
    const state: BreakerState = this.#all.get(name)?.breakerState ?? 'closed';
    if (state === 'closed') {
      this.#unwellSinceMs.delete(name);
      return 0;
    }
    const since = this.#unwellSinceMs.get(name) ?? nowMs;
    this.#unwellSinceMs.set(name, since);
    return nowMs - since;
  }

  /** Attempts per call begun, over the last full span; undefined before, and where none was begun. */
  get amplification(): number | undefined {
    return this.#amplification;
  }

  /** Called a few times a second. */
  sample(): void {
    const atMs = this.#nowMs();
    if (atMs - this.#before.atMs < amplificationSpanMs) return;
    let begun = 0;
    let attempts = 0;
    for (const { numbers } of this.#all.values()) {
      begun += numbers.begun;
      attempts += numbers.attempts;
    }
    const calls = begun - this.#before.begun;
    this.#amplification = calls === 0 ? undefined : (attempts - this.#before.attempts) / calls;
    this.#before = { atMs, begun, attempts };
  }

  #store(name: keyof typeof settings, over: { readonly timeoutMs?: number } = {}): Outbound {
    return this.#open(name, {
      ...settings[name],
      ...over,
      breaker: storeBreaker,
      retry: { attempts: 2, baseMs: 20, capMs: 100 },
    });
  }

  #open(name: DependencyName, options: Omit<OutboundOptions, 'name'>): Outbound {
    const { timers, random, mayRetry } = this.#parts;
    const outbound = new Outbound(
      { isFailure, mayRetry, ...options, name },
      {
        nowMs: () => this.#nowMs(),
        after: (ms, run) => timers.after(ms, run),
        float: () => random.float(),
      },
    );
    this.#all.set(name, outbound);
    return outbound;
  }

  #nowMs(): number {
    return this.#parts.clock.monoUs() / 1000;
  }
}

function guardAdmission(store: AdmissionStore, outbound: Outbound): AdmissionStore {
  return guardPort(store, outbound, {
    join: 'write',
    findEntry: 'read',
    leave: 'write',
    closeLobby: 'write',
    lobbyMarker: 'read',
    participants: 'report',
    changes: 'report',
    takePass: 'write',
    endAttempt: 'write',
    finish: 'write',
    counts: 'report',
    loadState: 'read',
    saveState: 'write',
    close: 'through',
  });
}

function guardInventory(store: InventoryStore, outbound: Outbound): InventoryStore {
  return guardPort(store, outbound, {
    preload: 'report',
    reserve: 'write',
    find: 'read',
    settle: 'write',
    adjust: 'write',
    setPaused: 'write',
    mark: 'read',
    holders: 'report',
    live: 'report',
    rebuild: 'report',
    forget: 'report',
    close: 'through',
  });
}

function guardQueue(queue: OrderQueue, outbound: Outbound): OrderQueue {
  return guardPort(queue, outbound, {
    receive: (_consumer, _max, waitMs) => ({ patienceMs: waitMs }),
    acknowledge: 'write',
    bury: 'write',
    giveBack: 'write',
    backlog: 'read',
    buried: 'report',
    close: 'through',
  });
}

/** A batch of which the broker took nothing: the broker is unwell, however politely that was said. */
class NothingTakenError extends UnavailableError {
  readonly outcomes: readonly PublishOutcome[];

  constructor(outcomes: readonly PublishOutcome[], first: Error) {
    super(first.message, { cause: first });
    this.outcomes = outcomes;
  }
}

/**
 * A publish says of each message what became of it and does not reject where a broker is silent, so
 * the breaker would see nothing but good calls. What it refuses to begin, or cuts, rejects: the relay
 * keeps the whole batch then, and sends it again before anything newer.
 */
function guardBroker(broker: OrderQueueProducer, outbound: Outbound): OrderQueueProducer {
  return {
    async publish(messages) {
      try {
        return await outbound.call(async () => {
          const outcomes = await broker.publish(messages);
          const [first] = outcomes;
          const nothing = outcomes.every(({ kind }) => kind === 'again');
          if (nothing && first?.kind === 'again')
            throw new NothingTakenError(outcomes, first.error);
          return outcomes;
        });
      } catch (error) {
        if (error instanceof NothingTakenError) return error.outcomes;
        throw error;
      }
    },
  };
}

function guardOrders(store: OrderStore, outbound: Outbound): OrderStore {
  const payments: PaymentStore = guardPort(store.payments, outbound, {
    begin: 'write',
    setIntent: 'write',
    noteAttempt: 'write',
    setState: 'write',
    applyEvent: 'write',
    accept: 'write',
    inState: 'report',
    startedBefore: 'report',
    ofOrder: 'read',
    byId: 'read',
    misplaced: 'report',
    unmatched: 'report',
  });
  const audit: AuditLog = guardPort(store.audit, outbound, { append: 'write', list: 'report' });
  return guardPort(
    store,
    outbound,
    {
      declareSku: 'write',
      commitBatch: 'write',
      releaseUnordered: 'write',
      fatesOf: 'read',
      orderById: 'read',
      orderByReservation: 'read',
      fateOfRequest: 'read',
      liveOfPerson: 'read',
      transition: 'write',
      transitionMany: 'write',
      dueForExpiry: 'report',
      restocksDue: 'report',
      restocksDone: 'write',
      liveOrders: 'report',
      tally: 'report',
      stock: 'read',
      adjustTotal: 'write',
      raiseGeneration: 'write',
      setStopped: 'write',
      counts: 'report',
      search: 'report',
      close: 'through',
    },
    { payments, audit },
  );
}

function guardBroadcast(broadcast: Broadcast, outbound: Outbound): Broadcast {
  return guardPort(broadcast, outbound, {
    say: 'write',
    last: 'read',
    listen: 'through',
    close: 'through',
  });
}

function guardBudgets(store: BudgetStore, outbound: Outbound): BudgetStore {
  // What may have been charged counts as spent: nothing here is ever repeated.
  return guardPort(store, outbound, {
    renew: 'write',
    raiseEpoch: 'write',
    take: 'write',
    giveBack: 'write',
    close: 'through',
  });
}

function guardLease(lease: LeaderLease, outbound: Outbound): LeaderLease {
  return guardPort(lease, outbound, { renew: 'write', release: 'through' });
}
