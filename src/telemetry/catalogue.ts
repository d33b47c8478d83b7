import type { LedgerRow, LedgerSnapshot } from '../core/ledger/ledger.ts';
import { modes } from '../core/overload/mode.ts';
import type { Mode } from '../core/overload/mode.ts';
import { Latency } from './latency.ts';
import { Metrics } from './metrics.ts';
import type { Tell } from './metrics.ts';
import { type OutboundReading, registerOutbound } from './outbound-metrics.ts';
import type { AdmittedRow } from './admitted.ts';
import { registerRepairs, type RepairReading } from './repair-metrics.ts';
import { registerRules, type RuleNumbers } from './rule-metrics.ts';
import { registerRooms } from './room-metrics.ts';
import type { RoomsReading } from './room-metrics.ts';
import type { ActivitySample, SaleSample, SkuSample } from './sale-sample.ts';

/** Where the numbers come from: each is read at the moment of a scrape, and must be cheap to read. */
export interface MetricSources {
  readonly ledger: () => LedgerSnapshot;
  readonly mode: () => Mode;
  /** Submits that took units, by activity and SKU; a bounded list. */
  readonly admitted: () => Iterable<AdmittedRow>;
  /** Longest time for which a local sold-out flag was found wrong lately, ms; undefined without flags. */
  readonly divergenceMs: () => number | undefined;
  /** To the process whose clock is furthest from ours, ms; undefined where there is none. */
  readonly clockSkewMs: () => number | undefined;
  /** Requests in progress, per resource. */
  readonly slots: Readonly<Record<string, Slots>>;
  /** What the admission budget lets in now, per second. */
  readonly admissionPerSecond: () => number;
  /** Ways out, by dependency. */
  readonly dependencies: () => ReadonlyMap<string, OutboundReading>;
  readonly retryAmplification: () => number | undefined;
  readonly repairs: () => RepairReading;
  /** Spans by what became of them; undefined where nothing is traced. */
  readonly traces: () => Readonly<Record<string, number>> | undefined;
  /** Tables of limits in this process, per dimension (`source`, `user`, …). */
  readonly limiters: Readonly<Record<string, LimiterTable>>;
  readonly sample: () => SaleSample | undefined;
  /** Undefined while no room runs here. */
  readonly rooms: () => RoomsReading | undefined;
  /** Undefined while no rules are in force. */
  readonly rules: () => RuleNumbers | undefined;
  /** Round trips to the store of shared limits. */
  readonly budgetCalls: Latency;
  /** Round trips to the inventory store. */
  readonly reserve: Latency;
}

export interface Slots {
  readonly inflight: number;
  readonly limitInForce: number;
}

export interface LimiterTable {
  readonly entries: number;
  readonly overflowTotal: number;
}

/** Stages after which a pass is known to be good. */
const afterPass: ReadonlySet<string> = new Set(['person', 'budget', 'slot', 'reserve', 'enqueue']);

/**
 * Why somebody with a good pass is turned away without a fault of theirs, parts that did not answer
 * aside: a limit, or health.
 */
const noRoom: ReadonlySet<string> = new Set([
  'rate_limited',
  'waiting_room',
  'slots',
  'backlog',
  'reserve_queue_full',
  'inventory_not_asked',
]);

/** Stages that ask a limiter of this process. */
const localLimits: ReadonlySet<string> = new Set(['instance', 'source', 'person']);

/** Registers every metric whose source is handed in, in the order in which docs/METRICS.md has them. */
export function registerMetrics(metrics: Metrics, sources: MetricSources): void {
  registerPath(metrics, sources.ledger, sources.admitted);
  registerLoad(metrics, sources);
  registerOutbound(metrics, sources.dependencies, sources.retryAmplification);
  registerTraces(metrics, sources.traces);
  registerSale(metrics, sources.sample);
  registerRepairs(metrics, sources.repairs);
  registerRules(metrics, sources.rules, sources.budgetCalls);
  registerRooms(metrics, sources.rooms, () => sources.ledger().arrivals);
  metrics.histogram(
    {
      name: 'sluice_reserve_seconds',
      help: 'Round trip of one batch of reservations to the inventory store.',
    },
    sources.reserve,
  );
}

