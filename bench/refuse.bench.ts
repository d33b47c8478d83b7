import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../src/app/system.ts';
import {
  isMain,
  printReport,
  type Report,
  ResultHash,
  round3,
  type Row,
  sample,
  smallAsked,
} from './support/bench.ts';
import { closedLoad, oneAnswer } from './support/http-load.ts';
import type { Instruments } from './support/instruments.ts';
import { bundled, ServerProcess } from './support/server-process.ts';
import { earlyKinds, type RefusalKind, submitRequests } from './support/refuse-requests.ts';
import type { Order } from './support/refuse-server.ts';

/**
 * What a refusal costs.
 *
 * The whole gateway, made to refuse at one stage, beside a bare `node:http` server that answers the
 * same bytes (status, headers, body) to the same requests over the same number of connections. Each in
 * a process of its own; both take turns in every round. Compared is CPU time of the server process per
 * request, because that is what decides how many refusals a core can give, and because the wall clock
 * of a machine that also runs the generator mostly measures the generator. Requests per second are
 * printed beside it.
 *
 * Before identity: mode, instance limit, source limit, sold out. Apart: after identity, where each
 * request brings its own user token and its own pass, and both signatures are checked.
 */
export interface RefuseSize {
  readonly requests: number;
  readonly connections: number;
  readonly warmups: number;
  readonly rounds: number;
  /** Turns of the run with instruments on and off. */
  readonly instrumentRounds: number;
  readonly instrumentRequests: number;
}

export const largeSize: RefuseSize = {
  requests: 20_000,
  connections: 64,
  warmups: 2,
  rounds: 5,
  instrumentRounds: 20,
  instrumentRequests: 10_000,
};
export const smallSize: RefuseSize = {
  requests: 400,
  connections: 8,
  warmups: 1,
  rounds: 2,
  instrumentRounds: 1,
  instrumentRequests: 50,
};

interface Started {
  readonly process: ServerProcess<Order>;
  readonly port: number;
}

async function started(program: string, order: Order): Promise<Started> {
  const process = new ServerProcess<Order>(program);
  return { process, port: (await process.ask<{ port: number }>(order)).port };
}

async function cpuUs({ process }: Started): Promise<number> {
  return (await process.ask<{ cpuUs: number }>({ cpu: true })).cpuUs;
}

interface KindResult {
  readonly kind: RefusalKind;
  readonly status: number;
  readonly oursUs: number;
  readonly bareUs: number;
  readonly spread: number;
  readonly oursPerS: number;
  readonly barePerS: number;
  readonly ratio: number;
}

async function measure(
  program: string,
  kind: RefusalKind,
  requests: readonly Buffer[],
  size: RefuseSize,
): Promise<KindResult> {
  const ours = await started(program, { start: 'sluice', kind });
  // Until limits are used up, and the sold-out filter is there, answers are of other stages.
  await closedLoad(ours.port, requests.slice(0, 2_000), size.connections);
  const answer = await oneAnswer(ours.port, requests[0] ?? Buffer.alloc(0));
  const bare = await started(program, { start: 'bare', answer });
  const status = Number(answer.slice(9, 12));
  const times = new Map([
    [ours, { cpu: [] as number[], perS: [] as number[] }],
    [bare, { cpu: [] as number[], perS: [] as number[] }],
  ]);
  for (let round = 0; round < size.warmups + size.rounds; round += 1) {
    const order = round % 2 === 0 ? [ours, bare] : [bare, ours];
    for (const server of order) {
      const before = await cpuUs(server);
      const load = await closedLoad(server.port, requests, size.connections);
      const spent = (await cpuUs(server)) - before;
      if (load.statuses.get(status) !== load.requests) {
        throw new Error(`${kind}: answers were ${JSON.stringify([...load.statuses])}`);
      }
      if (round < size.warmups) continue;
      times.get(server)?.cpu.push(spent / load.requests);
      times.get(server)?.perS.push((load.requests / load.wallMs) * 1000);
    }
  }
  await Promise.all([ours, bare].map(({ process }) => process.stop({ stop: true })));
  const of = (server: Started, what: 'cpu' | 'perS') => sample(times.get(server)?.[what] ?? []);
  const [mine, peer] = [of(ours, 'cpu'), of(bare, 'cpu')];
  return {
    kind,
    status,
    oursUs: mine.median,
    bareUs: peer.median,
    spread: Math.max(mine.spread, peer.spread),
    oursPerS: of(ours, 'perS').median,
    barePerS: of(bare, 'perS').median,
    ratio: peer.median / mine.median,
  };
}

