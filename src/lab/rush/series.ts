/** What is counted second by second, for progress, rates and plots. */
export const seriesNames = [
  'arrivals',
  'requests',
  'refused',
  'admitted',
  'reserved',
  'ordered',
  'paid',
  'failures',
  'in_flight',
] as const;
export type SeriesName = (typeof seriesNames)[number];

/** Seconds kept; a run is far shorter, and later events fall into the last second. */
const secondsMax = 90_000;

/** Counters by second since the start of the run. Memory grows with the run's length alone. */
export class Series {
  readonly #startMs: number;
  readonly #columns: Record<SeriesName, number[]>;

  constructor(startMs: number) {
    this.#startMs = startMs;
    this.#columns = Object.fromEntries(seriesNames.map((name) => [name, []])) as unknown as Record<
      SeriesName,
      number[]
    >;
  }

  add(name: SeriesName, nowMs: number, by = 1): void {
    const column = this.#columns[name];
    const second = this.#second(nowMs);
    while (column.length <= second) column.push(0);
    column[second] = (column[second] ?? 0) + by;
  }

  /** Keeps the highest value of a second. */
  peak(name: SeriesName, nowMs: number, value: number): void {
    const column = this.#columns[name];
    const second = this.#second(nowMs);
    while (column.length <= second) column.push(0);
    column[second] = Math.max(column[second] ?? 0, value);
  }

  column(name: SeriesName): readonly number[] {
    return this.#columns[name];
  }

  total(name: SeriesName): number {
    return this.#columns[name].reduce((sum, value) => sum + value, 0);
  }

  /** Events per second over the seconds from the first with one to the last with one. */
  rate(name: SeriesName): number {
    const column = this.#columns[name];
    const first = column.findIndex((value) => value > 0);
    if (first < 0) return 0;
    let last = column.length - 1;
    while (column[last] === 0) last -= 1;
    return Math.round((this.total(name) / (last - first + 1)) * 10) / 10;
  }

  #second(nowMs: number): number {
    return Math.min(secondsMax, Math.max(0, Math.floor((nowMs - this.#startMs) / 1000)));
  }
}
