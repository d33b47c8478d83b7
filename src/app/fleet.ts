import type { SkuKey } from '../core/activity.ts';
import type { LedgerSnapshot } from '../core/ledger/ledger.ts';
import type { Mode } from '../core/overload/mode.ts';
import { decodeRelease, encodeRelease } from '../core/room/release-codec.ts';
import type { ReleaseState } from '../core/room/release.ts';
import { releaseMaxAgeMs } from '../pipeline/release-states.ts';
import {
  type Epoch,
  epochIsSoldOut,
  type SoldOutSnapshot,
  soldOutTtlMs,
} from '../pipeline/sold-out-flags.ts';
import type { Broadcast, Word } from '../ports/broadcast.ts';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import type { Role } from './roles.ts';

/**
 * What the processes of one deployment tell each other, and how each of them hears it.
 *
 *     release/ACTIVITY       the leader → everybody      where the room stands, four times a second
 *     epoch/ACTIVITY/SKU     whoever learns it first     sold out, or open again
 *     holders/ACTIVITY/SKU   the leader → gateways       who holds units of a sold-out SKU, as a filter
 *     forgot/ACTIVITY/SKU    whoever notices → leader    the inventory has lost acknowledged writes
 *     instance/NAME          each → control              its ledger, its mode, itself
 *     doors/all              an operator → everybody     a mode that is pinned, or doors that open again
 *
 * Hearing is fast and may fail: a connection breaks and what was said meanwhile is gone. So the last
 * word on every topic is read once a second by those whom it concerns. Nothing here is a promise to a
 * buyer: rooms, stock and orders are decided in their stores, and a process that has heard nothing for
 * too long holds people instead of guessing.
 */
export interface FleetParts {
  readonly broadcast: Broadcast;
  readonly instance: string;
  readonly roles: readonly Role[];
  readonly activities: () => readonly { readonly activityId: string }[];
  readonly skus: () => readonly SkuKey[];
  readonly clock: Clock;
  readonly timers: Timers;
  readonly report: () => InstanceReport;
  readonly onRelease: (state: ReleaseState, ageMs: number) => void;
  readonly onEpoch: (sku: SkuKey, epoch: Epoch) => void;
  readonly onHolders: (snapshot: SoldOutSnapshot) => void;
  readonly onForgot: (sku: SkuKey, generation: number) => void;
  /** An operator's word on the doors, once each; `ageMs` old by now. */
  readonly onDoors: (word: DoorsWord, ageMs: number) => void;
  readonly onError: (what: string, error: unknown) => void;
}

/** What an operator wants of every process. */
export type DoorsWord =
  | {
      readonly kind: 'pin';
      readonly mode: Mode;
      readonly forMs: number;
      readonly who: string;
      readonly reason: string;
    }
  | { readonly kind: 'unpin' }
  /** Doors that were stopped open again: by the ramp. */
  | { readonly kind: 'ramp' };

/** What a process says of itself. */
export interface InstanceReport {
  readonly instance: string;
  readonly roles: readonly Role[];
  readonly startedAtMs: number;
  readonly mode: Mode;
  /** Smoothed round trip of the reservation step, ms; null while nothing is measured. */
  readonly reserveMs: number | null;
  readonly inFlight: number;
  readonly inFlightLimit: number;
  readonly loopDelayMs: number;
  readonly memoryBytes: number;
  readonly rulesVersion: number;
  readonly ledger: LedgerSnapshot;
}

/** With the sender's clock at that moment. */
type SaidReport = InstanceReport & { readonly saidAtMs?: number };

/** Between two readings of last words, and between two reports, ms. */
const healEveryMs = 1_000;
/** A process that has not said anything for so long is not there, ms. */
const reportTtlMs = 5_000;
const epochTtlMs = 10_000;
const forgotTtlMs = 60_000;
/** A word on the doors is worth reading for as long as any pin may last, ms. */
const doorsTtlMs = 24 * 3_600_000;
/** Processes remembered at once. */
const instancesMax = 1_000;

/** Reports over which the way of a word is judged: the quickest of them had the least delay. */
const skewReports = 8;

interface OtherReport {
  readonly report: InstanceReport;
  readonly atUs: number;
  /** Our clock at hearing less theirs at saying, ms, of the last few reports: skew, and a delay on top. */
  readonly offsetsMs: readonly number[];
}

