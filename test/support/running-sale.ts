import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** The real command as a process of its own, on free ports and a fresh data folder. */
export interface RunningSale {
  readonly shop: string;
  readonly operator: string;
  /** The one-time link that the start printed. */
  readonly signIn: string;
  readonly child: ChildProcess;
  /** Stops it gently, removes its folder, and answers its exit code. */
  stop(): Promise<number | null>;
}

const main = join(import.meta.dirname, '../../dist/main.js');
const example = join(import.meta.dirname, '../../examples/concert.yaml');

/** Starts `sluice up` with the example's sale. Rejects with what it printed when it does not come up. */
export async function startSale(...flags: readonly string[]): Promise<RunningSale> {
  const data = mkdtempSync(join(tmpdir(), 'sluice-sale-'));
  const places = ['--port', '0', '--admin-port', '0', '--data', data, '--json'];
  const child = spawn(process.execPath, [main, 'up', '--config', example, ...places, ...flags], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let printed = '';
  const keep = (part: Buffer): void => {
    printed = (printed + part.toString()).slice(-8_000);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  const ended = once(child, 'exit');
  const line = await Promise.race([
    (async () => {
      for await (const text of createInterface(child.stdout))
        if (text.includes('"listening"') && text.includes('"shop"')) return text;
      return undefined;
    })(),
    ended.then(() => undefined),
  ]);
  if (line === undefined) {
    rmSync(data, { recursive: true, force: true });
    throw new Error(`sluice up did not come up:\n${printed}`);
  }
  const urls = JSON.parse(line) as { shop: string; operator: string; sign_in: string };
  child.stdout.resume();
  return {
    shop: urls.shop,
    operator: urls.operator,
    signIn: urls.sign_in,
    child,
    async stop() {
      child.kill('SIGTERM');
      const [code] = (await ended) as [number | null];
      rmSync(data, { recursive: true, force: true });
      return code;
    },
  };
}
