import { mkdir, open, readdir, rename, unlink } from 'node:fs/promises';

/**
 * The few things a journal asks of a file system. A seam of its own so that a test can lose power,
 * run out of space or fail an fsync at any chosen instant; production always uses `nodeDisk`.
 */
export interface Disk {
  /** Creates the folder and its parents with mode 0700; does nothing where it exists. */
  makeFolder(path: string): Promise<void>;
  list(folder: string): Promise<readonly string[]>;
  /** `create` fails where the file exists; `write` and `read` fail where it does not. */
  open(path: string, mode: 'read' | 'write' | 'create'): Promise<DiskFile>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Makes creations, renames and removals in this folder survive a power cut. */
  syncFolder(folder: string): Promise<void>;
}

export interface DiskFile {
  /** Bytes, when it was opened. */
  readonly size: number;
  /** Fills as much of `target` as the file has from `position`; the count of bytes read. */
  read(target: Uint8Array, position: number): Promise<number>;
  /** Writes all bytes or throws; what is on disk after a throw is unknown. */
  write(bytes: Uint8Array, position: number): Promise<void>;
  truncate(size: number): Promise<void>;
  /** fdatasync: returns once the bytes and the file's size would survive a power cut. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

const flags = { read: 'r', write: 'r+', create: 'wx+' } as const;

export const nodeDisk: Disk = {
  async makeFolder(path) {
    await mkdir(path, { recursive: true, mode: 0o700 });
  },

  list: (folder) => readdir(folder),

  async open(path, mode) {
    const handle = await open(path, flags[mode], 0o600);
    const { size } = await handle.stat();
    return {
      size,
      async read(target, position) {
        let filled = 0;
        while (filled < target.length) {
          const { bytesRead } = await handle.read(
            target,
            filled,
            target.length - filled,
            position + filled,
          );
          if (bytesRead === 0) break;
          filled += bytesRead;
        }
        return filled;
      },
      async write(bytes, position) {
        let done = 0;
        while (done < bytes.length) {
          // A full disk may take a part: the rest is asked for again, and that throws.
          const { bytesWritten } = await handle.write(
            bytes,
            done,
            bytes.length - done,
            position + done,
          );
          done += bytesWritten;
        }
      },
      truncate: (size) => handle.truncate(size),
      sync: () => handle.datasync(),
      close: () => handle.close(),
    };
  },

  rename: (from, to) => rename(from, to),
  remove: (path) => unlink(path),

  async syncFolder(folder) {
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
};
