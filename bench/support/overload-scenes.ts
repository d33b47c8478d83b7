import { systemClock } from '../../src/app/system.ts';
import { retryDefaults, retryDelayMs } from '../../src/sdk/retry.ts';
import { waitedForCpuMs } from './cpu-wait.ts';
import { closedLoad } from './http-load.ts';
import { lateShareMax, OpenLoad, type OpenPlan, type OpenResult } from './open-load.ts';
import type { PacedCapacity } from './overload-deps.ts';
import type { OverloadOrder, OverloadTold } from './overload-server.ts';
import { type Cores, pin } from './pin.ts';
import { submitRequests, vitalRequests } from './refuse-requests.ts';
import { ServerProcess } from './server-process.ts';

/** The runs of `bench overload`: each against a fresh server process. */
export interface Bench {
  readonly program: string;
  readonly submits: readonly Buffer[];
  readonly vital: readonly Buffer[];
  /** Runs of one scene at most. */
  readonly triesMax: number;
  /** After this instant of the monotonic clock, ms, no run is made again. */
  readonly retryUntilMs: number;
  /** Connections of the crowd. */
  readonly sockets: number;
  /** Where generator and servers run; absent where everything runs anywhere. */
  readonly cores: Cores | undefined;
}

export type Contender = 'sluice' | 'none' | 'fixed' | 'under_pressure';
export const contenders: readonly Contender[] = ['sluice', 'none', 'fixed', 'under_pressure'];

export function openBench(
  options: Omit<Bench, 'submits' | 'vital'> & { readonly people: number },
): Bench {
  const nowMs = systemClock.wallMs();
  const { people, ...rest } = options;
  return {
    ...rest,
    submits: submitRequests(people, nowMs),
    vital: vitalRequests(2_000, nowMs),
  };
}

export class Server {
  readonly #process: ServerProcess<OverloadOrder>;
  readonly port: number;

  private constructor(process: ServerProcess<OverloadOrder>, port: number) {
    this.#process = process;
    this.port = port;
  }

  static async start(
    { program, cores }: Pick<Bench, 'program' | 'cores'>,
    order: Extract<OverloadOrder, { readonly start: string }>,
  ): Promise<Server> {
    const process = new ServerProcess<OverloadOrder>(program);
    if (cores !== undefined && process.pid !== undefined) {
      pin(process.pid, order.start === 'gate' ? cores.others : cores.server);
    }
    return new Server(process, (await process.ask<{ port: number }>(order)).port);
  }

  tell(): Promise<OverloadTold> {
    return this.#process.ask<OverloadTold>({ tell: true });
  }

  async obey(order: OverloadOrder): Promise<void> {
    await this.#process.ask(order);
  }

  stop(): Promise<void> {
    return this.#process.stop({ stop: true });
  }
}

const endless: PacedCapacity = { perSecond: 1e6, cpuRounds: 0 };

/** Refusals per second of one process, doors closed. */
export async function refusalRate(bench: Bench, requests: number): Promise<number> {
  const server = await Server.start(bench, {
    start: 'sluice',
    capacity: endless,
    fixedPerSecond: 1,
  });
  try {
    await server.obey({ mode: 'CLOSED' });
    const load = () => closedLoad(server.port, bench.submits.slice(0, requests), 64);
    // Twice, so that what is measured is compiled.
    await load();
    const { wallMs, statuses } = await load();
    if (statuses.get(503) !== requests) {
      throw new Error(`answers of closed doors were ${JSON.stringify([...statuses])}`);
    }
    return (requests / wallMs) * 1000;
  } finally {
    await server.stop();
  }
}

/**
 * What the stock really does per second behind an unprotected gateway, with so many in progress, and CPU
 * of each, µs.
 */
export async function admissionRate(
  bench: Bench,
  capacity: PacedCapacity,
  requests: number,
  inProgress = 128,
): Promise<{ readonly perSecond: number; readonly cpuUs: number }> {
  const { submits } = bench;
  const server = await Server.start(bench, { start: 'none', capacity, fixedPerSecond: 1 });
  try {
    await closedLoad(server.port, submits.slice(0, Math.ceil(requests / 4)), inProgress);
    const before = (await server.tell()).cpuUs;
    const { wallMs, statuses } = await closedLoad(
      server.port,
      submits.slice(-requests),
      Math.min(inProgress, requests),
    );
    const served = statuses.get(202) ?? 0;
    return {
      perSecond: (served / wallMs) * 1000,
      cpuUs: ((await server.tell()).cpuUs - before) / requests,
    };
  } finally {
    await server.stop();
  }
}

export const fixed100: OpenPlan['retryAfterMs'] = () => 100;

/** As the client library waits: never before the server's hint, and full jitter on top. */
export const likeSdk: OpenPlan['retryAfterMs'] = (attempt, draw) => {
  const env = { random: draw, nowMs: () => 0 };
  const hintMs = 1_000 + draw() * 2_000;
  return retryDelayMs(env, { ...retryDefaults, totalMs: 1e9 }, attempt + 1, 0, hintMs) ?? 60_000;
};

export interface Measured extends OpenResult {
  readonly told: OverloadTold;
  /** Mode at each second of the run. */
  readonly modes: readonly string[];
  /** Share of the run in which generator or server was ready and a neighbour had the CPU. */
  readonly disturbed: number;
  /** The generator missed too many of its own asks: what was measured is the generator. */
  readonly isBehind: boolean;
  /** Pieces of the job beside closed doors, at each second of the run. */
  readonly jobs: readonly { readonly atMs: number; readonly done: number }[];
  /** Share of the full budget at each second of the run. */
  readonly shares: readonly number[];
  /** How often the run was made, because neighbours disturbed it. */
  readonly tries: number;
}

