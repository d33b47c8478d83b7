import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Clock, Timers } from '../../ports/clock.ts';
import { member } from './ask.ts';
import type { PoolLimits } from './http-pool.ts';
import type { RushOptions } from './options.ts';
import { CannotStartError } from './sale.ts';

/** A sale of one's own, in another process, as `sluice rush --embedded` needs it. */
export interface EmbeddedServer {
  readonly shop: string;
  readonly operator: string;
  readonly adminToken: string;
  readonly activityId: string;
  readonly opensAtMs: number;
  readonly admission: { readonly perSecond: number; readonly claimWindowMs: number };
  /** Peak resident memory so far, MiB; undefined where the system does not tell. */
  peakMib(): number | undefined;
  /** Set when the process has ended by itself. */
  died(): string | undefined;
  /** Stops it by its id and removes its folder. */
  stop(): Promise<void>;
}

/** Time that a start on a fresh data folder takes on a machine with nothing else to do, ms. */
const startAllowanceMs = 5_000;
/** Share of the arrivals that come before the opening. */
export const lobbyShare = 0.65;
const startMaxMs = 60_000;
const stopMaxMs = 15_000;
/** Polls of the whole room: what a small machine answers beside everything else. */
const pollsPerSecond = 3_000;

/**
 * Where the crowd's connections come from: on Linux all of 127/8 is this machine, and the embedded
 * sale trusts it, so the server's bound on connections per address is no bound on the crowd.
 */
export const embeddedLimits: Partial<PoolLimits> =
  process.platform === 'linux'
    ? {
        maxConnections: Math.min(18_000, openFilesMax() - 500),
        // Many, because the system looks for a free port at each address, and looks long once half of
        // an address's ports are taken (closed ones stay taken for a minute).
        localAddresses: Array.from({ length: 32 }, (_, at) => `127.0.0.${at + 2}`),
      }
    : {};

/** Open files that the system allows this process; what most allow where it does not tell. */
function openFilesMax(): number {
  try {
    const match = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'));
    return match === null ? 4_096 : Math.max(1_000, Number(match[1]));
  } catch {
    // No /proc: not Linux, or a very bare one.
    return 4_096;
  }
}

/** How the server is started: the built command, unless a test composes another. */
export interface ServerCommand {
  readonly file: string;
  readonly args: readonly string[];
}

export const builtCommand: ServerCommand = {
  file: process.execPath,
  args: [fileURLToPath(new URL('../../main.js', import.meta.url))],
};

/** The configuration of the embedded sale: open to a crowd from many addresses behind one proxy. */
export function embeddedConfig(
  options: RushOptions,
  dataFolder: string,
  nowMs: number,
  opensAtMs: number,
): object {
  const { scenario } = options;
  const perSku = splitStock(options.stock, scenario.skus);
  return {
    server: { port: 0, admin_port: 0, trusted_proxies: ['127.0.0.0/8'], ceiling: '200000/s' },
    data: dataFolder,
    stores: { fsync: 'os' },
    identity: { mode: 'demo', demo_anywhere: true },
    // As one that has been up for a while when the crowd comes, which is how a sale is run.
    overload: { start: 'full' },
    activities: [
      {
        id: options.activity ?? 'rush',
        name: 'Rush',
        lobby_opens_at: new Date(nowMs - 1_000).toISOString(),
        opens_at: new Date(opensAtMs).toISOString(),
        closes_at: new Date(nowMs + options.overMs + 3_600_000).toISOString(),
        skus: perSku.map((stock, at) => ({
          id: scenario.skus === 1 ? 'ticket' : `ticket-${at + 1}`,
          name: `Ticket ${at + 1}`,
          stock,
          price: '20.00 EUR',
        })),
        room: {
          mode: 'draw',
          pass_life: '15s',
          claim_window: `${claimWindowMs(options)}ms`,
          max_admissions: `${admissionsPerSecond(options)}/s`,
          poll_budget: `${pollsPerSecond}/s`,
          max_active: maxActive(options),
        },
        payment: { deadline: `${scenario.paymentDeadlineMs}ms`, grace: '2s' },
      },
    ],
    telemetry: { log_level: 'warn' },
  };
}

/**
 * How long after now the server will surely listen: longer on a busy machine, or the sale would open
 * before anybody could stand in its lobby. Load averages are zero where the system has none.
 */
function startsWithinMs(): number {
  const [load = 0] = loadavg();
  return startAllowanceMs * Math.min(5, Math.max(1, load / cpus().length));
}

/** Two thirds of the crowd stand in the lobby when the sale opens; the rest come late. */
function opensAt(options: RushOptions, nowMs: number): number {
  return nowMs + Math.round(startsWithinMs() + options.overMs * lobbyShare);
}

