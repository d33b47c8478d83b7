/**
 * The thread that owns PGlite. PostgreSQL compiled to WebAssembly runs synchronously: a checkpoint, a
 * large statement or the start itself stalls the event loop it lives on, sometimes for a second. Here
 * that loop is nobody else's.
 *
 * One connection, statements strictly one after another, in the order in which they came.
 */
import { existsSync, fdatasyncSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { PGlite } from '@electric-sql/pglite';
import { NodeFS } from '@electric-sql/pglite/nodefs';
import type { SqlErrorFields } from './errors.ts';
import { syncFolder } from './folder.ts';
import type { FromThread, ThreadSettings, ToThread } from './pglite-protocol.ts';

/**
 * What PGlite starts PostgreSQL with, less its `-F` (no fsync), which is our choice to make. Small
 * shared buffers: the operating system caches the files already, and every page counts twice here.
 */
const startParams = [
  '--single',
  '-O',
  '-j',
  ...[
    'search_path=public',
    'exit_on_error=false',
    'log_checkpoints=false',
    'max_worker_processes=0',
    'max_parallel_workers=0',
    'max_parallel_workers_per_gather=0',
    'max_parallel_maintenance_workers=0',
    'io_method=sync',
    'shared_buffers=16MB',
    'max_wal_size=64MB',
    // Emscripten's fdatasync does nothing at all; its fsync asks the file system below.
    'wal_sync_method=fsync',
  ].flatMap((setting) => ['-c', setting]),
];

/** Small WAL segments keep a fresh data folder small. */
const initDbStartParams = ['--wal-segsize=1'];

interface NodeFileSystem {
  stream_ops: { fsync?: (stream: { nfd?: number }) => number };
}

/** Set once the disk has refused to keep something: what is in memory is not to be believed. */
let diskFailure: unknown;

/** Files of the host, with an fsync that reaches the disk: Emscripten's own has none. */
class SyncedNodeFs extends NodeFS {
  override async init(...[pg, options]: Parameters<NodeFS['init']>): ReturnType<NodeFS['init']> {
    const made = await super.init(pg, options);
    const preRun = made.emscriptenOpts.preRun ?? [];
    preRun.push((module) => {
      const nodeFs = module.NODEFS as unknown as NodeFileSystem;
      nodeFs.stream_ops.fsync = (stream) => {
        try {
          if (stream.nfd !== undefined) fdatasyncSync(stream.nfd);
        } catch (error) {
          diskFailure = error;
          throw error;
        }
        return 0;
      };
    });
    return { emscriptenOpts: { ...made.emscriptenOpts, preRun } };
  }
}

function fieldsOf(error: unknown): SqlErrorFields {
  if (!(error instanceof Error)) return { message: String(error) };
  const source = error as Error & { code?: unknown; constraint?: unknown; detail?: unknown };
  return {
    message: error.message,
    ...(typeof source.code === 'string' ? { code: source.code } : {}),
    ...(typeof source.constraint === 'string' ? { constraint: source.constraint } : {}),
    ...(typeof source.detail === 'string' ? { detail: source.detail } : {}),
  };
}

/** PGlite leaves handles behind that would keep the thread; here `exit` ends the thread alone. */
function endThread(): never {
  process.exit(0);
}

/** A WebAssembly trap; its class has no name in the types that this project sees. */
function isTrap(error: unknown): boolean {
  return error instanceof Error && error.name === 'RuntimeError';
}

async function makeFolder(
  folder: string,
  durable: boolean,
  template: string | undefined,
): Promise<void> {
  const database = await PGlite.create({
    fs: new SyncedNodeFs(folder),
    // The folder is brought to the disk as a whole, once it is made.
    startParams: [...startParams, '-F'],
    initDbStartParams,
    ...(template === undefined
      ? {}
      : { loadDataDir: new Blob([readFileSync(template)], { type: 'application/gzip' }) }),
  });
  await database.close();
  if (durable) syncFolder(folder);
}

async function makeTemplate(file: string): Promise<void> {
  const database = await PGlite.create({ startParams: [...startParams, '-F'], initDbStartParams });
  const packed = await database.dumpDataDir('gzip');
  const half = `${file}.${process.pid}`;
  writeFileSync(half, Buffer.from(await packed.arrayBuffer()));
  renameSync(half, file);
}

async function serve(port: MessagePort, folder: string, durable: boolean): Promise<void> {
  const tell = (message: FromThread): void => port.postMessage(message);
  // PGlite would make one.
  if (!existsSync(join(folder, 'PG_VERSION'))) throw new Error(`no database in ${folder}`);
  const database = await PGlite.create({
    fs: new SyncedNodeFs(folder),
    startParams: durable ? startParams : [...startParams, '-F'],
  });

  let line: Promise<void> = Promise.resolve();
  const run = async (message: ToThread): Promise<void> => {
    if (message.kind === 'close') {
      await database.close();
      endThread();
    }
    try {
      if (message.values === undefined) {
        const results = await database.exec(message.text);
        const last = results.at(-1);
        const rows = (last?.rows ?? []) as object[];
        tell({ kind: 'rows', id: message.id, rows, tag: last?.command ?? '' });
      } else {
        const result = await database.query<object>(message.text, message.values);
        tell({ kind: 'rows', id: message.id, rows: result.rows, tag: result.command ?? '' });
      }
    } catch (error) {
      // A trap or a failed fsync leaves PostgreSQL's memory in no known state: the thread dies of it,
      // as the real server would, and the next start recovers from the log.
      if (diskFailure !== undefined || isTrap(error)) throw error;
      tell({ kind: 'error', id: message.id, error: fieldsOf(error) });
    }
  };
  port.on('message', (message: ToThread) => {
    line = line.then(() => run(message));
    line.catch((error: unknown) => {
      throw error;
    });
  });
  tell({ kind: 'ready' });
}

async function main(port: MessagePort, settings: ThreadSettings): Promise<void> {
  switch (settings.mode) {
    case 'serve':
      return serve(port, settings.folder, settings.fsync === 'disk');
    case 'init':
      await makeFolder(settings.folder, settings.fsync === 'disk', settings.template);
      break;
    case 'template':
      await makeTemplate(settings.file);
      break;
  }
  port.postMessage({ kind: 'ready' } satisfies FromThread);
  return endThread();
}

if (parentPort === null) throw new Error('pglite-thread.ts runs only as a worker thread');
await main(parentPort, workerData as ThreadSettings);