/** The table of docs/METRICS.md. */
export function metricsTable(): string {
  const metrics = new Metrics();
  registerMetrics(metrics, {
    ledger: () => ({ arrivals: 0, inSystem: 0, totals: noExits, rows: [], stages: [] }),
    mode: () => 'NORMAL',
    admitted: () => [],
    divergenceMs: () => undefined,
    clockSkewMs: () => undefined,
    slots: {},
    limiters: {},
    admissionPerSecond: () => 0,
    dependencies: () => new Map(),
    retryAmplification: () => undefined,
    repairs: () => ({ findings: undefined, paymentsStuck: undefined }),
    traces: () => undefined,
    sample: () => undefined,
    rooms: () => undefined,
    rules: () => undefined,
    budgetCalls: new Latency(),
    reserve: new Latency(),
  });
  const rows = metrics.catalogue().map(({ name, type, labels, help }) => {
    const shown = labels.map((label) => `\`${label}\``).join(' ');
    return `| \`${name}\` | ${type} | ${shown} | ${help} |`;
  });
  return ['| metric | kind | labels | meaning |', '|---|---|---|---|', ...rows].join('\n');
}

const noExits = { handle: 0, forward: 0, reject: 0, fail: 0 };

/** Refused for want of room, by a stage that only a good pass reaches. */
const turnedAwayWithPass = ({ stage, decision, reason }: LedgerRow): boolean =>
  afterPass.has(stage) && (decision === 'fail' || (decision === 'reject' && noRoom.has(reason)));

function registerPath(
  metrics: Metrics,
  ledger: () => LedgerSnapshot,
  admitted: () => Iterable<AdmittedRow>,
): void {
  const fromRows =
    (wanted: (row: LedgerRow) => readonly string[] | undefined) =>
    (tell: Tell): void => {
      for (const row of ledger().rows) {
        const labels = wanted(row);
        if (labels !== undefined) tell(row.count, ...labels);
      }
    };
  const refused = ({ decision }: LedgerRow): boolean =>
    decision === 'reject' || decision === 'fail';

  metrics.counter(
    {
      name: 'sluice_ingress_requests_total',
      help: 'Requests by the stage at which they left the path, and how.',
      labels: ['stage', 'decision', 'reason'],
    },
    fromRows(({ stage, decision, reason }) => [stage, decision, reason]),
  );
  metrics.counter(
    {
      name: 'sluice_admitted_requests_total',
      help: 'Submits that took units, by activity and SKU.',
      labels: ['activity', 'sku'],
    },
    (tell) => {
      for (const { activityId, skuId, count } of admitted()) tell(count, activityId, skuId);
    },
  );
  metrics.gauge(
    {
      name: 'sluice_room_released_then_refused_ratio',
      help: 'Of the submits with a good pass, the share that was turned away for want of room: by a limit, by health, or by a part that did not answer.',
      labels: [],
    },
    (tell) => {
      const rows = ledger().rows.filter(({ stage }) => afterPass.has(stage));
      const all = rows.reduce((sum, { count }) => sum + count, 0);
      const refusedOfThem = rows
        .filter(turnedAwayWithPass)
        .reduce((sum, { count }) => sum + count, 0);
      if (all > 0) tell(refusedOfThem / all);
    },
  );
  metrics.counter(
    {
      name: 'sluice_rejected_requests_total',
      help: 'Requests refused, and those that failed for want of a part.',
      labels: ['stage', 'reason'],
    },
    fromRows((row) => (refused(row) ? [row.stage, row.reason] : undefined)),
  );
  metrics.counter(
    {
      name: 'sluice_load_shed_total',
      help: 'Requests refused because the system itself was full.',
      labels: ['reason'],
    },
    fromRows((row) =>
      refused(row) && (row.stage === 'shed' || row.stage === 'slot') ? [row.reason] : undefined,
    ),
  );
  metrics.counter(
    {
      name: 'sluice_local_limiter_reject_total',
      help: 'Requests refused by a limit of this process.',
      labels: ['dimension'],
    },
    fromRows((row) => (refused(row) && localLimits.has(row.stage) ? [row.stage] : undefined)),
  );
  metrics.counter(
    {
      name: 'sluice_soldout_hits_total',
      help: 'Requests answered by the local sold-out flag, without asking the store.',
      labels: [],
    },
    fromRows((row) => (row.stage === 'sold_out' && row.decision === 'handle' ? [] : undefined)),
  );
  metrics.counter(
    {
      name: 'sluice_pass_verify_total',
      help: 'Passes looked at in submits: valid, or why not.',
      labels: ['result'],
    },
    fromRows((row) => {
      if (afterPass.has(row.stage)) return ['valid'];
      const bad = row.stage === 'identify' && row.reason.startsWith('pass_');
      return bad ? [row.reason.slice('pass_'.length)] : undefined;
    }),
  );
  metrics.counter(
    {
      name: 'sluice_replay_claim_total',
      help: 'What became of passes at the reservation: claimed, repeated by the same request, or refused because another request had it.',
      labels: ['result'],
    },
    fromRows((row) => {
      if (row.stage === 'enqueue') return ['claimed'];
      if (row.stage !== 'reserve') return undefined;
      if (row.reason === 'nonce_used') return ['refused'];
      return row.reason === 'replayed' ? ['repeated'] : undefined;
    }),
  );
}

