import {
  chmodSync,
  closeSync,
  constants,
  mkdirSync,
  openSync,
  realpathSync,
  statSync,
} from 'node:fs';
import { link, readdir, unlink } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import type { Random } from '../ports/random.ts';

/**
 * A data folder belongs to one process at a time, and to nobody the moment that process is gone.
 *
 * The problem. Two servers on one folder destroy it, and a lock that outlives a SIGKILL stops the
 * restart that was to save the day. Node offers no flock. A file with a pid in it goes stale, pids
 * are reused, and in other containers they mean nothing; deleting a stale file races with the next
 * starter who has just replaced it.
 *
 * The idea. A listening unix socket is open exactly as long as its process lives: the kernel refuses
 * connections to it the instant the process is gone, however it went. So a lock is a socket file,
 * and "does the holder live?" is a connect. Against races, locks are numbered and numbers are never
 * used again:
 *
 *     1  listen on a socket with a name of one's own
 *     2  find the highest numbered lock; if it answers, the folder is taken
 *     3  link one's socket as the next number: link(2) is atomic, one of many starters gets it
 *     4  whoever did not, goes to 2; whoever did but sees a higher one by now, withdraws
 *     5  remove lower numbers; the highest file stays for ever, alive or not
 *
 * Two holders cannot be. Take a holder X of number x, and Y who takes y > x later. Y took y because
 * it found the lock y − 1 dead. If y − 1 = x, X was dead, since X listened before it linked and to
 * its end. If y − 1 > x, whoever held y − 1 had found its predecessor dead, and so on down to x. And
 * a number below the highest is worth nothing to whoever links it, by step 4, because the highest
 * file never goes away.
 */
export interface DataFolder {
  /** Absolute, without symbolic links. */
  readonly path: string;
  /** Gives the lock back; the folder stays. Idempotent. */
  release(): Promise<void>;
}

export interface DataFolderOptions {
  readonly path: string;
  readonly random: Random;
  /** What another command is told to talk to instead, such as `http://127.0.0.1:9090`. */
  readonly adminUrl?: string;
}

/** Another living process holds the folder. */
export class DataFolderLockedError extends Error {
  override readonly name = 'DataFolderLockedError';
  /** Undefined where the holder did not say in time (stopped, or very busy). */
  readonly pid: number | undefined;
  readonly adminUrl: string | undefined;

  constructor(path: string, holder: Holder) {
    const who =
      holder.pid === undefined
        ? 'another process that does not answer (stopped?)'
        : `the running server with process id ${holder.pid}`;
    const where =
      holder.adminUrl === undefined ? 'its admin API' : `its admin API at ${holder.adminUrl}`;
    super(
      `The data folder ${path} is in use by ${who}. Only one process may open it, even to read: ` +
        `a second one would damage it. Use ${where}, stop that server, or choose another folder with --data.`,
    );
    this.pid = holder.pid;
    this.adminUrl = holder.adminUrl;
  }
}

interface Holder {
  readonly pid: number | undefined;
  readonly adminUrl: string | undefined;
}

/** How long a living holder may take to say who it is, ms; it is known to live from the connect on. */
const introductionMs = 1_000;
/** Bytes of a socket's path that every system takes. */
const socketPathMaxBytes = 100;
/** Rounds of losing the race before giving up: each means that another starter got further. */
const roundsMax = 100;

/**
 * Creates the folder (0700) or opens it, and takes its lock. Throws DataFolderLockedError where a
 * living process has it. A lock left behind by a killed process stops nobody.
 */
export async function openDataFolder(options: DataFolderOptions): Promise<DataFolder> {
  mkdirSync(options.path, { recursive: true, mode: 0o700 });
  const path = realpathSync(options.path);
  // Someone may have made it for us with a wider mode; what is inside is for the owner alone.
  if ((statSync(path).mode & 0o077) !== 0) chmodSync(path, 0o700);
  const short = shortName(path);
  const own = `lock-${Buffer.from(options.random.bytes(9)).toString('base64url')}.sock`;
  try {
    const listener = await listen(join(short.path, own), options.adminUrl);
    try {
      const number = await take(path, short.path, own);
      await unlink(join(path, own));
      await removeLower(path, number);
    } catch (error) {
      await listener.close();
      await unlink(join(path, own)).catch(ignoreMissing);
      throw error;
    }
    let released: Promise<void> | undefined;
    return { path, release: () => (released ??= listener.close()) };
  } finally {
    short.close();
  }
}

