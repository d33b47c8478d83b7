import { systemClock, systemTimers } from '../../src/app/system.ts';
import { ProcessProbe } from '../../src/app/health-probe.ts';
import { Dependencies } from '../../src/app/dependencies.ts';
import { OverloadLoop, overloadDefaults } from '../../src/control/overload-loop.ts';
import type { SkuKey } from '../../src/core/activity.ts';
import type { GatewayDeps } from '../../src/gateway/deps.ts';
import { RequestStatus } from '../../src/pipeline/request-status.ts';
import { ReserveBatcher } from '../../src/pipeline/reserve-batcher.ts';
import type {
  InventoryStore,
  RequestRecord,
  ReserveReply,
  ReserveRequest,
  StockMark,
} from '../../src/ports/inventory-store.ts';
import { NotAskedError, OutcomeUnknownError } from '../../src/ports/errors.ts';
import { systemRandom } from '../../src/app/system.ts';
import { RecentLatency } from '../../src/telemetry/latency.ts';
import type { Stores } from '../../src/app/embedded-stores.ts';
import { refusingDeps } from './refuse-deps.ts';

/**
 * The gateway of `bench overload`: the real pipeline over a stock whose capacity is known, because it is
 * paced. The stock serves one batch at a time; each reservation in it takes its share of a second, or
 * its share of the process's own CPU. Reads of what is held are quick, as they are in a real store.
 */
export type Protection = 'sluice' | 'none' | 'fixed';

export interface PacedCapacity {
  /** Reservations per second that the stock can do. */
  readonly perSecond: number;
  /** Rounds of `burn` that each admission costs this process; 0 where only the stock is slow. */
  readonly cpuRounds: number;
}

/**
 * Work that takes CPU and nothing else. A number of rounds and not a time: whoever waits for a time to
 * pass has done nothing while a neighbour had the core, and seems faster than it is.
 */
export function burn(rounds: number): number {
  let x = 1;
  for (let at = 0; at < rounds; at += 1) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
  }
  return x;
}

/** Rounds of `burn` in a microsecond of this machine, once compiled: the fastest of several looks. */
export function burnRoundsPerUs(): number {
  const rounds = 2_000_000;
  let best = 0;
  for (let look = 0; look < 12; look += 1) {
    const startUs = systemClock.monoUs();
    if (burn(rounds) === 0) throw new Error('xorshift never reaches 0');
    best = Math.max(best, rounds / (systemClock.monoUs() - startUs));
  }
  return best;
}

const mark: StockMark = {
  total: 1_000_000_000,
  available: 999_999_999,
  held: 1,
  ordered: 0,
  sequence: 1,
  generation: 1,
  stockEpoch: 2,
  paused: false,
};

/** To the wire and back, ms; a timer adds up to one more. */
const roundTripMs = 0.2;

export class PacedStock {
  readonly #sleep: (ms: number) => Promise<void>;
  capacity: PacedCapacity;
  served = 0;
  /** What the burning came to, so that it is not optimised away. */
  burnt = 0;
  #busyUntilMs = 0;

  constructor(capacity: PacedCapacity) {
    this.capacity = capacity;
    this.#sleep = (ms) => new Promise((resolve) => systemTimers.after(ms, resolve));
  }

  async work(count: number): Promise<void> {
    const { perSecond, cpuRounds } = this.capacity;
    const nowMs = systemClock.monoUs() / 1000;
    this.#busyUntilMs = Math.max(this.#busyUntilMs, nowMs) + (count * 1000) / perSecond;
    await this.#sleep(this.#busyUntilMs - nowMs + roundTripMs);
    for (let done = 0; cpuRounds > 0 && done < count; done += 1) {
      this.burnt ^= burn(cpuRounds);
      // One at a time, as answers are made: what comes in meanwhile is looked at in between.
      await new Promise<void>((resolve) => void setImmediate(resolve));
    }
    this.served += count;
  }

  get store(): InventoryStore {
    const record = (request: Pick<ReserveRequest, 'requestId' | 'userId'>): RequestRecord => ({
      requestId: request.requestId,
      userId: request.userId,
      personId: request.userId,
      fingerprint: 'bench',
      nonce: 'bench',
      reservationId: `rsv_${request.requestId}`,
      quantity: 1,
      reservedAtMs: 0,
      deadlineMs: 0,
      generation: 1,
      state: 'held',
    });
    const store: Pick<InventoryStore, 'reserve' | 'find' | 'mark' | 'preload'> = {
      reserve: async (_sku: SkuKey, batch): Promise<ReserveReply> => {
        await this.work(batch.length);
        return {
          kind: 'done',
          mark,
          outcomes: batch.map((request) => ({ kind: 'reserved', record: record(request) })),
        };
      },
      find: async (_sku, userId, requestId) => {
        await this.#sleep(roundTripMs);
        return record({ userId, requestId });
      },
      mark: async () => mark,
      preload: async () => mark,
    };
    return store as InventoryStore;
  }
}