function registerLoad(metrics: Metrics, sources: MetricSources): void {
  const { mode, slots, limiters } = sources;
  const seconds =
    (ms: () => number | undefined) =>
    (tell: Tell): void => {
      const value = ms();
      if (value !== undefined) tell(value / 1000);
    };
  metrics.gauge(
    {
      name: 'sluice_soldout_divergence_seconds',
      help: 'For how long a local flag may have said sold out of stock that was there again: the longest that was found in the last minute or two.',
      labels: [],
    },
    seconds(sources.divergenceMs),
  );
  metrics.gauge(
    {
      name: 'sluice_clock_skew_seconds',
      help: 'How far the clock of another process is from the one here, where it is furthest. Absent where there is no other.',
      labels: [],
    },
    seconds(sources.clockSkewMs),
  );
  metrics.gauge(
    {
      name: 'sluice_mode',
      help: 'How far the doors are open: 0 NORMAL, 1 DEGRADED, 2 QUEUE_ONLY, 3 CLOSED.',
      labels: [],
    },
    (tell) => tell(modes.indexOf(mode())),
  );
  metrics.gauge(
    {
      name: 'sluice_admission_rate_limit',
      help: 'Requests per second that the admission budget lets in now.',
      labels: [],
    },
    (tell) => tell(sources.admissionPerSecond()),
  );
  const each =
    <Part>(parts: Readonly<Record<string, Part>>, value: (part: Part) => number) =>
    (tell: Tell): void => {
      for (const [name, part] of Object.entries(parts)) tell(value(part), name);
    };
  metrics.gauge(
    {
      name: 'sluice_inflight_requests',
      help: 'Requests in progress.',
      labels: ['resource'],
    },
    each(slots, ({ inflight }) => inflight),
  );
  metrics.gauge(
    {
      name: 'sluice_inflight_limit',
      help: 'How many may be in progress.',
      labels: ['resource'],
    },
    each(slots, ({ limitInForce }) => limitInForce),
  );
  metrics.gauge(
    {
      name: 'sluice_local_limiter_entries',
      help: 'Keys that limits of this process remember.',
      labels: ['dimension'],
    },
    each(limiters, ({ entries }) => entries),
  );
  metrics.counter(
    {
      name: 'sluice_local_limiter_overflow_total',
      help: 'Decisions made by the shared bucket because the table was full. Any is an alarm.',
      labels: ['dimension'],
    },
    each(limiters, ({ overflowTotal }) => overflowTotal),
  );
}

function registerTraces(metrics: Metrics, traces: MetricSources['traces']): void {
  metrics.counter(
    {
      name: 'sluice_trace_spans_total',
      help: 'Finished spans: taken by the collector, refused by it or lost on the way, or dropped because too many waited.',
      labels: ['result'],
    },
    (tell) => {
      for (const [result, count] of Object.entries(traces() ?? {})) tell(count, result);
    },
  );
}

