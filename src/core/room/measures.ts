/**
 * Whether a room treats people alike, in numbers that name nobody: every label comes from a closed
 * list, every table has a fixed size.
 */
export const deviceClasses = ['phone', 'tablet', 'desktop', 'bot', 'other', 'unknown'] as const;
export type DeviceClass = (typeof deviceClasses)[number];

export const networkClasses = ['ipv4', 'ipv6', 'private', 'unknown'] as const;
export type NetworkClass = (typeof networkClasses)[number];

/** Where a request seems to come from; worth a statistic, not a decision. */
export interface Origin {
  readonly device: DeviceClass;
  readonly network: NetworkClass;
  /** 0 to {@link networkBuckets} − 1: a hash of the network's prefix. */
  readonly networkBucket: number;
}

export const networkBuckets = 1024;

/** Upper ends of the waits, s; one more bucket for what is longer. */
export const waitBucketsS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600] as const;

/** When people came, in tenths of the lobby's time; one more for late arrivals. */
export const arrivalBuckets = 11;

/** Passes per entry, and accounts per device: 1, 2, 3 … and so many or more. */
export const perOneBuckets = 6;

export function deviceClassOf(userAgent: string | undefined): DeviceClass {
  if (userAgent === undefined || userAgent === '') return 'unknown';
  // A few kilobytes of nonsense must not cost a search each.
  const agent = userAgent.slice(0, 256);
  if (/bot|crawl|spider|curl|wget|python|java\/|go-http|headless|axios|node/i.test(agent))
    return 'bot';
  if (/ipad|tablet|kindle|silk|playbook/i.test(agent)) return 'tablet';
  if (/android/i.test(agent)) return /mobile/i.test(agent) ? 'phone' : 'tablet';
  if (/iphone|ipod|windows phone|mobile/i.test(agent)) return 'phone';
  return /windows|macintosh|x11|linux|cros/i.test(agent) ? 'desktop' : 'other';
}

/** `address` as the gateway canonicalises it. */
export function networkOf(address: string): Pick<Origin, 'network' | 'networkBucket'> {
  const isV6 = address.includes(':');
  const parts = address.split(isV6 ? ':' : '.');
  // The part that one household, office or carrier shares.
  const prefix = parts.slice(0, 3).join(isV6 ? ':' : '.');
  return { network: classOf(address, isV6, parts.length), networkBucket: bucketOf(prefix) };
}

function classOf(address: string, isV6: boolean, parts: number): NetworkClass {
  if (isV6) return /^(::1$|f[cd]|fe80)/i.test(address) ? 'private' : 'ipv6';
  if (parts !== 4) return 'unknown';
  return /^(10\.|127\.|192\.168\.|169\.254\.|172\.(1[6-9]|2\d|3[01])\.)/.test(address)
    ? 'private'
    : 'ipv4';
}

/** FNV-1a, folded. */
function bucketOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return (hash ^ (hash >>> 15)) & (networkBuckets - 1);
}

/**
 * Gini coefficient of non-negative counts: 0 where all have the same, towards 1 where one has all.
 * O(n log n).
 */
export function gini(counts: Iterable<number>): number {
  const sorted = [...counts].sort((a, b) => a - b);
  let sum = 0;
  let weighted = 0;
  sorted.forEach((count, at) => {
    sum += count;
    weighted += count * (2 * (at + 1) - sorted.length - 1);
  });
  return sum === 0 ? 0 : weighted / (sorted.length * sum);
}

export interface ClassRates<Name extends string> {
  readonly name: Name;
  readonly joined: number;
  readonly admitted: number;
}

export interface MeasuresSnapshot {
  readonly byDevice: readonly ClassRates<DeviceClass>[];
  readonly byNetwork: readonly ClassRates<NetworkClass>[];
  /** By tenth of the lobby in which people came; the last one came after the opening. */
  readonly byArrival: readonly { readonly joined: number; readonly admitted: number }[];
  /** Entries by how many passes each took: 1, 2, … and at least {@link perOneBuckets}. */
  readonly passesPerEntry: readonly number[];
  /** Accounts by how many came from the same device before and with them. */
  readonly accountsPerDevice: readonly number[];
  /** Gini of passes over network prefixes that joined. */
  readonly concentration: number;
  /** From joining to the pass: counts by {@link waitBucketsS}, and the sum, s. */
  readonly waits: { readonly counts: readonly number[]; readonly sumS: number };
}

