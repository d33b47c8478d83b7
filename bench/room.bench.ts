import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../src/app/system.ts';
import { KeyRing } from '../src/core/pass/key-ring.ts';
import { signUserToken } from '../src/core/pass/user-token.ts';
import { hs256Key, nodeTextCodec } from '../src/pipeline/keys.ts';
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
import { benchSku, secretOf } from './support/refuse-requests.ts';
import { bundled } from './support/server-process.ts';
import type { Opened, RoomOrder, Usage } from './support/room-server.ts';

/**
 * The waiting room at a million.
 *
 * One process with every role holds the room. A part of the people joins over real HTTP, for the rate;
 * the rest through the same door in-process, because on this machine the generator and the HTTP server
 * would be measured for a minute more and say nothing new. Then everybody waits, the lobby is drawn,
 * one wave is released, and people poll, each with a token of their own, beside a bare `node:http`
 * server that answers the same bytes over as many connections. Both take turns; compared are the polls
 * per second of each pair of turns, of which the middle one counts. CPU time per poll is printed beside
 * it: of that, the engine takes some hundredths in a slow path for every `process.nextTick` once a
 * program is larger than the bare server is.
 *
 * Memory is the process's resident size after a full collection while everybody waits, over the same
 * process before the first join: the store's entries, control's sorted order and everything else
 * included. It is read after a quiet while, in which the engine gives back what the flood of joins made
 * it take. Under polls the engine's young generation grows again, as any server's does, up to three
 * semispaces of 16 MiB, and a collection on demand does not shrink it; so after the polls it is read
 * twice, right away and after another quiet while. What the engine's heap holds, what of it is in use,
 * and what the bare server grew by are printed beside it: what the polls leave behind is room that the
 * engine keeps for the next ones, and nothing of ours.
 */
export interface RoomSize {
  readonly entries: number;
  readonly httpJoins: number;
  readonly stock: number;
  readonly wave: number;
  readonly polls: number;
  readonly connections: number;
  readonly warmups: number;
  readonly rounds: number;
  /** Quiet time before memory is read, ms. */
  readonly quietMs: number;
}

export const largeSize: RoomSize = {
  entries: 1_000_000,
  httpJoins: 20_000,
  stock: 10_000,
  wave: 12_000,
  polls: 20_000,
  connections: 64,
  warmups: 2,
  rounds: 5,
  quietMs: 20_000,
};
export const smallSize: RoomSize = {
  entries: 6_000,
  httpJoins: 200,
  stock: 100,
  wave: 120,
  polls: 300,
  connections: 8,
  warmups: 1,
  rounds: 2,
  quietMs: 100,
};

class ServerProcess {
  readonly #child: ChildProcess;

  constructor(program: string) {
    this.#child = fork(program, { execArgv: [], serialization: 'advanced' });
  }

  ask<Reply>(order: RoomOrder): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const ended = (): void => reject(new Error('the server process ended'));
      this.#child.once('exit', ended);
      this.#child.once('message', (message: { result?: unknown; error?: string }) => {
        this.#child.off('exit', ended);
        if (message.error !== undefined) reject(new Error(message.error));
        else resolve(message.result as Reply);
      });
      this.#child.send(order);
    });
  }

  cpuUs(): Promise<number> {
    return this.ask<number>({ order: 'cpu' });
  }

  usage(): Promise<Usage> {
    return this.ask<Usage>({ order: 'usage' });
  }

  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#child.once('exit', () => resolve());
      this.#child.send({ order: 'stop' } satisfies RoomOrder);
    });
  }
}

const browser = [
  'Host: shop.example',
  'User-Agent: Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 Chrome/126.0 Mobile Safari/537.36',
  'Accept: application/json',
  'Accept-Language: en-GB,en;q=0.9',
  'Accept-Encoding: gzip, deflate, br',
];

function joinRequests(count: number, nowMs: number): readonly Buffer[] {
  const ring = new KeyRing('user', nodeTextCodec);
  ring.add(hs256Key('user-1', secretOf('user')));
  ring.signWith('user-1');
  return Array.from({ length: count }, (_, n) => {
    const token = signUserToken(ring, {
      issuer: 'bench',
      userId: `u_${n}`,
      issuedAtMs: nowMs,
      expiresAtMs: nowMs + 3_600_000,
    });
    const lines = [
      `POST /v1/activities/${benchSku.activityId}/entries HTTP/1.1`,
      ...browser,
      `Authorization: Bearer ${token}`,
      'Content-Type: application/json',
      'Content-Length: 2',
      '',
      '{}',
    ];
    return Buffer.from(lines.join('\r\n'), 'latin1');
  });
}

