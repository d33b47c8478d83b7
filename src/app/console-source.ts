import type { Activity, Phase } from '../core/activity.ts';
import type { LedgerSnapshot } from '../core/ledger/ledger.ts';
import { residualOf } from '../core/ledger/ledger.ts';
import type {
  ConsoleSource,
  Counters,
  FunnelStep,
  LatencyState,
  ModeState,
  Overview,
  RefusalRow,
  RoomRow,
  StockRow,
} from '../control/admin/source.ts';
import type { OverloadLoop } from '../control/overload-loop.ts';
import type { Clock } from '../ports/clock.ts';
import type { InstanceReport } from './fleet.ts';
import type { Role } from './roles.ts';
import type { RecentLatency } from '../telemetry/latency.ts';
import type { ActivitySample, SaleSample } from '../telemetry/sale-sample.ts';

/** What the room's loop says of one activity, beside what the store counts. */
export interface RoomFacts {
  readonly state: RoomRow['state'];
  readonly released: number;
  readonly waves: number;
}

export interface ConsoleSourceParts {
  readonly clock: Clock;
  readonly activities: () => readonly Activity[];
  readonly phase: (activity: Activity) => Phase;
  readonly ledger: { snapshot(): LedgerSnapshot };
  readonly overload: OverloadLoop;
  readonly sample: () => SaleSample | undefined;
  readonly room: (activityId: string) => RoomFacts;
  readonly admitted: RecentLatency;
  readonly refused: RecentLatency;
  readonly instance: string;
  readonly roles: readonly Role[];
  /** Other processes of the deployment, as last heard. */
  readonly others: () => readonly InstanceReport[];
  readonly startedAtMs: number;
  readonly memoryBytes: () => number;
  readonly rulesVersion: () => number;
}

/** Stages whose refusals are health (503). */
const healthStages: ReadonlySet<string> = new Set(['shed', 'slot']);

/** The present of one process, put together from what is at hand. O(rows), asks no store. */
export function consoleSource(parts: ConsoleSourceParts): ConsoleSource {
  return { overview: () => overviewOf(parts) };
}

function overviewOf(parts: ConsoleSourceParts): Overview {
  const { clock, overload } = parts;
  const ledger = parts.ledger.snapshot();
  const sample = parts.sample();
  const activities = parts.activities();
  const rooms = activities.map((activity) => roomRow(parts, activity, sample));
  const counters = countersOf(ledger, sample);
  return {
    takenAtMs: clock.wallMs(),
    counters,
    funnel: funnelOf(ledger, counters, rooms),
    refusals: refusalsOf(ledger),
    stock: activities.flatMap((activity) => stockRows(activity, sample)),
    mode: modeOf(overload, clock),
    rooms,
    // What nobody has measured is not zero.
    queue:
      sample === undefined
        ? null
        : {
            depth: sample.queue.depth,
            oldestAgeMs: sample.queue.oldestAgeMs,
            buried: sample.queue.buried,
          },
    latency: {
      admitted: latencyOf(parts.admitted, clock),
      refused: latencyOf(parts.refused, clock),
    },
    instances: [
      {
        instance: parts.instance,
        roles: parts.roles,
        uptimeMs: clock.wallMs() - parts.startedAtMs,
        mode: overload.mode,
        inFlight: overload.slots.submit.inflight,
        inFlightLimit: overload.slots.submit.limitInForce,
        loopDelayMs: overload.reading.loopDelayMs ?? 0,
        memoryBytes: parts.memoryBytes(),
        rulesVersion: parts.rulesVersion(),
      },
      ...parts.others().map((other) => ({
        instance: other.instance,
        roles: other.roles,
        uptimeMs: clock.wallMs() - other.startedAtMs,
        mode: other.mode,
        inFlight: other.inFlight,
        inFlightLimit: other.inFlightLimit,
        loopDelayMs: other.loopDelayMs,
        memoryBytes: other.memoryBytes,
        rulesVersion: other.rulesVersion,
      })),
    ],
    ledgerResidual: residualOf(ledger),
  };
}

