import { round3, type Row } from './bench.ts';
import {
  backAtSeconds,
  type Bench,
  fixed100,
  lateCell,
  likeSdk,
  type Measured,
  peakPerSecond,
  runScene,
  type Scene,
} from './overload-scenes.ts';
import { plotSvg } from './plot.ts';

/**
 * Coming back: after a spike, after the stock was slow for a while, and after a storm of retries. What
 * is told is when service was whole again, whether it overshot, and how often the mode changed.
 */
/** What is offered before and after a spike, in capacities. */
const calm = 0.8;
/** The same of a storm: room enough for all that were turned away, if they come in turn. */
const calmOfStorm = 0.5;

function ran(run: Measured, fromMs: number, untilMs: number, level: number, capacity: number) {
  return {
    back_s: backAtSeconds(run.servedPerTenth, fromMs, 0.95 * level, untilMs) ?? null,
    mode_changes: run.told.modeChanges,
    modes: [...new Set(run.modes)],
    full_budget_s: fullBudgetSeconds(run, fromMs),
    second_peak: round3(peakPerSecond(run.servedPerTenth, fromMs + 1_000) / capacity),
    p0: round3(run.vitalServed / Math.max(1, run.vitalAsked)),
    generator_late_p99_ms: round3(run.latenessP99Ms),
    generator_behind: run.isBehind,
    disturbed: round3(run.disturbed),
  };
}

/** Seconds from `fromMs` until the whole budget is open in NORMAL and stays so; null when it never is. */
function fullBudgetSeconds({ shares, modes }: Measured, fromMs: number): number | null {
  const first = Math.ceil(fromMs / 1000);
  for (let at = shares.length - 1; at >= first; at -= 1) {
    if ((shares[at] ?? 0) < 0.999 || modes[at] !== 'NORMAL') {
      return at === shares.length - 1 ? null : at + 1 - first;
    }
  }
  return 0;
}

const baseOf = (capacity: number): Omit<Scene, 'durationMs' | 'perSecond'> => ({
  contender: 'sluice',
  capacity: { perSecond: capacity, cpuRounds: 0 },
  fixedPerSecond: capacity,
  measuredFromMs: 2_000,
});

/** A spike, and a stock that was slow for a while: when everything was whole again. */
export async function recoveries(bench: Bench, capacity: number) {
  const base = baseOf(capacity);
  const spike = { from: 4_000, until: 12_000, end: 30_000 };
  const spiked = await runScene(bench, {
    ...base,
    durationMs: spike.end,
    perSecond: (atMs) => (atMs >= spike.from && atMs < spike.until ? 10 : calm) * capacity,
  });

  const slow = { from: 4_000, until: 16_000, end: 40_000 };
  const slowed = await runScene(bench, {
    ...base,
    durationMs: slow.end,
    perSecond: () => 0.9 * capacity,
    changes: [
      { ms: slow.from, capacity: { perSecond: 0.6 * capacity, cpuRounds: 0 } },
      { ms: slow.until, capacity: { perSecond: capacity, cpuRounds: 0 } },
    ],
  });

  const afterSpike = ran(spiked, spike.until, spike.end, calm * capacity, capacity);
  const afterSlow = ran(slowed, slow.until, slow.end, 0.9 * capacity, capacity);
  const row = (what: string, told: ReturnType<typeof ran>): Row => [
    what,
    `${told.back_s ?? 'never'} s`,
    `${told.full_budget_s ?? 'never'} s`,
    `${told.second_peak} C`,
    `${told.mode_changes} (${told.modes.join(' ')})`,
    `${round3(told.p0 * 100)}%`,
    lateCell(told.generator_late_p99_ms, told.generator_behind),
    `${Math.round(told.disturbed * 100)}%`,
  ];
  return {
    fields: { spike_then_calm: afterSpike, slowed_to_60_percent: afterSlow },
    header: [
      'what',
      '95 % of goodput after',
      'full budget after',
      'second peak',
      'mode changes',
      'P0',
      'generator late',
      'disturbed',
    ],
    rows: [row('10 C for 8 s, then calm', afterSpike), row('stock at 60 % for 12 s', afterSlow)],
    plots: {
      'overload-recovery': plotSvg({
        title: 'Coming back',
        xName: 'seconds',
        yName: 'served per second ÷ C',
        lines: [
          { name: '10 C from 4 s to 12 s', points: perSecondOf(spiked.servedPerTenth, capacity) },
          {
            name: 'stock at 60 % from 4 s to 16 s',
            points: perSecondOf(slowed.servedPerTenth, capacity),
          },
        ],
      }),
    },
  };
}

