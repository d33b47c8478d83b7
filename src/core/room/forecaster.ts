import { firstFactors, horizonOf, horizonsMs, offsetMs, plainEtaMs, stretch } from './forecast.ts';
import type { LaneForecast } from './release.ts';

/** Share of ranges that should hold. */
export const heldTarget = 0.9;

/** The estimator's own clock, ms: what it learns depends on the log alone, not on how often it is asked. */
const tickMs = 1_000;
const shortWindowMs = 20_000;
const longWindowMs = 120_000;
/** Statements followed up per tick, and at once: bounds memory, not truth. */
const statementsPerTick = 4;
const statementsMax = 4_000;
/** What a person is told, and that it is their turn, they learn up to one publication later, ms. */
const toldWithinMs = 250;
/** Ratios kept per horizon. */
const ratiosMax = 600;
/** With this many ratios they count as much as the first guess does. */
const beliefHalf = 200;
/** Settled statements without which no share is published. */
const settledMin = 20;
/** How fast the width follows errors. */
const learningRate = 0.04;
/** Quantiles of a bounded sample are too narrow at its ends: a little is added on the log scale. */
const padding = 0.15;
/** Longest silence that is ticked through one by one; after a longer one, old paces say nothing. */
const silenceMaxTicks = 7_200;

interface Statement {
  readonly atMs: number;
  /** Entries released in all when its place is reached. */
  readonly target: number;
  readonly plainMs: number;
  readonly horizon: number;
  readonly lowMs: number;
  readonly highMs: number;
}

interface Range {
  readonly low: number;
  readonly high: number;
}

interface Horizon {
  /** ln(actual ÷ plain), newest last. */
  readonly ratios: number[];
  /** Share of ranges that may miss, as adapted. */
  miss: number;
}

/**
 * Follows one lane's front. Fed with waves in the order of the log, it makes statements on a clock of
 * its own, as if people at several places had asked, and finds out later how true they were.
 */
export class Forecaster {
  readonly #waves: { readonly atMs: number; readonly released: number }[] = [];
  readonly #horizons: Horizon[] = horizonsMs.map(() => ({ ratios: [], miss: 1 - heldTarget }));
  /** The ranges that follow from the horizons, until something more is learnt. */
  #ranges: readonly Range[] | undefined;
  #held = 0;
  #settled = 0;
  #statements: Statement[] = [];
  #released = 0;
  #firstWaveMs: number | undefined;
  #tickedMs = 0;
  #draws = 1;

