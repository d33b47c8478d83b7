import ipaddr from 'ipaddr.js';

/**
 * Who is calling, as an address that two requests of one caller share and two callers do not.
 *
 * One address has many writings (`::ffff:192.0.2.7` is `192.0.2.7`; `2001:DB8::1` is `2001:db8:0::1`),
 * and a forwarded header has as many authors as hops. So every address is brought to one writing, and
 * a forwarded one is believed only as far as configured proxies vouch for it: the walk starts at the
 * peer of the connection and goes one entry to the left of `X-Forwarded-For` for each hop that is
 * itself a configured proxy. What a caller wrote in front of that is never read.
 */

/** Proxies that may say for whom they ask. */
export interface TrustedProxies {
  /** Is this canonical address one of ours? */
  readonly contains: (address: string) => boolean;
  /** How many proxies stand between a caller and us, at most; ≥ 1. */
  readonly hops: number;
}

/** Believes nobody. */
export const noProxies: TrustedProxies = { contains: () => false, hops: 1 };

/** Default lengths of a prefix: what one household or one small site usually holds. */
export const prefixBits4Default = 24;
export const prefixBits6Default = 56;

/** Hops that a configuration may ask for: longer chains are a loop or a mistake. */
const hopsMax = 16;

/** No writing of an address is longer: 39 for IPv6, 15 more for an embedded IPv4, brackets, a port, a zone. */
const addressMaxLength = 80;

/**
 * The one writing of an address: IPv4 dotted, IPv6 as RFC 5952, IPv4-mapped folded to IPv4. A port,
 * brackets and an IPv6 zone are dropped. `undefined` when it is no address; octal, hexadecimal and
 * shortened IPv4 are none, because parsers disagree about them.
 */
export function canonicalAddress(text: string): string | undefined {
  if (isPlainIpv4(text)) return text;
  return parse(text)?.text;
}

/** `192.0.2.0/24` or `2001:db8::/56`; `undefined` when it is no address. */
export function addressPrefix(
  address: string,
  bits4: number = prefixBits4Default,
  bits6: number = prefixBits6Default,
): string | undefined {
  if (bits4 === 24 && isPlainIpv4(address)) {
    return `${address.slice(0, address.lastIndexOf('.'))}.0/24`;
  }
  const parsed = parse(address);
  if (parsed === undefined) return undefined;
  const bits = parsed.bytes.length === 4 ? bits4 : bits6;
  const bytes = parsed.bytes.map((byte, at) => byte & maskByte(bits - at * 8));
  return `${writing(ipaddr.fromByteArray(bytes))}/${bits}`;
}

/**
 * The caller's address.
 * @param peer the other end of the connection.
 * @param forwardedFor `X-Forwarded-For`, several headers joined by commas in their order.
 * @returns a canonical address; `unknown` when even the peer has none (a Unix socket).
 */
export function clientAddress(
  peer: string | undefined,
  forwardedFor: string | undefined,
  proxies: TrustedProxies,
): string {
  let address = peer === undefined ? undefined : canonicalAddress(peer);
  if (address === undefined) return 'unknown';
  if (forwardedFor === undefined) return address;
  let end = forwardedFor.length;
  for (let hop = 0; hop < proxies.hops && end > 0 && proxies.contains(address); hop += 1) {
    const comma = forwardedFor.lastIndexOf(',', end - 1);
    const entry = canonicalAddress(forwardedFor.slice(comma + 1, end).trim());
    // A hop that wrote no address ends what is known: the proxy that we do trust answers for it.
    if (entry === undefined) return address;
    address = entry;
    end = comma;
  }
  return address;
}

/**
 * Reads ranges (`10.0.0.0/8`, `::1`, `2001:db8::/32`).
 * @throws RangeError that quotes the range and says what is allowed.
 */
export function trustedProxies(ranges: readonly string[], hops = 1): TrustedProxies {
  if (!Number.isInteger(hops) || hops < 1 || hops > hopsMax) {
    throw new RangeError(`hops: found ${hops}; allowed is 1 to ${hopsMax}`);
  }
  const contains = addressSet(ranges);
  return { contains, hops };
}

