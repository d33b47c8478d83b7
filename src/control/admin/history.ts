import type { Counters, Overview, RefusalRow } from './source.ts';

/** Points kept: ten minutes of seconds. */
export const historyPoints = 600;

/** Reasons told apart in the plots; the rest is `other`. Keeps a point's size bounded. */
export const historyReasonsMax = 24;

/** One second of the sale: rates over the step before it, and levels at its end. */
export interface HistoryPoint {
  readonly takenAtMs: number;
  readonly arrivalsPerSecond: number;
  readonly handledPerSecond: number;
  readonly refusedPerSecond: number;
  readonly failedPerSecond: number;
  readonly limitedPerSecond: number;
  readonly shedPerSecond: number;
  readonly reservedPerSecond: number;
  readonly orderedPerSecond: number;
  readonly paidPerSecond: number;
  /** Refusals per second by reason, in the order of `History.reasons`. */
  readonly reasons: readonly number[];
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
  readonly refusedP99Ms: number | null;
  /** null: not known at that second; a gap, never a zero. */
  readonly queueDepth: number | null;
  readonly queueAgeMs: number | null;
  /** Units over all SKUs; null as above. */
  readonly stock: {
    readonly paid: number;
    readonly pending: number;
    readonly held: number;
    readonly available: number;
  } | null;
  readonly waiting: number;
}

/** Last minutes in a ring, so that a reload shows plots at once. Memory is bounded. */
export class History {
  readonly #points: HistoryPoint[] = [];
  readonly #reasons: string[] = [];
  #last: Overview | undefined;

  /** Names of the columns of `HistoryPoint.reasons`; only ever grows, up to the bound. */
  get reasons(): readonly string[] {
    return this.#reasons;
  }

  get points(): readonly HistoryPoint[] {
    return this.#points;
  }

  /** Adds the step since the overview before. The first overview only sets the start. */
  add(now: Overview): HistoryPoint | undefined {
    const before = this.#last;
    this.#last = now;
    if (before === undefined) return undefined;
    const seconds = (now.takenAtMs - before.takenAtMs) / 1000;
    // The wall clock went back or stood still: no rate can be told of such a step.
    if (seconds <= 0) return undefined;
    const rate = (name: keyof Counters): number =>
      round(growth(before.counters[name], now.counters[name]) / seconds);
    const sum = (pick: (row: Overview['stock'][number]) => number): number =>
      now.stock.reduce((total, row) => total + pick(row), 0);
    const point: HistoryPoint = {
      takenAtMs: now.takenAtMs,
      arrivalsPerSecond: rate('arrivals'),
      handledPerSecond: rate('handled'),
      refusedPerSecond: rate('rejected'),
      failedPerSecond: rate('failed'),
      limitedPerSecond: rate('limited'),
      shedPerSecond: rate('shed'),
      reservedPerSecond: rate('reserved'),
      orderedPerSecond: rate('ordered'),
      paidPerSecond: rate('paid'),
      reasons: this.#byReason(before.refusals, now.refusals, seconds),
      p50Ms: now.latency.admitted?.p50Ms ?? null,
      p99Ms: now.latency.admitted?.p99Ms ?? null,
      refusedP99Ms: now.latency.refused?.p99Ms ?? null,
      queueDepth: now.queue?.depth ?? null,
      queueAgeMs: now.queue?.oldestAgeMs ?? null,
      stock:
        now.stock.length === 0
          ? null
          : {
              paid: sum((row) => row.paid),
              pending: sum((row) => row.pending),
              held: sum((row) => row.held),
              available: sum((row) => row.available),
            },
      waiting: now.rooms.reduce((total, room) => total + room.waiting, 0),
    };
    this.#points.push(point);
    if (this.#points.length > historyPoints) this.#points.shift();
    return point;
  }

  #byReason(
    before: readonly RefusalRow[],
    now: readonly RefusalRow[],
    seconds: number,
  ): readonly number[] {
    const earlier = new Map(before.map((row) => [`${row.stage} ${row.reason}`, row.count]));
    const columns = this.#reasons.map(() => 0);
    for (const row of now) {
      const grown = growth(earlier.get(`${row.stage} ${row.reason}`) ?? 0, row.count);
      if (grown === 0) continue;
      const at = this.#column(row.reason);
      columns[at] = (columns[at] ?? 0) + grown / seconds;
    }
    return Array.from({ length: this.#reasons.length }, (_, at) => round(columns[at] ?? 0));
  }

  #column(reason: string): number {
    const known = this.#reasons.indexOf(reason);
    if (known >= 0) return known;
    if (this.#reasons.length < historyReasonsMax - 1) return this.#reasons.push(reason) - 1;
    const other = this.#reasons.indexOf('other');
    return other >= 0 ? other : this.#reasons.push('other') - 1;
  }
}

/** A counter that fell belongs to a process that started again: what it shows is all new. */
function growth(before: number, now: number): number {
  return now >= before ? now - before : now;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

/** Requests and 429s over the last `points` of history; share is null while nothing came in. */
export function limitedShare(points: readonly HistoryPoint[], seconds: number): number | null {
  let arrivals = 0;
  let limited = 0;
  for (const point of points.slice(-seconds)) {
    arrivals += point.arrivalsPerSecond;
    limited += point.limitedPerSecond;
  }
  return arrivals === 0 ? null : limited / arrivals;
}
