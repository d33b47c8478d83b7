import type { WaveLane } from './events.ts';
import { Forecaster } from './forecaster.ts';
import { laneParts } from './lanes.ts';
import type { LaneParts } from './lanes.ts';
import { Line } from './line.ts';
import type { Sketch, Ties } from './line.ts';
import type { Bound, ReleasedRange } from './release.ts';

interface Range {
  /** Positions up to here, exclusive. */
  to: number;
  wave: number;
}

interface LaneCounts {
  readonly waiting: number;
  readonly again: number;
  readonly passed: { readonly lobby: number; readonly late: number };
}

/**
 * One lane as control holds it: its two lines one behind the other as positions 0, 1, 2 …, the front
 * that waves have reached, and which wave released which positions.
 */
export class LaneModel {
  readonly lane: string;
  readonly parts: LaneParts;
  lobby = new Line();
  readonly late = new Line();
  readonly forecaster = new Forecaster();
  /** First position that no wave has passed. */
  #front = 0;
  /** Ascending, contiguous from 0 to the front. Wave 0: waiting again. */
  readonly #ranges: Range[] = [];
  #lobbySketch: Sketch | undefined;
  #lateSketch: Sketch | undefined;
  /** Counts of the lane as it stands: made when asked for, dropped by every change. */
  #counts: LaneCounts | undefined;

  constructor(lane: string) {
    this.lane = lane;
    this.parts = laneParts(lane);
  }

  /** Once, before any wave: the drawn order. */
  setLobby(sorted: Float64Array, ties: Ties): void {
    this.lobby = new Line(sorted, ties);
    this.#lobbySketch = undefined;
    this.#counts = undefined;
  }

  pushLate(sequence: number): void {
    this.late.push(sequence);
    this.#lateSketch = undefined;
    this.#counts = undefined;
  }

  /** Position of an entry, or -1. */
  positionOf(cohort: 0 | 1, key: number, entryId: string): number {
    if (cohort === 0) return this.lobby.rankOf(key, entryId);
    const rank = this.late.rankOf(key, entryId);
    return rank < 0 ? -1 : this.lobby.size + rank;
  }

  markGone(position: number): void {
    const isLobby = position < this.lobby.size;
    const changed = isLobby
      ? this.lobby.markGone(position)
      : this.late.markGone(position - this.lobby.size);
    if (!changed) return;
    this.#counts = undefined;
    if (isLobby) this.#lobbySketch = undefined;
    else this.#lateSketch = undefined;
  }

  isGone(position: number): boolean {
    return position < this.lobby.size
      ? this.lobby.isGone(position)
      : this.late.isGone(position - this.lobby.size);
  }

  /** The wave a position belongs to; 0 for waiting again, undefined for not reached. */
  waveAt(position: number): number | undefined {
    return this.#ranges.find((range) => position < range.to)?.wave;
  }

  livingBetween(from: number, to: number): number {
    const split = this.lobby.size;
    return (
      this.lobby.livingBetween(from, Math.min(to, split)) +
      this.late.livingBetween(Math.max(0, from - split), Math.max(0, to - split))
    );
  }

  /** Living entries not released, those waiting again included. */
  get waiting(): number {
    return this.#count().waiting;
  }

  /** Living entries that wait again before the front. */
  get again(): number {
    return this.#count().again;
  }

  /** Living entries of each line that the front has passed. */
  get passed(): { readonly lobby: number; readonly late: number } {
    return this.#count().passed;
  }

