import { crc32 } from 'node:zlib';
import type { DiskFile } from './disk.ts';

/**
 * How records lie in a file: a file header, then frames. One frame carries a group of records.
 *
 *   file header, 32 bytes                      frame header, 24 bytes
 *   0  magic    8  "SLUICEJ" and version       0  magic     4  FF F5 'S' 'J'
 *   8  kind     4  1 log, 2 snapshot           4  length    4  bytes of payload
 *   12 number   4  of the segment              8  sequence  6  of the frame, gapless over segments
 *   16 sequence 6  of its first frame          14 promised  6  bytes before this are promised
 *   22 unused   6  zero                        20 crc       4  CRC-32 of bytes 4–19 and payload
 *   28 crc      4  CRC-32 of bytes 0–27        24 payload      UTF-8, records divided by \n
 *
 * All numbers are little-endian. `FF` and `F5` cannot occur in UTF-8, so no payload, whoever wrote
 * it, can look like the start of a frame.
 */
export const fileHeaderBytes = 32;
export const frameHeaderBytes = 24;

/** Bytes of one frame's payload. A reader believes no longer length, so a damaged one costs no memory. */
export const framePayloadMaxBytes = 16 * 1024 * 1024;

const fileMagic = Buffer.from('SLUICEJ\u0001', 'latin1');
const frameMagic = Buffer.from([0xff, 0xf5, 0x53, 0x4a]);

export type FileKind = 'log' | 'snapshot';
const kinds: Readonly<Record<FileKind, number>> = { log: 1, snapshot: 2 };

/** The log on disk is not what was promised. Never repaired by itself: a human decides. */
export class JournalCorruptError extends Error {
  override readonly name = 'JournalCorruptError';
  readonly file: string;
  readonly offset: number;

  constructor(file: string, offset: number, found: string) {
    super(
      `Journal damaged: ${file}, byte ${offset}: ${found}. Nothing was changed. ` +
        'Restore its folder from a copy, or move the folder away and start again: stock is then ' +
        'rebuilt from the orders, without the reservations that were no order yet; a room begins anew.',
    );
    this.file = file;
    this.offset = offset;
  }
}

export function encodeFileHeader(kind: FileKind, number: number, firstSequence: number): Buffer {
  const header = Buffer.alloc(fileHeaderBytes);
  fileMagic.copy(header);
  header.writeUInt32LE(kinds[kind], 8);
  header.writeUInt32LE(number, 12);
  header.writeUIntLE(firstSequence, 16, 6);
  header.writeUInt32LE(crc32(header.subarray(0, 28)), 28);
  return header;
}

/** Reads and checks a file's header; throws JournalCorruptError. Returns its first sequence. */
export async function readFileHeader(
  file: DiskFile,
  path: string,
  kind: FileKind,
  number: number,
): Promise<number> {
  const header = Buffer.alloc(fileHeaderBytes);
  const count = await file.read(header, 0);
  if (count < fileHeaderBytes)
    throw new JournalCorruptError(path, 0, `a header of ${count} bytes, not ${fileHeaderBytes}`);
  if (!header.subarray(0, 8).equals(fileMagic))
    throw new JournalCorruptError(path, 0, 'not a journal of this version (magic does not match)');
  if (crc32(header.subarray(0, 28)) !== header.readUInt32LE(28))
    throw new JournalCorruptError(path, 0, 'checksum of the file header does not match');
  if (header.readUInt32LE(8) !== kinds[kind] || header.readUInt32LE(12) !== number)
    throw new JournalCorruptError(
      path,
      8,
      `this is kind ${header.readUInt32LE(8)} number ${header.readUInt32LE(12)}, ` +
        `not kind ${kinds[kind]} (${kind}) number ${number}: a file was renamed`,
    );
  return header.readUIntLE(16, 6);
}

/** One frame. The caller has bounded the payload and kept `\n` out of the records. */
export function encodeFrame(
  records: readonly string[],
  sequence: number,
  promised: number,
): Buffer {
  const text = records.join('\n');
  const length = Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(frameHeaderBytes + length);
  frameMagic.copy(frame);
  frame.writeUInt32LE(length, 4);
  frame.writeUIntLE(sequence, 8, 6);
  frame.writeUIntLE(promised, 14, 6);
  frame.write(text, frameHeaderBytes);
  const checksum = crc32(frame.subarray(frameHeaderBytes), crc32(frame.subarray(4, 20)));
  frame.writeUInt32LE(checksum, 20);
  return frame;
}