/** Membership in a list of ranges, for canonical addresses. O(ranges) per call. */
export function addressSet(ranges: readonly string[]): (address: string) => boolean {
  const parsed = ranges.map(parseRange);
  return (address) => {
    const found = parse(address);
    if (found === undefined) return false;
    return parsed.some(({ bytes, bits }) => covers(bytes, bits, found.bytes));
  };
}

interface Parsed {
  readonly text: string;
  readonly bytes: readonly number[];
}

function parseRange(range: string): { bytes: readonly number[]; bits: number } {
  const slash = range.indexOf('/');
  const parsed = parse(slash < 0 ? range : range.slice(0, slash));
  const wide = parsed === undefined ? 0 : parsed.bytes.length * 8;
  const suffix = slash < 0 ? `${wide}` : range.slice(slash + 1);
  const mappedBits = slash >= 0 && range.includes(':') && wide === 32 ? 96 : 0;
  const bits = Number(suffix) - mappedBits;
  if (parsed === undefined || !/^\d{1,3}$/.test(suffix) || bits < 0 || bits > wide) {
    throw new RangeError(
      `found "${range.slice(0, addressMaxLength)}"; allowed is an address or a range such as 10.0.0.0/8 or 2001:db8::/32`,
    );
  }
  return { bytes: parsed.bytes, bits };
}

function covers(range: readonly number[], bits: number, address: readonly number[]): boolean {
  if (range.length !== address.length) return false;
  for (let at = 0; at * 8 < bits; at += 1) {
    const mask = maskByte(bits - at * 8);
    if (((range[at] ?? 0) & mask) !== ((address[at] ?? 0) & mask)) return false;
  }
  return true;
}

/** The first `bits` bits of a byte; `bits` may lie outside 0 … 8. */
function maskByte(bits: number): number {
  if (bits >= 8) return 0xff;
  return bits <= 0 ? 0 : (0xff << (8 - bits)) & 0xff;
}

function parse(text: string): Parsed | undefined {
  if (text.length > addressMaxLength) return undefined;
  const bare = withoutPort(text);
  if (isPlainIpv4(bare)) return { text: bare, bytes: bare.split('.').map(Number) };
  if (!bare.includes(':')) return undefined;
  const zone = bare.indexOf('%');
  const plain = zone < 0 ? bare : bare.slice(0, zone);
  if (!ipaddr.IPv6.isValid(plain)) return undefined;
  const six = ipaddr.IPv6.parse(plain);
  const folded = six.isIPv4MappedAddress() ? six.toIPv4Address() : six;
  return { text: writing(folded), bytes: folded.toByteArray() };
}

function writing(address: ipaddr.IPv4 | ipaddr.IPv6): string {
  return 'toRFC5952String' in address ? address.toRFC5952String() : address.toString();
}

/** `[::1]:80` → `::1`, `192.0.2.7:80` → `192.0.2.7`; anything else as it is. */
function withoutPort(text: string): string {
  if (text.startsWith('[')) {
    const match = /^\[([^\]]+)\](?::\d{1,5})?$/.exec(text);
    return match?.[1] ?? text;
  }
  const colon = text.indexOf(':');
  const single = colon > 0 && text.indexOf(':', colon + 1) < 0;
  return single && text.includes('.') && /^\d{1,5}$/.test(text.slice(colon + 1))
    ? text.slice(0, colon)
    : text;
}

/** Four decimal numbers 0 … 255 without leading zeros, and nothing else. Allocates nothing. */
function isPlainIpv4(text: string): boolean {
  if (text.length < 7 || text.length > 15) return false;
  let parts = 0;
  let value = -1;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === 46) {
      if (value < 0) return false;
      parts += 1;
      value = -1;
    } else if (code >= 48 && code <= 57) {
      if (value === 0) return false;
      value = value < 0 ? code - 48 : value * 10 + (code - 48);
      if (value > 255) return false;
    } else {
      return false;
    }
  }
  return parts === 3 && value >= 0;
}
