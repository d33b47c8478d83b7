import { planOf } from '../src/simulator/plan.ts';
import { simulate } from '../src/simulator/simulation.ts';
import { ResultHash, isMain, printReport, round3, smallAsked } from './support/bench.ts';

/**
 * How many simulated sales one core works through, and how much of the world they see. No peer: what is
 * compared is the goal. Counted in processor time, so that a busy machine disturbs less.
 */
export interface SimSize {
  readonly seeds: number;
  /** Run before, and not counted: the code is compiled while it warms up. */
  readonly warmups: number;
}

export const largeSize: SimSize = { seeds: 600, warmups: 40 };
export const smallSize: SimSize = { seeds: 3, warmups: 0 };

export async function sim(size: SimSize): Promise<{
  readonly report: Parameters<typeof printReport>[0];
  readonly rows: Parameters<typeof printReport>[2];
}> {
  for (let seed = 1; seed <= size.warmups; seed += 1) await simulate(planOf(seed));
  const hash = new ResultHash();
  const states = new Set<number>();
  const faults = new Set<string>();
  const sums = { events: 0, simulatedMs: 0, failed: 0 };
  const before = process.cpuUsage();
  for (let at = 1; at <= size.seeds; at += 1) {
    const history = await simulate(planOf(size.warmups + at));
    sums.events += history.events;
    sums.simulatedMs += history.simulatedMs;
    if (history.failure !== undefined) sums.failed += 1;
    for (const state of history.states) states.add(state);
    for (const fault of history.reached.keys()) faults.add(fault);
    hash.add(Number.parseInt(history.digest.slice(0, 8), 16));
  }
  const { user, system } = process.cpuUsage(before);
  const minutes = (user + system) / 60e6;
  const report = {
    bench: 'sim',
    ratio: null,
    better: null,
    peer: null,
    seeds_per_min_core: Math.round(size.seeds / minutes),
    simulated_h: round3(sums.simulatedMs / 3_600_000),
    events: sums.events,
    states: states.size,
    faults: faults.size,
    failed: sums.failed,
    result: hash.hex,
  };
  const rows = [
    [
      size.seeds,
      report.seeds_per_min_core,
      report.simulated_h,
      report.events,
      report.states,
      report.faults,
      report.failed,
    ],
  ];
  return { report, rows };
}

if (isMain(import.meta.url)) {
  const { report, rows } = await sim(smallAsked() ? smallSize : largeSize);
  const header = [
    'seeds',
    'a minute on one core',
    'hours simulated',
    'events',
    'states',
    'kinds of fault',
    'failed',
  ];
  printReport(report, header, rows, !smallAsked());
}