export interface OverloadScene {
  readonly deps: GatewayDeps;
  readonly loop: OverloadLoop;
  readonly stock: PacedStock;
}

/** @param fixedPerSecond of the fixed limit, where that is the protection */
export async function overloadDeps(
  protection: Protection,
  capacity: PacedCapacity,
  fixedPerSecond: number,
): Promise<OverloadScene> {
  const base = await refusingDeps('none');
  const stock = new PacedStock(capacity);
  const probe = new ProcessProbe(systemClock);
  const isOurs = protection === 'sluice';
  const loop = new OverloadLoop({
    clock: systemClock,
    probe,
    settings: isOurs
      ? overloadDefaults
      : {
          ...overloadDefaults,
          adaptive: 'off',
          ceilings: { submit: 1e6, status: 1e6, payment: 1e6, admin: 1e6 },
          admitPerSecond: 1e9,
        },
  });
  if (!isOurs) loop.pin({ mode: 'NORMAL', reason: 'unprotected', who: 'bench', forMs: 1e9 });
  const dependencies = new Dependencies({
    clock: systemClock,
    timers: systemTimers,
    random: systemRandom,
    mayRetry: () => loop.mode === 'NORMAL',
  });
  const inventory = isOurs
    ? dependencies.guard({
        inventory: stock.store,
        admission: {},
        queue: {},
        orders: { payments: {}, audit: {} },
      } as unknown as Stores).inventory
    : stock.store;
  const monoUs = (): number => systemClock.monoUs();
  const wallMs = (): number => systemClock.wallMs();
  const lately = new RecentLatency(1_000);
  probe.admittedP99Ms = () => {
    const us = lately.quantileUs(0.99, monoUs());
    return us === undefined ? undefined : us / 1000;
  };
  const batcher = new ReserveBatcher({
    store: inventory,
    wallMs,
    monoUs,
    timers: systemTimers,
    defer: (task) => void setImmediate(task),
    onSent: (waitedUs) => probe.batchWait.record(waitedUs / 1000),
    onCall: (elapsedUs, _size, failed) => {
      probe.reserve.record(elapsedUs / 1000);
      probe.storeCalls.record(failed ? 1 : 0);
    },
    onError: (_sku, error) => {
      if (error instanceof OutcomeUnknownError || error instanceof NotAskedError) return;
      console.error(error);
    },
  });
  probe.oldestWaitMs = () => {
    const since = batcher.oldestSinceUs;
    return since === undefined ? undefined : (monoUs() - since) / 1000;
  };
  loop.start(systemTimers);
  const fixed = new FixedLimit(fixedPerSecond);
  const deps: GatewayDeps = {
    ...base,
    // One generator is one address, and stands for a crowd.
    settings: { ...base.settings, maxConnections: 20_000, maxConnectionsPerAddress: 20_000 },
    health: loop,
    limits: {
      ...base.limits,
      instance: ({ route }) =>
        protection === 'fixed' && route === 'submit' && !fixed.take()
          ? { scope: 'instance', ruleId: 'fixed', retryAfterMs: 1_000 }
          : undefined,
      budget: () => undefined,
    },
    status: new RequestStatus({ inventory, orders: noOrders, monoUs, wallMs }),
    inventory,
    submit: { ...base.submit, batcher },
    payments: {
      ...base.payments,
      callback: async () => ({ kind: 'accepted', duplicate: false }),
    },
    onAdmitted: (elapsedUs) => lately.record(elapsedUs, monoUs()),
  };
  return { deps, loop, stock };
}

const none = (): Promise<undefined> => Promise.resolve(undefined);
const noOrders = { fateOfRequest: none, orderByReservation: none };

/** So many per second, set beforehand and never changed: a token bucket with a tenth of a second. */
class FixedLimit {
  readonly #perSecond: number;
  #tokens = 0;
  #atUs = 0;

  constructor(perSecond: number) {
    this.#perSecond = perSecond;
  }

  take(): boolean {
    const nowUs = systemClock.monoUs();
    const earned = ((nowUs - this.#atUs) * this.#perSecond) / 1e6;
    this.#tokens = Math.min(Math.max(1, this.#perSecond / 10), this.#tokens + earned);
    this.#atUs = nowUs;
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}
