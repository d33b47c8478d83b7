import type { Config } from '../config/config.ts';
import type { ConsoleSource, StockRow } from '../control/admin/source.ts';
import type { OverloadLoop } from '../control/overload-loop.ts';
import type { SkuKey } from '../core/activity.ts';
import { findingClasses } from '../core/orders/compare.ts';
import {
  type Exit,
  Ledger,
  type LedgerSnapshot,
  type QueueVerdict,
  type StageLedger,
} from '../core/ledger/ledger.ts';
import { sumLedgers } from '../core/ledger/sum.ts';
import type { Gateway } from '../gateway/gateway.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import { Admitted } from '../telemetry/admitted.ts';
import { registerMetrics } from '../telemetry/catalogue.ts';
import { Latency, RecentLatency } from '../telemetry/latency.ts';
import type { EventLog } from '../telemetry/log.ts';
import { Metrics, metricsContentType } from '../telemetry/metrics.ts';
import type { OtlpExporter } from '../telemetry/otlp.ts';
import { Sampler, takeSample } from '../telemetry/sale-sample.ts';
import { consoleSource, stockRows } from './console-source.ts';
import type { Dependencies } from './dependencies.ts';
import type { Stores } from './embedded-stores.ts';
import type { InstanceReport } from './fleet.ts';
import { HardTrips } from './hard-trips.ts';
import type { ProcessProbe } from './health-probe.ts';
import type { Dimension, LiveRules } from './live-rules.ts';
import type { FormCounter } from './page-services.ts';
import { QueueAudit } from './queue-audit.ts';
import { allRoles, type Role } from './roles.ts';
import type { Sale } from './sale.ts';
import type { SaleHooks } from './sale-parts.ts';

/** Span of the latencies that the operator sees, ms. */
const latencySpanMs = 10_000;
/** Span of the p99 that is a signal of overload, ms: enough of them for a p99, soon forgotten. */
const signalSpanMs = 1_000;
/** Between two samples of the stores, ms. */
const sampleEveryMs = 1_000;
/** Payments in progress for so long are stuck, ms; counted so often, ms; and no further than this. */
const stuckMs = 15 * 60_000;
const repairsEveryMs = 15_000;
const stuckMax = 1_000;
/** Between two sweeps of limiter tables and log counts, ms. */
const housekeepingMs = 250;

export interface ObservatoryParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly probe: ProcessProbe;
  readonly overload: OverloadLoop;
  readonly log: EventLog;
  readonly dependencies: Dependencies;
  /** Where traces are sent. */
  readonly traces?: OtlpExporter;
  /** Name and roles of this process, where there are others. */
  readonly instance?: string;
  readonly roles?: readonly Role[];
}

/** Everything that looks at a running sale and changes nothing: ledger, metrics, log, console. */
export class Observatory {
  readonly hooks: SaleHooks;
  readonly forms: FormCounter = { inFlight: 0 };
  readonly #parts: ObservatoryParts;
  readonly #startedAtMs: number;
  readonly #reserve = new Latency();
  /** Round trips to the store of shared limits; whoever makes the calls records them here. */
  readonly budgetCalls = new Latency();
  readonly #admitted = new RecentLatency(latencySpanMs);
  readonly #lately = new RecentLatency(signalSpanMs);
  readonly #turnedAway = new RecentLatency(latencySpanMs);
  readonly #admittedBySku = new Admitted();
  readonly #metrics = new Metrics();
  readonly #account: Ledger;
  readonly #trips: HardTrips;
  #gateway: Gateway | undefined;
  #rules: LiveRules | undefined;
  #sale: Sale | undefined;
  #stores: Stores | undefined;
  #sampler: Sampler | undefined;
  #queueAudit: QueueAudit | undefined;
  #findings: ReadonlyMap<string, number> | undefined;
  #paymentsStuck: number | undefined;
  #repairs: { cancel(): void } | undefined;
  #housekeeping: { cancel(): void } | undefined;

