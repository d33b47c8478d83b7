import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  isMain,
  printReport,
  type Report,
  ResultHash,
  round3,
  type Row,
  smallAsked,
  versionOf,
} from './support/bench.ts';
import {
  admissionRate,
  type Bench,
  contenders,
  type Contender,
  type Measured,
  openBench,
  refusalRate,
  runScene,
} from './support/overload-scenes.ts';
import { recoveries, type Recoveries } from './support/overload-recovery.ts';
import { plotSvg } from './support/plot.ts';
import { bundled } from './support/server-process.ts';

/**
 * Staying useful when far more is asked than can be done.
 *
 * A real server process, the whole submit path, over a stock of known capacity C. C is set so that ten
 * times C is at most half of what the process can refuse in a second; both are measured first. People
 * come when they come (an open load); one in ten who is refused asks again every 100 ms, ten times. The
 * same load meets the same process without protection, with a fixed limit set to C exactly, and a
 * Fastify server with `@fastify/under-pressure` over the same stock. Served is who has 202 in hand
 * within a second of asking.
 *
 * The other case is a process whose own CPU is what fills up. There refusing is not free: at k times
 * its capacity, with A attempts per person and ρ the cost of a refusal over the cost of an admission, no
 * policy can serve more than (1 − k·A·ρ) ÷ (1 − ρ) of the peak. The measured goodput stands beside that
 * bound, and beside what a process in front, that refuses on a core of its own, makes of it.
 */
export interface OverloadSize {
  readonly people: number;
  readonly refusals: number;
  readonly triesMax: number;
  /** Connections of the crowd, all opened beforehand. */
  readonly sockets: number;
  /** Seconds of work by which the stock's capacity is measured. */
  readonly capacityS: number;
  /** Reservations per second of the stock at most; less where the process refuses too few for it. */
  readonly capacity: number;
  readonly levels: readonly number[];
  readonly warmMs: number;
  readonly measuredMs: number;
  readonly contenders: readonly Contender[];
  readonly cpuLevels: readonly number[];
  /** CPU of one admission in the other case, µs, the path itself aside. */
  readonly admissionCpuUs: number;
  readonly recoveries: boolean;
}

export const largeSize: OverloadSize = {
  people: 20_000,
  refusals: 20_000,
  triesMax: 2,
  sockets: 1_500,
  capacityS: 3,
  capacity: 200,
  levels: [0.5, 1, 2, 5, 10],
  warmMs: 2_500,
  measuredMs: 4_000,
  contenders,
  cpuLevels: [0.5, 1, 2, 4, 8],
  admissionCpuUs: 2_000,
  recoveries: true,
};

export const smallSize: OverloadSize = {
  people: 300,
  refusals: 200,
  triesMax: 1,
  sockets: 50,
  capacityS: 0.5,
  capacity: 100,
  levels: [2],
  warmMs: 200,
  measuredMs: 500,
  contenders: ['sluice', 'under_pressure'],
  cpuLevels: [],
  admissionCpuUs: 1_000,
  recoveries: false,
};

const names: Readonly<Record<Contender, string>> = {
  sluice: 'sluice',
  none: 'no protection',
  fixed: 'fixed limit of C',
  under_pressure: versionOf('@fastify/under-pressure'),
};

interface Point {
  readonly contender: Contender;
  readonly level: number;
  readonly run: Measured;
  readonly goodput: number;
  readonly vital: number;
}

async function levels(bench: Bench, size: OverloadSize, capacity: number): Promise<Point[]> {
  const points: Point[] = [];
  for (const contender of size.contenders) {
    for (const level of size.levels) {
      const run = await runScene(bench, {
        contender,
        capacity: { perSecond: capacity, cpuUs: 0 },
        fixedPerSecond: capacity,
        durationMs: size.warmMs + size.measuredMs,
        measuredFromMs: size.warmMs,
        perSecond: () => level * capacity,
      });
      points.push({
        contender,
        level,
        run,
        goodput: (run.served * 1000) / size.measuredMs,
        vital: run.vitalServed / Math.max(1, run.vitalAsked),
      });
    }
  }
  return points;
}

