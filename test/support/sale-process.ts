import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Two ports that were free a moment ago, for a server that must come back under the same address. */
export async function freePorts(): Promise<readonly [number, number]> {
  const servers = [createServer(), createServer()];
  const ports = await Promise.all(
    servers.map(
      (server) =>
        new Promise<number>((resolve) => {
          server.listen(0, '127.0.0.1', () => {
            const address = server.address();
            resolve(typeof address === 'object' && address !== null ? address.port : 0);
          });
        }),
    ),
  );
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return [ports[0] ?? 0, ports[1] ?? 0];
}

export interface SaleProcessOptions {
  readonly activity: Readonly<Record<string, unknown>>;
  /** The program; the built command unless a test composes another. */
  readonly command?: readonly string[];
  /** Parts of the configuration that replace the usual ones. */
  readonly config?: Readonly<Record<string, unknown>>;
}

const builtCommand = [fileURLToPath(new URL('../../dist/main.js', import.meta.url))];

/** A real server on one data folder that can be killed and started again under the same address. */
export class SaleProcess {
  readonly folder: string;
  readonly shop: string;
  readonly operator: string;
  readonly #command: readonly string[];
  readonly #configFile: string;
  #child: ChildProcess | undefined;
  #said = '';

  private constructor(options: SaleProcessOptions, ports: readonly [number, number]) {
    this.folder = mkdtempSync(join(tmpdir(), 'sluice-sale-'));
    this.#command = options.command ?? builtCommand;
    this.#configFile = join(this.folder, 'sale.yaml');
    this.shop = `http://127.0.0.1:${ports[0]}`;
    this.operator = `http://127.0.0.1:${ports[1]}`;
    const config = {
      server: {
        port: ports[0],
        admin_port: ports[1],
        trusted_proxies: ['127.0.0.1/32'],
        ceiling: '100000/s',
      },
      data: join(this.folder, 'data'),
      stores: { fsync: 'os' },
      identity: { mode: 'demo', demo_anywhere: true },
      activities: [options.activity],
      telemetry: { log_level: 'warn' },
      ...options.config,
    };
    if ('server' in config) Object.assign(config.server, { port: ports[0], admin_port: ports[1] });
    writeFileSync(this.#configFile, JSON.stringify(config));
  }

  static async create(options: SaleProcessOptions): Promise<SaleProcess> {
    return new SaleProcess(options, await freePorts());
  }

  /** Resolves once it is ready to sell. */
  async start(): Promise<void> {
    const child = spawn(process.execPath, [...this.#command, 'up', '--config', this.#configFile], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#child = child;
    child.stderr.on('data', (chunk: Buffer) => {
      this.#said = (this.#said + chunk.toString('utf8')).slice(-20_000);
    });
    for (;;) {
      if (child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`the server ended at its start:\n${this.#said}`);
      }
      const ready = await fetch(`${this.shop}/readyz`).then(
        (response) => response.ok,
        () => false,
      );
      if (ready) return;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  }

  /** SIGKILL, and the process is gone. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await gone;
  }

  /** What it wrote to its log, the end of it. */
  get said(): string {
    return this.#said;
  }

  get adminToken(): string {
    return readFileSync(join(this.folder, 'data', 'admin-token'), 'utf8').trim();
  }

  async admin(path: string, body?: object): Promise<Record<string, unknown>> {
    const response = await fetch(`${this.operator}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        authorization: `Bearer ${this.adminToken}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const json = (await response.json()) as Record<string, unknown>;
    if (!response.ok) throw new Error(`${path}: ${response.status} ${JSON.stringify(json)}`);
    return json;
  }

  async remove(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
