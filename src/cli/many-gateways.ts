import cluster, { type Worker } from 'node:cluster';
import type { Timers } from '../ports/clock.ts';
import { UnavailableError } from '../ports/errors.ts';
import type { RunningServer, ServerUrls } from './up-command.ts';

/**
 * Several gateway processes behind one port: this process holds the port and serves nobody; the others
 * take turns at the connections. One that dies is replaced, since the port, and everybody who waits
 * behind it, must not go with it.
 *
 * Node's cluster module, and not SO_REUSEPORT: the oldest Node that is supported cannot ask for the
 * latter, and the kernel's hash would leave the connections of a dead process's queue unanswered.
 */

/** Until a process that died is replaced, ms: doubled with each death in a row, from first to most. */
const replaceFirstMs = 100;
const replaceMostMs = 5_000;
/** A process that served for so long had started well, ms. */
const startedWellMs = 10_000;

/** Resolves once all of them listen; rejects when one ends before. */
export async function serveMany(
  count: number,
  timers: Timers,
  say: (text: string) => void,
): Promise<RunningServer> {
  let closing = false;
  const live = new Set<Worker>();

  const fork = (): Promise<ServerUrls> =>
    new Promise((resolve, reject) => {
      const worker = cluster.fork();
      live.add(worker);
      worker.on('message', (message: unknown) => {
        const urls = urlsOf(message);
        if (urls !== undefined) resolve(urls);
      });
      worker.once('exit', (code, signal) => {
        live.delete(worker);
        const how = signal ?? `exit code ${code}`;
        reject(new UnavailableError(`a gateway process ended before it listened (${how})`));
      });
    });

  const keepAlive = async (waitMs: number): Promise<void> => {
    if (closing) return;
    const before = new Set(live);
    try {
      await fork();
    } catch (error) {
      say(`${error instanceof Error ? error.message : String(error)}\n`);
      again(Math.min(replaceMostMs, waitMs * 2));
      return;
    }
    for (const worker of live) if (!before.has(worker)) watch(worker, waitMs);
  };

  const again = (waitMs: number): void => {
    if (!closing) timers.after(waitMs, () => void keepAlive(waitMs));
  };

  const watch = (worker: Worker, waitMs: number): void => {
    let well = false;
    const timer = timers.after(startedWellMs, () => {
      well = true;
    });
    worker.once('exit', (code, signal) => {
      timer.cancel();
      if (closing) return;
      say(
        `gateway process ${worker.process.pid} ended (${signal ?? `exit code ${code}`}); another takes its place\n`,
      );
      again(well ? replaceFirstMs : Math.min(replaceMostMs, waitMs * 2));
    });
  };

  const first = await Promise.all(Array.from({ length: count }, fork)).catch((error: unknown) => {
    for (const worker of live) worker.process.kill('SIGTERM');
    throw error;
  });
  for (const worker of live) watch(worker, replaceFirstMs);
  const shop = first.find((urls) => urls.shop !== undefined)?.shop;
  return {
    urls: shop === undefined ? {} : { shop },
    async close() {
      closing = true;
      const gone = [...live].map(
        (worker) => new Promise<void>((resolve) => void worker.once('exit', () => resolve())),
      );
      for (const worker of live) worker.process.kill('SIGTERM');
      await Promise.all(gone);
    },
  };
}

function urlsOf(message: unknown): ServerUrls | undefined {
  if (typeof message !== 'object' || message === null || !('listening' in message))
    return undefined;
  return message.listening as ServerUrls;
}
