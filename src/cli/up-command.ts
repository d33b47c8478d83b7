import cluster from 'node:cluster';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { allRoles, isRole, type Role } from '../app/roles.ts';
import { systemTimers } from '../app/system.ts';
import type { Config } from '../config/config.ts';
import { hasRelativeInstants, ofOneProcess } from '../config/config.ts';
import type { Overrides } from '../config/load.ts';
import { formatDuration } from '../config/values.ts';
import type { Timers } from '../ports/clock.ts';
import { adminUrlFile } from './admin-client.ts';
import { needConfig } from './configuration.ts';
import { UsageError, exitNo, exitOk, paintFor } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

/** A server that runs, as the command line sees it. */
export interface RunningServer {
  readonly urls: ServerUrls;
  /** Stops taking requests, finishes what is under way, flushes, unlocks. */
  close(): Promise<void>;
}

export interface ServerUrls {
  /** `http://127.0.0.1:8080`, of a gateway */
  readonly shop?: string;
  /** `http://127.0.0.1:9090`, of control */
  readonly operator?: string;
  /** A one-time link to the operator page, where this start made one. */
  readonly signIn?: string;
  /** Where a worker says whether it is ready. */
  readonly status?: string;
}

export interface UpParts {
  readonly start: (config: Config) => Promise<RunningServer>;
  readonly timers: Timers;
}

export interface UpOptions extends Overrides {
  readonly config?: string;
  readonly json?: boolean;
  /** What this process does, as typed; everything by default. */
  readonly role?: readonly string[];
  /** Gateway processes that share the port, as typed. */
  readonly processes?: string;
}

/** A graceful stop that takes longer is cut: what was answered is in the journal already. */
export const closeWithinMs = 10_000;

/** `sluice up`: on the real clock, and leaves word in the data folder where the operator's side is. */
export async function up(options: UpOptions, surroundings: Surroundings): Promise<number> {
  const roles = rolesOf(options.role ?? []);
  const processes = processesOf(options.processes ?? '1', roles);
  if (processes > 1 && cluster.isPrimary) {
    const { serveMany } = await import('./many-gateways.ts');
    return serve(options, surroundings, {
      start: (config) => {
        needServers(config, `--processes ${processes}`);
        return serveMany(processes, systemTimers, surroundings.err);
      },
      timers: systemTimers,
    });
  }
  const { startServer } = await import('../app/server.ts');
  const start = async (config: Config): Promise<RunningServer> => {
    const { host, port, adminHost, adminPort } = config.server;
    if (roles.length < allRoles.length) needServers(config, `--role ${roles.join(' --role ')}`);
    // Found out now, not after seconds of opening stores. A shared port is held by the one who shares.
    if (roles.includes('gateway') && !cluster.isWorker) await tryPort(host, port);
    if (roles.join() !== 'gateway') await tryPort(adminHost, adminPort);
    const server = await startServer(config, {
      roles,
      environment: surroundings.environment,
    });
    const { operator } = server.urls;
    if (operator !== undefined) {
      writeFileSync(join(config.dataFolder, adminUrlFile), `${operator}\n`, { mode: 0o600 });
    }
    return server;
  };
  return serve(options, surroundings, { start, timers: systemTimers });
}

/** Listens for an instant. Rejects with the system's error, which names the port. */
function tryPort(host: string, port: number): Promise<void> {
  if (port === 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve()));
  });
}

/** Starts a server, tells where it is, and stops it gently when asked. */
export async function serve(
  options: UpOptions,
  surroundings: Surroundings,
  parts: UpParts,
): Promise<number> {
  const { config: file, json, role: _, processes: __, ...overrides } = options;
  const { config, name } = needConfig(file, overrides, surroundings);
  const stop = surroundings.stopSignal();
  const server = await start(config, parts);
  if (cluster.isWorker) process.send?.({ listening: server.urls });
  else if (json === true)
    surroundings.out(`${JSON.stringify(announcement(server.urls, config))}\n`);
  else surroundings.out(banner(server.urls, config, name, surroundings));

  const signal = await stop;
  surroundings.err(
    `${signal}: stopping gently, at most ${formatDuration(closeWithinMs)}. Once more stops at once.\n`,
  );
  return (await closedInTime(server, parts.timers)) ? exitOk : tooSlow(surroundings);
}

