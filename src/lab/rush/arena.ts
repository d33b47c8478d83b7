/**
 * Tokens of a million people, outside the garbage collector's sight.
 *
 * Two signed tokens a person are half a kilobyte; as strings they would be marked in every
 * collection. Here they are bytes in large chunks, written once, and turned into a string for the
 * moment of a request. Handles count units of 8 bytes, so that 32 bits reach 32 GiB.
 */
export class Arena {
  static readonly #chunkBytes = 4 * 1024 * 1024;
  readonly #chunks: Buffer[] = [];
  #used = Arena.#chunkBytes;

  /** Keeps an ASCII text of at most 65,535 characters; the handle is never 0. */
  put(text: string): number {
    if (text.length > 65_535) {
      throw new RangeError(`text of ${text.length} characters: at most 65535 fit`);
    }
    const need = (text.length + 2 + 7) & ~7;
    if (this.#used + need > Arena.#chunkBytes) {
      this.#chunks.push(Buffer.allocUnsafeSlow(Arena.#chunkBytes));
      // Handle 0 means "none", so the very first unit stays empty.
      this.#used = this.#chunks.length === 1 ? 8 : 0;
    }
    const chunk = this.#chunks[this.#chunks.length - 1];
    if (chunk === undefined) throw new RangeError('arena without a chunk');
    const at = this.#used;
    chunk.writeUInt16LE(text.length, at);
    chunk.write(text, at + 2, 'latin1');
    this.#used += need;
    return ((this.#chunks.length - 1) * Arena.#chunkBytes + at) / 8;
  }

  /** The text of a handle; empty for handle 0. */
  get(handle: number): string {
    if (handle === 0) return '';
    const offset = handle * 8;
    const chunk = this.#chunks[Math.floor(offset / Arena.#chunkBytes)];
    if (chunk === undefined) throw new RangeError(`handle ${handle} was never given out`);
    const at = offset % Arena.#chunkBytes;
    return chunk.toString('latin1', at + 2, at + 2 + chunk.readUInt16LE(at));
  }

  get bytes(): number {
    return this.#chunks.length * Arena.#chunkBytes;
  }
}
