import { join } from 'node:path';
import type { Disk, DiskFile } from './disk.ts';
import { nodeDisk } from './disk.ts';
import {
  JournalCorruptError,
  encodeFileHeader,
  encodeFrame,
  fileHeaderBytes,
  findPromiseBeyond,
  framePayloadMaxBytes,
  readFileHeader,
  readFrames,
} from './frames.ts';

export { JournalCorruptError } from './frames.ts';

/**
 * An append-only log that keeps promises across SIGKILL and, with `fsync: 'always'`, across a power
 * cut.
 *
 * The problem. An answer may go out only when what it says would survive; one fsync per answer would
 * allow a few hundred answers a second. And a log that grows for ever restarts slower every day.
 *
 * Group commit. `append` only puts a record in line. One writer takes everything in line, writes it
 * with one write, calls fdatasync once if anybody waits, and then answers all who waited for records
 * up to there. While the disk works, the next group gathers, so the group grows with the load and
 * the disk's speed never bounds the rate of records, only the delay. Nobody sets a batch time.
 *
 * What an end of file can look like. A frame is only believed whole, with its checksum. A crash may
 * leave a half of the last write, and after a power cut any of its blocks may be missing: such bytes
 * were never promised to anybody, and are cut at the next start. But bytes that *were* promised must
 * never be skipped, or stock comes back from the dead. So every frame states up to which byte its
 * writer had promised by then. If bytes are bad and some whole frame behind them promised past them,
 * then the file was damaged later: an error, with file and offset. Bad bytes in any file but the
 * last are always such an error, since a file is synced before the next one begins.
 *
 * A failed write or fsync poisons the journal for good. The kernel may have dropped the pages it
 * could not write and call them clean, so that a second fsync "succeeds" over lost data; the only
 * honest way on is a new process that reads what is really there.
 *
 * Compaction. `compact` begins a new segment, writes what the caller says the state was at that
 * moment to a temporary file, syncs it, renames it to a snapshot with the segment's number, syncs
 * the folder, and only then deletes older files. At every instant in between, either the old
 * snapshot with all segments or the new one with the newer segments is whole.
 *
 *     00000003.snap        state before segment 3
 *     00000003.log  →  00000004.log  →  …            records since
 */
export interface JournalOptions {
  readonly folder: string;
  /**
   * `always`: durable means fdatasync has returned. `os`: durable means the operating system has the
   * bytes, so that they survive the process but perhaps not the machine.
   */
  readonly fsync: 'always' | 'os';
  /** The newest snapshot's lines in order, in pieces, before any record. */
  readonly onSnapshot?: (lines: readonly string[]) => void;
  /** Every record since that snapshot, in order of appending. A throw stops the opening. */
  readonly onRecord: (record: string) => void;
  /** A segment longer than this, bytes, is followed by a new one. Default 64 MiB. */
  readonly segmentBytes?: number;
  /** For tests that make the disk fail. */
  readonly disk?: Disk;
}

export interface JournalSizes {
  /** Bytes of segments since the newest snapshot: what a restart must replay. */
  readonly logBytes: number;
  readonly snapshotBytes: number;
  readonly segments: number;
  /** Characters in line and not yet written: grows only when the disk is slower than the appends. */
  readonly pendingChars: number;
}

/** Appending or syncing failed, now or earlier; `cause` says how. Only a new process may go on. */
export class JournalFailedError extends Error {
  override readonly name = 'JournalFailedError';
}

interface Waiter {
  readonly target: number;
  readonly promise: Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

const segmentBytesDefault = 64 * 1024 * 1024;
/** Characters per frame, about: a damaged frame loses no more than this, and replay holds no more. */
const frameTargetChars = 1024 * 1024;
/** Characters of snapshot made between two turns of the event loop: well below a millisecond. */
const snapshotSliceChars = 64 * 1024;
const durableNow = Promise.resolve();

export class Journal {
  readonly #disk: Disk;
  readonly #folder: string;
  readonly #always: boolean;
  readonly #segmentBytes: number;