async function start(config: Config, parts: UpParts): Promise<RunningServer> {
  try {
    return await parts.start(config);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code !== 'EADDRINUSE' && code !== 'EACCES' && code !== 'EADDRNOTAVAIL') throw error;
    const { host, port, adminHost, adminPort } = config.server;
    const why =
      code === 'EADDRINUSE'
        ? 'is taken by another process'
        : code === 'EACCES'
          ? 'may not be used by this user'
          : 'is not an address of this machine';
    const which = error instanceof Error && 'port' in error ? Number(error.port) : port;
    const [flag, place] =
      which === adminPort && which !== port
        ? ['--admin-port', `${adminHost}:${adminPort}`]
        : ['--port', `${host}:${port}`];
    throw new UsageError(`${place} ${why}; give another with ${flag} N, or 0 for any free one`);
  }
}

async function closedInTime(server: RunningServer, timers: Timers): Promise<boolean> {
  const closed = server.close().then(() => true);
  return await new Promise<boolean>((resolve, reject) => {
    const limit = timers.after(closeWithinMs, () => resolve(false));
    closed.then(resolve, reject).finally(() => limit.cancel());
  });
}

function tooSlow(surroundings: Surroundings): number {
  surroundings.err(
    `Not closed within ${formatDuration(closeWithinMs)}; ending anyway. Everything answered is on disk.\n`,
  );
  return exitNo;
}

/** Roles as typed: each flag once or several times, or several words with commas. */
function rolesOf(typed: readonly string[]): readonly Role[] {
  const words = typed.flatMap((word) => word.split(',')).filter((word) => word !== '');
  if (words.length === 0) return allRoles;
  for (const word of words) {
    if (!isRole(word)) {
      throw new UsageError(`--role: found "${word}"; allowed: ${allRoles.join(', ')}`);
    }
  }
  return allRoles.filter((role) => words.includes(role));
}

/** Gateway processes of one machine at most: more than it has cores help nobody. */
const processesMax = 64;

function processesOf(typed: string, roles: readonly Role[]): number {
  const count = /^\d{1,3}$/.test(typed) ? Number(typed) : 0;
  if (count < 1 || count > processesMax) {
    throw new UsageError(`--processes: found "${typed}"; allowed: 1 to ${processesMax}`);
  }
  if (count > 1 && roles.join() !== 'gateway') {
    throw new UsageError(
      `--processes ${count}: found with roles ${roles.join(', ')}; allowed: with --role gateway alone, because only gateways share a port`,
    );
  }
  return count;
}

/** Several processes need stores that all of them can reach. */
function needServers(config: Config, asked: string): void {
  const alone = ofOneProcess(config.stores);
  if (alone === undefined) return;
  throw new UsageError(
    `${asked}: found ${alone}, which one process keeps for itself; allowed: admission and inventory in Redis, orders in PostgreSQL, queue redis-streams or a broker (examples/cluster.yaml)`,
  );
}

/** For programs that start a server and need to know where it went. */
function announcement(urls: ServerUrls, config: Config): object {
  return {
    event: 'listening',
    ...(urls.shop === undefined ? {} : { shop: urls.shop }),
    ...(urls.operator === undefined ? {} : { operator: urls.operator }),
    ...(urls.signIn === undefined ? {} : { sign_in: urls.signIn }),
    ...(urls.status === undefined ? {} : { status: urls.status }),
    data: config.dataFolder,
    activities: config.activities.map(({ activityId }) => activityId),
  };
}

function banner(
  urls: ServerUrls,
  config: Config,
  name: string,
  surroundings: Surroundings,
): string {
  const { bold, faint, good } = paintFor(surroundings);
  const lines = [
    '',
    `  ${good('●')} ${bold('Sluice is running')}   ${faint(name)}`,
    '',
    ...(urls.shop === undefined ? [] : [`    shop       ${bold(urls.shop)}`]),
    ...(urls.operator === undefined
      ? []
      : [`    operator   ${bold(urls.signIn ?? urls.operator)}`]),
    ...(urls.status === undefined ? [] : [`    status     ${bold(urls.status)}`]),
    ...(urls.signIn === undefined
      ? []
      : [faint('               this link works once and not for long')]),
    `    data       ${config.dataFolder}`,
    '',
    ...config.activities.map((plan) => {
      const units = plan.skus.reduce((sum, sku) => sum + sku.stock, 0);
      const { opensAt } = plan;
      const opens =
        opensAt.kind === 'absolute'
          ? `opens ${new Date(opensAt.atMs).toISOString()}`
          : `opens ${formatDuration(opensAt.offsetMs)} after its first start`;
      return `    ${plan.name}  ${faint(`${units} units, ${opens}`)}`;
    }),
    ...(config.activities.some(hasRelativeInstants)
      ? [
          '',
          faint(
            '    Stop and start it: the sale goes on where it was. Another --data begins anew.',
          ),
        ]
      : []),
    '',
    faint('    Ctrl-C stops it.'),
    '',
  ];
  return `${lines.join('\n')}\n`;
}
