import { round3, type Row } from './bench.ts';
import {
  backAtSeconds,
  type Bench,
  fixed100,
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
export interface Recoveries {
  readonly fields: Readonly<Record<string, unknown>>;
  readonly rows: readonly Row[];
  readonly plots: Readonly<Record<string, string>>;
}

const calm = 0.8;

function ran(run: Measured, fromMs: number, untilMs: number, level: number) {
  return {
    back_s: backAtSeconds(run.servedPerTenth, fromMs, 0.95 * level, untilMs) ?? null,
    second_peak: round3(peakPerSecond(run.servedPerTenth, fromMs + 1_000)),
    mode_changes: run.told.modeChanges,
    modes: [...new Set(run.modes)],
    share_at_end: round3(run.told.share),
    p0: round3(run.vitalServed / Math.max(1, run.vitalAsked)),
    disturbed: round3(run.disturbed),
  };
}

export async function recoveries(bench: Bench, capacity: number): Promise<Recoveries> {
  const base: Omit<Scene, 'durationMs' | 'perSecond'> = {
    contender: 'sluice',
    capacity: { perSecond: capacity, cpuUs: 0 },
    fixedPerSecond: capacity,
    measuredFromMs: 2_000,
  };

  const spike = { from: 4_000, until: 12_000, end: 24_000 };
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
      { ms: slow.from, capacity: { perSecond: 0.6 * capacity, cpuUs: 0 } },
      { ms: slow.until, capacity: { perSecond: capacity, cpuUs: 0 } },
    ],
  });

  // Everybody comes back, without end; once as impatient scripts do, once as the client library does.
  const storm = { from: 3_000, until: 6_000, end: 20_000 };
  const stormy = (contender: Scene['contender'], retryAfterMs: Scene['retryAfterMs']) =>
    runScene(bench, {
      ...base,
      contender,
      durationMs: storm.end,
      perSecond: (atMs) => (atMs >= storm.from && atMs < storm.until ? 4 : calm) * capacity,
      retriers: 1,
      retriesMax: 1_000,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    });
  const storms = {
    'no protection, fixed 100 ms': await stormy('none', fixed100),
    'no protection, full jitter': await stormy('none', likeSdk),
    'sluice, fixed 100 ms': await stormy('sluice', fixed100),
    'sluice, full jitter': await stormy('sluice', likeSdk),
  };
  const stormRows = Object.entries(storms).map(([name, run]) => ({
    name,
    peak_attempts_per_s: peakPerSecond(run.attemptsPerTenth, 0),
    /** When no more is asked than newcomers ask: everybody has been served. */
    calm_again_s: calmAgain(run.attemptsPerTenth, storm.until, 1.3 * calm * capacity, storm.end),
    served_share: round3(
      run.servedPerTenth.reduce((sum, count) => sum + count, 0) / (capacity * (storm.end / 1000)),
    ),
    p0: round3(run.vitalServed / Math.max(1, run.vitalAsked)),
  }));

  const afterSpike = ran(spiked, spike.until, spike.end, calm * capacity);
  const afterSlow = ran(slowed, slow.until, slow.end, 0.9 * capacity);
  const row = (what: string, told: ReturnType<typeof ran>): Row => [
    what,
    `back in ${told.back_s ?? 'never'} s`,
    `second peak ${round3(told.second_peak / capacity)} C`,
    `${told.mode_changes} mode changes`,
    told.modes.join(' '),
    `${round3(told.p0 * 100)}%`,
    `${Math.round(told.disturbed * 100)}%`,
  ];
  return {
    fields: {
      spike_then_calm: afterSpike,
      slowed_to_60_percent: afterSlow,
      retry_storm: stormRows,
    },
    rows: [
      row('10 C for 8 s, then calm', afterSpike),
      row('stock at 60 % for 12 s', afterSlow),
      ...stormRows.map(
        (one): Row => [
          `storm: ${one.name}`,
          `peak ${one.peak_attempts_per_s}/s`,
          `calm in ${one.calm_again_s ?? 'never'} s`,
          `served ${one.served_share} C`,
          '',
          `${round3(one.p0 * 100)}%`,
          '',
        ],
      ),
    ],
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
      'overload-storm': plotSvg({
        title: 'Everybody comes back: attempts',
        xName: 'seconds',
        yName: 'attempts per second ÷ C',
        lines: Object.entries(storms).map(([name, run]) => ({
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