function countersOf(ledger: LedgerSnapshot, sample: SaleSample | undefined): Counters {
  let limited = 0;
  let shed = 0;
  let reserved = 0;
  for (const row of ledger.rows) {
    if (row.decision === 'reject' && row.reason === 'rate_limited') limited += row.count;
    if (row.decision === 'reject' && healthStages.has(row.stage)) shed += row.count;
    if (row.stage === 'enqueue' && row.decision === 'handle') reserved += row.count;
  }
  let paid = 0;
  let ordered = 0;
  for (const { orders } of sample?.activities ?? []) {
    paid += orders.paid + orders.refunded;
    ordered += orders.pending + orders.paid + orders.expired + orders.cancelled + orders.refunded;
  }
  const { handle, forward, reject, fail } = ledger.totals;
  return {
    arrivals: ledger.arrivals,
    handled: handle + forward,
    rejected: reject,
    failed: fail,
    limited,
    shed,
    reserved,
    ordered,
    paid,
  };
}

function funnelOf(
  ledger: LedgerSnapshot,
  counters: Counters,
  rooms: readonly RoomRow[],
): readonly FunnelStep[] {
  const sum = (pick: (row: RoomRow) => number): number =>
    rooms.reduce((total, row) => total + pick(row), 0);
  const submitted = ledger.stages.find(({ stage }) => stage === 'budget')?.entered ?? 0;
  return [
    { step: 'arrived', count: counters.arrivals },
    { step: 'joined', count: sum((row) => row.joined) },
    { step: 'released', count: sum((row) => row.released) },
    { step: 'claimed', count: sum((row) => row.claimed) },
    { step: 'submitted', count: submitted },
    { step: 'reserved', count: counters.reserved },
    { step: 'ordered', count: counters.ordered },
    { step: 'paid', count: counters.paid },
  ];
}

function refusalsOf(ledger: LedgerSnapshot): readonly RefusalRow[] {
  return ledger.rows
    .filter(({ decision }) => decision === 'reject' || decision === 'fail')
    .map(({ stage, reason, count }) => ({ stage, reason, count }))
    .toSorted((a, b) => b.count - a.count);
}

/** Every SKU of one activity as the sample has it. O(SKUs). */
export function stockRows(activity: Activity, sample: SaleSample | undefined): readonly StockRow[] {
  const taken = sampleOf(activity, sample);
  if (taken === undefined) return [];
  return taken.skus.map(({ skuId, total, available, held, pending, paid }) => ({
    activityId: activity.activityId,
    skuId,
    name: activity.skus.find((sku) => sku.skuId === skuId)?.name ?? skuId,
    total,
    paid,
    pending,
    held,
    available,
  }));
}

function roomRow(
  parts: ConsoleSourceParts,
  activity: Activity,
  sample: SaleSample | undefined,
): RoomRow {
  const counts = sampleOf(activity, sample)?.room;
  const facts = parts.room(activity.activityId);
  const joined = counts?.joined ?? 0;
  const left = counts?.left ?? 0;
  return {
    activityId: activity.activityId,
    name: activity.name,
    phase: parts.phase(activity),
    rule: activity.room.mode,
    state: facts.state,
    joined,
    waiting: Math.max(0, joined - left - facts.released),
    released: facts.released,
    claimed: counts?.claimed ?? 0,
    finished: counts?.finished ?? 0,
    left,
    waves: facts.waves,
  };
}

function sampleOf(activity: Activity, sample: SaleSample | undefined): ActivitySample | undefined {
  return sample?.activities.find((one) => one.activityId === activity.activityId);
}

function modeOf(overload: OverloadLoop, clock: Clock): ModeState {
  const { state, worst } = overload;
  const nowMonoMs = clock.monoUs() / 1000;
  const toWall = (monoMs: number): number => clock.wallMs() - (nowMonoMs - monoMs);
  return {
    mode: overload.mode,
    sinceMs: toWall(state.enteredAtMs),
    driver:
      worst === undefined ? null : { signal: worst.name, value: worst.pressure, z: worst.pressure },
    ...(state.pin === undefined ? {} : { pinnedUntilMs: toWall(state.pin.untilMs) }),
    ...(state.stage === 'steady' ? {} : { ramp: overload.share }),
  };
}

function latencyOf(latency: RecentLatency, clock: Clock): LatencyState | null {
  const nowUs = clock.monoUs();
  const quantile = (q: number): number | undefined => latency.quantileUs(q, nowUs);
  const p50 = quantile(0.5);
  const p95 = quantile(0.95);
  const p99 = quantile(0.99);
  if (p50 === undefined || p95 === undefined || p99 === undefined) return null;
  return { p50Ms: p50 / 1000, p95Ms: p95 / 1000, p99Ms: p99 / 1000 };
}