  #file: DiskFile;
  #number: number;
  /** Bytes in the current segment, and how many of them are promised. */
  #size: number;
  #promised: number;
  #nextFrame: number;

  #pending: string[] = [];
  #pendingChars = 0;
  /** How many of `#pending` belong before the new segment that a compaction asked for. */
  #rotateAfter: number | undefined;
  #rotated: { resolve: (number: number) => void; reject: (error: Error) => void } | undefined;

  /** Records appended, written and durable since opening: waiters compare against these. */
  #appended = 0;
  #written = 0;
  #durable = 0;
  readonly #waiters: Waiter[] = [];
  #writer: Promise<void> | undefined;
  #failure: JournalFailedError | undefined;
  #closed = false;

  #compacting: Promise<void> | undefined;
  #stopCompacting = false;
  /** Bytes of finished segments since the newest snapshot, by number. */
  readonly #finished = new Map<number, number>();
  #snapshotBytes: number;

  private constructor(options: JournalOptions, disk: Disk, opened: Opened) {
    this.#disk = disk;
    this.#folder = options.folder;
    this.#always = options.fsync === 'always';
    this.#segmentBytes = options.segmentBytes ?? segmentBytesDefault;
    this.#file = opened.file;
    this.#number = opened.number;
    this.#size = opened.size;
    this.#promised = opened.size;
    this.#nextFrame = opened.nextFrame;
    this.#snapshotBytes = opened.snapshotBytes;
    for (const [number, bytes] of opened.finished) this.#finished.set(number, bytes);
  }

  /**
   * Creates or opens the folder (0700), replays it, cuts a torn tail. The caller guarantees that no
   * other process has it open. Throws JournalCorruptError where promised bytes are damaged.
   */
  static async open(options: JournalOptions): Promise<Journal> {
    const disk = options.disk ?? nodeDisk;
    return new Journal(options, disk, await openFolder(options, disk));
  }

  /**
   * Puts a record in line; the order of calls is the order of replay. Written within this turn of
   * the event loop or the next write, promised only by `durable`. Throws once the journal has failed
   * or is closed, and for a record with a line break or longer than 16 MiB.
   */
  append(record: string): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#closed) throw new Error('The journal is closed');
    if (record.includes('\n'))
      throw new RangeError('A journal record must be one line, found a line break in it');
    // UTF-8 needs at most three bytes per UTF-16 unit.
    if (record.length * 3 > framePayloadMaxBytes)
      throw new RangeError(
        `A journal record has ${record.length} characters, at most ${Math.floor(framePayloadMaxBytes / 3)} allowed`,
      );
    this.#pending.push(record);
    this.#pendingChars += record.length + 1;
    this.#appended += 1;
    this.#wake();
  }

  /** Resolves once everything appended so far is durable. Rejects, for ever, after a failure. */
  durable(): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#durable === this.#appended) return durableNow;
    const last = this.#waiters.at(-1);
    if (last !== undefined && last.target === this.#appended) return last.promise;
    let resolve: () => void = () => undefined;
    let reject: (error: Error) => void = () => undefined;
    const promise = new Promise<void>((yes, no) => {
      resolve = yes;
      reject = no;
    });
    this.#waiters.push({ target: this.#appended, promise, resolve, reject });
    this.#wake();
    return promise;
  }

