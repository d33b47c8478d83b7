import ipaddr from 'ipaddr.js';
import { idPattern } from '../core/bounds.ts';
import { RateSyntaxError, parseRate } from '../core/limit/rate.ts';
import type { Rate } from '../core/limit/rate.ts';

/**
 * The small languages inside a configuration file: durations, rates, sizes, instants, prices,
 * addresses. Each parser takes the text as it was written and returns the value, or `undefined` when
 * the text is not of its kind; `kinds` says in words what is allowed, for error messages, the
 * published schema and the documentation alike.
 */

const unitMs: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** A hundred days: longer than any sale, short enough that sums of instants stay exact. */
const durationMaxMs = 100 * 86_400_000;

const durationPattern = /^(\d{1,10}(?:\.\d{1,3})?)(ms|s|m|h|d)$/;

/** `15m`, `500ms`, `1.5s` → milliseconds, a whole number. A bare number has no unit: refused. */
export function parseDurationMs(text: string): number | undefined {
  const match = durationPattern.exec(text);
  const unit = unitMs[match?.[2] ?? ''];
  if (match === null || unit === undefined) return undefined;
  const ms = Math.round(Number(match[1]) * unit * 1000) / 1000;
  return Number.isInteger(ms) && ms <= durationMaxMs ? ms : undefined;
}

/** Milliseconds as a person would write them: the largest unit that divides them. */
export function formatDuration(ms: number): string {
  for (const unit of ['d', 'h', 'm', 's']) {
    const size = unitMs[unit] ?? 1;
    if (ms !== 0 && ms % size === 0) return `${ms / size}${unit}`;
  }
  return `${ms}ms`;
}

/** For editors; `readRate` is the true test. */
const ratePattern = /^\d{1,10}(\.\d{1,3})?\/(\d{1,10}(\.\d{1,6})?)?(us|ms|s|m|h|d)$/;

/** `5/s`, `0.5/s`, `100/10s`, `1/30d`; `undefined` where the limits' own reader refuses. */
export function readRate(text: string): Rate | undefined {
  try {
    return parseRate(text);
  } catch (error) {
    if (error instanceof RateSyntaxError) return undefined;
    throw error;
  }
}

const instantPattern =
  /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?(Z|[+-]\d\d:\d\d)?$/;

/** As it was written: after the first start, at an instant, or at a clock time in a zone. */
export type Instant =
  | { readonly kind: 'relative'; readonly offsetMs: number }
  | { readonly kind: 'absolute'; readonly atMs: number }
  | { readonly kind: 'local'; readonly fields: LocalFields };

export interface LocalFields {
  readonly year: number;
  readonly month: number;
  readonly day: number;
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
  readonly ms: number;
}

/** `+30s`, `2027-05-01T10:00:00Z`, `2027-05-01T18:00:00+08:00`, or `2027-05-01 18:00` in the activity's zone. */
export function parseInstant(text: string): Instant | undefined {
  if (text.startsWith('+')) {
    const offsetMs = parseDurationMs(text.slice(1));
    return offsetMs === undefined ? undefined : { kind: 'relative', offsetMs };
  }
  const match = instantPattern.exec(text);
  if (match === null) return undefined;
  const part = (at: number): number => Number(match[at] ?? '0');
  const fields = {
    year: part(1),
    month: part(2),
    day: part(3),
    hour: part(4),
    minute: part(5),
    second: part(6),
    ms: Number((match[7] ?? '0').padEnd(3, '0')),
  };
  const asUtc = utcOf(fields);
  if (asUtc === undefined) return undefined;
  const offset = match[8];
  if (offset === undefined) return { kind: 'local', fields };
  if (offset === 'Z') return { kind: 'absolute', atMs: asUtc };
  const [hours = 0, minutes = 0] = offset.slice(1).split(':').map(Number);
  if (hours > 14 || minutes > 59) return undefined;
  const shift = (hours * 60 + minutes) * 60_000 * (offset.startsWith('-') ? -1 : 1);
  return { kind: 'absolute', atMs: asUtc - shift };
}

/** The fields read as UTC; `undefined` for the 31st of February and its like. */
function utcOf(fields: LocalFields): number | undefined {
  const { year, month, day, hour, minute, second, ms } = fields;
  const at = Date.UTC(year, month - 1, day, hour, minute, second, ms);
  const back = new Date(at);
  const same =
    back.getUTCFullYear() === year &&
    back.getUTCMonth() === month - 1 &&
    back.getUTCDate() === day &&
    back.getUTCHours() === hour &&
    back.getUTCMinutes() === minute &&
    back.getUTCSeconds() === second;
  return same ? at : undefined;
}

/**
 * A clock time in a zone as an instant. Clocks that are set back show some times twice, and clocks
 * set forward skip some: those are not one instant, so the answer is `undefined` and the writer must
 * give the offset.
 */
export function localInstantMs(fields: LocalFields, zone: string): number | undefined {
  const asUtc = utcOf(fields);
  if (asUtc === undefined) return undefined;
  const found = new Set<number>();
  for (const probe of [asUtc - 86_400_000, asUtc + 86_400_000]) {
    const candidate: number = asUtc - zoneOffsetMs(zone, probe);
    if (candidate + zoneOffsetMs(zone, candidate) === asUtc) found.add(candidate);
  }
  const [only, second] = [...found];
  return second === undefined ? only : undefined;
}