  #count(): LaneCounts {
    if (this.#counts !== undefined) return this.#counts;
    const split = this.lobby.size;
    let again = 0;
    let from = 0;
    for (const range of this.#ranges) {
      if (range.wave === 0) again += this.livingBetween(from, range.to);
      from = range.to;
    }
    const passed = {
      lobby: this.lobby.livingBetween(0, Math.min(this.#front, split)),
      late: this.late.livingBetween(0, Math.max(0, this.#front - split)),
    };
    const behind = this.lobby.living + this.late.living - passed.lobby - passed.late;
    this.#counts = { waiting: behind + again, again, passed };
    return this.#counts;
  }

  picker(): LanePicker {
    return new LanePicker(this, this.#front, this.#nextAgain(0));
  }

  /** The first living position at or after `from` that waits again, or -1. */
  #nextAgain(from: number): number {
    let start = 0;
    for (const range of this.#ranges) {
      if (range.wave === 0 && range.to > from) {
        for (let at = Math.max(from, start); at < range.to; at += 1)
          if (!this.isGone(at)) return at;
      }
      start = range.to;
    }
    return -1;
  }

  nextAgain(after: number): number {
    return this.#nextAgain(after + 1);
  }

  nextLiving(from: number): number {
    const split = this.lobby.size;
    if (from < split) {
      const rank = this.lobby.nextLiving(from);
      if (rank < split) return rank;
    }
    return split + this.late.nextLiving(Math.max(0, from - split));
  }

  get end(): number {
    return this.lobby.size + this.late.size;
  }

  boundAt(position: number): Bound {
    if (position >= this.lobby.size) {
      return { cohort: 1, key: this.late.keyAt(position - this.lobby.size) };
    }
    const tie = this.lobby.tieAt(position);
    return { cohort: 0, key: this.lobby.keyAt(position), ...(tie === undefined ? {} : { tie }) };
  }

  /** Applies a wave that was decided (now, or before a restart). */
  release(wave: number, share: WaveLane): void {
    this.#counts = undefined;
    if (share.againUpTo !== undefined) {
      this.#releaseAgain(wave, this.#positionsWithin(share.againUpTo));
    }
    if (share.upTo !== undefined) {
      const to = this.#positionsWithin(share.upTo);
      if (to <= this.#front) {
        throw new Error(
          `wave ${wave} ends at position ${to} of lane "${this.lane}", behind its front ${this.#front}`,
        );
      }
      this.#ranges.push({ to, wave });
      this.#front = to;
    }
  }

  /** The wave's entries wait again, at their place in the order. */
  requeue(wave: number): void {
    this.#counts = undefined;
    for (const range of this.#ranges) if (range.wave === wave) range.wave = 0;
  }

  /** Waves up to here can no longer be told apart by anybody: their ranges become one. */
  forget(isOld: (wave: number) => boolean): void {
    for (let at = this.#ranges.length - 2; at >= 0; at -= 1) {
      const [one, next] = [this.#ranges[at], this.#ranges[at + 1]];
      if (one === undefined || next === undefined || one.wave === 0 || next.wave === 0) continue;
      if (isOld(one.wave) && isOld(next.wave)) this.#ranges.splice(at, 1);
    }
  }

  released(): readonly ReleasedRange[] {
    return this.#ranges.map((range) => ({ upTo: this.boundAt(range.to - 1), wave: range.wave }));
  }

  sketches(): { readonly lobby: Sketch; readonly late: Sketch } {
    this.#lobbySketch ??= this.lobby.sketch();
    this.#lateSketch ??= this.late.sketch();
    return { lobby: this.#lobbySketch, late: this.#lateSketch };
  }

  /** Positions at or before a bound, whether or not the entry that was the bound is in the line. */
  #positionsWithin(bound: Bound): number {
    return bound.cohort === 0
      ? this.lobby.countWithin(bound.key, bound.tie)
      : this.lobby.size + this.late.countWithin(bound.key, undefined);
  }

  #releaseAgain(wave: number, to: number): void {
    let from = 0;
    for (let at = 0; at < this.#ranges.length && from < to; at += 1) {
      const range = this.#ranges[at];
      if (range === undefined) break;
      if (range.wave === 0) {
        if (range.to > to) {
          this.#ranges.splice(at, 0, { to, wave });
          return;
        }
        range.wave = wave;
      }
      from = range.to;
    }
  }
}

/** Goes along a lane without changing it: what a wave would take. */
export class LanePicker {
  readonly lane: LaneModel;
  #front: number;
  #again: number;
  #count = 0;
  #againCount = 0;
  #lastFront = -1;
  #lastAgain = -1;

  constructor(lane: LaneModel, front: number, again: number) {
    this.lane = lane;
    this.#front = lane.nextLiving(front);
    this.#again = again;
  }

  /** The lane's next entry as a sort key: waiting again first, then cohort, then key. */
  get head(): { readonly again: boolean; readonly bound: Bound } | undefined {
    if (this.#again >= 0) return { again: true, bound: this.lane.boundAt(this.#again) };
    if (this.#front >= this.lane.end) return undefined;
    return { again: false, bound: this.lane.boundAt(this.#front) };
  }

  get count(): number {
    return this.#count + this.#againCount;
  }

  take(): void {
    if (this.#again >= 0) {
      this.#lastAgain = this.#again;
      this.#againCount += 1;
      this.#again = this.lane.nextAgain(this.#again);
      return;
    }
    this.#lastFront = this.#front;
    this.#count += 1;
    this.#front = this.lane.nextLiving(this.#front + 1);
  }

  share(): WaveLane {
    return {
      lane: this.lane.lane,
      count: this.#count,
      again: this.#againCount,
      ...(this.#lastFront < 0 ? {} : { upTo: this.lane.boundAt(this.#lastFront) }),
      ...(this.#lastAgain < 0 ? {} : { againUpTo: this.lane.boundAt(this.#lastAgain) }),
    };
  }
}

/** Negative if `a` stands before `b` in the order of release over all lanes. */
export function compareHeads(
  a: { readonly again: boolean; readonly bound: Bound },
  b: { readonly again: boolean; readonly bound: Bound },
): number {
  if (a.again !== b.again) return a.again ? -1 : 1;
  if (a.bound.cohort !== b.bound.cohort) return a.bound.cohort - b.bound.cohort;
  if (a.bound.key !== b.bound.key) return a.bound.key - b.bound.key;
  const [left, right] = [a.bound.tie ?? '', b.bound.tie ?? ''];
  return left < right ? -1 : left > right ? 1 : 0;
}