  /**
   * Replaces everything appended before this call by `lines`, which must describe the state as it is
   * at this call: it is drawn from in slices while appends go on, so the caller keeps it from seeing
   * later changes (or makes replaying a change twice harmless). One at a time. A failure leaves the
   * log as it was and may be tried again, unless the log itself failed.
   */
  compact(lines: Iterable<string>): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#closed) return Promise.reject(new Error('The journal is closed'));
    if (this.#compacting !== undefined)
      return Promise.reject(new Error('A compaction of this journal is already running'));
    const rotated = new Promise<number>((resolve, reject) => {
      this.#rotated = { resolve, reject };
    });
    this.#rotateAfter = this.#pending.length;
    this.#wake();
    const work = this.#writeSnapshot(rotated, lines).finally(() => {
      this.#compacting = undefined;
    });
    this.#compacting = work;
    return work;
  }

  get sizes(): JournalSizes {
    let logBytes = this.#size;
    for (const bytes of this.#finished.values()) logBytes += bytes;
    return {
      logBytes,
      snapshotBytes: this.#snapshotBytes,
      segments: this.#finished.size + 1,
      pendingChars: this.#pendingChars,
    };
  }

  /** As in `sizes`, without adding anything up: asked before every append by who bounds the line. */
  get pendingChars(): number {
    return this.#pendingChars;
  }

  /** Why the journal is poisoned, if it is. Ask before changing any state that will be appended. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Writes and syncs what is in line, stops a running compaction, closes the file. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#stopCompacting = true;
    await this.#compacting?.catch(() => undefined);
    await this.#writer;
    if (this.#failure === undefined && this.#promised < this.#size) await this.#file.sync();
    await this.#file.close();
    if (this.#failure !== undefined) throw this.#failure;
  }

  #wake(): void {
    // A microtask later, so that all appends of this turn share one write.
    this.#writer ??= durableNow.then(() => this.#write());
  }

  async #write(): Promise<void> {
    try {
      while (this.#pending.length > 0 || this.#waiters.length > 0 || this.#rotated !== undefined) {
        if (this.#pending.length > 0) await this.#writePending();
        if (this.#waiters.length > 0) await this.#promise();
        if (this.#rotateAfter === 0 || this.#size > this.#segmentBytes) await this.#rotate();
      }
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#writer = undefined;
    }
  }

  async #writePending(): Promise<void> {
    const cut = this.#rotateAfter ?? this.#pending.length;
    const records = cut === this.#pending.length ? this.#pending : this.#pending.slice(0, cut);
    this.#pending = cut === this.#pending.length ? [] : this.#pending.slice(cut);
    if (this.#rotateAfter !== undefined) this.#rotateAfter = 0;
    if (records.length === 0) return;
    const frames: Buffer[] = [];
    let chars = 0;
    let from = 0;
    for (let at = 0; at < records.length; at += 1) {
      const length = (records[at]?.length ?? 0) + 1;
      if (chars > 0 && chars + length > frameTargetChars) {
        frames.push(encodeFrame(records.slice(from, at), this.#nextFrame++, this.#promised));
        this.#pendingChars -= chars;
        from = at;
        chars = 0;
      }
      chars += length;
    }
    const rest = from === 0 ? records : records.slice(from);
    frames.push(encodeFrame(rest, this.#nextFrame++, this.#promised));
    this.#pendingChars -= chars;
    const first = frames[0];
    const bytes = frames.length === 1 && first !== undefined ? first : Buffer.concat(frames);
    await this.#file.write(bytes, this.#size);
    this.#size += bytes.length;
    this.#written += records.length;
  }

  /** Syncs if the mode asks for it, then answers every waiter whose records are written. */
  async #promise(): Promise<void> {
    const written = this.#written;
    const size = this.#size;
    if (this.#always && this.#promised < size) await this.#file.sync();
    this.#promised = size;
    this.#durable = written;
    let answered = 0;
    for (const waiter of this.#waiters) {
      if (waiter.target > written) break;
      waiter.resolve();
      answered += 1;
    }
    this.#waiters.splice(0, answered);
  }

  async #rotate(): Promise<void> {
    // Synced in either mode: bad bytes in a finished file can then only be damage.
    await this.#file.sync();
    this.#promised = this.#size;
    const number = this.#number + 1;
    const file = await createSegment(this.#disk, this.#folder, number, this.#nextFrame);
    await this.#file.close();
    this.#finished.set(this.#number, this.#size);
    this.#file = file;
    this.#number = number;
    this.#size = fileHeaderBytes;
    this.#promised = fileHeaderBytes;
    if (this.#rotateAfter === 0) {
      this.#rotateAfter = undefined;
      this.#rotated?.resolve(number);
      this.#rotated = undefined;
    }
  }

  #fail(cause: unknown): void {
    const failure = new JournalFailedError(
      `The journal in ${this.#folder} could not be written and takes no more: ` +
        `${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
    this.#failure = failure;
    this.#pending = [];
    this.#pendingChars = 0;
    this.#rotated?.reject(failure);
    this.#rotated = undefined;
    for (const waiter of this.#waiters.splice(0)) waiter.reject(failure);
  }

  async #writeSnapshot(rotated: Promise<number>, lines: Iterable<string>): Promise<void> {
    const number = await rotated;
    const path = join(this.#folder, name(number, 'snap'));
    const temporary = `${path}.tmp`;
    const file = await this.#disk.open(temporary, 'create');
    let size = fileHeaderBytes;
    try {
      await file.write(encodeFileHeader('snapshot', number, 0), 0);
      let sequence = 0;
      let slice: string[] = [];
      let chars = 0;
      const flush = async (): Promise<void> => {
        const frame = encodeFrame(slice, sequence++, 0);
        await file.write(frame, size);
        size += frame.length;
        slice = [];
        chars = 0;
      };
      for (const line of lines) {
        if (line.includes('\n'))
          throw new RangeError('A snapshot line must be one line, found a line break in it');
        slice.push(line);
        chars += line.length + 1;
        if (chars >= snapshotSliceChars) await flush();
        if (this.#stopCompacting) throw new Error('The journal was closed during a compaction');
      }
      if (slice.length > 0) await flush();
      // The closing frame promises everything before it: a snapshot without it is not whole.
      const closing = encodeFrame([''], sequence, size);
      await file.write(closing, size);
      size += closing.length;
      await file.sync();
    } catch (error) {
      await file.close();
      await this.#disk.remove(temporary);
      throw error;
    }
    await file.close();
    await this.#disk.rename(temporary, path);
    await this.#disk.syncFolder(this.#folder);
    this.#snapshotBytes = size;
    await removeOlder(this.#disk, this.#folder, number);
    for (const finished of this.#finished.keys())
      if (finished < number) this.#finished.delete(finished);
  }
}

interface Opened {
  readonly file: DiskFile;
  readonly number: number;
  readonly size: number;
  readonly nextFrame: number;
  readonly snapshotBytes: number;
  readonly finished: ReadonlyMap<number, number>;
}

const name = (number: number, ending: 'log' | 'snap'): string =>
  `${String(number).padStart(8, '0')}.${ending}`;

function numbers(names: readonly string[], ending: 'log' | 'snap'): number[] {
  return names
    .filter((each) => new RegExp(`^\\d{8}\\.${ending}$`).test(each))
    .map((each) => Number.parseInt(each, 10))
    .sort((a, b) => a - b);
}

async function openFolder(options: JournalOptions, disk: Disk): Promise<Opened> {
  const { folder } = options;
  await disk.makeFolder(folder);
  const names = await disk.list(folder);
  for (const each of names) if (each.endsWith('.tmp')) await disk.remove(join(folder, each));
  const snapshot = numbers(names, 'snap').at(-1);
  const segments = numbers(names, 'log').filter((each) => each >= (snapshot ?? 0));
  const first = snapshot ?? 1;

  let snapshotBytes = 0;
  if (snapshot !== undefined)
    snapshotBytes = await replaySnapshot(options, disk, snapshot, options.onSnapshot);
  if (segments.length === 0 && snapshot === undefined) {
    const file = await createSegment(disk, folder, 1, 0);
    return {
      file,
      number: 1,
      size: fileHeaderBytes,
      nextFrame: 0,
      snapshotBytes,
      finished: new Map(),
    };
  }

  const finished = new Map<number, number>();
  let nextFrame: number | undefined;
  const last = segments.at(-1) ?? first;
  for (let number = first; ; number += 1) {
    const path = join(folder, name(number, 'log'));
    if (!segments.includes(number))
      throw new JournalCorruptError(path, 0, 'this segment is missing');
    const replayed = await replaySegment(options, disk, path, number, nextFrame, number === last);
    nextFrame = replayed.nextFrame;
    if (number < last) {
      finished.set(number, replayed.end);
      continue;
    }
    const file = await disk.open(path, 'write');
    if (replayed.end < file.size) await file.truncate(replayed.end);
    // What was replayed is about to be believed; it may have been written and never synced.
    await file.sync();
    await disk.syncFolder(folder);
    await removeOlder(disk, folder, first);
    return { file, number, size: replayed.end, nextFrame, snapshotBytes, finished };
  }
}

async function replaySnapshot(
  options: JournalOptions,
  disk: Disk,
  number: number,
  onSnapshot: JournalOptions['onSnapshot'],
): Promise<number> {
  const path = join(options.folder, name(number, 'snap'));
  if (onSnapshot === undefined)
    throw new Error(`${path} is a snapshot, and nobody reads snapshots here (no onSnapshot)`);
  const file = await disk.open(path, 'read');
  try {
    await readFileHeader(file, path, 'snapshot', number);
    let end = fileHeaderBytes;
    let closed = false;
    let sequence = 0;
    for await (const item of readFrames(file, fileHeaderBytes)) {
      if (item.kind === 'bad') throw new JournalCorruptError(path, item.offset, item.reason);
      if (closed || item.sequence !== sequence)
        throw new JournalCorruptError(path, end, `frame ${item.sequence}, expected ${sequence}`);
      sequence += 1;
      // Only the closing frame promises anything.
      if (item.promised > 0) closed = true;
      else onSnapshot(item.payload.split('\n'));
      end = item.end;
    }
    if (!closed) throw new JournalCorruptError(path, end, 'the snapshot ends too early');
    return end;
  } finally {
    await file.close();
  }
}

async function replaySegment(
  options: JournalOptions,
  disk: Disk,
  path: string,
  number: number,
  expectedFrame: number | undefined,
  isLast: boolean,
): Promise<{ readonly nextFrame: number; readonly end: number }> {
  const file = await disk.open(path, 'read');
  try {
    let nextFrame = await readFileHeader(file, path, 'log', number);
    if (expectedFrame !== undefined && nextFrame !== expectedFrame)
      throw new JournalCorruptError(
        path,
        16,
        `begins with frame ${nextFrame}, but the segment before it ends at ${expectedFrame}`,
      );
    let end = fileHeaderBytes;
    for await (const item of readFrames(file, fileHeaderBytes)) {
      if (item.kind === 'bad') {
        if (!isLast) throw new JournalCorruptError(path, item.offset, item.reason);
        const witness = await findPromiseBeyond(file, item.offset);
        if (witness !== undefined)
          throw new JournalCorruptError(
            path,
            item.offset,
            `${item.reason}; a later frame at byte ${witness} shows that this was once whole`,
          );
        break;
      }
      if (item.sequence !== nextFrame)
        throw new JournalCorruptError(path, end, `frame ${item.sequence}, expected ${nextFrame}`);
      nextFrame += 1;
      for (const record of item.payload.split('\n')) options.onRecord(record);
      end = item.end;
    }
    return { nextFrame, end };
  } finally {
    await file.close();
  }
}

/** Under a temporary name first, so that a segment's header is never torn. */
async function createSegment(
  disk: Disk,
  folder: string,
  number: number,
  firstFrame: number,
): Promise<DiskFile> {
  const path = join(folder, name(number, 'log'));
  const file = await disk.open(`${path}.tmp`, 'create');
  await file.write(encodeFileHeader('log', number, firstFrame), 0);
  await file.sync();
  await disk.rename(`${path}.tmp`, path);
  await disk.syncFolder(folder);
  return file;
}

/** Deletes what snapshot `number` replaces. Dying in between leaves files that the next start deletes. */
async function removeOlder(disk: Disk, folder: string, number: number): Promise<void> {
  const names = await disk.list(folder);
  for (const ending of ['log', 'snap'] as const)
    for (const each of numbers(names, ending))
      if (each < number) await disk.remove(join(folder, name(each, ending)));
}
