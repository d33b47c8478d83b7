import type { Activity } from '../core/activity.ts';
import {
  answerMark,
  challengeBitsMax,
  signChallenge,
  verifyChallenge,
} from '../core/pass/challenge.ts';
import type { KeyRing } from '../core/pass/key-ring.ts';
import type { Mac } from '../core/pass/path-id.ts';
import { networkBuckets } from '../core/room/measures.ts';
import { newId } from '../ports/random.ts';
import type { Random } from '../ports/random.ts';
import type { ChallengeDemand, Person } from './door.ts';

/** Whether a person may join, or what they must answer first. */
export interface ChallengeDesk {
  /**
   * Undefined: they may. An answer that held is used up by this.
   * @param lastJoinedMs when the person joined this room last, if ever: whatever was asked before
   *   has been answered then, perhaps to another process
   */
  check(
    activity: Activity,
    person: Person,
    answer: string | undefined,
    nowMs: number,
    lastJoinedMs?: number,
  ): { readonly reason: string; readonly demand: ChallengeDemand } | undefined;
}

export interface ChallengeOptions {
  readonly ring: KeyRing;
  readonly issuer: string;
  readonly random: Random;
  /** `callback`: where people are vouched for, and the key under which the answer is signed. */
  readonly callback?: { readonly url: string; readonly mac: Mac };
}

/** Time to answer, ms: a slow phone at the highest difficulty, twice. */
const lifeMs = 180_000;
const minBitsDefault = 14;
const maxBitsDefault = 20;
/** Answers remembered until they would have expired anyway; past it the oldest are. */
const usedMax = 200_000;

export class Challenges implements ChallengeDesk {
  readonly #o: ChallengeOptions;
  readonly #devices = new DeviceCounts();
  readonly #networks = new NetworkCounts();
  /** Challenge id → expiry, oldest first. A person's challenge is worth nothing to another. */
  readonly #used = new Map<string, number>();

  constructor(options: ChallengeOptions) {
    this.#o = options;
  }

  check(
    activity: Activity,
    person: Person,
    answer: string | undefined,
    nowMs: number,
    lastJoinedMs?: number,
  ): { readonly reason: string; readonly demand: ChallengeDemand } | undefined {
    const settings = activity.room.challenge;
    if (settings === undefined) return undefined;
    const reason =
      answer === undefined
        ? 'none'
        : this.#refusal(activity, person, answer, nowMs, lastJoinedMs ?? Number.NEGATIVE_INFINITY);
    return reason === undefined
      ? undefined
      : { reason, demand: this.#demand(activity, person, nowMs) };
  }

  #refusal(
    activity: Activity,
    person: Person,
    answer: string,
    nowMs: number,
    lastJoinedMs: number,
  ): string | undefined {
    const { ring, issuer, callback } = this.#o;
    const { userId } = person;
    const expected = { issuer, activityId: activity.activityId, userId };
    const verdict = verifyChallenge(ring, answer, expected, nowMs);
    if (verdict.kind === 'refused') return verdict.reason;
    const { bits, challengeId, issuedAtMs, expiresAtMs } = verdict.claims;
    if (activity.room.challenge?.kind === 'callback') {
      const mark = answer.lastIndexOf(answerMark);
      const vouched = callback?.mac(answer.slice(0, mark));
      if (vouched === undefined || !sameText(vouched, answer.slice(mark + 1))) return 'voucher';
    } else if (bits < this.#leastBits(activity)) {
      // Asked for when the activity demanded less, or by a callback's token.
      return 'work';
    }
    if (this.#used.has(challengeId) || issuedAtMs <= lastJoinedMs) return 'used';
    this.#use(challengeId, expiresAtMs, nowMs);
    return undefined;
  }

  #demand(activity: Activity, person: Person, nowMs: number): ChallengeDemand {
    const { ring, issuer, random, callback } = this.#o;
    const settings = activity.room.challenge;
    const isCallback = settings?.kind === 'callback';
    const bits = isCallback ? 0 : this.#bits(activity, person, nowMs);
    const expiresAtMs = nowMs + lifeMs;
    const token = signChallenge(ring, {
      issuer,
      activityId: activity.activityId,
      userId: person.userId,
      bits,
      challengeId: newId(random, 'ch'),
      issuedAtMs: nowMs,
      expiresAtMs,
    });
    return {
      kind: isCallback ? 'callback' : 'proof_of_work',
      token,
      bits,
      url: isCallback ? (callback?.url ?? null) : null,
      expiresAtMs,
    };
  }