const deviceRows = 4;
const deviceWidth = 4_096;

export class RoomMeasures {
  readonly #device = new Map(deviceClasses.map((name) => [name, { joined: 0, admitted: 0 }]));
  readonly #network = new Map(networkClasses.map((name) => [name, { joined: 0, admitted: 0 }]));
  readonly #arrival = Array.from({ length: arrivalBuckets }, () => ({ joined: 0, admitted: 0 }));
  readonly #passes = new Float64Array(perOneBuckets);
  readonly #accounts = new Float64Array(perOneBuckets);
  readonly #joinsByPrefix = new Float64Array(networkBuckets);
  readonly #passesByPrefix = new Float64Array(networkBuckets);
  readonly #waits = new Float64Array(waitBucketsS.length + 1);
  readonly #devices = new Uint16Array(deviceRows * deviceWidth);
  #waitSumS = 0;

  /** A new place. `arrival` from 0 (lobby opens) to 1 (sale opens), above for late arrivals. */
  joined(origin: Origin | undefined, deviceHash: string | undefined, arrival: number): void {
    const { device, network, networkBucket } = origin ?? nowhere;
    count(this.#device.get(device), 'joined');
    count(this.#network.get(network), 'joined');
    count(this.#arrival[arrivalBucket(arrival)], 'joined');
    if (origin !== undefined) bump(this.#joinsByPrefix, networkBucket);
    if (deviceHash !== undefined) bump(this.#accounts, this.#seen(deviceHash));
  }

  /** A new pass; `attempt` from 1 counts the entry's passes for this SKU. */
  passTaken(origin: Origin | undefined, arrival: number, attempt: number, waitedMs: number): void {
    const { device, network, networkBucket } = origin ?? nowhere;
    bump(this.#passes, Math.min(perOneBuckets, attempt) - 1);
    if (attempt > 1) return;
    count(this.#device.get(device), 'admitted');
    count(this.#network.get(network), 'admitted');
    count(this.#arrival[arrivalBucket(arrival)], 'admitted');
    if (origin !== undefined) bump(this.#passesByPrefix, networkBucket);
    const waitedS = Math.max(0, waitedMs / 1000);
    const bucket = waitBucketsS.findIndex((end) => waitedS <= end);
    bump(this.#waits, bucket < 0 ? waitBucketsS.length : bucket);
    this.#waitSumS += waitedS;
  }

  snapshot(): MeasuresSnapshot {
    const present = this.#passesByPrefix.filter((_, at) => (this.#joinsByPrefix[at] ?? 0) > 0);
    return {
      byDevice: [...this.#device].map(([name, rates]) => ({ name, ...rates })),
      byNetwork: [...this.#network].map(([name, rates]) => ({ name, ...rates })),
      byArrival: this.#arrival.map((rates) => ({ ...rates })),
      passesPerEntry: [...this.#passes],
      accountsPerDevice: [...this.#accounts],
      concentration: gini(present),
      waits: { counts: [...this.#waits], sumS: this.#waitSumS },
    };
  }

  /** How often this device has come so far, less one, at most the last bucket: count-min. */
  #seen(deviceHash: string): number {
    let least = 0xffff;
    for (let row = 0; row < deviceRows; row += 1) {
      const bits = Number.parseInt(deviceHash.slice(row * 3, row * 3 + 3), 16);
      const at = row * deviceWidth + (Number.isNaN(bits) ? 0 : bits);
      const seen = Math.min(0xffff, (this.#devices[at] ?? 0) + 1);
      this.#devices[at] = seen;
      least = Math.min(least, seen);
    }
    return Math.min(perOneBuckets, least) - 1;
  }
}

const nowhere: Origin = { device: 'unknown', network: 'unknown', networkBucket: 0 };

function arrivalBucket(arrival: number): number {
  if (!(arrival >= 0)) return 0;
  return arrival >= 1 ? arrivalBuckets - 1 : Math.floor(arrival * (arrivalBuckets - 1));
}

function count(
  rates: { joined: number; admitted: number } | undefined,
  what: 'joined' | 'admitted',
): void {
  if (rates !== undefined) rates[what] += 1;
}

function bump(table: Float64Array, at: number): void {
  table[at] = (table[at] ?? 0) + 1;
}
