import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

/** A server in a process of its own that obeys orders over IPC, one at a time, each with one reply. */
export class ServerProcess<Order extends object> {
  readonly #child: ChildProcess;
  /** Settled once no order is out. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(program: string) {
    this.#child = fork(program, { execArgv: [] });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Replies carry no name: an order goes out once the one before it has its reply. */
  ask<Reply>(order: Order): Promise<Reply> {
    const reply = this.#turn.then(() => this.#askNow<Reply>(order));
    this.#turn = reply.catch(() => undefined);
    return reply;
  }

  #askNow<Reply>(order: Order): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#child.once('exit', () => reject(new Error('the server process ended')));
      this.#child.once('message', (reply) => {
        this.#child.removeAllListeners('exit');
        resolve(reply as Reply);
      });
      this.#child.send(order);
    });
  }

  stop(order: Order): Promise<void> {
    return new Promise((resolve) => {
      this.#child.once('exit', () => resolve());
      this.#child.send(order);
    });
  }
}

/**
 * A program of `bench/support` as plain JavaScript in one file, as a build makes it: a loader that
 * compiles on the fly adds code of its own to every function, and would be measured too.
 */
export async function bundled(name: string, folder: string): Promise<string> {
  const outfile = join(folder, `${name}.mjs`);
  await build({
    entryPoints: [fileURLToPath(new URL(`./${name}.ts`, import.meta.url))],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    // Some dependencies are CommonJS, and ask for what an ES module does not have.
    banner: {
      js: "import { createRequire as makeRequire } from 'node:module'; const require = makeRequire(import.meta.url);",
    },
    logLevel: 'warning',
  });
  return outfile;
}
