import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { SeededRandom } from '../test/support/world.ts';
import { startRedis } from '../test/support/servers/redis.ts';
import { isMain, printReport, round3, smallAsked } from './support/bench.ts';
import type { ProcessResult, ProcessTask } from './support/lease-process.ts';
import { type LeaseWorldResult, runLeaseWorld } from './support/lease-world.ts';

/**
 * A leased budget, in two settings.
 *
 * Virtual time: 50 instances, demand skewed by Zipf and moving from instance to instance, half of them
 * vanishing in the middle, at several rates. Every window is checked against burst + rate·Δt + leases
 * out at its start.
 *
 * Real processes: four, with a real Redis, one after the other: each decides by its lease, then each
 * asks the store for every request with one script call, at the same offered load. The ratio is that
 * of CPU time per decision of a deciding process, the peer's calls pipelined as its client does.
 */
export interface LeaseSize {
  readonly instances: number;
  readonly seconds: number;
  readonly rates: readonly number[];
  readonly processes: number;
  readonly realSeconds: number;
  readonly realRate: number;
}

export const largeSize: LeaseSize = {
  instances: 50,
  seconds: 120,
  rates: [2_000, 5_000, 20_000],
  processes: 4,
  realSeconds: 8,
  realRate: 2_000,
};
export const smallSize: LeaseSize = {
  instances: 20,
  seconds: 30,
  rates: [2_000],
  processes: 0,
  realSeconds: 0,
  realRate: 0,
};

interface RealResult {
  readonly admitted: number;
  readonly overAdmitted: number;
  readonly used: number;
  readonly callsPerAdmitted: number;
  readonly failed: number;
  readonly cpuUsPerDecision: number;
  readonly serverCpuUsPerDecision: number;
}

export async function lease(size: LeaseSize): Promise<{
  readonly report: Parameters<typeof printReport>[0];
  readonly rows: Parameters<typeof printReport>[2];
}> {
  const worlds = size.rates.map((ratePerSecond) => ({
    ratePerSecond,
    result: runLeaseWorld({
      instances: size.instances,
      ratePerSecond,
      pressure: 1.5,
      seconds: size.seconds,
      moveEverySeconds: 10,
      vanishAtSecond: Math.floor(size.seconds / 2) + 3,
      random: new SeededRandom(`lease-${ratePerSecond}`),
      roundTripUs: 2_000,
    }),
  }));
  const worst = (pick: (result: LeaseWorldResult) => number, largest: boolean): number => {
    const values = worlds.map(({ result }) => pick(result));
    return largest ? Math.max(...values) : Math.min(...values);
  };
  const real = size.processes === 0 ? undefined : await runReal(size);
  const report = {
    bench: 'lease',
    ratio:
      real === undefined ? null : round3(real.lease.cpuUsPerDecision / real.call.cpuUsPerDecision),
    better: 'lower' as const,
    peer: 'one script call per request',
    over_admitted: worst((result) => result.overAdmitted, true),
    used: round3(
      Math.min(
        1,
        worst((result) => result.used, false),
      ),
    ),
    calls_per_admitted: round3(worst((result) => result.callsPerAdmitted, true)),
    recovery_leases: round3(worst((result) => result.recoveryLeases, true)),
    instances: size.instances,
    least_served: round3(worst((result) => result.leastServed, false)),
    real: real === undefined ? null : { lease: rounded(real.lease), call: rounded(real.call) },
    result_hash: worlds.map(({ result }) => result.hash.toString(16)).join(' '),
  };
  const rows: (string | number)[][] = worlds.map(({ ratePerSecond, result }) => [
    `virtual, ${size.instances} instances, ${ratePerSecond}/s`,
    result.overAdmitted,
    round3(Math.min(1, result.used)),
    round3(result.callsPerAdmitted),
    round3(result.recoveryLeases),
    '',
  ]);
  for (const [name, one] of Object.entries(real ?? {})) {
    rows.push([
      `${size.processes} processes, Redis, ${name === 'lease' ? 'leased' : 'one call per request'}, ${size.realRate}/s`,
      round3(one.overAdmitted),
      round3(Math.min(1, one.used)),
      round3(one.callsPerAdmitted),
      '',
      `${round3(one.cpuUsPerDecision)} + ${round3(one.serverCpuUsPerDecision)} in Redis`,
    ]);
  }
  return { report, rows };
}