const storm = { from: 3_000, until: 6_000, end: 20_000, times: 2.5 };

/** Everybody comes back, without end; once as impatient scripts do, once as the client library does. */
export async function storms(bench: Bench, capacity: number) {
  const stormy = (
    contender: Scene['contender'],
    retryAfterMs: NonNullable<Scene['retryAfterMs']>,
  ) =>
    runScene(bench, {
      ...baseOf(capacity),
      contender,
      measuredFromMs: 0,
      durationMs: storm.end,
      perSecond: (atMs) =>
        (atMs >= storm.from && atMs < storm.until ? storm.times : calmOfStorm) * capacity,
      retriers: 1,
      retriesMax: 1_000,
      retryAfterMs,
    });
  const runs = [
    ['no protection, fixed 100 ms', await stormy('none', fixed100)],
    ['no protection, full jitter', await stormy('none', likeSdk)],
    ['sluice, fixed 100 ms', await stormy('sluice', fixed100)],
    ['sluice, full jitter', await stormy('sluice', likeSdk)],
  ] as const;
  const told = runs.map(([name, run]) => ({
    name,
    peak: round3(peakPerSecond(run.attemptsPerTenth, 0) / capacity),
    /** When no more is asked than newcomers ask: everybody has been served, or has given up. */
    calm_again_s: calmAgain(
      run.attemptsPerTenth,
      storm.until,
      1.3 * calmOfStorm * capacity,
      storm.end,
    ),
    served_of_all: round3(
      run.servedPerTenth.reduce((sum, count) => sum + count, 0) / Math.max(1, run.people),
    ),
    attempts_per_person: round3(run.attempts / Math.max(1, run.people)),
    p0: round3(run.vitalServed / Math.max(1, run.vitalAsked)),
    generator_late_p99_ms: round3(run.latenessP99Ms),
    generator_behind: run.isBehind,
    disturbed: round3(run.disturbed),
  }));
  return {
    fields: { retry_storm: told },
    header: [
      `${storm.times} C for 3 s, all come back`,
      'peak of attempts',
      'calm after',
      'served of all',
      'attempts per person',
      'P0',
      'generator late',
      'disturbed',
    ],
    rows: told.map(
      (one): Row => [
        one.name,
        `${one.peak} C`,
        `${one.calm_again_s ?? 'never'} s`,
        `${round3(one.served_of_all * 100)}%`,
        one.attempts_per_person,
        `${round3(one.p0 * 100)}%`,
        lateCell(one.generator_late_p99_ms, one.generator_behind),
        `${Math.round(one.disturbed * 100)}%`,
      ],
    ),
    plots: {
      'overload-storm': plotSvg({
        title: 'Everybody comes back: attempts',
        xName: 'seconds',
        yName: 'attempts per second ÷ C',
        lines: runs.map(([name, run]) => ({
          name,
          points: perSecondOf(run.attemptsPerTenth, capacity),
        })),
      }),
    },
  };
}

function perSecondOf(
  perTenth: readonly number[],
  capacity: number,
): readonly (readonly [number, number])[] {
  return Array.from({ length: Math.floor(perTenth.length / 10) }, (_, second) => [
    second,
    perTenth.slice(second * 10, second * 10 + 10).reduce((sum, count) => sum + count, 0) / capacity,
  ]);
}

/** Seconds from `fromMs` until fewer than `level` per second are asked, for one second. */
function calmAgain(
  perTenth: readonly number[],
  fromMs: number,
  level: number,
  untilMs: number,
): number | null {
  const first = Math.floor(fromMs / 100);
  for (let at = first; at + 10 <= Math.floor(untilMs / 100); at += 1) {
    const second = perTenth.slice(at, at + 10).reduce((sum, count) => sum + count, 0);
    if (second <= level) return (at - first) / 10;
  }
  return null;
}
