/**
 * How many people the next wave lets in.
 *
 * Too few and stock lies idle while people wait; too many and they come in vain. The measure is the
 * *yield*: of those let in whose case is settled, the share that bought. With `available` units, a
 * yield of y and b units a buyer, available / (y·b) people should be on their way; whoever is on the
 * way already is subtracted. For the first wave nothing is measured and y is taken as 1/1.2.
 *
 * What must never happen is that a failing sale lets in more: when the shop times out, nobody buys,
 * and a naive yield would fall and open the door wider. So only people's own decisions count (bought,
 * or let the chance pass); failures and unknown outcomes are left out, and outside NORMAL the yield is
 * frozen.
 *
 * Need is only a wish. Two caps are strict (new per second, and admitted people who have not
 * finished), and a rate follows how well the sale digests: down fast, up slowly, with a floor so that
 * it finds out when things are better.
 */

export type SaleMode = 'NORMAL' | 'DEGRADED' | 'QUEUE_ONLY' | 'CLOSED';

/** Before anything is measured: the first wave is 1.2 × stock. */
export const firstYield = 1 / 1.2;
/** Below this the yield is not believed: a wave is never more than ten times the stock. */
const yieldFloor = 0.1;

/** A yield as far as it is believed. */
export const believedYield = (measured: number): number =>
  Math.max(yieldFloor, Math.min(1, measured));

/** What slows waves, each between 0 (idle) and 1 (full) or above. */
export interface Pressure {
  readonly mode: SaleMode;
  /** Unacknowledged order messages ÷ their ceiling. */
  readonly backlogRatio: number;
  /** p99 of the reservation step ÷ its budget. */
  readonly reserveRatio: number;
}

/** Pressure from which the rate falls, and below which it rises; between them it stays. */
const fallAt = 0.8;
const riseBelow = 0.4;
/** Calm cycles in a row before the rate rises. */
const calmCyclesToRise = 3;
const cycleMs = 1_000;

/** Admissions per second that the sale digests: a ceiling, a floor, and steps between. */
export class RateGovernor {
  #ceiling = 0;
  #floor = 0;
  #step = 0;
  #rate: number;
  #calm = 0;
  #cycleAtMs = -Infinity;

  constructor(ceilingPerSecond: number) {
    this.#rate = ceilingPerSecond;
    this.setCeiling(ceilingPerSecond);
  }

  /** An edit of the cap: a rate at the old ceiling goes along, any other stays inside the new one. */
  setCeiling(ceilingPerSecond: number): void {
    const atCeiling = this.#rate >= this.#ceiling;
    this.#ceiling = ceilingPerSecond;
    this.#floor = Math.max(1, Math.ceil(ceilingPerSecond * 0.02));
    this.#step = Math.max(1, Math.ceil(ceilingPerSecond * 0.1));
    this.startAt(atCeiling ? ceilingPerSecond : this.#rate);
  }

  /** Goes on from a rate that was found before, so that a restart does not begin at full speed. */
  startAt(perSecond: number): void {
    this.#rate = Math.min(this.#ceiling, Math.max(this.#floor, perSecond));
  }

  get perSecond(): number {
    return this.#rate;
  }

  /** Call as often as liked; acts once a second. True when the rate changed. `monoMs` never falls. */
  feel(pressure: Pressure, monoMs: number): boolean {
    if (monoMs - this.#cycleAtMs < cycleMs) return false;
    this.#cycleAtMs = monoMs;
    const worst = Math.max(pressure.backlogRatio, pressure.reserveRatio);
    const before = this.#rate;
    if (worst >= fallAt || pressure.mode !== 'NORMAL') {
      this.#calm = 0;
      this.#rate = Math.max(this.#floor, Math.floor(this.#rate * 0.7));
    } else if (worst >= riseBelow) {
      this.#calm = 0;
    } else {
      this.#calm += 1;
      if (this.#calm >= calmCyclesToRise) {
        this.#rate = Math.min(this.#ceiling, this.#rate + this.#step);
      }
    }
    return this.#rate !== before;
  }
}

/** Share of the rate that is used in each mode: none while only pass holders may submit. */
export const modeShare: Readonly<Record<SaleMode, number>> = {
  NORMAL: 1,
  DEGRADED: 0.5,
  QUEUE_ONLY: 0,
  CLOSED: 0,
};

/** New admissions of the last second, on a clock that never goes back. */
export class AdmissionWindow {
  readonly #recent: { readonly monoMs: number; readonly count: number }[] = [];

  note(count: number, monoMs: number): void {
    this.#recent.push({ monoMs, count });
  }

  /** Admissions in (monoMs − 1 s, monoMs]. */
  lastSecond(monoMs: number): number {
    while (this.#recent.length > 0 && (this.#recent[0]?.monoMs ?? 0) <= monoMs - 1000) {
      this.#recent.shift();
    }
    return this.#recent.reduce((sum, each) => sum + each.count, 0);
  }
}

export interface WaveNeed {
  /** People wanted on their way, less those who are: what the stock calls for. */
  readonly wanted: number;
  /** Nothing was released yet: the rate does not bind, the caps do. */
  readonly first: boolean;
  readonly ratePerSecond: number;
  readonly sinceLastWaveMs: number;
  readonly mode: SaleMode;
  readonly newPerSecondCap: number;
  readonly newLastSecond: number;
  readonly activeCap: number;
  readonly active: number;
  /** Near the end waves are halved, so that the last units are not promised twice. */
  readonly nearEnd: boolean;
}

/**
 * Longest time whose rate a wave may save up, ms (or one person's time, where that is longer): a pause
 * must not end in a burst.
 */
const savedUpMs = 500;

/** The size of the next wave: at least 0, and within both caps always. */
export function waveSize(need: WaveNeed): number {
  const share = modeShare[need.mode];
  if (share === 0) return 0;
  const rate = need.ratePerSecond * share;
  const savedMs = Math.min(Math.max(savedUpMs, 1000 / rate), need.sinceLastWaveMs);
  const byRate = need.first ? Infinity : Math.floor((rate * savedMs) / 1000);
  const wanted = need.nearEnd ? Math.ceil(need.wanted / 2) : need.wanted;
  return Math.max(
    0,
    Math.floor(
      Math.min(
        wanted,
        byRate,
        need.newPerSecondCap - need.newLastSecond,
        need.activeCap - need.active,
      ),
    ),
  );
}