export class Fleet {
  readonly #parts: FleetParts;
  readonly #others = new Map<string, OtherReport>();
  /** Topics with a word on its way; the newest one that came meanwhile waits. */
  readonly #saying = new Map<string, Word | undefined>();
  readonly #startedAtMs: number;
  #version = 0;
  /** Of the last word on the doors, by whoever said it. */
  #doorsHeard = 0;
  #timer: TimerHandle | undefined;
  #healing: Promise<void> | undefined;
  #stopped = false;

  constructor(parts: FleetParts) {
    this.#parts = parts;
    this.#startedAtMs = parts.clock.wallMs();
  }

  /** Resolves once it listens and the last words have been read. */
  async start(): Promise<void> {
    const { broadcast, timers } = this.#parts;
    await broadcast.listen((topic, text) => this.#hear(topic, text, 0));
    await this.#heal();
    this.#timer = timers.every(healEveryMs, () => {
      this.#tellOfUs();
      this.#healing ??= this.#heal().finally(() => {
        this.#healing = undefined;
      });
    });
    this.#tellOfUs();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#healing;
  }

  /** Processes heard of lately, ourselves not among them. */
  others(): readonly InstanceReport[] {
    const oldestUs = this.#parts.clock.monoUs() - reportTtlMs * 1_000;
    for (const [name, { atUs }] of this.#others) if (atUs < oldestUs) this.#others.delete(name);
    return [...this.#others.values()].map(({ report }) => report);
  }

  /**
   * How far the clock of another process is from ours, ms, where it is furthest; undefined where nobody
   * else is heard. A word on its way only adds, so the least of a few differences is the skew, and the
   * quickest way of a word on top.
   */
  get clockSkewMs(): number | undefined {
    this.others();
    const skews = [...this.#others.values()]
      .filter(({ offsetsMs }) => offsetsMs.length > 0)
      .map(({ offsetsMs }) => Math.abs(Math.min(...offsetsMs)));
    return skews.length === 0 ? undefined : Math.max(...skews);
  }

  tellRelease(state: ReleaseState): void {
    const { activityId, epoch, version } = state;
    const text = encodeRelease(state);
    this.#say(`release/${activityId}`, { epoch, version, text, ttlMs: releaseMaxAgeMs });
  }

  /** Said by all who learn it; only the first is heard. */
  tellEpoch(sku: SkuKey, { generation, stockEpoch }: Epoch): void {
    const text = JSON.stringify([generation, stockEpoch]);
    const word = { epoch: generation, version: stockEpoch, text, ttlMs: epochTtlMs };
    this.#say(`epoch/${nameOf(sku)}`, word);
  }

  /** `leaderEpoch` silences whoever led before. */
  tellHolders(snapshot: SoldOutSnapshot, leaderEpoch: number): void {
    this.#version += 1;
    this.#say(`holders/${nameOf(snapshot)}`, {
      epoch: leaderEpoch,
      version: this.#version,
      text: encodeSnapshot(snapshot),
      ttlMs: soldOutTtlMs * 2,
    });
  }

  /** This generation of the SKU's stock has lost acknowledged writes. */
  tellForgot(sku: SkuKey, generation: number): void {
    const word = { epoch: generation, version: 1, text: String(generation), ttlMs: forgotTtlMs };
    this.#say(`forgot/${nameOf(sku)}`, word);
  }

  /** To every process but this one, which knows; a later word silences an earlier one. */
  tellDoors(word: DoorsWord): void {
    const saidAtMs = Math.max(this.#doorsHeard + 1, this.#parts.clock.wallMs());
    this.#doorsHeard = saidAtMs;
    this.#say('doors/all', {
      epoch: 1,
      version: saidAtMs,
      text: JSON.stringify([saidAtMs, word]),
      ttlMs: doorsTtlMs,
    });
  }

  #tellOfUs(): void {
    const { instance, report } = this.#parts;
    this.#version += 1;
    this.#say(`instance/${instance}`, {
      epoch: this.#startedAtMs,
      version: this.#version,
      text: JSON.stringify({ ...report(), saidAtMs: this.#parts.clock.wallMs() }),
      ttlMs: reportTtlMs,
    });
  }

  /** One word of a topic at a time; of those that wait, only the newest matters. */
  #say(topic: string, word: Word): void {
    if (this.#saying.has(topic)) {
      this.#saying.set(topic, word);
      return;
    }
    this.#saying.set(topic, undefined);
    this.#parts.broadcast
      .say(topic, word)
      .catch((error: unknown) => this.#parts.onError(`telling ${topic}`, error))
      .finally(() => {
        const next = this.#saying.get(topic);
        this.#saying.delete(topic);
        if (next !== undefined && !this.#stopped) this.#say(topic, next);
      });
  }

  /** Reads what may not have been heard. */
  async #heal(): Promise<void> {
    const { activities, skus, roles, onError } = this.#parts;
    const gateway = roles.includes('gateway');
    // Whoever starts in the middle of a pin takes part in it.
    const wanted: [string, number][] = [['doors/all', doorsTtlMs]];
    for (const { activityId } of activities()) {
      wanted.push([`release/${activityId}`, releaseMaxAgeMs]);
    }
    for (const sku of skus()) {
      const name = nameOf(sku);
      if (gateway) {
        wanted.push([`epoch/${name}`, epochTtlMs], [`holders/${name}`, soldOutTtlMs * 2]);
      }
      if (roles.includes('control')) wanted.push([`forgot/${name}`, forgotTtlMs]);
    }
    const read = async ([topic, ttlMs]: readonly [string, number]): Promise<void> => {
      const heard = await this.#parts.broadcast.last(topic, ttlMs);
      if (heard !== undefined) this.#hear(topic, heard.text, heard.ageMs);
    };
    const results = await Promise.allSettled(wanted.map(read));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) onError('reading last words', failed.reason);
  }

  #hear(topic: string, text: string, ageMs: number): void {
    if (this.#stopped) return;
    try {
      this.#understand(topic, text, ageMs);
    } catch (error) {
      this.#parts.onError(`a word on ${topic}`, error);
    }
  }

  #understand(topic: string, text: string, ageMs: number): void {
    const [kind, activityId = '', skuId = ''] = topic.split('/');
    const sku = { activityId, skuId };
    switch (kind) {
      case 'release':
        this.#parts.onRelease(decodeRelease(text), ageMs);
        return;
      case 'epoch': {
        const [generation, stockEpoch] = JSON.parse(text) as [number, number];
        this.#parts.onEpoch(sku, { generation, stockEpoch });
        return;
      }
      case 'holders':
        this.#parts.onHolders(decodeSnapshot(sku, text));
        return;
      case 'forgot':
        this.#parts.onForgot(sku, Number(text));
        return;
      case 'doors': {
        const [saidAtMs, word] = JSON.parse(text) as [number, DoorsWord];
        if (saidAtMs <= this.#doorsHeard) return;
        this.#doorsHeard = saidAtMs;
        this.#parts.onDoors(word, ageMs);
        return;
      }
      case 'instance':
        if (activityId !== this.#parts.instance) this.#note(JSON.parse(text) as SaidReport);
        return;
      default:
        throw new Error(`nobody here knows what "${topic}" means`);
    }
  }

  #note({ saidAtMs, ...report }: SaidReport): void {
    const known = this.#others.get(report.instance);
    if (this.#others.size >= instancesMax && known === undefined) return;
    const { clock } = this.#parts;
    // A process of an older version does not say when.
    const offset = saidAtMs === undefined ? [] : [clock.wallMs() - saidAtMs];
    const offsetsMs = [...(known?.offsetsMs ?? []), ...offset].slice(-skewReports);
    this.#others.set(report.instance, { report, atUs: clock.monoUs(), offsetsMs });
  }
}

function nameOf({ activityId, skuId }: SkuKey): string {
  return `${activityId}/${skuId}`;
}

function encodeSnapshot({ generation, stockEpoch, holders }: SoldOutSnapshot): string {
  const filter =
    holders === undefined
      ? []
      : [Buffer.from(holders.bits).toString('base64'), holders.hashes, holders.members];
  return JSON.stringify([generation, stockEpoch, ...filter]);
}

function decodeSnapshot(sku: SkuKey, text: string): SoldOutSnapshot {
  const [generation, stockEpoch, bits, hashes, members] = JSON.parse(text) as [
    number,
    number,
    string?,
    number?,
    number?,
  ];
  return {
    ...sku,
    generation,
    stockEpoch,
    soldOut: epochIsSoldOut(stockEpoch),
    ...(bits === undefined || hashes === undefined || members === undefined
      ? {}
      : { holders: { bits: Buffer.from(bits, 'base64'), hashes, members } }),
  };
}
