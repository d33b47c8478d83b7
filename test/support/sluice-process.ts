import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const main = fileURLToPath(new URL('../../dist/main.js', import.meta.url));

/** A server in a process of its own, from the build, that can be killed at any moment. */
export class SluiceProcess {
  readonly #config: string;
  readonly #main: string;
  #child: ChildProcess | undefined;
  #err = '';
  shop = '';
  operator = '';

  constructor(config: string, entry = main) {
    this.#config = config;
    this.#main = entry;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** What it said on standard error since its last start. */
  get err(): string {
    return this.#err;
  }

  /** Starts it and resolves once it listens. */
  async start(): Promise<void> {
    this.#err = '';
    const child = spawn(process.execPath, [this.#main, 'up', '--config', this.#config, '--json']);
    this.#child = child;
    child.stderr.on('data', (chunk: Buffer) => {
      this.#err = (this.#err + chunk.toString()).slice(-20_000);
    });
    await new Promise<void>((resolve, reject) => {
      let out = '';
      child.once('exit', (code, signal) =>
        reject(new Error(`ended before it listened: ${signal ?? code}\n${this.#err}`)),
      );
      child.stdout.on('data', (chunk: Buffer) => {
        out += chunk.toString();
        const line = out.split('\n').find((each) => each.includes('"listening"'));
        if (line === undefined || !out.includes('\n')) return;
        const told = JSON.parse(line) as { shop: string; operator: string };
        this.shop = told.shop;
        this.operator = told.operator;
        resolve();
      });
    });
  }

  /** SIGKILL: no goodbye, no flush. Resolves when it is gone. */
  kill(): Promise<void> {
    return this.#end('SIGKILL');
  }

  /** Gently. */
  stop(): Promise<void> {
    return this.#end('SIGTERM');
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await gone;
  }
}

export function adminTokenIn(dataFolder: string): string {
  return readFileSync(join(dataFolder, 'admin-token'), 'utf8').trim();
}

/** Ports that were free a moment ago, for a server that must come back where it was. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from(
      { length: count },
      () =>
        new Promise<ReturnType<typeof createServer>>((resolve) => {
          const server = createServer();
          server.listen(0, '127.0.0.1', () => resolve(server));
        }),
    ),
  );
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}
