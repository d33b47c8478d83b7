/** Bytes and text where no platform is at hand: UTF-8, hexadecimal, base64url. */

/** Length in UTF-8 of well-formed text. O(length). */
export function utf8Length(text: string): number {
  let length = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x80) length += 1;
    else if (unit < 0x800) length += 2;
    else if (unit >= 0xd800 && unit < 0xdc00) {
      length += 4;
      at += 1;
    } else length += 3;
  }
  return length;
}

/** UTF-8 of `text`; a lone surrogate becomes U+FFFD, as everywhere on the web. O(length). */
export function utf8(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length * 3);
  let used = 0;
  for (let at = 0; at < text.length; at += 1) {
    let point = text.codePointAt(at) ?? 0;
    if (point > 0xffff) at += 1;
    else if (point >= 0xd800 && point < 0xe000) point = 0xfffd;
    if (point < 0x80) bytes[used++] = point;
    else if (point < 0x800) {
      bytes[used++] = 0xc0 | (point >>> 6);
      bytes[used++] = 0x80 | (point & 63);
    } else if (point < 0x10000) {
      bytes[used++] = 0xe0 | (point >>> 12);
      bytes[used++] = 0x80 | ((point >>> 6) & 63);
      bytes[used++] = 0x80 | (point & 63);
    } else {
      bytes[used++] = 0xf0 | (point >>> 18);
      bytes[used++] = 0x80 | ((point >>> 12) & 63);
      bytes[used++] = 0x80 | ((point >>> 6) & 63);
      bytes[used++] = 0x80 | (point & 63);
    }
  }
  return bytes.slice(0, used);
}

const hexDigits = '0123456789abcdef';

export function toHex(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) text += (hexDigits[byte >>> 4] ?? '') + (hexDigits[byte & 15] ?? '');
  return text;
}

/** Lower-case hexadecimal only; undefined for anything else. */
export function fromHex(text: string): Uint8Array | undefined {
  if (text.length % 2 !== 0 || !/^[0-9a-f]*$/.test(text)) return undefined;
  const bytes = new Uint8Array(text.length / 2);
  for (let at = 0; at < bytes.length; at += 1) {
    bytes[at] = Number.parseInt(text.slice(at * 2, at * 2 + 2), 16);
  }
  return bytes;
}

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const values = new Int8Array(128).fill(-1);
for (let at = 0; at < alphabet.length; at += 1) values[alphabet.charCodeAt(at)] = at;

/** Unpadded base64url. */
export function toBase64Url(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += 3) {
    const left = bytes.length - at;
    const group = ((bytes[at] ?? 0) << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0);
    text += (alphabet[group >>> 18] ?? '') + (alphabet[(group >>> 12) & 63] ?? '');
    if (left > 1) text += alphabet[(group >>> 6) & 63] ?? '';
    if (left > 2) text += alphabet[group & 63] ?? '';
  }
  return text;
}

/** Exactly what {@link toBase64Url} writes; undefined for any other spelling, so that none has two. */
export function fromBase64Url(text: string): Uint8Array | undefined {
  const rest = text.length % 4;
  if (rest === 1) return undefined;
  const bytes = new Uint8Array(Math.floor((text.length * 3) / 4));
  return decodeBase64UrlInto(text, bytes, 0) ? bytes : undefined;
}

/** As {@link fromBase64Url}, into `target` at `offset`; false if `text` is not canonical. */
export function decodeBase64UrlInto(text: string, target: Uint8Array, offset: number): boolean {
  let bits = 0;
  let held = 0;
  let used = offset;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    const value = code < 128 ? (values[code] ?? -1) : -1;
    if (value < 0) return false;
    held = ((held << 6) | value) & 0xffffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      target[used++] = (held >>> bits) & 255;
    }
  }
  return bits < 6 && (held & ((1 << bits) - 1)) === 0;
}