function registerSale(metrics: Metrics, sample: () => SaleSample | undefined): void {
  const sumOf =
    <Key extends string, Part>(
      keys: readonly Key[],
      parts: (activity: ActivitySample) => readonly Part[],
      value: (part: Part, key: Key) => number,
    ) =>
    (tell: Tell): void => {
      const all = sample()?.activities.flatMap(parts);
      if (all === undefined) return;
      for (const key of keys)
        tell(
          all.reduce((sum, part) => sum + value(part, key), 0),
          key,
        );
    };
  metrics.gauge(
    {
      name: 'sluice_room_entries',
      help: 'Entries of all rooms: joined in all; of these in the lobby, left, with a pass taken, finished.',
      labels: ['state'],
    },
    sumOf(
      ['joined', 'lobby', 'left', 'claimed', 'finished'],
      ({ room }) => [room],
      (room, key) => room[key],
    ),
  );
  metrics.gauge(
    {
      name: 'sluice_stock',
      help: 'Units of all SKUs; total = available + held + pending + paid once queues are at rest.',
      labels: ['state'],
    },
    sumOf(
      ['total', 'available', 'held', 'pending', 'paid'],
      ({ skus }) => skus,
      (sku: SkuSample, key) => sku[key],
    ),
  );
  metrics.counter(
    {
      name: 'sluice_stock_epoch',
      help: 'Sum of the stock epochs of all SKUs: grows by one at each sell-out and each reopening.',
      labels: [],
    },
    (tell) => {
      const skus = sample()?.activities.flatMap((activity) => activity.skus);
      if (skus !== undefined) tell(skus.reduce((sum, sku) => sum + sku.stockEpoch, 0));
    },
  );
  metrics.counter(
    {
      name: 'sluice_stock_reopened_total',
      help: 'How often a SKU that was sold out had stock again.',
      labels: [],
    },
    (tell) => {
      const skus = sample()?.activities.flatMap((activity) => activity.skus);
      // Even epochs are open, odd ones sold out: every second step is a reopening.
      if (skus !== undefined)
        tell(skus.reduce((sum, sku) => sum + Math.floor(sku.stockEpoch / 2), 0));
    },
  );
  metrics.gauge(
    {
      name: 'sluice_orders_total',
      help: 'Orders by what became of them, and reservations released without an order.',
      labels: ['state'],
    },
    sumOf(
      ['pending', 'paid', 'expired', 'cancelled', 'refunded', 'released'],
      ({ orders }) => [orders],
      (orders, key) => orders[key],
    ),
  );
  metrics.gauge(
    {
      name: 'sluice_queue_depth',
      help: 'Reservations that wait to become orders.',
      labels: [],
    },
    (tell) => {
      const queue = sample()?.queue;
      if (queue !== undefined) tell(queue.depth);
    },
  );
  metrics.gauge(
    {
      name: 'sluice_queue_age_seconds',
      help: 'Age of the oldest of them.',
      labels: [],
    },
    (tell) => {
      const queue = sample()?.queue;
      if (queue !== undefined) tell(queue.oldestAgeMs / 1000);
    },
  );
  metrics.gauge(
    {
      name: 'sluice_outbox_age_seconds',
      help: 'Age of the oldest reservation that has not been moved to the broker. Absent where the queue is no broker.',
      labels: [],
    },
    (tell) => {
      const ageMs = sample()?.queue.outboxOldestAgeMs;
      if (ageMs !== undefined) tell(ageMs / 1000);
    },
  );
  metrics.counter(
    {
      name: 'sluice_queue_consumed_total',
      help: 'Messages settled by a worker, and buried ones that an operator must look at.',
      labels: ['result'],
    },
    (tell) => {
      const queue = sample()?.queue;
      if (queue === undefined) return;
      tell(queue.acknowledgedTotal, 'settled');
      tell(queue.buried, 'buried');
    },
  );
}
