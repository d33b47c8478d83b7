/**
 * Folders and threads of the embedded database: how one is made, and how one is opened.
 *
 * A new folder is made beside its final place by a thread that then ends, and renamed when it is
 * whole: a process killed in the middle leaves no half-made database, and what making one takes of
 * memory is not kept.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, rmdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { Timers } from '../../ports/clock.ts';
import { UnavailableError } from '../../ports/errors.ts';
import { findTemplate, templatePath } from './database-template.ts';
import { syncPath } from './folder.ts';
import type { Fsync, ThreadSettings } from './pglite-protocol.ts';

export interface OpenLimits {
  readonly timers: Timers;
  /** Longest wait for a thread to be ready. Default 60,000 ms. */
  readonly openMs?: number;
}

/** Makes the database in `folder` unless there is one. Throws UnavailableError when that fails. */
export async function ensureFolder(
  folder: string,
  fsync: Fsync,
  limits: OpenLimits,
): Promise<void> {
  if (!existsSync(join(folder, 'PG_VERSION'))) await makeFolder(folder, fsync, limits);
}

/**
 * A thread that serves the database in `folder`. Throws UnavailableError when it does not open, and
 * where there is none: a folder that has vanished is never quietly replaced by an empty one.
 */
export function serveFolder(folder: string, fsync: Fsync, limits: OpenLimits): Promise<Worker> {
  return startThread({ mode: 'serve', folder, fsync }, limits);
}

async function makeFolder(folder: string, fsync: Fsync, limits: OpenLimits): Promise<void> {
  const found = existsSync(folder) ? readdirSync(folder) : [];
  if (found.length > 0) {
    throw new Error(
      `${folder} is no database folder: found ${found.slice(0, 3).join(', ')}; allowed: an absent or empty folder, or one that this program made`,
    );
  }
  mkdirSync(dirname(folder), { recursive: true });
  const half = `${folder}.initdb`;
  rmSync(half, { recursive: true, force: true });
  const template = findTemplate();
  await runThread({ mode: 'init', folder: half, fsync, template }, limits);
  if (existsSync(folder)) rmdirSync(folder);
  renameSync(half, folder);
  // The new name must outlast a power cut before anything is promised in it: under its old name the
  // next start would take it for half made.
  if (fsync === 'disk') syncPath(dirname(folder));
}

/** Writes the template of new databases for this version, unless it is there. For the build. */
export async function writeTemplate(timers: Timers): Promise<void> {
  const file = templatePath();
  if (!existsSync(file)) await runThread({ mode: 'template', file }, { timers });
}

/** Runs a thread that does one thing and ends. */
async function runThread(settings: ThreadSettings, limits: OpenLimits): Promise<void> {
  const thread = await startThread(settings, limits);
  await new Promise<void>((ended) => {
    thread.once('exit', () => ended());
  });
}

/**
 * From `dist/` the thread is a .js file. From a checkout (tests, benchmarks) it is a .ts file, which
 * Node 20 cannot start a thread with: a line of script registers tsx there first.
 */
function makeThread(settings: ThreadSettings): Worker {
  const options = { workerData: settings, name: 'pglite', execArgv: [] };
  if (!import.meta.url.endsWith('.ts')) {
    return new Worker(new URL('./pglite-thread.js', import.meta.url), options);
  }
  const entry = new URL('./pglite-thread.ts', import.meta.url).href;
  const script = `import('tsx/esm/api').then((tsx) => { tsx.register(); return import('${entry}'); });`;
  return new Worker(script, { ...options, eval: true });
}

function startThread(settings: ThreadSettings, limits: OpenLimits): Promise<Worker> {
  const what = settings.mode === 'template' ? settings.file : settings.folder;
  const thread = makeThread(settings);
  return new Promise((opened, failed) => {
    const openMs = limits.openMs ?? 60_000;
    const fail = (why: string): void => {
      stopListening();
      // Its own failure has been told; a second one while ending says nothing new.
      thread.on('error', () => undefined);
      void thread.terminate();
      failed(new UnavailableError(`database ${what} did not open: ${why}`));
    };
    const onError = (error: unknown): void => fail(reasonOf(error));
    const onExit = (code: number): void => fail(`its thread ended with code ${code}`);
    const onReady = (): void => {
      stopListening();
      opened(thread);
    };
    const timer = limits.timers.after(openMs, () => fail(`no answer within ${openMs} ms`));
    // One by one: a Worker keeps listeners of its own, without which it stops delivering.
    const stopListening = (): void => {
      timer.cancel();
      thread.off('error', onError);
      thread.off('exit', onExit);
      thread.off('message', onReady);
    };
    thread.on('error', onError);
    thread.on('exit', onExit);
    thread.on('message', onReady);
  });
}

/** WASI's number for a full disk: the database's file system throws bare numbers, not errors. */
const wasiNoSpace = 51;

/** What a thread died of, in words, whatever it threw. */
export function reasonOf(error: unknown): string {
  if (error instanceof Error) return error.message;
  if (typeof error !== 'object' || error === null) return String(error);
  if ('errno' in error && error.errno === wasiNoSpace) return 'no space left on the device';
  return JSON.stringify(error).slice(0, 200);
}