/** How far a zone's clocks are ahead of UTC at an instant. */
function zoneOffsetMs(zone: string, atMs: number): number {
  const parts = new Intl.DateTimeFormat('en-US', {
    timeZone: zone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  }).formatToParts(atMs);
  const field = (type: string): number =>
    Number(parts.find((part) => part.type === type)?.value ?? '0');
  const shown = Date.UTC(
    field('year'),
    field('month') - 1,
    field('day'),
    field('hour'),
    field('minute'),
    field('second'),
  );
  return shown - Math.floor(atMs / 1000) * 1000;
}

/** An IANA zone that this Node knows. */
export function isTimeZone(text: string): boolean {
  try {
    new Intl.DateTimeFormat('en-US', { timeZone: text });
    return true;
  } catch (error) {
    if (error instanceof RangeError) return false;
    throw error;
  }
}

/** A price in minor units. */
export interface WrittenPrice {
  readonly amountMinor: number;
  readonly currency: string;
}

const pricePattern = /^(\d{1,10})(?:\.(\d{1,4}))? ([A-Z]{3})$/;
const currencies = new Set(Intl.supportedValuesOf('currency'));

/** `88.00 CNY`, `1200 JPY`: never more decimals than the currency has. */
export function parsePrice(text: string): WrittenPrice | undefined {
  const match = pricePattern.exec(text);
  const currency = match?.[3] ?? '';
  if (match === null || !currencies.has(currency)) return undefined;
  const digits =
    new Intl.NumberFormat('en', { style: 'currency', currency }).resolvedOptions()
      .maximumFractionDigits ?? 2;
  const decimals = match[2] ?? '';
  if (decimals.length > digits) return undefined;
  const amountMinor = Number(`${match[1]}${decimals.padEnd(digits, '0')}`);
  return Number.isSafeInteger(amountMinor) ? { amountMinor, currency } : undefined;
}

/** An address or a network in CIDR form, IPv4 or IPv6, in its canonical form. */
export function parseNetwork(text: string): string | undefined {
  const [address = '', bits] = text.split('/');
  if (!ipaddr.isValid(address) || !isFullyWritten(address)) return undefined;
  const parsed = ipaddr.process(address);
  const width = parsed.kind() === 'ipv4' ? 32 : 128;
  if (bits === undefined) return text.includes('/') ? undefined : `${parsed.toString()}/${width}`;
  const length = /^\d{1,3}$/.test(bits) ? Number(bits) : -1;
  if (length < 0 || length > width) return undefined;
  const network = `${parsed.toString()}/${length}`;
  const base =
    parsed.kind() === 'ipv4'
      ? ipaddr.IPv4.networkAddressFromCIDR(network)
      : ipaddr.IPv6.networkAddressFromCIDR(network);
  return `${base.toString()}/${length}`;
}

/** The library also reads `10.1`, `0x7f.1` and `2130706433` as addresses; a person who types those erred. */
function isFullyWritten(address: string): boolean {
  return address.includes(':') || ipaddr.IPv4.isValidFourPartDecimal(address);
}

const hostNamePattern =
  /^(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$/;

/** Where to listen: an IPv4 or IPv6 address, or a name. */
export function isHost(text: string): boolean {
  if (/^[\d.]+$/.test(text)) return ipaddr.IPv4.isValidFourPartDecimal(text);
  return ipaddr.IPv6.isValid(text) || hostNamePattern.test(text);
}

/** An absolute URL over HTTPS, or over HTTP to this machine alone. */
export function isSafeUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  if (url.username !== '' || url.password !== '') return false;
  if (url.protocol === 'https:') return true;
  return url.protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(url.hostname);
}

/** Redis as a configuration names it: one server, or nodes of a cluster from which all are found. */
export interface RedisPlace {
  readonly kind: 'redis';
  /** `redis://` or `rediss://`, one for each node named. */
  readonly urls: readonly string[];
  readonly cluster: boolean;
}

const redisNodesMax = 64;

/** `redis://host:6379/0`, `rediss://…`, or `redis-cluster://user:password@host1:7000,host2:7000`. */
export function parseRedis(text: string): RedisPlace | undefined {
  const cluster = /^redis-cluster:\/\/(?:([^@/]*)@)?([^/@]+)\/?$/.exec(text);
  if (cluster !== null) {
    const [, login, nodes = ''] = cluster;
    const urls = nodes.split(',').map((node) => {
      const at = login === undefined ? node : `${login}@${node}`;
      return `redis://${at}`;
    });
    const good = urls.length <= redisNodesMax && urls.every((url) => isServerUrl(url, ['redis:']));
    return good ? { kind: 'redis', urls, cluster: true } : undefined;
  }
  if (!isServerUrl(text, ['redis:', 'rediss:'])) return undefined;
  return { kind: 'redis', urls: [text], cluster: false };
}

