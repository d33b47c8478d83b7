import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePorts } from '../test/support/sale-process.ts';
import { isMain, printReport, type Report, type Row, sample } from './support/bench.ts';

/**
 * How long a newcomer waits: from the command to the first page of the shop, on a fresh data folder
 * and on one that has been used, and what the idle process keeps resident. The command is the built
 * one, the sale is the example, the page is asked for over HTTP from another process.
 */
export interface StartSize {
  readonly rounds: number;
  /** Rest before the memory is read, ms: what start-up left behind is collected by then. */
  readonly restMs: number;
}

export const smallSize: StartSize = { rounds: 1, restMs: 200 };
const largeSize: StartSize = { rounds: 3, restMs: 10_000 };

const root = fileURLToPath(new URL('..', import.meta.url));
/** A start that takes longer has failed, ms. */
const startMaxMs = 120_000;

interface Start {
  readonly pageMs: number;
  readonly rssMib: number;
}

async function startOnce(data: string, restMs: number): Promise<Start> {
  const [port, adminPort] = await freePorts();
  const startedUs = performance.now();
  const child = spawn(
    process.execPath,
    [
      join(root, 'dist/main.js'),
      'up',
      '--config',
      join(root, 'examples/concert.yaml'),
      `--data=${data}`,
      `--port=${port}`,
      `--admin-port=${adminPort}`,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => {
    said = (said + chunk.toString('utf8')).slice(-4_000);
  });
  const gone = new Promise((resolve) => child.once('exit', resolve));
  try {
    const pageMs = await firstPage(`http://127.0.0.1:${port}/`, startedUs, () => {
      if (child.exitCode !== null) throw new Error(`the server ended at its start:\n${said}`);
    });
    await new Promise((resolve) => setTimeout(resolve, restMs));
    return { pageMs, rssMib: residentMib(child.pid) };
  } finally {
    child.kill('SIGTERM');
    await gone;
  }
}

async function firstPage(url: string, startedMs: number, check: () => void): Promise<number> {
  while (performance.now() - startedMs < startMaxMs) {
    check();
    const page = await fetch(url, { headers: { accept: 'text/html' } }).then(
      async (response) => ({ ok: response.ok, text: await response.text() }),
      () => undefined,
    );
    if (page?.ok === true && page.text.includes('<html')) return performance.now() - startedMs;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`no page after ${startMaxMs} ms`);
}

function residentMib(pid: number | undefined): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  return Math.round(Number(kib) / 1024);
}

export async function start(
  size: StartSize,
): Promise<{ readonly report: Report; readonly rows: readonly Row[] }> {
  const first: number[] = [];
  const again: number[] = [];
  const resident: number[] = [];
  for (let round = 0; round < size.rounds; round += 1) {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-start-'));
    const data = join(folder, 'data');
    try {
      first.push((await startOnce(data, 0)).pageMs);
      const second = await startOnce(data, size.restMs);
      again.push(second.pageMs);
      resident.push(second.rssMib);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
  const [f, a, r] = [sample(first), sample(again), sample(resident)];
  const percent = (spread: number): string => `${Math.round(spread * 100)}%`;
  return {
    report: {
      bench: 'start',
      ratio: null,
      better: null,
      peer: null,
      first_ms: Math.round(f.median),
      again_ms: Math.round(a.median),
      rss_mib: r.median,
    },
    rows: [
      ['first page, fresh data folder, ms', Math.round(f.median), percent(f.spread)],
      ['first page, existing data folder, ms', Math.round(a.median), percent(a.spread)],
      ['resident when idle, MiB', r.median, percent(r.spread)],
    ],
  };
}

if (isMain(import.meta.url)) {
  const small = process.argv.includes('--small');
  const { report, rows } = await start(small ? smallSize : largeSize);
  printReport(report, ['what', 'median', 'spread'], rows, !small);
}
