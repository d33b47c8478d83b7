import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';

/**
 * A real PostgreSQL server in a temporary folder on a free port of the loopback, for tests and
 * benchmarks. Started and stopped by this process alone, by its pid.
 */
export interface PostgresServer {
  readonly port: number;
  readonly version: string;
  /** A URL to a new, empty database. */
  createDatabase(): Promise<string>;
  /** `fast` rolls back and stops; `immediate` is a crash. Starts again on the same folder and port. */
  restart(mode: 'fast' | 'immediate'): Promise<void>;
  /** Freezes and thaws every process of the server, as a machine that does not answer. */
  pause(): void;
  resume(): void;
  stop(): Promise<void>;
}

export interface PostgresSettings {
  /** Further server settings, such as `{ fsync: 'off' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** PostgreSQL refuses to run as root; a user of the system that owns nothing runs it then. */
function unprivileged(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  for (const user of ['postgres', 'nobody']) {
    try {
      const id = (flag: string): number =>
        Number(execFileSync('id', [flag, user], { encoding: 'utf8' }));
      return { uid: id('-u'), gid: id('-g') };
    } catch (error) {
      if (user === 'nobody') throw error;
    }
  }
  return undefined;
}

/** The folder of the newest installed server's programs. */
export function postgresPrograms(): string {
  const base = '/usr/lib/postgresql';
  const versions = existsSync(base)
    ? readdirSync(base).filter((name) => existsSync(join(base, name, 'bin', 'postgres')))
    : [];
  const newest = versions.toSorted((a, b) => Number(b) - Number(a))[0];
  if (newest === undefined) {
    throw new Error(
      `no PostgreSQL server below ${base}: install the package "postgresql" (apt-get install postgresql)`,
    );
  }
  return join(base, newest, 'bin');
}

export async function startPostgres(options: PostgresSettings = {}): Promise<PostgresServer> {
  const programs = postgresPrograms();
  const user = unprivileged();
  const folder = mkdtempSync(join(tmpdir(), 'sluice-postgres-'));
  if (user !== undefined) chownSync(folder, user.uid, user.gid);
  const data = join(folder, 'data');
  const asUser = { ...user, cwd: folder, env: { PATH: process.env['PATH'], LC_ALL: 'C' } };
  execFileSync(
    join(programs, 'initdb'),
    ['-D', data, '-U', 'sluice', '-A', 'trust', '-E', 'UTF8', '--no-sync'],
    { ...asUser, stdio: ['ignore', 'ignore', 'inherit'] },
  );
  const port = await freePort();
  const settings = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: folder,
    max_connections: '60',
    ...options.settings,
  };
  const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);

  let server: ChildProcess;
  let log = '';
  const start = async (): Promise<void> => {
    log = '';
    server = spawn(join(programs, 'postgres'), ['-D', data, ...args], {
      ...asUser,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    server.stderr?.on('data', (chunk: Buffer) => {
      log = (log + chunk.toString()).slice(-8_000);
    });
    await answers(port, () => {
      if (server.exitCode !== null) throw new Error(`PostgreSQL did not start:\n${log}`);
    });
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (server.exitCode !== null || server.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => server.once('exit', () => resolve()));
    server.kill(signal);
    await ended;
  };
  const killAtExit = (): void => {
    server.kill('SIGQUIT');
  };
  await start();
  process.once('exit', killAtExit);
  const [{ server_version: version } = { server_version: '' }] = await ask<{
    server_version: string;
  }>(port, 'SHOW server_version');

  let databases = 0;
  return {
    port,
    version,
    async createDatabase(): Promise<string> {
      databases += 1;
      const name = `sale_${databases}`;
      await ask(port, `CREATE DATABASE ${name}`);
      return `postgres://sluice@127.0.0.1:${port}/${name}`;
    },
    async restart(mode): Promise<void> {
      await end(mode === 'fast' ? 'SIGINT' : 'SIGQUIT');
      await start();
    },
    pause: () => signalAll(server, 'SIGSTOP'),
    resume: () => signalAll(server, 'SIGCONT'),
    async stop(): Promise<void> {
      process.off('exit', killAtExit);
      await end('SIGQUIT');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The postmaster and its children. */
function signalAll(server: ChildProcess, signal: NodeJS.Signals): void {
  const parent = server.pid;
  if (parent === undefined) throw new Error('PostgreSQL is not running');
  const children = execFileSync('ps', ['-o', 'pid=', '--ppid', String(parent)], {
    encoding: 'utf8',
  });
  for (const pid of [String(parent), ...children.trim().split(/\s+/)]) {
    if (pid !== '') process.kill(Number(pid), signal);
  }
}

async function ask<Row extends object>(port: number, text: string): Promise<Row[]> {
  const client = new pg.Client({
    connectionString: `postgres://sluice@127.0.0.1:${port}/postgres`,
  });
  await client.connect();
  try {
    return (await client.query<Row & pg.QueryResultRow>(text)).rows;
  } finally {
    await client.end();
  }
}

/** Waits, at most half a minute, until the server takes connections. */
async function answers(port: number, check: () => void): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    check();
    try {
      await ask(port, 'SELECT 1');
      return;
    } catch (error) {
      if (tries > 300) throw error;
      await new Promise<void>((resume) => setTimeout(resume, 100));
    }
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.on('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => {
        if (address === null || typeof address === 'string') reject(new Error('no port'));
        else resolve(address.port);
      });
    });
  });
}