function pollRequest(token: string): Buffer {
  const lines = [
    `GET /v1/activities/${benchSku.activityId}/entries/me HTTP/1.1`,
    ...browser,
    `Sluice-Entry: ${token}`,
    '',
    '',
  ];
  return Buffer.from(lines.join('\r\n'), 'latin1');
}

interface Polled {
  readonly rate: number;
  readonly oursUs: number;
  readonly bareUs: number;
  /** What the bare server's resident memory grew by, MiB. */
  readonly bareGrownMib: number;
  readonly spread: number;
  readonly oursPerS: number;
  readonly barePerS: number;
  readonly storeCalls: number;
  readonly polls: number;
}

async function poll(
  program: string,
  ours: ServerProcess,
  port: number,
  requests: readonly Buffer[],
  size: RoomSize,
): Promise<Polled> {
  const answer = await oneAnswer(port, requests[0] ?? Buffer.alloc(0));
  const bare = new ServerProcess(program);
  const barePort = await bare.ask<number>({ order: 'bare', answer });
  const times = new Map([
    [ours, { port, cpu: [] as number[], perS: [] as number[] }],
    [bare, { port: barePort, cpu: [] as number[], perS: [] as number[] }],
  ]);
  const callsBefore = (await ours.usage()).storeCalls;
  const bareBefore = (await bare.usage()).rssMib;
  let polls = 0;
  for (let round = 0; round < size.warmups + size.rounds; round += 1) {
    for (const server of round % 2 === 0 ? [ours, bare] : [bare, ours]) {
      const of = times.get(server);
      if (of === undefined) continue;
      const before = await server.cpuUs();
      const load = await closedLoad(of.port, requests, size.connections);
      const spent = (await server.cpuUs()) - before;
      if (load.statuses.get(200) !== load.requests) {
        throw new Error(`polls were answered ${JSON.stringify([...load.statuses])}`);
      }
      if (server === ours) polls += load.requests;
      if (round < size.warmups) continue;
      of.cpu.push(spent / load.requests);
      of.perS.push((load.requests / load.wallMs) * 1000);
    }
  }
  const storeCalls = (await ours.usage()).storeCalls - callsBefore;
  const bareGrownMib = (await bare.usage()).rssMib - bareBefore;
  await bare.stop();
  const [mine, peer] = [sample(times.get(ours)?.cpu ?? []), sample(times.get(bare)?.cpu ?? [])];
  const perS = (server: ServerProcess): readonly number[] => times.get(server)?.perS ?? [];
  return {
    rate: sample(perS(ours).map((own, round) => own / (perS(bare)[round] ?? own))).median,
    bareGrownMib,
    oursUs: mine.median,
    bareUs: peer.median,
    spread: Math.max(mine.spread, peer.spread),
    oursPerS: sample(times.get(ours)?.perS ?? []).median,
    barePerS: sample(times.get(bare)?.perS ?? []).median,
    storeCalls,
    polls,
  };
}

