import { systemClock } from '../../src/app/system.ts';
import { retryDefaults, retryDelayMs } from '../../src/sdk/retry.ts';
import { waitedForCpuMs } from './cpu-wait.ts';
import { closedLoad } from './http-load.ts';
import { OpenLoad, type OpenPlan, type OpenResult } from './open-load.ts';
import type { PacedCapacity } from './overload-deps.ts';
import type { OverloadOrder, OverloadTold } from './overload-server.ts';
import { submitRequests, vitalRequests } from './refuse-requests.ts';
import { ServerProcess } from './server-process.ts';

/** The runs of `bench overload`: each against a fresh server process. */
export interface Bench {
  readonly program: string;
  readonly submits: readonly Buffer[];
  readonly vital: readonly Buffer[];
  /** Runs of one scene at most. */
  readonly triesMax: number;
  /** Connections of the crowd. */
  readonly sockets: number;
}

export type Contender = 'sluice' | 'none' | 'fixed' | 'under_pressure';
export const contenders: readonly Contender[] = ['sluice', 'none', 'fixed', 'under_pressure'];

export function openBench(
  program: string,
  people: number,
  triesMax: number,
  sockets: number,
): Bench {
  const nowMs = systemClock.wallMs();
  return {
    program,
    submits: submitRequests(people, nowMs),
    vital: vitalRequests(2_000, nowMs),
    triesMax,
    sockets,
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
    program: string,
    order: Extract<OverloadOrder, { readonly start: string }>,
  ): Promise<Server> {
    const process = new ServerProcess<OverloadOrder>(program);
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

const endless: PacedCapacity = { perSecond: 1e6, cpuUs: 0 };

/** Refusals per second of one process, doors closed; and CPU of each, µs. */
export async function refusalRate(
  { program, submits }: Bench,
  requests: number,
): Promise<{ readonly perSecond: number; readonly cpuUs: number }> {
  const server = await Server.start(program, {
    start: 'sluice',
    capacity: endless,
    fixedPerSecond: 1,
  });
  try {
    await server.obey({ mode: 'CLOSED' });
    const load = (count: number) => closedLoad(server.port, submits.slice(0, count), 64);
    // Twice, so that what is measured is compiled.
    await load(requests);
    const before = (await server.tell()).cpuUs;
    const { wallMs, statuses } = await load(requests);
    if (statuses.get(503) !== requests) {
      throw new Error(`answers of closed doors were ${JSON.stringify([...statuses])}`);
    }
    const cpuUs = ((await server.tell()).cpuUs - before) / requests;
    return { perSecond: (requests / wallMs) * 1000, cpuUs };
  } finally {
    await server.stop();
  }
}

/** What the paced stock really does per second behind an unprotected gateway, and CPU of each, µs. */
export async function admissionRate(
  { program, submits }: Bench,
  capacity: PacedCapacity,
  requests: number,
): Promise<{ readonly perSecond: number; readonly cpuUs: number }> {
  const server = await Server.start(program, { start: 'none', capacity, fixedPerSecond: 1 });
  try {
    await closedLoad(server.port, submits.slice(0, Math.ceil(requests / 4)), 128);
    const before = (await server.tell()).cpuUs;
    const { wallMs, statuses } = await closedLoad(
      server.port,
      submits.slice(-requests),
      Math.min(128, requests),
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
  /** The stock's capacity from these instants on. */
  readonly changes?: readonly { readonly ms: number; readonly capacity: PacedCapacity }[];
  /** Slots of a gate process in front. */
  readonly gateSlots?: number;
}

/** Above this a run says more about the neighbours than about the server: it is made again. */
const disturbedMax = 0.1;

/** The least disturbed of a few runs; the first that hardly was, at once. */
export async function runScene(bench: Bench, scene: Scene): Promise<Measured> {
  let best: Measured | undefined;
  let tries = 0;
  while (tries < bench.triesMax) {
    const run = await runOnce(bench, scene);
    tries += 1;
    console.log(
      `  ${scene.contender}: ${run.served} served, p99 ${run.p99Ms.toFixed(0)} ms, disturbed ${(run.disturbed * 100).toFixed(0)}%`,
    );
    if (best === undefined || run.disturbed < best.disturbed) best = run;
    if (best.disturbed <= disturbedMax) break;
  }
  if (best === undefined) throw new Error('no run was made');
  return { ...best, tries };
}

async function runOnce(bench: Bench, scene: Scene): Promise<Measured> {
  const server = await Server.start(bench.program, {
    start: scene.contender,
    capacity: scene.capacity,
    fixedPerSecond: scene.fixedPerSecond,
  });
  const gate =
    scene.gateSlots === undefined
      ? undefined
      : await Server.start(bench.program, {
          start: 'gate',
          backPort: server.port,
          slots: scene.gateSlots,
        });
  const modes: string[] = [];
  try {
    await closedLoad((gate ?? server).port, bench.submits.slice(0, 64), 8);
    const seconds = Array.from({ length: Math.floor(scene.durationMs / 1000) }, (_, at) => ({
      ms: at * 1000,
      run: () => void server.tell().then(({ mode }) => modes.push(mode)),
    }));
    const changes = (scene.changes ?? []).map(({ ms, capacity }) => ({
      // Not together with the question of the second: one order is out at a time.
      ms: ms + 500,
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
        vitalPerSecond: 100,
        at: [...seconds, ...changes],
      },
      scene.measuredFromMs,
    );
    const ownBefore = waitedForCpuMs();
    const { waitedMs } = await server.tell();
    const result = await load.run();
    const told = await server.tell();
    const lostMs = Math.max(waitedForCpuMs() - ownBefore, told.waitedMs - waitedMs);
    return { ...result, told, modes, disturbed: lostMs / scene.durationMs, tries: 1 };
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