interface CpuPoint {
  readonly level: number;
  /** Attempts per person. */
  readonly attempts: number;
  readonly bound: number;
  readonly measured: number;
  readonly gated: number;
}

interface CpuCase {
  readonly peakPerSecond: number;
  /** Cost of a refusal over the cost of an admission, by CPU time. */
  readonly rho: number;
  readonly points: readonly CpuPoint[];
}

async function cpuCase(
  bench: Bench,
  size: OverloadSize,
  refusalCpuUs: number,
): Promise<CpuCase | undefined> {
  if (size.cpuLevels.length === 0) return undefined;
  const capacity = { perSecond: 1e6, cpuUs: size.admissionCpuUs };
  const peak = await admissionRate(bench, capacity, 1_500);
  const rho = refusalCpuUs / peak.cpuUs;
  const points: CpuPoint[] = [];
  for (const level of size.cpuLevels) {
    const scene = {
      contender: 'sluice',
      capacity,
      fixedPerSecond: peak.perSecond,
      durationMs: size.warmMs + size.measuredMs,
      measuredFromMs: size.warmMs,
      perSecond: () => level * peak.perSecond,
    } as const;
    const share = ({ served }: Measured): number =>
      (served * 1000) / size.measuredMs / peak.perSecond;
    const run = await runScene(bench, scene);
    const attempts = run.attempts / Math.max(1, run.people);
    const gated = await runScene(bench, { ...scene, gateSlots: 16 });
    points.push({
      level,
      attempts,
      bound: Math.min(level, Math.max(0, (1 - level * attempts * rho) / (1 - rho))),
      measured: share(run),
      gated: share(gated),
    });
  }
  return { peakPerSecond: peak.perSecond, rho, points };
}

export interface OverloadResult {
  readonly report: Report;
  readonly header: Row;
  readonly rows: readonly Row[];
  readonly plots: Readonly<Record<string, string>>;
}