interface Looked {
  /** CPU of a refusal with everything that looks at it, over the CPU without, less one. */
  readonly cost: number;
  /** The same with traces on, which are off unless a deployment asks for them. */
  readonly tracedCost: number;
  readonly onUs: number;
  readonly offUs: number;
}

async function instrumentation(
  program: string,
  requests: readonly Buffer[],
  size: RefuseSize,
): Promise<Looked> {
  const kinds: readonly Instruments[] = ['off', 'on', 'traced'];
  const servers = new Map<Instruments, Started>();
  for (const instruments of kinds) {
    servers.set(
      instruments,
      await started(program, { start: 'sluice', kind: 'mode', instruments }),
    );
  }
  const spent = new Map<Instruments, number[]>(kinds.map((kind) => [kind, []]));
  // Many short turns: a neighbour that wakes up then falls on all of them.
  for (let round = 0; round < size.warmups + size.instrumentRounds; round += 1) {
    const turn = [...servers];
    for (let at = 0; at < turn.length; at += 1) {
      const [kind, server] = turn[(at + round) % turn.length] ?? [];
      if (kind === undefined || server === undefined) continue;
      const before = await cpuUs(server);
      const load = await closedLoad(server.port, requests, size.connections);
      const us = ((await cpuUs(server)) - before) / load.requests;
      if (round >= size.warmups) spent.get(kind)?.push(us);
    }
  }
  await Promise.all([...servers.values()].map(({ process }) => process.stop({ stop: true })));
  const over = (kind: Instruments): number => {
    const ratios = (spent.get(kind) ?? []).map((us, at) => us / (spent.get('off')?.[at] ?? us));
    return sample(ratios).median - 1;
  };
  return {
    cost: over('on'),
    tracedCost: over('traced'),
    onUs: sample(spent.get('on') ?? []).median,
    offUs: sample(spent.get('off') ?? []).median,
  };
}

export async function refuse(
  size: RefuseSize,
): Promise<{ readonly report: Report; readonly header: Row; readonly rows: readonly Row[] }> {
  const requests = submitRequests(size.requests, systemClock.wallMs());
  const results: KindResult[] = [];
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  let looked: Looked;
  try {
    const program = await bundled('refuse-server', folder);
    looked = await instrumentation(program, requests.slice(0, size.instrumentRequests), size);
    for (const kind of [...earlyKinds, 'after_identity'] as const) {
      results.push(await measure(program, kind, requests, size));
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  const early = results.filter(({ kind }) => kind !== 'after_identity');
  const late = results.find(({ kind }) => kind === 'after_identity');
  const hash = new ResultHash();
  for (const { status } of results) hash.add(status);
  return {
    report: {
      bench: 'refuse',
      // The worst of them: a flood takes the dearest door.
      ratio: round3(Math.min(...early.map(({ ratio }) => ratio))),
      better: 'higher',
      peer: 'bare node:http, same bytes',
      by_stage: Object.fromEntries(early.map(({ kind, ratio }) => [kind, round3(ratio)])),
      // Ledger, log, latencies and scrapes, on against off; and with traces besides.
      instrumentation: {
        cost: round3(looked.cost),
        traced_cost: round3(looked.tracedCost),
        on_us: round3(looked.onUs),
        off_us: round3(looked.offUs),
      },
      after_identity: { ratio: round3(late?.ratio ?? 0) },
      per_s: Object.fromEntries(results.map(({ kind, oursPerS }) => [kind, Math.round(oursPerS)])),
      result_hash: hash.hex,
    },
    header: [
      'refused at',
      'status',
      'CPU us/request',
      'bare',
      'spread',
      'ratio',
      'per s',
      'bare/s',
    ],
    rows: [
      ...results.map(
        (one): Row => [
          one.kind,
          one.status,
          round3(one.oursUs),
          round3(one.bareUs),
          `${Math.round(one.spread * 100)}%`,
          round3(one.ratio),
          Math.round(one.oursPerS),
          Math.round(one.barePerS),
        ],
      ),
      [
        'instruments on ÷ off',
        503,
        round3(looked.onUs),
        round3(looked.offUs),
        '',
        round3(1 + looked.cost),
        '',
        '',
      ],
    ],
  };
}

if (isMain(import.meta.url)) {
  const small = smallAsked();
  const { report, header, rows } = await refuse(small ? smallSize : largeSize);
  printReport(report, header, rows, !small);
}
