/**
 * MessagePack, as much of it as scripts are sent: arrays, strings, whole numbers below 2^53, booleans.
 * One packed argument costs Redis one argument, where hundreds would each be parsed, allocated and
 * turned into a Lua value; `cmsgpack.unpack` makes the table in C.
 */
export type Packable = string | number | boolean | readonly Packable[];

/** Throws RangeError for numbers that are not whole or too large. */
export function pack(value: Packable): Buffer {
  const writer = new Writer();
  writer.write(value);
  return writer.done();
}

class Writer {
  #bytes = Buffer.allocUnsafe(4096);
  #at = 0;

  done(): Buffer {
    return this.#bytes.subarray(0, this.#at);
  }

  write(value: Packable): void {
    if (typeof value === 'string') this.#string(value);
    else if (typeof value === 'number') this.#number(value);
    else if (typeof value === 'boolean') {
      this.#room(1);
      this.#bytes[this.#at++] = value ? 0xc3 : 0xc2;
    } else {
      this.#head(value.length, 0x90, 15, 0xdc, 0xdd);
      for (const each of value) this.write(each);
    }
  }

  #string(text: string): void {
    // Three bytes per UTF-16 unit at most; the length is known once it is written.
    this.#room(5 + text.length * 3);
    const longest = text.length * 3;
    const header = longest < 32 ? 1 : longest < 256 ? 2 : longest < 65_536 ? 3 : 5;
    const length = this.#bytes.write(text, this.#at + header);
    if (header === 1) this.#bytes[this.#at] = 0xa0 | length;
    else if (header === 2) {
      this.#bytes[this.#at] = 0xd9;
      this.#bytes[this.#at + 1] = length;
    } else if (header === 3) {
      this.#bytes[this.#at] = 0xda;
      this.#bytes.writeUInt16BE(length, this.#at + 1);
    } else {
      this.#bytes[this.#at] = 0xdb;
      this.#bytes.writeUInt32BE(length, this.#at + 1);
    }
    this.#at += header + length;
  }

  #number(value: number): void {
    if (!Number.isSafeInteger(value) || value < 0)
      throw new RangeError(`Only whole numbers from 0 can be packed, not ${value}`);
    this.#room(9);
    if (value < 128) this.#bytes[this.#at++] = value;
    else if (value < 2 ** 32) {
      this.#bytes[this.#at] = 0xce;
      this.#bytes.writeUInt32BE(value, this.#at + 1);
      this.#at += 5;
    } else {
      this.#bytes[this.#at] = 0xcf;
      this.#bytes.writeBigUInt64BE(BigInt(value), this.#at + 1);
      this.#at += 9;
    }
  }

  #head(length: number, small: number, smallMax: number, wide: number, widest: number): void {
    this.#room(5);
    if (length <= smallMax) this.#bytes[this.#at++] = small | length;
    else if (length < 65_536) {
      this.#bytes[this.#at] = wide;
      this.#bytes.writeUInt16BE(length, this.#at + 1);
      this.#at += 3;
    } else {
      this.#bytes[this.#at] = widest;
      this.#bytes.writeUInt32BE(length, this.#at + 1);
      this.#at += 5;
    }
  }

  #room(count: number): void {
    if (this.#at + count <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#at + count));
    this.#bytes.copy(grown, 0, 0, this.#at);
    this.#bytes = grown;
  }
}
