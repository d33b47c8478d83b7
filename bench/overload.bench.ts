import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../src/app/system.ts';
import {
  isMain,
  printTables,
  type Report,
  ResultHash,
  round3,
  type Row,
  smallAsked,
  type Table,
  versionOf,
} from './support/bench.ts';
import { cpuCase, type CpuSize } from './support/overload-cpu.ts';
import {
  admissionRate,
  type Bench,
  contenders,
  type Contender,
  lateCell,
  type Measured,
  openBench,
  refusalRate,
  runScene,
} from './support/overload-scenes.ts';
import { recoveries, storms } from './support/overload-recovery.ts';
import { coresToPin, pin } from './support/pin.ts';
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
 * The other parts: a process whose own CPU fills up, beside what no policy can pass (overload-cpu.ts);
 * coming back after a spike and after a slow stock, and storms of retries (overload-recovery.ts).
 *
 * What makes the figures worth something on a small machine: the server has a core of its own, where
 * there are two; each run tells how late its generator was, and one that missed more than a thousandth
 * of its own asks is marked as such; and how much of the time a neighbour had the CPU. A disturbed run
 * is made again.
 *
 * Options: `--only levels,cpu,recovery,storm` runs some of the parts, `--level 10` and `--who sluice`
 * some of the first one. A part that was run whole is recorded.
 */
export const parts = ['levels', 'cpu', 'recovery', 'storm'] as const;
export type Part = (typeof parts)[number];

export interface OverloadSize {
  readonly parts: readonly Part[];
  readonly people: number;
  readonly refusals: number;
  readonly triesMax: number;
  /** Seconds after which no disturbed run is made again. */
  readonly retriesForS: number;
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
  readonly cpu: CpuSize;
  /** Keep server and generator on cores of their own, where the system can. */
  readonly pinned: boolean;
}

const [warmMs, measuredMs] = [2_000, 4_000];

export const largeSize: OverloadSize = {
  parts,
  people: 20_000,
  refusals: 20_000,
  triesMax: 2,
  retriesForS: 300,
  sockets: 1_500,
  capacityS: 3,
  capacity: 200,
  levels: [0.5, 1, 2, 5, 10],
  warmMs,
  measuredMs,
  contenders,
  cpu: { levels: [1, 2, 4, 8], admissionUs: 2_000, warmMs, measuredMs },
  pinned: true,
};

export const smallSize: OverloadSize = {
  parts: ['levels'],
  people: 300,
  refusals: 200,
  triesMax: 1,
  retriesForS: 0,
  sockets: 50,
  capacityS: 0.5,
  capacity: 100,
  levels: [2],
  warmMs: 200,
  measuredMs: 500,
  contenders: ['sluice', 'under_pressure'],
  cpu: { levels: [2], admissionUs: 1_000, warmMs: 200, measuredMs: 500 },
  pinned: false,
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
  /** Served per second, of C. */
  readonly goodput: number;
  readonly vital: number;
}

async function levels(
  bench: Bench,
  size: OverloadSize,
  paced: number,
  capacity: number,
): Promise<Point[]> {
  const points: Point[] = [];
  for (const level of size.levels) {
    for (const contender of size.contenders) {
      const run = await runScene(bench, {
        contender,
        capacity: { perSecond: paced, cpuRounds: 0 },
        fixedPerSecond: capacity,
        durationMs: size.warmMs + size.measuredMs,
        measuredFromMs: size.warmMs,
        perSecond: () => level * capacity,
      });
      points.push({
        contender,
        level,
        run,
        goodput: (run.served * 1000) / size.measuredMs / capacity,
        vital: run.vitalServed / Math.max(1, run.vitalAsked),
      });
    }
  }
  const order = (one: Point): number => size.contenders.indexOf(one.contender);
  return points.toSorted((a, b) => order(a) - order(b) || a.level - b.level);
}

export interface OverloadResult {
  readonly report: Report;
  readonly tables: readonly Table[];
  readonly plots: Readonly<Record<string, string>>;
}

