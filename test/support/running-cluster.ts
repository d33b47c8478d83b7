import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** What `npm run cluster` writes of itself. */
interface ClusterState {
  readonly shop: string;
  readonly operator: string;
  readonly admin_token_file: string;
  readonly config: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly processes: Readonly<Record<string, number>>;
  readonly inventory_standby?: string;
}

/** A whole deployment, started by the project's own script, whose parts a test may kill; it starts them again. */
export interface RunningCluster extends ClusterState {
  /** The replica that takes the inventory's place when that dies, where there is one now. */
  readonly standby: string | undefined;
  /** Where all of this is written. */
  readonly stateFile: string;
  readonly adminToken: string;
  /** Process ids of the gateways behind the port, as they are now. */
  gateways(): readonly number[];
  /** Answer of the operator's side, of control unless another URL is given. */
  admin(path: string, body?: object, operator?: string): Promise<Record<string, unknown>>;
  /** Another process of this deployment, beside those of the script; resolves to its addresses. */
  another(...flags: readonly string[]): Promise<Another>;
  /** What the script and its processes have written, the end of it. */
  readonly said: string;
  /** Stops everything as Ctrl-C does; the script's exit code. */
  stop(): Promise<number | null>;
}

export interface Another {
  readonly pid: number;
  readonly urls: Readonly<Record<string, string>>;
  stop(): Promise<number | null>;
}

const root = join(import.meta.dirname, '../..');
const startWithinMs = 120_000;
/** Characters kept of what a deployment says: all of a sale in which every request is warned of. */
const saidMax = 4_000_000;

/** Rejects with what was said where it does not come up. */
export async function startCluster(...flags: readonly string[]): Promise<RunningCluster> {
  return startClusterWith({}, ...flags);
}

/** The same, with variables for the configuration. */
export async function startClusterWith(
  variables: Readonly<Record<string, string>>,
  ...flags: readonly string[]
): Promise<RunningCluster> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-cluster-test-'));
  const stateFile = join(folder, 'state.json');
  const script = join(root, 'scripts/cluster.mjs');
  const config = join(folder, 'cluster.yaml');
  writeFileSync(config, hurried(readFileSync(join(root, 'examples/cluster.yaml'), 'utf8')));
  const args = [script, '--no-build', '--state', stateFile, '--config', config, ...flags];
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    // Free ports: several clusters of a test run come up at one time.
    env: { ...process.env, SLUICE_PORT: '0', SLUICE_ADMIN_PORT: '0', ...variables },
  });
  let said = '';
  const keep = (part: Buffer): void => {
    said = (said + part.toString()).slice(-saidMax);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  const ended = once(child, 'exit') as Promise<[number | null]>;
  const others: ChildProcess[] = [];
  const stop = async (): Promise<number | null> => {
    for (const other of others) await endOf(other, 'SIGTERM');
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGINT');
    const [code] = await ended;
    rmSync(folder, { recursive: true, force: true });
    return code;
  };
  const untilMs = Date.now() + startWithinMs;
  while (!existsSync(stateFile)) {
    if (child.exitCode !== null || Date.now() > untilMs) {
      await stop();
      throw new Error(`the cluster did not come up:\n${said}`);
    }
    await sleep(50);
  }
  const stateNow = (): ClusterState => JSON.parse(readFileSync(stateFile, 'utf8')) as ClusterState;
  const state = stateNow();
  const adminToken = readFileSync(state.admin_token_file, 'utf8').trim();
  return {
    ...state,
    get processes() {
      return stateNow().processes;
    },
    get standby() {
      return stateNow().inventory_standby;
    },
    stateFile,
    adminToken,
    get said() {
      return said;
    },
    gateways: () => childrenOf(stateNow().processes['gateways'] ?? 0),
    admin: async (path, body, operator = state.operator) => {
      const response = await fetch(`${operator}${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        headers: {
          authorization: `Bearer ${adminToken}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const json = (await response.json()) as Record<string, unknown>;
      if (!response.ok) throw new Error(`${path}: ${response.status} ${JSON.stringify(json)}`);
      return json;
    },
    another: async (...more) => {
      const args = [join(root, 'dist/main.js'), 'up', '--config', state.config, '--json', ...more];
      const other = spawn(process.execPath, args, {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, ...variables, ...state.environment },
      });
      others.push(other);
      other.stderr.on('data', keep);
      return {
        pid: other.pid ?? 0,
        urls: await listening(other),
        stop: () => endOf(other, 'SIGTERM'),
      };
    },
    stop,
  };
}

/** The example with windows that a test can wait for: places that nobody claims go on sooner. */
function hurried(example: string): string {
  const shorter = { 'pass_life: 15s': 'pass_life: 3s', 'claim_window: 20s': 'claim_window: 3s' };
  let text = example;
  for (const [written, wanted] of Object.entries(shorter)) {
    if (!text.includes(written)) throw new Error(`examples/cluster.yaml has no "${written}"`);
    text = text.replace(written, wanted);
  }
  return text;
}

async function listening(child: ChildProcess): Promise<Readonly<Record<string, string>>> {
  let text = '';
  for await (const part of child.stdout ?? []) {
    text += String(part);
    const line = text.split('\n').find((one) => one.includes('"listening"'));
    if (line === undefined) continue;
    child.stdout?.resume();
    return JSON.parse(line) as Record<string, string>;
  }
  throw new Error(`it ended before it listened: ${text}`);
}

async function endOf(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const gone = once(child, 'exit') as Promise<[number | null]>;
  child.kill('SIGCONT');
  child.kill(signal);
  const [code] = await gone;
  return code;
}

function childrenOf(pid: number): readonly number[] {
  const text = execFileSync('ps', ['-o', 'pid=', '--ppid', String(pid)], { encoding: 'utf8' });
  return text
    .trim()
    .split(/\s+/)
    .filter((word) => word !== '')
    .map(Number);
}

/** Looks every few milliseconds until it holds; a bound so generous that only a fault reaches it. */
export async function until(
  what: string,
  holds: () => Promise<boolean> | boolean,
  tries = 1_200,
): Promise<void> {
  for (let count = 0; !(await holds()); count += 1) {
    if (count >= tries) throw new Error(`it never came to be: ${what}`);
    await sleep(100);
  }
}