export async function room(
  size: RoomSize,
): Promise<{ readonly report: Report; readonly header: Row; readonly rows: readonly Row[] }> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  try {
    const program = await bundled('room-server', folder);
    const server = new ServerProcess(program);
    const { stock, wave } = size;
    const port = await server.ask<number>({ order: 'room', stock, wave });
    const idle = await server.usage();

    const joins = await closedLoad(
      port,
      joinRequests(size.httpJoins, systemClock.wallMs()),
      size.connections,
    );
    if (joins.statuses.get(201) !== size.httpJoins) {
      throw new Error(`joins were answered ${JSON.stringify([...joins.statuses])}`);
    }
    const started = process.hrtime.bigint();
    const keep = Math.max(1, Math.floor((size.entries - size.httpJoins) / size.polls));
    const tokens = await server.ask<readonly string[]>({
      order: 'fill',
      from: size.httpJoins,
      to: size.entries,
      keep,
    });
    const filledS = Number(process.hrtime.bigint() - started) / 1e9;
    const opened = await server.ask<Opened>({ order: 'open' });
    await server.ask({ order: 'quiet', ms: size.quietMs });
    const full = await server.usage();
    const polled = await poll(
      program,
      server,
      port,
      tokens.slice(0, size.polls).map(pollRequest),
      size,
    );
    const after = await server.usage();
    await server.ask({ order: 'quiet', ms: size.quietMs });
    const later = await server.usage();
    await server.stop();

    const memoryMib = full.rssMib - idle.rssMib;
    const polledMib = after.rssMib - idle.rssMib;
    const laterMib = later.rssMib - idle.rssMib;
    const settledMib = full.settledMib - idle.settledMib;
    const expected = Math.min(wave, Math.round(stock * 1.2));
    const hash = new ResultHash();
    hash.add(opened.admitted);
    hash.add(size.entries);
    const ratio = polled.rate;
    const cpuRatio = polled.bareUs / polled.oursUs;
    return {
      report: {
        bench: 'room',
        ratio: round3(ratio),
        cpu_ratio: round3(cpuRatio),
        better: 'higher',
        peer: 'bare node:http, same bytes',
        entries: size.entries,
        joined_over_http: size.httpJoins,
        joined_in_process: size.entries - size.httpJoins,
        memory_mib: round3(memoryMib),
        settled_mib: round3(settledMib),
        memory_after_polls_mib: round3(polledMib),
        memory_a_while_later_mib: round3(laterMib),
        settled_after_polls_mib: round3(later.settledMib - idle.settledMib),
        heap_grown_by_polls_mib: round3(after.heapMib - full.heapMib),
        heap_a_while_later_mib: round3(later.heapMib - full.heapMib),
        bare_grown_by_polls_mib: round3(polled.bareGrownMib),
        draw_ms: Math.round(opened.drawMs),
        longest_stall_ms: Math.round(opened.longestStallMs),
        store_calls_per_poll: polled.storeCalls / polled.polls,
        wave: opened.admitted,
        wave_error: Math.abs(opened.admitted - expected),
        polls_per_s: Math.round(polled.oursPerS),
        bare_per_s: Math.round(polled.barePerS),
        joins_per_s_http: Math.round((joins.requests / joins.wallMs) * 1000),
        joins_per_s_in_process: Math.round((size.entries - size.httpJoins) / filledS),
        result_hash: hash.hex,
      },
      header: ['what', 'value', 'goal'],
      rows: [
        ['entries waiting', size.entries, '1,000,000'],
        ['resident memory over idle, MiB', round3(memoryMib), '<= 64'],
        ['of it heap and buffers, MiB', round3(settledMib), ''],
        ['resident over idle right after the polls, MiB', round3(polledMib), ''],
        [
          'of it the engine’s heap since before them, MiB',
          round3(after.heapMib - full.heapMib),
          '',
        ],
        ['resident over idle a while later, MiB', round3(laterMib), '<= 64'],
        ['of it heap and buffers, MiB', round3(later.settledMib - idle.settledMib), ''],
        ['bare node:http grew by under them, MiB', round3(polled.bareGrownMib), ''],
        ['polls: CPU us each (bare)', `${round3(polled.oursUs)} (${round3(polled.bareUs)})`, ''],
        ['polls/s ÷ bare node:http', round3(ratio), '>= 0.6'],
        ['the same by CPU time', round3(cpuRatio), ''],
        ['spread', `${Math.round(polled.spread * 100)}%`, ''],
        ['polls/s (bare)', `${Math.round(polled.oursPerS)} (${Math.round(polled.barePerS)})`, ''],
        ['store calls per poll', polled.storeCalls / polled.polls, '0'],
        ['wave released (asked)', `${opened.admitted} (${expected})`, 'exact'],
        ['closing, root, draw, first wave, ms', Math.round(opened.drawMs), '< 5000'],
        ['longest stall meanwhile, ms', Math.round(opened.longestStallMs), ''],
        ['joins/s over HTTP', Math.round((joins.requests / joins.wallMs) * 1000), ''],
        [
          'joins/s in-process, journaled',
          Math.round((size.entries - size.httpJoins) / filledS),
          '',
        ],
      ],
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (isMain(import.meta.url)) {
  const small = smallAsked();
  const { report, header, rows } = await room(small ? smallSize : largeSize);
  printReport(report, header, rows, !small);
}