export async function overload(size: OverloadSize): Promise<OverloadResult> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  try {
    const cores = size.pinned ? coresToPin() : undefined;
    const bench = openBench({
      program: await bundled('overload-server', folder),
      people: size.people,
      triesMax: size.triesMax,
      retryUntilMs: systemClock.monoUs() / 1000 + size.retriesForS * 1000,
      sockets: size.sockets,
      cores,
    });
    if (cores !== undefined) pin(process.pid, cores.others);
    const refusing = await refusalRate(bench, size.refusals);
    const paced = Math.max(20, Math.min(size.capacity, Math.floor(refusing / 20)));
    const { perSecond: capacity } = await admissionRate(
      bench,
      { perSecond: paced, cpuRounds: 0 },
      Math.round(paced * size.capacityS),
    );
    console.log(
      `refuses ${Math.round(refusing)}/s; the stock does C = ${round3(capacity)}/s; 10 C is ${round3((10 * capacity) / refusing)} of what is refused`,
    );
    const has = (part: Part): boolean => size.parts.includes(part);
    const points = has('levels') ? await levels(bench, size, paced, capacity) : [];
    const cpu = has('cpu') ? await cpuCase(bench, size.cpu) : undefined;
    const back = has('recovery') ? await recoveries(bench, paced) : undefined;
    const storm = has('storm') ? await storms(bench, paced) : undefined;
    const first = has('levels') ? levelsTable(size, refusing, capacity, points) : undefined;
    const all = {
      overload: first,
      'overload-cpu': cpu,
      'overload-back': back,
      'overload-storm': storm,
    };
    return {
      report: {
        ...reportOf(size, refusing, capacity, points),
        server_has_a_core: cores !== undefined,
        cpu_bound: cpu?.fields ?? null,
        recovery_s: back?.fields.spike_then_calm.back_s ?? null,
        second_peak: back?.fields.spike_then_calm.second_peak ?? null,
        recovery: back?.fields ?? null,
        retry_storm: storm?.fields.retry_storm ?? null,
      },
      tables: Object.entries(all).flatMap(([name, part]) =>
        part === undefined ? [] : [{ name, header: part.header, rows: part.rows, record: true }],
      ),
      plots: { ...first?.plots, ...cpu?.plots, ...back?.plots, ...storm?.plots },
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const orNull = (value: number | undefined): number | null =>
  value !== undefined && Number.isFinite(value) ? round3(value) : null;

function reportOf(
  size: OverloadSize,
  refusing: number,
  capacity: number,
  points: readonly Point[],
): Report {
  const top = Math.max(...size.levels);
  const at = (who: Contender): Point | undefined =>
    points.find((one) => one.contender === who && one.level === top);
  const hash = new ResultHash();
  for (const { level } of points) hash.add(level * 10);
  const [ours, bare] = [at('sluice'), at('none') ?? at('under_pressure')];
  // One served in the whole run is the least that can be told from nothing.
  const least = 1000 / size.measuredMs / capacity;
  const of = (one: Point | undefined) =>
    one === undefined
      ? null
      : {
          goodput: round3(one.goodput),
          p99_ms: orNull(one.run.p99Ms),
          p0_success: round3(one.vital),
        };
  return {
    bench: 'overload',
    ratio:
      ours === undefined || bare === undefined
        ? null
        : round3(ours.goodput / Math.max(least, bare.goodput)),
    better: 'higher',
    peer: bare === undefined ? null : names[bare.contender],
    level: top,
    refuses_per_s: Math.round(refusing),
    capacity_per_s: round3(capacity),
    goodput_10x: orNull(ours?.goodput),
    p99_ms_10x: orNull(ours?.run.p99Ms),
    p0_success_10x: orNull(ours?.vital),
    mode_changes: ours?.run.told.modeChanges ?? null,
    unprotected: of(at('none')),
    fixed_limit: of(at('fixed')),
    under_pressure: of(at('under_pressure')),
    levels: points.map((one) => ({
      who: one.contender,
      offered: one.level,
      goodput: round3(one.goodput),
      p50_ms: orNull(one.run.p50Ms),
      p99_ms: orNull(one.run.p99Ms),
      p0: round3(one.vital),
      attempts_per_person: round3(one.run.attempts / Math.max(1, one.run.people)),
      generator_late_p99_ms: orNull(one.run.latenessP99Ms),
      generator_behind: one.run.isBehind,
      disturbed: round3(one.run.disturbed),
      tries: one.run.tries,
    })),
    result_hash: hash.hex,
  };
}

function levelsTable(
  size: OverloadSize,
  refusing: number,
  capacity: number,
  points: readonly Point[],
) {
  return {
    header: [
      `refuses ${Math.round(refusing)}/s, C = ${round3(capacity)}/s`,
      'offered',
      'goodput',
      'p50 ms',
      'p99 ms',
      'P0',
      'generator late',
      'disturbed',
    ],
    rows: points.map(
      (one): Row => [
        names[one.contender],
        `${one.level} C`,
        `${round3(one.goodput)} C`,
        orNull(one.run.p50Ms) ?? '',
        orNull(one.run.p99Ms) ?? '',
        `${round3(one.vital * 100)}%`,
        lateCell(round3(one.run.latenessP99Ms), one.run.isBehind),
        `${Math.round(one.run.disturbed * 100)}%`,
      ],
    ),
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
            .map(({ level, goodput }) => [level, goodput] as const),
        })),
      }),
    },
  };
}

/** The value after `--name`, split at commas; undefined where it was not said. */
function listAsked(name: string): readonly string[] | undefined {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? undefined : (process.argv[at + 1] ?? '').split(',');
}

function pickAsked<Value>(name: string, allowed: readonly Value[]): readonly Value[] {
  return (
    listAsked(name)?.map((word) => {
      const found = allowed.find((value) => String(value) === word);
      if (found !== undefined) return found;
      throw new RangeError(`--${name}: found "${word}", allowed: ${allowed.join(', ')}`);
    }) ?? allowed
  );
}

if (isMain(import.meta.url)) {
  const small = smallAsked();
  const full = small ? smallSize : largeSize;
  const size: OverloadSize = {
    ...full,
    parts: small ? full.parts : pickAsked('only', parts),
    levels: pickAsked('level', full.levels),
    contenders: pickAsked('who', full.contenders),
  };
  const { report, tables, plots } = await overload(size);
  const isWhole =
    !small &&
    size.levels.length === full.levels.length &&
    size.contenders.length === full.contenders.length;
  if (isWhole) {
    const images = fileURLToPath(new URL('../docs/images/', import.meta.url));
    mkdirSync(images, { recursive: true });
    for (const [name, svg] of Object.entries(plots))
      writeFileSync(join(images, `${name}.svg`), svg);
  }
  printTables(
    report,
    tables.map((table) => ({ ...table, record: isWhole })),
  );
}
