import type { Disk, DiskFile } from '../../src/stores/journal/disk.ts';
import type { Random } from '../../src/ports/random.ts';

interface Inode {
  /** What a reader sees. */
  bytes: Uint8Array;
  /** What is surely on the platter. */
  synced: Uint8Array;
}

/** Thrown by every call once the machine is off. */
export class PowerLostError extends Error {
  override readonly name = 'PowerLostError';
}

const block = 64;

/**
 * A disk in memory that can lose power: what was not synced may be there, half there, or not there,
 * in blocks and in any order; names that were not synced with their folder may be old or new.
 */
export class FaultDisk implements Disk {
  #names = new Map<string, Inode>();
  #syncedNames = new Map<string, Inode>();
  /** Changing calls so far; a test dies at each of them. */
  changes = 0;
  dieAt = Number.POSITIVE_INFINITY;
  /** The next sync throws EIO and, as Linux does, marks the pages clean all the same. */
  failNextSync = false;
  /** Bytes that still fit; a write past them takes a part and throws ENOSPC. */
  spaceBytes = Number.POSITIVE_INFINITY;
  syncs = 0;
  writes = 0;
  #off = false;
  #life = 0;

  #step(): void {
    if (this.#off) throw new PowerLostError('The machine is off');
    this.changes += 1;
    if (this.changes >= this.dieAt) {
      this.#off = true;
      throw new PowerLostError('The machine went off');
    }
  }

  /** The process dies and nothing else: what was written stays. */
  restart(): void {
    this.#off = false;
    this.#life += 1;
    this.dieAt = Number.POSITIVE_INFINITY;
    this.failNextSync = false;
  }

  /** The machine loses power and comes back. */
  losePower(random: Random): void {
    const names = new Map<string, Inode>();
    for (const path of new Set([...this.#names.keys(), ...this.#syncedNames.keys()])) {
      const now = this.#names.get(path);
      const before = this.#syncedNames.get(path);
      const kept = now === before || random.below(2) === 0 ? now : before;
      if (kept !== undefined) names.set(path, kept);
    }
    for (const inode of new Set(names.values())) {
      if (inode.bytes === inode.synced) continue;
      const length =
        inode.synced.length +
        random.below(Math.max(0, inode.bytes.length - inode.synced.length) + 1);
      const left = new Uint8Array(length);
      left.set(inode.synced.subarray(0, length));
      for (let at = 0; at < length; at += block)
        if (random.below(2) === 0)
          left.set(inode.bytes.subarray(at, Math.min(length, at + block)), at);
      inode.bytes = left;
      inode.synced = left;
    }
    this.#names = names;
    this.#syncedNames = new Map(names);
    this.restart();
  }

  /**
   * The disk as one process sees it: after the next `restart` or `losePower` that process is gone,
   * and whatever it still does in this test reaches nothing.
   */
  session(): Disk {
    const life = this.#life;
    const alive = (): void => {
      if (life !== this.#life) throw new PowerLostError('This process is dead');
    };
    const guard =
      <Args extends unknown[], Result>(call: (...args: Args) => Promise<Result>) =>
      async (...args: Args): Promise<Result> => {
        alive();
        return call(...args);
      };
    return {
      makeFolder: guard(() => this.makeFolder()),
      list: guard((folder: string) => this.list(folder)),
      rename: guard((from: string, to: string) => this.rename(from, to)),
      remove: guard((path: string) => this.remove(path)),
      syncFolder: guard(() => this.syncFolder()),
      open: guard(async (path: string, mode: 'read' | 'write' | 'create') => {
        const file = await this.open(path, mode);
        return {
          size: file.size,
          read: guard((target: Uint8Array, position: number) => file.read(target, position)),
          write: guard((bytes: Uint8Array, position: number) => file.write(bytes, position)),
          truncate: guard((size: number) => file.truncate(size)),
          sync: guard(() => file.sync()),
          close: () => file.close(),
        };
      }),
    };
  }

  bytesOf(path: string): Uint8Array {
    return this.#inode(path).bytes;
  }

  put(path: string, bytes: Uint8Array): void {
    const inode = { bytes, synced: bytes };
    this.#names.set(path, inode);
    this.#syncedNames.set(path, inode);
  }

  paths(): readonly string[] {
    return [...this.#names.keys()].sort();
  }

  #inode(path: string): Inode {
    const inode = this.#names.get(path);
    if (inode === undefined) throw new Error(`ENOENT: ${path}`);
    return inode;
  }

  async makeFolder(): Promise<void> {
    this.#step();
  }

  async list(folder: string): Promise<readonly string[]> {
    const start = `${folder}/`;
    return this.paths()
      .filter((path) => path.startsWith(start))
      .map((path) => path.slice(start.length));
  }

  async open(path: string, mode: 'read' | 'write' | 'create'): Promise<DiskFile> {
    if (mode === 'create') {
      this.#step();
      if (this.#names.has(path)) throw new Error(`EEXIST: ${path}`);
      this.#names.set(path, { bytes: new Uint8Array(0), synced: new Uint8Array(0) });
    }
    const inode = this.#inode(path);
    return {
      size: inode.bytes.length,
      read: async (target, position) => {
        const part = inode.bytes.subarray(position, position + target.length);
        target.set(part);
        return part.length;
      },
      write: async (bytes, position) => {
        this.#step();
        this.writes += 1;
        const fits = Math.min(bytes.length, this.spaceBytes);
        const grown = new Uint8Array(Math.max(inode.bytes.length, position + fits));
        grown.set(inode.bytes);
        grown.set(bytes.subarray(0, fits), position);
        inode.bytes = grown;
        this.spaceBytes -= fits;
        if (fits < bytes.length) throw new Error('ENOSPC: no space left on device');
      },
      truncate: async (size) => {
        this.#step();
        inode.bytes = inode.bytes.slice(0, size);
      },
      sync: async () => {
        this.#step();
        this.syncs += 1;
        if (this.failNextSync) {
          this.failNextSync = false;
          throw new Error('EIO: i/o error, fdatasync');
        }
        inode.synced = inode.bytes;
      },
      close: async () => undefined,
    };
  }

  async rename(from: string, to: string): Promise<void> {
    this.#step();
    const inode = this.#inode(from);
    this.#names.set(to, inode);
    this.#names.delete(from);
  }

  async remove(path: string): Promise<void> {
    this.#step();
    this.#inode(path);
    this.#names.delete(path);
  }

  async syncFolder(): Promise<void> {
    this.#step();
    this.#syncedNames = new Map(this.#names);
  }
}