async function take(path: string, short: string, own: string): Promise<number> {
  for (let round = 0; round < roundsMax; round += 1) {
    const highest = (await lockNumbers(path)).at(-1) ?? 0;
    if (highest > 0) {
      const holder = await introduce(join(short, lockName(highest)));
      if (holder !== undefined) throw new DataFolderLockedError(path, holder);
    }
    const number = highest + 1;
    try {
      await link(join(path, own), join(path, lockName(number)));
    } catch (error) {
      if (codeOf(error) === 'EEXIST') continue;
      throw error;
    }
    if ((await lockNumbers(path)).at(-1) === number) return number;
    // Somebody was further already: this number decides nothing.
    await unlink(join(path, lockName(number))).catch(ignoreMissing);
  }
  throw new Error(
    `The lock of ${path} changed hands ${roundsMax} times while this process tried to take it`,
  );
}

const lockName = (number: number): string => `lock.${String(number).padStart(8, '0')}`;

async function lockNumbers(path: string): Promise<number[]> {
  return (await readdir(path))
    .filter((name) => /^lock\.\d{8}$/.test(name))
    .map((name) => Number.parseInt(name.slice(5), 10))
    .sort((a, b) => a - b);
}

async function removeLower(path: string, number: number): Promise<void> {
  for (const name of await readdir(path)) {
    const lower = /^lock\.\d{8}$/.test(name) && Number.parseInt(name.slice(5), 10) < number;
    if (lower) await unlink(join(path, name)).catch(ignoreMissing);
  }
}

/** Listens and says who we are to whoever connects. Does not keep the process alive. */
function listen(socketPath: string, adminUrl: string | undefined): Promise<Listener> {
  const introduction = `${JSON.stringify({ pid: process.pid, adminUrl })}\n`;
  const askers = new Set<Socket>();
  const server = createServer((socket) => {
    askers.add(socket);
    socket.on('close', () => askers.delete(socket));
    // Whoever asks may be gone again before the answer; that is no concern of the holder.
    socket.on('error', () => socket.destroy());
    socket.end(introduction);
  });
  server.maxConnections = 64;
  server.unref();
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      // An asker who never hangs up must not keep the lock.
      for (const asker of askers) asker.destroy();
    });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(socketPath, () => {
      server.removeListener('error', reject);
      resolve({ close });
    });
  });
}

interface Listener {
  close(): Promise<void>;
}

/** Who listens there; undefined where nobody lives. Any doubt counts as living. */
function introduce(socketPath: string): Promise<Holder | undefined> {
  return new Promise((resolve) => {
    let text = '';
    const unknown: Holder = { pid: undefined, adminUrl: undefined };
    const socket = connect(socketPath);
    const finish = (holder: Holder | undefined): void => {
      socket.destroy();
      resolve(holder);
    };
    socket.setTimeout(introductionMs, () => finish(unknown));
    socket.setEncoding('utf8');
    socket.on('data', (some: string) => {
      text += some;
      if (text.length > 4096) finish(unknown);
    });
    socket.on('end', () => finish(parseIntroduction(text) ?? unknown));
    socket.on('error', (error) => {
      const code = codeOf(error);
      finish(code === 'ECONNREFUSED' || code === 'ENOENT' ? undefined : unknown);
    });
  });
}

function parseIntroduction(text: string): Holder | undefined {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    // It listens, so it lives; it only does not speak our language.
    return undefined;
  }
  if (typeof said !== 'object' || said === null) return undefined;
  return {
    pid: 'pid' in said && typeof said.pid === 'number' ? said.pid : undefined,
    adminUrl: 'adminUrl' in said && typeof said.adminUrl === 'string' ? said.adminUrl : undefined,
  };
}

/**
 * A path to the same folder that is short enough for a socket's address (about 100 bytes). On Linux
 * an open folder has one under /proc.
 */
function shortName(path: string): { readonly path: string; close(): void } {
  const longest = Buffer.byteLength(join(path, 'lock-0123456789ab.sock'));
  if (longest <= socketPathMaxBytes) return { path, close: () => undefined };
  if (process.platform !== 'linux')
    throw new Error(
      `The path of the data folder ${path} is too long for its lock: ${longest} bytes with the ` +
        `lock's name, at most ${socketPathMaxBytes} here. Choose a shorter path.`,
    );
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
  return { path: `/proc/self/fd/${descriptor}`, close: () => closeSync(descriptor) };
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

function ignoreMissing(error: unknown): void {
  if (codeOf(error) !== 'ENOENT') throw error;
}