function rounded(result: RealResult): Record<string, number> {
  return Object.fromEntries(Object.entries(result).map(([name, value]) => [name, round3(value)]));
}

async function runReal(size: LeaseSize): Promise<{ lease: RealResult; call: RealResult }> {
  const server = await startRedis();
  try {
    const cpuOf = async (): Promise<number> => {
      const info = await server.ask('INFO', 'cpu');
      const user = Number(/used_cpu_user:([\d.]+)/.exec(info)?.[1]);
      const system = Number(/used_cpu_sys:([\d.]+)/.exec(info)?.[1]);
      return (user + system) * 1e6;
    };
    const run = async (mode: 'lease' | 'call'): Promise<RealResult> => {
      const before = await cpuOf();
      const children = await Promise.all(
        Array.from({ length: size.processes }, (_, at) =>
          startProcess({
            mode,
            url: server.url,
            budget: `bench-${mode}`,
            instance: `p${at}`,
            ratePerSecond: size.realRate,
            // Skewed: the first asks for half of everything.
            demandPerSecond: (size.realRate * 1.5) / (at === 0 ? 2 : 2 * (size.processes - 1)),
            seconds: size.realSeconds,
          }),
        ),
      );
      const startAtMs = Date.now() + 300;
      const results = await Promise.all(children.map((child) => runProcess(child, startAtMs)));
      const serverCpu = (await cpuOf()) - before;
      return combine(results, size, serverCpu);
    };
    return { lease: await run('lease'), call: await run('call') };
  } finally {
    await server.stop();
  }
}

/** Puts the processes' admissions, counted per 10 ms of wall time, on one line. */
function combine(
  results: readonly ProcessResult[],
  size: LeaseSize,
  serverCpu: number,
): RealResult {
  const slots = Math.max(...results.map(({ perSlot }) => perSlot.length));
  let [admitted, settled, lowest, over] = [0, 0, Infinity, 0];
  const perSlot = size.realRate / 100;
  for (let slot = 0; slot < slots; slot += 1) {
    const out = results.reduce((all, one) => all + (one.outstanding[slot] ?? 0), 0);
    lowest = Math.min(lowest, admitted - slot * perSlot + out);
    const here = results.reduce((all, one) => all + (one.perSlot[slot] ?? 0), 0);
    admitted += here;
    if (slot >= 100) settled += here;
    // The processes' clocks agree to within a slot.
    over = Math.max(over, admitted - (slot + 2) * perSlot - lowest - size.realRate);
  }
  const sum = (pick: (one: ProcessResult) => number): number =>
    results.reduce((all, one) => all + pick(one), 0);
  const decisions = sum(({ decisions }) => decisions);
  return {
    admitted,
    overAdmitted: Math.max(0, over),
    // Without the first second, in which the burst goes.
    used: settled / (size.realRate * (size.realSeconds - 1)),
    callsPerAdmitted: sum(({ calls }) => calls) / Math.max(1, admitted),
    failed: sum(({ failed }) => failed),
    cpuUsPerDecision: sum(({ cpuUs }) => cpuUs) / decisions,
    serverCpuUsPerDecision: serverCpu / decisions,
  };
}

async function startProcess(task: ProcessTask): Promise<ChildProcess> {
  const child = fork(fileURLToPath(new URL('./support/lease-process.ts', import.meta.url)), [], {
    execArgv: ['--import', 'tsx'],
  });
  child.send(task);
  await once(child, 'message');
  return child;
}

async function runProcess(child: ChildProcess, startAtMs: number): Promise<ProcessResult> {
  child.send(startAtMs);
  const [message] = (await once(child, 'message')) as [ProcessResult];
  child.disconnect();
  if (child.exitCode === null) await once(child, 'exit');
  return message;
}

if (isMain(import.meta.url)) {
  const { report, rows } = await lease(smallAsked() ? smallSize : largeSize);
  printReport(
    report,
    ['setting', 'over', 'used', 'calls per admitted', 'recovery, leases', 'CPU µs per decision'],
    rows,
    !smallAsked(),
  );
}