  #leastBits(activity: Activity): number {
    return Math.min(challengeBitsMax, activity.room.challenge?.minBits ?? minBitsDefault);
  }

  /**
   * From the least to the most by risk: how many have come from this device, or none was named; how
   * many more from this network than from others.
   */
  #bits(activity: Activity, person: Person, nowMs: number): number {
    const least = this.#leastBits(activity);
    const most = Math.max(
      least,
      Math.min(challengeBitsMax, activity.room.challenge?.maxBits ?? maxBitsDefault),
    );
    const { deviceHash, origin } = person;
    const byDevice = deviceHash === undefined ? 0.25 : this.#devices.riskOf(deviceHash, nowMs);
    const byNetwork = origin === undefined ? 0 : this.#networks.riskOf(origin.networkBucket, nowMs);
    const risk = Math.max(byDevice, byNetwork);
    return least + Math.round(risk * (most - least));
  }

  #use(challengeId: string, expiresAtMs: number, nowMs: number): void {
    for (const [id, expires] of this.#used) {
      if (expires > nowMs && this.#used.size < usedMax) break;
      this.#used.delete(id);
    }
    this.#used.set(challengeId, expiresAtMs + 60_000);
  }
}

/** Counts that forget by half each minute. */
class FadingCounts {
  readonly counts: Uint32Array;
  #halvedAtMs = 0;

  constructor(size: number) {
    this.counts = new Uint32Array(size);
  }

  /** Forgets what time has made old. True if anything was. */
  fade(nowMs: number): boolean {
    const minutes = Math.floor((nowMs - this.#halvedAtMs) / 60_000);
    if (minutes <= 0) return false;
    this.#halvedAtMs = nowMs;
    const shift = Math.min(31, minutes);
    for (let at = 0; at < this.counts.length; at += 1) {
      this.counts[at] = (this.counts[at] ?? 0) >>> shift;
    }
    return true;
  }

  add(at: number): number {
    const count = Math.min(0xffff_ffff, (this.counts[at] ?? 0) + 1);
    this.counts[at] = count;
    return count;
  }
}

/** Challenges that one network may ask for in a minute or two before it costs it more. */
const networkFree = 128;
/** And how many times the average network's, before it does. */
const networkFactor = 8;

/**
 * Counts of challenges by network prefix, hashed: 4 KiB. A prefix is shared by an office or a
 * carrier's customers, so only what stands out far from the other networks is a risk.
 */
class NetworkCounts {
  readonly #fading = new FadingCounts(networkBuckets);
  #total = 0;

  /** 0 to so many and so many times the average, then up to 1 at 32 times that. Notes one more. */
  riskOf(bucket: number, nowMs: number): number {
    if (this.#fading.fade(nowMs)) this.#total = this.#fading.counts.reduce((sum, n) => sum + n, 0);
    this.#total += 1;
    const count = this.#fading.add(bucket);
    const free = Math.max(networkFree, (networkFactor * this.#total) / networkBuckets);
    return Math.min(1, Math.max(0, Math.log2(count / free) / 5));
  }
}

/** Counts of challenges by device: a count-min sketch of 64 KiB. */
class DeviceCounts {
  static readonly #rows = 4;
  static readonly #width = 4096;
  readonly #fading = new FadingCounts(DeviceCounts.#rows * DeviceCounts.#width);

  /** 0 for a device seen a few times, 1 from some thirty on. Notes one more. */
  riskOf(deviceHash: string, nowMs: number): number {
    this.#fading.fade(nowMs);
    let least = 0xffff_ffff;
    for (let row = 0; row < DeviceCounts.#rows; row += 1) {
      const bits = Number.parseInt(deviceHash.slice(row * 3, row * 3 + 3), 16);
      const at = row * DeviceCounts.#width + (Number.isNaN(bits) ? 0 : bits);
      least = Math.min(least, this.#fading.add(at));
    }
    return Math.min(1, Math.max(0, Math.log2(Math.max(1, least - 2)) / 5));
  }
}

function sameText(expected: string, found: string): boolean {
  if (expected.length !== found.length) return false;
  let difference = 0;
  for (let at = 0; at < expected.length; at += 1) {
    difference |= expected.charCodeAt(at) ^ found.charCodeAt(at);
  }
  return difference === 0;
}
