import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { systemTimers } from '../app/system.ts';
import type { Config } from '../config/config.ts';
import { hasRelativeInstants } from '../config/config.ts';
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
  /** `http://127.0.0.1:8080` */
  readonly shop: string;
  /** `http://127.0.0.1:9090` */
  readonly operator: string;
  /** A one-time link to the operator page, where this start made one. */
  readonly signIn?: string;
}

export interface UpParts {
  readonly start: (config: Config) => Promise<RunningServer>;
  readonly timers: Timers;
}

export interface UpOptions extends Overrides {
  readonly config?: string;
  readonly json?: boolean;
}

/** A graceful stop that takes longer is cut: what was answered is in the journal already. */
export const closeWithinMs = 10_000;

/** `sluice up`: on the real clock, and leaves word in the data folder where the operator's side is. */
export async function up(options: UpOptions, surroundings: Surroundings): Promise<number> {
  const { startServer } = await import('../app/server.ts');
  const start = async (config: Config): Promise<RunningServer> => {
    const { host, port, adminHost, adminPort } = config.server;
    // Found out now, not after seconds of opening stores.
    await tryPort(host, port);
    await tryPort(adminHost, adminPort);
    const server = await startServer(config);
    writeFileSync(join(config.dataFolder, adminUrlFile), `${server.urls.operator}\n`, {
      mode: 0o600,
    });
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
  const { config: file, json, ...overrides } = options;
  const { config, name } = needConfig(file, overrides, surroundings);
  const stop = surroundings.stopSignal();
  const server = await start(config, parts);
  if (json === true) surroundings.out(`${JSON.stringify(announcement(server.urls, config))}\n`);
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

/** For programs that start a server and need to know where it went. */
function announcement(urls: ServerUrls, config: Config): object {
  return {
    event: 'listening',
    shop: urls.shop,
    operator: urls.operator,
    ...(urls.signIn === undefined ? {} : { sign_in: urls.signIn }),
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
    `    shop       ${bold(urls.shop)}`,
    `    operator   ${bold(urls.signIn ?? urls.operator)}`,
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
