import { round3, type Row } from './bench.ts';
import { burnRoundsPerUs, type PacedCapacity } from './overload-deps.ts';
import { admissionRate, type Bench, lateCell, type Measured, runScene } from './overload-scenes.ts';
import { plotSvg } from './plot.ts';

/**
 * A process whose own CPU is what fills up. Each second of it goes to admissions, at cost c, or to
 * refusals, at cost ρ·c. With peak P admissions per second and k·P people, A attempts each, the most
 * that can be served is the x of x + (k·A − x)·ρ = 1, which is (1 − k·A·ρ) ÷ (1 − ρ) of the peak.
 *
 * All three are measured, each apart from what stands beside the bound.
 * P: closed loads on the same process without protection, the best of several numbers in progress.
 * ρ: on closed doors, the highest level offered, beside a job that takes all CPU that is left, in pieces
 *    as long as an admission. By how much the job slows is what the refusals cost. A refusal by itself,
 *    in a process that idles, costs more than twice as much: it pays alone for a turn of the loop that
 *    a full process shares among all that came in meanwhile.
 * A: attempts per person, in the run itself.
 *
 * An admission costs a number of rounds of work, not a time: on a busy machine time passes without work.
 */
export interface CpuSize {
  readonly levels: readonly number[];
  /** CPU of one admission, µs, the path itself aside. */
  readonly admissionUs: number;
  readonly warmMs: number;
  readonly measuredMs: number;
}

interface CpuPoint {
  readonly level: number;
  /** Attempts per person. */
  readonly attempts: number;
  readonly bound: number;
  readonly bare: Measured;
  readonly gated: Measured;
}

/** Places that the gate process has: enough to keep the process behind it busy, and no more. */
const gateSlots = 16;

export interface CpuCase {
  readonly fields: object;
  readonly header: Row;
  readonly rows: readonly Row[];
  readonly plots: Readonly<Record<string, string>>;
}

/** The most that the unprotected process admits per second, over several numbers in progress. */
async function peakRate(bench: Bench, capacity: PacedCapacity, requests: number): Promise<number> {
  let peak = 0;
  for (const inProgress of [16, 32, 128]) {
    const { perSecond } = await admissionRate(bench, capacity, requests, inProgress);
    console.log(`  ${inProgress} in progress: ${round3(perSecond)}/s admitted`);
    peak = Math.max(peak, perSecond);
  }
  return peak;
}

/** Pieces of the job per second, after the warm-up. */
function jobRate({ jobs }: Measured, fromMs: number): number {
  const [first, last] = [jobs[Math.ceil(fromMs / 1000)], jobs.at(-1)];
  if (first === undefined || last === undefined || first === last) {
    throw new Error(`${jobs.length} looks at the job; allowed: two or more after the warm-up`);
  }
  return ((last.done - first.done) * 1000) / (last.atMs - first.atMs);
}

function attemptRate({ attemptsPerTenth }: Measured, fromMs: number, untilMs: number): number {
  const counted = attemptsPerTenth.slice(fromMs / 100, untilMs / 100);
  return (counted.reduce((sum, count) => sum + count, 0) * 1000) / (untilMs - fromMs);
}

export async function cpuCase(bench: Bench, size: CpuSize): Promise<CpuCase> {
  const capacity = {
    perSecond: 1e6,
    cpuRounds: Math.round(burnRoundsPerUs() * size.admissionUs),
  };
  const durationMs = size.warmMs + size.measuredMs;
  const peak = await peakRate(bench, capacity, Math.round(2e6 / size.admissionUs));
  const sceneOf = (level: number) =>
    ({
      contender: 'sluice',
      capacity,
      fixedPerSecond: peak,
      durationMs,
      measuredFromMs: size.warmMs,
      perSecond: () => level * peak,
      // The bound knows admissions and refusals, and nothing else.
      vitalPerSecond: 0,
    }) as const;
  const beside = { ...sceneOf(0), closedBeside: capacity.cpuRounds };
  const undisturbed = await runScene(bench, beside);
  const flooded = await runScene(bench, {
    ...beside,
    perSecond: sceneOf(Math.max(...size.levels)).perSecond,
  });
  const lost = 1 - jobRate(flooded, size.warmMs) / jobRate(undisturbed, size.warmMs);
  const refusals = attemptRate(flooded, size.warmMs, durationMs);
  // What one refusal takes of a second, over what one admission takes of it.
  const rho = (lost / refusals) * peak;
  const points: CpuPoint[] = [];
  for (const level of size.levels) {
    const bare = await runScene(bench, sceneOf(level));
    const attempts = bare.attempts / Math.max(1, bare.people);
    const gated = await runScene(bench, { ...sceneOf(level), gateSlots });
    points.push({
      level,
      attempts,
      bound: Math.min(level, Math.max(0, (1 - level * attempts * rho) / (1 - rho))),
      bare,
      gated,
    });
  }
  const share = ({ served }: Measured): number => (served * 1000) / size.measuredMs / peak;
  const ms = (value: number): number | null => (Number.isFinite(value) ? round3(value) : null);
  const late = ({ latenessP99Ms, isBehind }: Measured): string =>
    lateCell(round3(latenessP99Ms), isBehind);
  return {
    fields: {
      peak_per_s: round3(peak),
      admission_us: round3(1e6 / peak),
      refusal_us: round3((lost / refusals) * 1e6),
      rho: round3(rho),
      points: points.map(({ level, attempts, bound, bare, gated }) => ({
        offered: level,
        attempts_per_person: round3(attempts),
        bound: round3(bound),
        goodput: round3(share(bare)),
        p99_ms: ms(bare.p99Ms),
        with_a_gate: round3(share(gated)),
        gate_p99_ms: ms(gated.p99Ms),
        generator_behind: bare.isBehind || gated.isBehind,
        disturbed: round3(Math.max(bare.disturbed, gated.disturbed)),
      })),
    },
    header: [
      `own CPU full at ${Math.round(peak)}/s, ρ = ${round3(rho)}`,
      'attempts per person',
      'bound',
      'goodput',
      'p99 ms',
      'gate in front',
      'its p99 ms',
      'generator late',
      'disturbed',
    ],
    rows: points.map(
      ({ level, attempts, bound, bare, gated }): Row => [
        `${level} peak`,
        round3(attempts),
        round3(bound),
        round3(share(bare)),
        ms(bare.p99Ms) ?? '',
        round3(share(gated)),
        ms(gated.p99Ms) ?? '',
        `${late(bare)}, ${late(gated)}`,
        `${Math.round(Math.max(bare.disturbed, gated.disturbed) * 100)}%`,
      ],
    ),
    plots: {
      'overload-cpu': plotSvg({
        title: 'Where the process’s own CPU fills up',
        xName: 'offered load, in peaks',
        yName: 'goodput ÷ peak',
        lines: [
          { name: 'measured', points: points.map(({ level, bare }) => [level, share(bare)]) },
          {
            name: '(1 − k·A·ρ) ÷ (1 − ρ)',
            points: points.map(({ level, bound }) => [level, bound]),
            dashed: true,
          },
          {
            name: 'a gate process in front',
            points: points.map(({ level, gated }) => [level, share(gated)]),
          },
        ],
      }),
    },
  };
}