/**
 * Long enough for everybody's next look, also at the opening, when the whole room looks once within its
 * poll budget; and no longer, since a line whose people have gone moves by `maxActive` each window.
 */
function claimWindowMs({ people }: RushOptions): number {
  return Math.max(8_000, Math.round((people / pollsPerSecond) * 1_500 + 2_000));
}

/** Far above those who buy at once: behind a crowd that has left, most places stand empty. */
function maxActive({ stock }: RushOptions): number {
  return Math.max(2_000, stock * 4);
}

function admissionsPerSecond(options: RushOptions): number {
  return Math.max(200, Math.min(2_000, options.stock));
}

function splitStock(stock: number, skus: number): number[] {
  return Array.from({ length: skus }, (_, at) => Math.floor((stock + at) / skus));
}

/**
 * Starts a server on a temporary data folder and free ports, and waits until it listens.
 * @throws CannotStartError with what the server said.
 */
export async function startEmbedded(
  options: RushOptions,
  command: ServerCommand,
  clock: Clock,
  timers: Timers,
): Promise<EmbeddedServer> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-rush-'));
  const dataFolder = join(folder, 'data');
  const configFile = join(folder, 'rush.yaml');
  const nowMs = clock.wallMs();
  const opensAtMs = opensAt(options, nowMs);
  // JSON is YAML.
  writeFileSync(
    configFile,
    JSON.stringify(embeddedConfig(options, dataFolder, nowMs, opensAtMs), undefined, 2),
  );
  const child = spawn(command.file, [...command.args, 'up', '--config', configFile, '--json'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const tail = new Tail();
  child.stderr.on('data', (chunk: Buffer) => tail.add(chunk.toString('utf8')));
  let ended: string | undefined;
  child.once('exit', (code, signal) => {
    ended = `the server ended (${signal ?? `exit code ${code}`}): ${tail.text()}`;
  });
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  try {
    const urls = await listening(child, tail, timers);
    return {
      ...urls,
      adminToken: readToken(dataFolder),
      activityId: options.activity ?? 'rush',
      opensAtMs,
      admission: {
        perSecond: admissionsPerSecond(options),
        claimWindowMs: claimWindowMs(options),
      },
      peakMib: () => peakMibOf(child.pid),
      died: () => ended,
      stop: async () => {
        await stopProcess(child, timers);
        remove();
      },
    };
  } catch (error) {
    await stopProcess(child, timers);
    remove();
    throw error;
  }
}

/** Waits for the line that says where the server listens. */
function listening(
  child: ChildProcess,
  tail: Tail,
  timers: Timers,
): Promise<{ shop: string; operator: string }> {
  return new Promise((resolve, reject) => {
    let text = '';
    const limit = timers.after(startMaxMs, () =>
      reject(
        new CannotStartError(`the server did not listen within ${startMaxMs} ms: ${tail.text()}`),
      ),
    );
    const fail = (why: string): void => {
      limit.cancel();
      reject(new CannotStartError(`${why} ${tail.text()}`));
    };
    child.once('error', (error) => fail(`the server could not be started: ${error.message}`));
    child.once('exit', (code) =>
      fail(`the server ended with exit code ${code} before it listened:`),
    );
    child.stdout?.on('data', (chunk: Buffer) => {
      if (text.length > 64 * 1024) return;
      text += chunk.toString('utf8');
      for (const line of text.split('\n').slice(0, -1)) {
        const json = parsedLine(line);
        const shop = member(json, 'shop');
        const operator = member(json, 'operator');
        if (typeof shop === 'string' && typeof operator === 'string') {
          limit.cancel();
          resolve({ shop, operator });
          return;
        }
      }
    });
  });
}

function parsedLine(line: string): unknown {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function readToken(dataFolder: string): string {
  try {
    return readFileSync(join(dataFolder, 'admin-token'), 'utf8').trim();
  } catch (error) {
    throw new CannotStartError(
      `the server wrote no credential: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

/** Gently by SIGTERM, then, past the limit, by SIGKILL; by the child's own id alone. */
async function stopProcess(child: ChildProcess, timers: Timers): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGTERM');
  const limit = timers.after(stopMaxMs, () => child.kill('SIGKILL'));
  await gone;
  limit.cancel();
}

/** Peak resident memory by the kernel's own account (Linux). */
function peakMibOf(pid: number | undefined): number | undefined {
  if (pid === undefined) return undefined;
  try {
    const match = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return match === null ? undefined : Math.round(Number(match[1]) / 1024);
  } catch {
    // No /proc here, or the process is gone: then it is not known.
    return undefined;
  }
}

/** The last 4,000 characters of a stream. */
class Tail {
  #text = '';

  add(more: string): void {
    this.#text = (this.#text + more).slice(-4_000);
  }

  text(): string {
    return this.#text.trim();
  }
}