export interface Scene {
  readonly contender: Contender;
  readonly capacity: PacedCapacity;
  readonly fixedPerSecond: number;
  readonly durationMs: number;
  readonly measuredFromMs: number;
  readonly perSecond: (atMs: number) => number;
  readonly retriers?: number;
  readonly retriesMax?: number;
  readonly retryAfterMs?: OpenPlan['retryAfterMs'];
  /** Of what must always work; 100 per second unless said otherwise. */
  readonly vitalPerSecond?: number;
  /** Doors shut for the whole run, and a job of so many rounds a piece that takes all CPU left over. */
  readonly closedBeside?: number;
  /** The stock's capacity from these instants on. */
  readonly changes?: readonly { readonly ms: number; readonly capacity: PacedCapacity }[];
  /** Slots of a gate process in front. */
  readonly gateSlots?: number;
}

/** A cell of a table: how late the generator was, and whether too late for its run to count. */
export function lateCell(p99Ms: number, isBehind: boolean): string {
  return isBehind ? `behind: ${p99Ms} ms` : `${p99Ms} ms`;
}

/**
 * Above this a run says more about the neighbours than about the server: it is made again. On a core of
 * its own a server still waits for its own compiler and collector, a tenth of the time or so.
 */
const disturbedMax = 0.25;

/** The least disturbed of a few runs; the first that hardly was, at once. */
export async function runScene(bench: Bench, scene: Scene): Promise<Measured> {
  let best: Measured | undefined;
  let tries = 0;
  while (
    tries === 0 ||
    (tries < bench.triesMax && systemClock.monoUs() / 1000 < bench.retryUntilMs)
  ) {
    const run = await runOnce(bench, scene);
    tries += 1;
    console.log(
      `  ${scene.contender}: ${run.served} of ${run.people} served, p99 ${run.p99Ms.toFixed(0)} ms; generator late ${run.latenessP99Ms.toFixed(1)} ms, disturbed ${(run.disturbed * 100).toFixed(0)}%`,
    );
    if (best === undefined || run.disturbed < best.disturbed) best = run;
    if (best.disturbed <= disturbedMax && !best.isBehind) break;
  }
  if (best === undefined) throw new Error('no run was made');
  return { ...best, tries };
}

async function runOnce(bench: Bench, scene: Scene): Promise<Measured> {
  const server = await Server.start(bench, {
    start: scene.contender,
    capacity: scene.capacity,
    fixedPerSecond: scene.fixedPerSecond,
  });
  const gate =
    scene.gateSlots === undefined
      ? undefined
      : await Server.start(bench, {
          start: 'gate',
          backPort: server.port,
          slots: scene.gateSlots,
        });
  const modes: string[] = [];
  const shares: number[] = [];
  const jobs: Measured['jobs'][number][] = [];
  try {
    if (scene.closedBeside !== undefined) {
      await server.obey({ mode: 'CLOSED' });
      await server.obey({ jobRounds: scene.closedBeside });
    }
    await closedLoad((gate ?? server).port, bench.submits.slice(0, 64), 8);
    const seconds = Array.from({ length: Math.floor(scene.durationMs / 1000) }, (_, at) => ({
      ms: at * 1000,
      run: () =>
        void server.tell().then(({ mode, share, atMs, jobsDone }) => {
          modes.push(mode);
          shares.push(share);
          jobs.push({ atMs, done: jobsDone });
        }),
    }));
    const changes = (scene.changes ?? []).map(({ ms, capacity }) => ({
      ms,
      run: () => void server.obey({ capacity }),
    }));
    const load = new OpenLoad(
      (gate ?? server).port,
      {
        durationMs: scene.durationMs,
        perSecond: scene.perSecond,
        requests: bench.submits,
        sockets: bench.sockets,
        retriers: scene.retriers ?? 0.1,
        retriesMax: scene.retriesMax ?? 10,
        retryAfterMs: scene.retryAfterMs ?? fixed100,
        vital: bench.vital,
        vitalPerSecond: scene.vitalPerSecond ?? 100,
        at: [...seconds, ...changes],
      },
      scene.measuredFromMs,
    );
    const ownBefore = waitedForCpuMs();
    const before = await server.tell();
    const result = await load.run();
    const told = await server.tell();
    const lostMs = Math.max(waitedForCpuMs() - ownBefore, told.waitedMs - before.waitedMs);
    return {
      ...result,
      told,
      modes,
      shares,
      jobs,
      isBehind: result.lateShare > lateShareMax,
      disturbed: lostMs / scene.durationMs,
      tries: 1,
    };
  } finally {
    await gate?.stop();
    await server.stop();
  }
}

/**
 * Seconds from `fromMs` until what is served stays at `level` per second for one second, by a sliding
 * second over tenths; undefined when it never does.
 */
export function backAtSeconds(
  perTenth: readonly number[],
  fromMs: number,
  level: number,
  untilMs: number,
): number | undefined {
  const first = Math.floor(fromMs / 100);
  for (let at = first; at + 10 <= Math.floor(untilMs / 100); at += 1) {
    const second = perTenth.slice(at, at + 10).reduce((sum, count) => sum + count, 0);
    if (second >= level) return (at - first) / 10;
  }
  return undefined;
}

/** The most served in any one second from `fromMs` on. */
export function peakPerSecond(perTenth: readonly number[], fromMs: number): number {
  let peak = 0;
  for (let at = Math.floor(fromMs / 100); at + 10 <= perTenth.length; at += 1) {
    peak = Math.max(
      peak,
      perTenth.slice(at, at + 10).reduce((sum, count) => sum + count, 0),
    );
  }
  return peak;
}
