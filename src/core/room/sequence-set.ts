import { fromBase64Url, toBase64Url } from './bytes.ts';

/**
 * A set of places in the participant log: one bit each, in chunks that exist only where a bit is set,
 * and reach only as far as they must. A room of a million costs at most 124 KiB, however many are in the
 * set; one of a few dozen costs as many bytes.
 *
 * Why not a Bloom filter: a false positive would tell somebody who never left that they have. At this
 * size exactness costs no more.
 */
const chunkBits = 16;
const chunkBytes = 1 << (chunkBits - 3);
/** A chunk begins with so many bytes, and doubles up to `chunkBytes`. */
const chunkBytesFirst = 32;
/** Characters of a chunk that is written whole. */
const wholeChars = Math.ceil((chunkBytes * 8) / 6);

export class SequenceSet {
  readonly #chunks: (Uint8Array | undefined)[] = [];
  /** Chunks that a snapshot shares and that must be copied before they change. */
  readonly #shared = new Set<number>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has(sequence: number): boolean {
    const byte = this.#chunks[sequence >>> chunkBits]?.[(sequence >>> 3) & (chunkBytes - 1)];
    return byte !== undefined && (byte & (1 << (sequence & 7))) !== 0;
  }

  /** True if it was not there before. */
  add(sequence: number): boolean {
    if (this.has(sequence)) return false;
    this.#flip(sequence);
    this.#size += 1;
    return true;
  }

  /** True if it was there before. */
  delete(sequence: number): boolean {
    if (!this.has(sequence)) return false;
    this.#flip(sequence);
    this.#size -= 1;
    return true;
  }

  /** The set as it is now, unmoved by later changes here. O(chunks); a later change copies one chunk. */
  snapshot(): SequenceSet {
    const copy = new SequenceSet();
    this.#chunks.forEach((chunk, at) => {
      if (chunk === undefined) return;
      copy.#chunks[at] = chunk;
      copy.#shared.add(at);
      this.#shared.add(at);
    });
    copy.#size = this.#size;
    return copy;
  }

  /** In ascending order. */
  *[Symbol.iterator](): Generator<number> {
    for (let at = 0; at < this.#chunks.length; at += 1) {
      const chunk = this.#chunks[at];
      if (chunk === undefined) continue;
      for (let byte = 0; byte < chunk.length; byte += 1) {
        const bits = chunk[byte] ?? 0;
        if (bits === 0) continue;
        for (let bit = 0; bit < 8; bit += 1) {
          if ((bits & (1 << bit)) !== 0) yield at * 65_536 + byte * 8 + bit;
        }
      }
    }
  }

  /** Text for the wire: a chunk is listed by its gaps where few bits are set, else written whole. */
  encode(): string {
    const parts: string[] = [];
    this.#chunks.forEach((chunk, at) => {
      if (chunk === undefined) return;
      const inside: number[] = [];
      let before = -1;
      for (let byte = 0; byte < chunk.length; byte += 1) {
        const bits = chunk[byte] ?? 0;
        if (bits === 0) continue;
        for (let place = byte * 8; place < byte * 8 + 8; place += 1) {
          if ((bits & (1 << (place & 7))) === 0) continue;
          inside.push(place - before);
          before = place;
        }
      }
      if (inside.length === 0) return;
      const listed = inside.map((gap) => gap.toString(36)).join('.');
      const short = listed.length < wholeChars;
      parts.push(`${at}${short ? `:${listed}` : `=${toBase64Url(resized(chunk, chunkBytes))}`}`);
    });
    return parts.join(' ');
  }

  /** Reads what {@link encode} wrote; undefined for anything else. */
  static decode(text: string): SequenceSet | undefined {
    const set = new SequenceSet();
    if (text === '') return set;
    for (const part of text.split(' ')) {
      const split = /^(\d{1,5})([:=])([A-Za-z0-9_.-]*)$/.exec(part);
      if (split === null) return undefined;
      const at = Number(split[1]);
      const body = split[3] ?? '';
      if (split[2] === '=') {
        const chunk = fromBase64Url(body);
        if (chunk?.length !== chunkBytes) return undefined;
        for (let place = 0; place < 65_536; place += 1) {
          if (((chunk[place >>> 3] ?? 0) & (1 << (place & 7))) !== 0) set.add(at * 65_536 + place);
        }
        continue;
      }
      let place = -1;
      for (const gap of body.split('.')) {
        place += Number.parseInt(gap, 36);
        if (!(place >= 0 && place < 65_536)) return undefined;
        set.add(at * 65_536 + place);
      }
    }
    return set;
  }

  #flip(sequence: number): void {
    const at = sequence >>> chunkBits;
    const byte = (sequence >>> 3) & (chunkBytes - 1);
    let chunk = this.#chunks[at];
    if (chunk === undefined || byte >= chunk.length || this.#shared.has(at)) {
      let length = chunk?.length ?? chunkBytesFirst;
      while (length <= byte) length *= 2;
      chunk = chunk === undefined ? new Uint8Array(length) : resized(chunk, length);
      this.#chunks[at] = chunk;
      this.#shared.delete(at);
    }
    chunk[byte] = (chunk[byte] ?? 0) ^ (1 << (sequence & 7));
  }
}

/** A copy that is as long, or longer by zeros. */
function resized(bytes: Uint8Array, length: number): Uint8Array {
  const copy = new Uint8Array(length);
  copy.set(bytes);
  return copy;
}