export async function overload(size: OverloadSize): Promise<OverloadResult> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  try {
    const bench = openBench(
      await bundled('overload-server', folder),
      size.people,
      size.triesMax,
      size.sockets,
    );
    const refusing = await refusalRate(bench, size.refusals);
    const asked = Math.max(20, Math.min(size.capacity, Math.floor(refusing.perSecond / 20)));
    const admitting = await admissionRate(
      bench,
      { perSecond: asked, cpuUs: 0 },
      Math.round(asked * size.capacityS),
    );
    console.log(
      `refuses ${Math.round(refusing.perSecond)}/s; the stock does C = ${round3(admitting.perSecond)}/s; 10 C is ${round3((10 * admitting.perSecond) / refusing.perSecond)} of what is refused`,
    );
    const points = await levels(bench, size, asked);
    const cpu = await cpuCase(bench, size, refusing.cpuUs);
    const back = size.recoveries ? await recoveries(bench, asked) : undefined;
    return reportOf(size, refusing.perSecond, admitting.perSecond, points, cpu, back);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function reportOf(
  size: OverloadSize,
  refusesPerSecond: number,
  capacity: number,
  points: readonly Point[],
  cpu: CpuCase | undefined,
  back: Recoveries | undefined,
): OverloadResult {
  const top = Math.max(...size.levels);
  const ours = points.find((one) => one.contender === 'sluice' && one.level === top);
  const hash = new ResultHash();
  for (const { level } of points) hash.add(level * 10);
  const wait = (ms: number): number | null => (Number.isFinite(ms) ? round3(ms) : null);
  return {
    report: {
      bench: 'overload',
      // Goodput at the highest level over the capacity of what is behind.
      ratio: round3((ours?.goodput ?? 0) / capacity),
      better: 'higher',
      peer: 'the capacity C of the stock',
      level: top,
      refuses_per_s: Math.round(refusesPerSecond),
      capacity_per_s: round3(capacity),
      admitted_p99_ms: wait(ours?.run.p99Ms ?? Number.NaN),
      p0_success: round3(ours?.vital ?? 0),
      mode_changes: ours?.run.told.modeChanges ?? 0,
      levels: points.map((one) => ({
        who: one.contender,
        offered: one.level,
        goodput: round3(one.goodput / capacity),
        p50_ms: wait(one.run.p50Ms),
        p99_ms: wait(one.run.p99Ms),
        p0: round3(one.vital),
        attempts_per_person: round3(one.run.attempts / Math.max(1, one.run.people)),
        disturbed: round3(one.run.disturbed),
        tries: one.run.tries,
      })),
      cpu_bound:
        cpu === undefined
          ? null
          : {
              peak_per_s: round3(cpu.peakPerSecond),
              rho: round3(cpu.rho),
              points: cpu.points.map((one) => ({
                offered: one.level,
                attempts_per_person: round3(one.attempts),
                bound: round3(one.bound),
                goodput: round3(one.measured),
                with_a_gate: round3(one.gated),
              })),
            },
      recovery: back?.fields ?? null,
      result_hash: hash.hex,
    },
    header: ['who', 'offered', 'goodput', 'p50 ms', 'p99 ms', 'P0', 'disturbed'],
    rows: [
      ['stock C', `${round3(capacity)}/s`, '', '', '', '', ''],
      ['refusals', `${Math.round(refusesPerSecond)}/s`, '', '', '', '', ''],
      ...points.map(
        (one): Row => [
          names[one.contender],
          `${one.level} C`,
          `${round3(one.goodput / capacity)} C`,
          wait(one.run.p50Ms) ?? '',
          wait(one.run.p99Ms) ?? '',
          `${round3(one.vital * 100)}%`,
          `${Math.round(one.run.disturbed * 100)}%`,
        ],
      ),
      ...(cpu?.points ?? []).map(
        (one): Row => [
          'own CPU full',
          `${one.level} peak`,
          `${round3(one.measured)} (bound ${round3(one.bound)}, gate ${round3(one.gated)})`,
          '',
          '',
          '',
          '',
        ],
      ),
      ...(back?.rows ?? []),
    ],
    plots: {
      'overload-goodput': plotSvg({
        title: 'Served, of what the stock can do',
        xName: 'offered load, in capacities',
        yName: 'goodput ÷ C',
        mark: 0.9,
        lines: size.contenders.map((who) => ({
          name: names[who],
          points: points
            .filter(({ contender }) => contender === who)
            .map(({ level, goodput }) => [level, goodput / capacity] as const),
        })),
      }),
      ...(cpu === undefined
        ? {}
        : {
            'overload-cpu': plotSvg({
              title: 'Where the process’s own CPU fills up',
              xName: 'offered load, in peaks',
              yName: 'goodput ÷ peak',
              lines: [
                { name: 'measured', points: cpu.points.map((one) => [one.level, one.measured]) },
                {
                  name: '(1 − k·A·ρ) ÷ (1 − ρ)',
                  points: cpu.points.map((one) => [one.level, one.bound]),
                  dashed: true,
                },
                {
                  name: 'a gate process in front',
                  points: cpu.points.map((one) => [one.level, one.gated]),
                },
              ],
            }),
          }),
      ...back?.plots,
    },
  };
}

if (isMain(import.meta.url)) {
  const small = smallAsked();
  const { report, header, rows, plots } = await overload(small ? smallSize : largeSize);
  if (!small) {
    const images = fileURLToPath(new URL('../docs/images/', import.meta.url));
    mkdirSync(images, { recursive: true });
    for (const [name, svg] of Object.entries(plots))
      writeFileSync(join(images, `${name}.svg`), svg);
  }
  printReport(report, header, rows, !small);
}
