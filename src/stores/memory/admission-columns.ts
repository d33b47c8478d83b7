import { decodeBase64UrlInto } from '../../core/room/bytes.ts';

/**
 * Rows of a million people without a million objects: one typed array per field, cut in chunks, so
 * that growing never copies what is there and never pauses.
 */
const chunkBits = 14;
const chunkRows = 1 << chunkBits;
const chunkMask = chunkRows - 1;

type NumberArray = Uint8Array | Uint16Array | Uint32Array | Float64Array;

/** A growing column of numbers. Reading a row never written gives `absent`. */
export class Column {
  readonly #make: () => NumberArray;
  readonly #absent: number;
  readonly #chunks: (NumberArray | undefined)[] = [];

  constructor(kind: 'u8' | 'u16' | 'u32' | 'f64', absent = 0) {
    this.#absent = absent;
    this.#make = () => {
      switch (kind) {
        case 'u8':
          return new Uint8Array(chunkRows);
        case 'u16':
          return new Uint16Array(chunkRows);
        case 'u32':
          return new Uint32Array(chunkRows);
        case 'f64':
          return new Float64Array(chunkRows);
      }
    };
  }

  get(row: number): number {
    return this.#chunks[row >>> chunkBits]?.[row & chunkMask] ?? this.#absent;
  }

  /** Writing `absent` where no chunk is yet costs no memory. */
  set(row: number, value: number): void {
    let chunk = this.#chunks[row >>> chunkBits];
    if (chunk === undefined) {
      if (value === this.#absent) return;
      chunk = this.#make();
      if (this.#absent !== 0) chunk.fill(this.#absent);
      this.#chunks[row >>> chunkBits] = chunk;
    }
    chunk[row & chunkMask] = value;
  }
}

/** Bytes of an entry id. */
export const entryIdBytes = 16;
const entryIdLength = 22;
const entryIdWords = entryIdBytes / 4;

/** Share of a table in use before it grows, and by how much: four bytes a slot, a million slots. */
const loadMax = 0.8;
const growth = 1.3;

/**
 * Entry ids by row, and the row of an id: the newest, where an entry has left and joined again.
 *
 * The index is open addressing in 256 tables, chosen by the id's first byte, so that a table that
 * grows moves a few thousand rows and not a million. Ids are MACs and therefore spread by themselves.
 */
export class EntryIds {
  /** Four words a row, and the same memory as bytes. */
  readonly #words: Uint32Array[] = [];
  readonly #bytes: Buffer[] = [];
  readonly #tables: Uint32Array[] = Array.from({ length: 256 }, () => new Uint32Array(16));
  readonly #used = new Uint32Array(256);
  readonly #wantedBytes = new Uint8Array(entryIdBytes);
  readonly #wanted = new Uint32Array(this.#wantedBytes.buffer);

  /** The newest row of `id`, or -1. */
  find(id: string): number {
    if (!this.#read(id)) return -1;
    const table = this.#tables[this.#wantedBytes[0] ?? 0] ?? noTable;
    return (table[this.#slot(table)] ?? 0) - 1;
  }

  /** Writes the id of a new row and makes it the id's newest. */
  put(row: number, id: string): void {
    if (!this.#read(id)) {
      throw new RangeError(
        `entry id "${id}" is not ${entryIdBytes} bytes in base64url (${entryIdLength} characters)`,
      );
    }
    let words = this.#words[row >>> chunkBits];
    if (words === undefined) {
      words = new Uint32Array(chunkRows * entryIdWords);
      this.#words[row >>> chunkBits] = words;
      this.#bytes[row >>> chunkBits] = Buffer.from(words.buffer);
    }
    words.set(this.#wanted, (row & chunkMask) * entryIdWords);
    const which = this.#wantedBytes[0] ?? 0;
    let table = this.#tables[which] ?? noTable;
    let slot = this.#slot(table);
    if ((table[slot] ?? 0) === 0) {
      this.#used[which] = (this.#used[which] ?? 0) + 1;
      if ((this.#used[which] ?? 0) > table.length * loadMax) {
        table = this.#grow(table);
        this.#tables[which] = table;
        this.#read(id);
        slot = this.#slot(table);
      }
    }
    table[slot] = row + 1;
  }

  at(row: number): string {
    const from = (row & chunkMask) * entryIdBytes;
    return this.#bytes[row >>> chunkBits]?.toString('base64url', from, from + entryIdBytes) ?? '';
  }

  #read(id: string): boolean {
    return id.length === entryIdLength && decodeBase64UrlInto(id, this.#wantedBytes, 0);
  }

  /** Where the wanted id is in its table, or the free slot where it would be. */
  #slot(table: Uint32Array): number {
    // The first word chose the table by its first byte; the second is as good as any.
    let slot = (this.#wanted[1] ?? 0) % table.length;
    for (;;) {
      const found = table[slot] ?? 0;
      if (found === 0 || this.#isWanted(found - 1)) return slot;
      slot = slot + 1 === table.length ? 0 : slot + 1;
    }
  }

  #isWanted(row: number): boolean {
    const words = this.#words[row >>> chunkBits];
    const from = (row & chunkMask) * entryIdWords;
    const wanted = this.#wanted;
    return (
      words !== undefined &&
      words[from] === wanted[0] &&
      words[from + 1] === wanted[1] &&
      words[from + 2] === wanted[2] &&
      words[from + 3] === wanted[3]
    );
  }

  #grow(table: Uint32Array): Uint32Array {
    const next = new Uint32Array(Math.ceil(table.length * growth));
    for (const found of table) {
      if (found === 0) continue;
      const from = ((found - 1) & chunkMask) * entryIdWords;
      const words = this.#words[(found - 1) >>> chunkBits];
      if (words !== undefined) this.#wanted.set(words.subarray(from, from + entryIdWords));
      next[this.#slot(next)] = found;
    }
    return next;
  }
}

const noTable = new Uint32Array(1);

/** Numbers for a few distinct texts, in order of first use. */
export class Interned {
  readonly #texts: string[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #what: string;
  readonly #max: number;

  constructor(what: string, max: number) {
    this.#what = what;
    this.#max = max;
  }

  /** True if `text` has a number or may still get one. */
  fits(text: string): boolean {
    return this.#numbers.has(text) || this.#texts.length < this.#max;
  }

  numberOf(text: string): number {
    const known = this.#numbers.get(text);
    if (known !== undefined) return known;
    if (this.#texts.length >= this.#max) {
      throw new RangeError(`more than ${this.#max} distinct ${this.#what}; found "${text}"`);
    }
    this.#numbers.set(text, this.#texts.length);
    return this.#texts.push(text) - 1;
  }

  textOf(number: number): string {
    return this.#texts[number] ?? '';
  }
}