export type ReadItem =
  | {
      readonly kind: 'frame';
      readonly sequence: number;
      readonly promised: number;
      readonly payload: string;
      /** Where the next frame begins. */
      readonly end: number;
    }
  /** Bytes that are no whole frame, and why; nothing follows. */
  | { readonly kind: 'bad'; readonly offset: number; readonly reason: string };

/** Frames from `start` to the end of the file or to the first bytes that are none. Bounded memory. */
export async function* readFrames(file: DiskFile, start: number): AsyncGenerator<ReadItem> {
  const window = new Window(file);
  let offset = start;
  for (;;) {
    const header = await window.take(offset, frameHeaderBytes);
    if (header.length === 0) return;
    const judged = judgeHeader(header);
    if (typeof judged === 'string') {
      yield { kind: 'bad', offset, reason: judged };
      return;
    }
    const whole = await window.take(offset, frameHeaderBytes + judged.length);
    const reason = judgeBody(whole, judged.length);
    if (reason !== undefined) {
      yield { kind: 'bad', offset, reason };
      return;
    }
    offset += whole.length;
    yield {
      kind: 'frame',
      sequence: whole.readUIntLE(8, 6),
      promised: whole.readUIntLE(14, 6),
      payload: whole.toString('utf8', frameHeaderBytes),
      end: offset,
    };
  }
}

/**
 * Looks behind bad bytes at `bad` for a whole frame that promised bytes past `bad`: proof that the
 * bad bytes were once good. Returns where that frame stands. O(rest of the file).
 */
export async function findPromiseBeyond(file: DiskFile, bad: number): Promise<number | undefined> {
  const window = new Window(file);
  const stride = 1024 * 1024;
  for (let base = bad + 1; ; base += stride) {
    // Three bytes more, so that a magic across the border is seen.
    const block = await window.take(base, stride + 3);
    for (let at = block.indexOf(frameMagic); at >= 0; at = block.indexOf(frameMagic, at + 1)) {
      const offset = base + at;
      const header = await new Window(file).take(offset, frameHeaderBytes);
      const judged = judgeHeader(header);
      if (typeof judged === 'string') continue;
      const whole = await new Window(file).take(offset, frameHeaderBytes + judged.length);
      if (judgeBody(whole, judged.length) !== undefined) continue;
      if (whole.readUIntLE(14, 6) > bad) return offset;
    }
    if (block.length < stride + 3) return undefined;
  }
}

function judgeHeader(header: Buffer): string | { readonly length: number } {
  if (header.length < frameHeaderBytes)
    return `${header.length} bytes left, a frame's header has ${frameHeaderBytes}`;
  if (!header.subarray(0, 4).equals(frameMagic))
    return `no frame begins here (found ${header.toString('hex', 0, 4)})`;
  const length = header.readUInt32LE(4);
  if (length > framePayloadMaxBytes)
    return `a frame of ${length} bytes, more than ${framePayloadMaxBytes}`;
  return { length };
}

function judgeBody(whole: Buffer, length: number): string | undefined {
  if (whole.length < frameHeaderBytes + length)
    return `a frame of ${length} bytes with ${whole.length - frameHeaderBytes} present`;
  const checksum = crc32(whole.subarray(frameHeaderBytes), crc32(whole.subarray(4, 20)));
  if (checksum !== whole.readUInt32LE(20))
    return `checksum ${checksum.toString(16)}, the frame says ${whole.readUInt32LE(20).toString(16)}`;
  return undefined;
}

/** A moving window over a file, so that replay reads in large pieces and holds little. */
class Window {
  readonly #file: DiskFile;
  #bytes: Buffer = Buffer.alloc(0);
  #from = 0;

  constructor(file: DiskFile) {
    this.#file = file;
  }

  /** Up to `count` bytes from `offset`; fewer at the end of the file. Valid until the next call. */
  async take(offset: number, count: number): Promise<Buffer> {
    const at = offset - this.#from;
    if (at < 0 || at + count > this.#bytes.length) {
      const fresh = Buffer.allocUnsafe(Math.max(count, 256 * 1024));
      const filled = await this.#file.read(fresh, offset);
      this.#bytes = fresh.subarray(0, filled);
      this.#from = offset;
      return this.#bytes.subarray(0, count);
    }
    return this.#bytes.subarray(at, at + count);
  }
}