  constructor(parts: ObservatoryParts) {
    this.#parts = parts;
    this.#startedAtMs = parts.clock.wallMs();
    this.#account = new Ledger(() => (this.#gateway?.inSystem ?? 0) + this.forms.inFlight);
    parts.probe.admittedP99Ms = () => {
      const us = this.#lately.quantileUs(0.99, parts.clock.monoUs());
      return us === undefined ? undefined : us / 1000;
    };
    this.#trips = new HardTrips({
      overload: parts.overload,
      dependencies: parts.dependencies,
      leaseTokens: () => this.#rules?.leaseTokens,
    });
    this.hooks = this.#hooks();
    const limiters = this.#limiterTables();
    registerMetrics(this.#metrics, {
      ledger: () => this.#account.snapshot(),
      mode: () => parts.overload.mode,
      admitted: () => this.#admittedBySku.rows(),
      divergenceMs: () =>
        this.#gateway === undefined ? undefined : this.#sale?.flags.divergenceMs,
      clockSkewMs: () => this.#sale?.fleet?.clockSkewMs,
      slots: parts.overload.slots,
      limiters,
      rules: () => this.#rules?.numbers,
      budgetCalls: this.budgetCalls,
      admissionPerSecond: () => parts.overload.admissionPerSecond,
      dependencies: () => parts.dependencies.all,
      retryAmplification: () => parts.dependencies.amplification,
      traces: () => parts.traces?.counts,
      repairs: () => ({ findings: this.#findings, paymentsStuck: this.#paymentsStuck }),
      sample: () => this.#sampler?.current,
      rooms: () => this.#sale?.rooms.reading(),
      reserve: this.#reserve,
    });
  }

  /** The account of every request, with refusals told to the log. */
  readonly ledger: StageLedger = {
    arrived: () => this.#account.arrived(),
    left: (stage: string, decision: Exit, reason: string) => {
      this.#account.left(stage, decision, reason);
      if (decision === 'reject') this.#parts.log.refusal({ stage, decision, reason });
      else if (decision === 'fail') this.#parts.log.warn('failed', { stage, decision, reason });
    },
  };

  /** From now on the stores are sampled. */
  watch(sale: Sale, stores: Stores): void {
    const { clock, timers, probe, log } = this.#parts;
    this.#sale = sale;
    this.#stores = stores;
    probe.oldestWaitMs = () => {
      const sinceUs = sale.batcher.oldestSinceUs;
      return sinceUs === undefined ? undefined : (clock.monoUs() - sinceUs) / 1000;
    };
    // What the stores hold is asked by control alone, not by every process beside it.
    if ((this.#parts.roles ?? allRoles).includes('control')) {
      this.#queueAudit = new QueueAudit({
        queue: stores.queue,
        orders: stores.orders,
        wallMs: () => clock.wallMs(),
        activities: () => sale.activities.list().map(({ activityId }) => activityId),
      });
      this.#sampler = new Sampler({
        take: () => {
          this.#queueAudit?.learn((error) => log.error('sample_failed', error));
          return takeSample(stores, sale.activities.list(), clock.wallMs());
        },
        clock,
        timers,
        periodMs: sampleEveryMs,
        onError: (error) => log.error('sample_failed', error),
      });
    }
    if ((this.#parts.roles ?? allRoles).includes('worker')) {
      this.#repairs = timers.every(repairsEveryMs, () => {
        sale.workers.money.stuck(stuckMs, stuckMax).then(
          (payments) => void (this.#paymentsStuck = payments.length),
          (error: unknown) => {
            this.#paymentsStuck = undefined;
            log.error('fault', error, { detail: 'counting stuck payments' });
          },
        );
      });
    }
    this.#housekeeping = timers.every(housekeepingMs, () => {
      this.#rules?.sweep();
      this.#trips.look();
      this.#parts.dependencies.sample();
      log.flush();
      probe.queueDepth = sale.backlog?.depth;
      probe.queueOldestAgeMs = sale.backlog?.oldestAgeMs;
    });
  }

  /** The HTTP side exists: what it owes is in the ledger, its limits in the metrics. */
  attach(gateway: Gateway, rules: LiveRules): void {
    // The first visitor is told what stock there is, not that nobody has looked yet.
    this.#sale?.eachMark((sku, mark) => gateway.board.learn(sku, mark));
    this.#gateway = gateway;
    this.#rules = rules;
  }

  onAdmitted(elapsedUs: number, sku: SkuKey): void {
    const nowUs = this.#parts.clock.monoUs();
    this.#admittedBySku.record(sku);
    this.#lately.record(elapsedUs, nowUs);
    this.#admitted.record(elapsedUs, nowUs);
  }

  onTurnedAway(elapsedUs: number): void {
    this.#turnedAway.record(elapsedUs, this.#parts.clock.monoUs());
  }

  async metrics(): Promise<{ readonly contentType: string; readonly body: string }> {
    return { contentType: metricsContentType, body: this.#metrics.text() };
  }

  /** The account of every gateway that is heard of, this one's included. */
  #ledgerOfAll(): LedgerSnapshot {
    const others = this.#sale?.fleet?.others() ?? [];
    const own = this.#account.snapshot();
    return others.length === 0 ? own : sumLedgers([own, ...others.map(({ ledger }) => ledger)]);
  }

  /** What others are told of this process. */
  report(instance: string, roles: readonly Role[]): InstanceReport {
    const { overload } = this.#parts;
    return {
      instance,
      roles,
      startedAtMs: this.#startedAtMs,
      mode: overload.mode,
      reserveMs: overload.reading.reserveMs ?? null,
      inFlight: overload.slots.submit.inflight,
      inFlightLimit: overload.slots.submit.limitInForce,
      loopDelayMs: overload.reading.loopDelayMs ?? 0,
      memoryBytes: process.memoryUsage.rss(),
      rulesVersion: this.#rules?.engine.version ?? 0,
      ledger: this.#account.snapshot(),
    };
  }

  readonly accounts = {
    ledger: () => this.#ledgerOfAll(),
    queue: async (): Promise<QueueVerdict | undefined> => this.#queueAudit?.judge(),
    stock: async (): Promise<readonly StockRow[]> => {
      const sale = this.#sale;
      const stores = this.#stores;
      if (sale === undefined || stores === undefined) return [];
      const activities = sale.activities.list();
      const sample = await takeSample(stores, activities, this.#parts.clock.wallMs());
      return activities.flatMap((activity) => stockRows(activity, sample));
    },
  };

  get source(): ConsoleSource {
    const { clock, overload } = this.#parts;
    return consoleSource({
      clock,
      activities: () => this.#sale?.activities.list() ?? [],
      phase: (activity) => this.#gateway?.board.phase(activity, clock.wallMs()) ?? 'scheduled',
      ledger: { snapshot: () => this.#ledgerOfAll() },
      others: () => this.#sale?.fleet?.others() ?? [],
      overload,
      sample: () => this.#sampler?.current,
      room: (activityId) =>
        this.#sale?.rooms.facts(activityId) ?? { state: 'stopped', released: 0, waves: 0 },
      admitted: this.#admitted,
      refused: this.#turnedAway,
      instance: this.#parts.instance ?? 'embedded',
      roles: this.#parts.roles ?? allRoles,
      startedAtMs: this.#startedAtMs,
      memoryBytes: () => process.memoryUsage.rss(),
      rulesVersion: () => this.#rules?.engine.version ?? 0,
    });
  }

  async close(): Promise<void> {
    this.#repairs?.cancel();
    this.#housekeeping?.cancel();
    await this.#queueAudit?.close();
    await this.#sampler?.close();
    this.#parts.log.flush();
  }

  #limiterTables(): Record<string, { readonly entries: number; readonly overflowTotal: number }> {
    const table = (dimension: Dimension) => {
      const read = () => this.#rules?.table(dimension);
      return {
        get entries(): number {
          return read()?.entries ?? 0;
        },
        get overflowTotal(): number {
          return read()?.overflowTotal ?? 0;
        },
      };
    };
    return {
      address: table('address'),
      prefix: table('prefix'),
      device: table('device'),
      user: table('user'),
      other: table('other'),
    };
  }

  #hooks(): SaleHooks {
    const { probe, log } = this.#parts;
    return {
      onReserveWait: (waitedUs) => probe.batchWait.record(waitedUs / 1000),
      onReserveCall: (elapsedUs, _size, failed) => {
        this.#reserve.record(elapsedUs);
        probe.reserve.record(elapsedUs / 1000);
        probe.storeCalls.record(failed ? 1 : 0);
      },
      onTrouble: (sku, trouble) =>
        log.warn('stock_trouble', {
          activity_id: sku.activityId,
          sku_id: sku.skuId,
          reason: trouble,
        }),
      onSoldOut: (sku, soldOut) =>
        log.info(soldOut ? 'sold_out' : 'stock_reopened', {
          activity_id: sku.activityId,
          sku_id: sku.skuId,
        }),
      onWorkerEvent: (worker, event) => {
        if (event.kind === 'blocked' || event.kind === 'buried' || event.kind === 'held') {
          const error = 'error' in event ? event.error : undefined;
          log.error('worker_trouble', error, { stage: worker, reason: event.kind });
        }
      },
      onReconciled: ({ counts }) => {
        this.#trips.reconciled(counts);
        this.#findings = new Map(findingClasses.map((name) => [name, counts[name] ?? 0]));
        for (const [reason, count] of Object.entries(counts)) {
          if (count > 0) log.warn('reconciled', { reason, cost: count });
        }
      },
      onLeading: (leads, epoch) =>
        log.info(leads ? 'leading' : 'not_leading', leads ? { detail: `epoch ${epoch}` } : {}),
      onForgotten: (sku, generation) =>
        log.warn('stock_forgotten', {
          activity_id: sku.activityId,
          sku_id: sku.skuId,
          detail: `generation ${generation} has lost acknowledged writes and is rebuilt`,
        }),
      onError: (what, error) => log.error('fault', error, { detail: what }),
    };
  }
}