/** Where order messages go, as a configuration names it. */
export type QueuePlace =
  | { readonly kind: 'memory' }
  /** The outbox streams of the inventory's Redis are the queue. */
  | { readonly kind: 'redis-streams' }
  | {
      readonly kind: 'nats' | 'kafka';
      /** `nats://`, `tls://`, `kafka://` or `kafka+tls://`, one for each server named. */
      readonly urls: readonly string[];
      /** Copies of each message. */
      readonly replicas: number;
    };

const brokersMax = 64;

/**
 * `memory`, `redis-streams`, or a broker: `nats://`, `nats+tls://`, `kafka://`, `kafka+tls://`, then
 * `user:password@` where there is one, then servers, then `?replicas=3` for a cluster that keeps copies.
 */
export function parseQueue(text: string): QueuePlace | undefined {
  if (text === 'memory' || text === 'redis-streams') return { kind: text };
  const match =
    /^(nats|kafka)(\+tls)?:\/\/(?:([^@/?]*)@)?([^/@?]+)\/?(?:\?replicas=([1-5]))?$/.exec(text);
  const [, kind, tls, login, nodes = '', replicas = '1'] = match ?? [];
  if (kind !== 'nats' && kind !== 'kafka') return undefined;
  const scheme = tls === undefined ? kind : kind === 'nats' ? 'tls' : 'kafka+tls';
  const urls = nodes
    .split(',')
    .map((node) => `${scheme}://${login === undefined ? node : `${login}@${node}`}`);
  const good = urls.length <= brokersMax && urls.every((url) => isServerUrl(url, [`${scheme}:`]));
  return good ? { kind, urls, replicas: Number(replicas) } : undefined;
}

/** `postgres://user:password@host:5432/database` */
export function isPostgresUrl(text: string): boolean {
  return isServerUrl(text, ['postgres:', 'postgresql:']) && new URL(text).pathname.length > 1;
}

function isServerUrl(text: string, protocols: readonly string[]): boolean {
  if (/\s/.test(text) || !URL.canParse(text)) return false;
  const url = new URL(text);
  return protocols.includes(url.protocol) && url.hostname !== '' && url.hash === '';
}

/** The same text with the user and password of a URL in it hidden. */
export function withoutLogin(text: string): string {
  return text.replace(/\/\/[^/]*@/, '//***@');
}

/** One kind of text: what is allowed in words, a pattern for editors, and the true test. */
export interface Kind {
  readonly allowed: string;
  /** No stricter than `accepts`: editors may show less, never more. */
  readonly pattern?: string;
  accepts(text: string): boolean;
}

export const kinds = {
  id: {
    allowed: '1 to 64 of the characters A-Z a-z 0-9 _ -',
    pattern: idPattern.source,
    accepts: (text: string) => idPattern.test(text),
  },
  duration: {
    allowed: 'a number with its unit (ms, s, m, h, d), such as 500ms or 15m, at most 100d',
    pattern: durationPattern.source,
    accepts: (text: string) => parseDurationMs(text) !== undefined,
  },
  rate: {
    allowed: 'so many per so long, such as 5/s, 0.5/s, 100/10s',
    pattern: ratePattern.source,
    accepts: (text: string) => readRate(text) !== undefined,
  },
  instant: {
    allowed:
      'after the first start (+30s), an instant with its offset (2027-05-01T10:00:00Z), or a clock time in the time zone of the activity (2027-05-01 18:00)',
    accepts: (text: string) => parseInstant(text) !== undefined,
  },
  price: {
    allowed:
      'an amount and an ISO 4217 currency, with no more decimals than it has, such as 88.00 CNY or 1200 JPY',
    pattern: pricePattern.source,
    accepts: (text: string) => parsePrice(text) !== undefined,
  },
  zone: {
    allowed: 'an IANA time zone, such as Asia/Shanghai or UTC',
    accepts: isTimeZone,
  },
  network: {
    allowed: 'an address or a network, such as 10.0.0.0/8 or 2001:db8::/32',
    accepts: (text: string) => parseNetwork(text) !== undefined,
  },
  host: {
    allowed: 'an address or a host name to listen on, such as 127.0.0.1, :: or localhost',
    accepts: isHost,
  },
  memory_or_redis: {
    allowed:
      'memory, redis://host:port, rediss://host:port (TLS), or redis-cluster://host:port,host:port; with user:password@ before the host where there is one',
    accepts: (text: string) => text === 'memory' || parseRedis(text) !== undefined,
  },
  queue: {
    allowed:
      'memory, redis-streams, nats://host:port,host:port or kafka://host:port,host:port; nats+tls:// and kafka+tls:// for TLS, user:password@ before the first host where there is one, ?replicas=3 at the end for a cluster that keeps copies',
    accepts: (text: string) => parseQueue(text) !== undefined,
  },
  pglite_or_postgres: {
    allowed: 'pglite, or postgres://user:password@host:port/database',
    accepts: (text: string) => text === 'pglite' || isPostgresUrl(text),
  },
  url: {
    allowed: 'an https:// address without credentials in it (http:// to this machine alone)',
    accepts: isSafeUrl,
  },
} as const satisfies Record<string, Kind>;

export type KindName = keyof typeof kinds;