  /** Entries released behind the front of the lane by a wave at `atMs`; `waiting` are left. */
  wave(atMs: number, people: number, waiting: number): void {
    this.advanceTo(atMs, waiting + people);
    this.#released += people;
    // The first wave is as large as the stock; the pace is what comes after it.
    if (this.#firstWaveMs === undefined) {
      this.#firstWaveMs = atMs;
      this.#tickedMs = atMs;
    }
    this.#waves.push({ atMs, released: this.#released });
    this.#follow(atMs);
    const oldestMs = atMs - 2 * longWindowMs;
    while ((this.#waves[1]?.atMs ?? Infinity) < oldestMs) this.#waves.shift();
  }

  /** Lets the own clock run, with the room as it is; call with growing instants. */
  advanceTo(nowMs: number, waiting: number): void {
    if (this.#firstWaveMs === undefined) return;
    if (nowMs - this.#tickedMs > silenceMaxTicks * tickMs) {
      this.#statements = [];
      this.#tickedMs = nowMs;
    }
    while (this.#tickedMs + tickMs <= nowMs) {
      this.#tickedMs += tickMs;
      this.#state(this.#tickedMs, waiting);
    }
  }

  /** While nobody is released by decision, nothing is stated and nothing is held against it. */
  suspend(nowMs: number): void {
    this.#statements = [];
    this.#tickedMs = Math.max(this.#tickedMs, nowMs);
  }

  forecast(nowMs: number): Omit<LaneForecast, 'likelyPlaces' | 'unlikelyPlaces'> {
    return {
      ...this.#paces(nowMs),
      ranges: this.#allRanges(),
      heldRatio: this.#settled < settledMin ? null : round2(this.#held / this.#settled),
    };
  }

  #paces(nowMs: number): { shortPerSecond: number | null; longPerSecond: number | null } {
    return {
      shortPerSecond: this.#pace(nowMs, shortWindowMs),
      longPerSecond: this.#pace(nowMs, longWindowMs),
    };
  }

  /** Entries per second over the window, or since the first wave; null before there is a pace. */
  #pace(nowMs: number, windowMs: number): number | null {
    const first = this.#firstWaveMs;
    const [earliest] = this.#waves;
    if (first === undefined || earliest === undefined || this.#waves.length < 3) return null;
    const fromMs = Math.max(first, nowMs - windowMs);
    const spanMs = nowMs - fromMs;
    if (spanMs < 2 * tickMs) return null;
    let before = earliest.released;
    for (const wave of this.#waves) {
      if (wave.atMs > fromMs) break;
      before = wave.released;
    }
    return ((this.#released - before) / spanMs) * 1000;
  }

  /** Tells people at a few places when it is their turn, as a gateway would. */
  #state(atMs: number, waiting: number): void {
    const paces = this.#paces(atMs);
    for (
      let one = 0;
      one < statementsPerTick && this.#statements.length < statementsMax;
      one += 1
    ) {
      if (waiting <= 0) return;
      // As people ask: at intervals that grow along the line, to some thirty times as long at its end.
      const ahead = Math.floor((waiting / 29) * (30 ** this.#chance() - 1));
      const plainMs = plainEtaMs(paces, ahead);
      if (plainMs === null) continue;
      const horizon = horizonOf(plainMs);
      const { lowMs, highMs } = stretch(plainMs, this.#allRanges()[horizon] ?? unlearnt);
      const target = this.#released + ahead + 1;
      this.#statements.push({ atMs, target, plainMs, horizon, lowMs, highMs });
    }
  }

  /** What became of the statements whose place has been reached. */
  #follow(nowMs: number): void {
    const open: Statement[] = [];
    for (const statement of this.#statements) {
      if (statement.target > this.#released) open.push(statement);
      else this.#learn(statement, nowMs - statement.atMs);
    }
    this.#statements = open;
  }

  #learn(statement: Statement, actualMs: number): void {
    const held =
      actualMs >= statement.lowMs - toldWithinMs && actualMs <= statement.highMs + toldWithinMs;
    this.#settled += 1;
    if (held) this.#held += 1;
    const of = this.#horizons[statement.horizon];
    if (of === undefined) return;
    this.#ranges = undefined;
    of.ratios.push(Math.log((actualMs + offsetMs) / (statement.plainMs + offsetMs)));
    if (of.ratios.length > ratiosMax) of.ratios.shift();
    const error = held ? 0 : 1;
    of.miss = Math.min(0.3, Math.max(0.004, of.miss + learningRate * (1 - heldTarget - error)));
  }

  #allRanges(): readonly Range[] {
    this.#ranges ??= this.#horizons.map((_, at) => this.#range(at));
    return this.#ranges;
  }

  #range(at: number): Range {
    const { ratios, miss } = this.#horizons[at] ?? { ratios: [], miss: 1 };
    const first = Math.log(firstFactors[at] ?? 1);
    const sorted = [...ratios].sort((one, other) => one - other);
    const quantile = (share: number): number =>
      sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(share * (sorted.length - 1))))] ??
      0;
    // What is settled first are the lucky ones, and neighbours share their luck: belief grows slowly.
    const belief = ratios.length / (ratios.length + beliefHalf);
    return {
      low: Math.exp(belief * (quantile(miss / 2) - padding) - (1 - belief) * first),
      high: Math.exp(belief * (quantile(1 - miss / 2) + padding) + (1 - belief) * first),
    };
  }

  /** A fixed sequence: which places are followed must not depend on anything but the log. */
  #chance(): number {
    this.#draws = Math.imul(this.#draws, 1_664_525) + 1_013_904_223;
    return (this.#draws >>> 0) / 0x100000000;
  }
}

const unlearnt: Range = { low: 0, high: Infinity };

const round2 = (value: number): number => Math.round(value * 100) / 100;
