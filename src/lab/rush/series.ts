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

  /** Events per second, over the seconds in which there were any. */
  rate(name: SeriesName): number {
    const busy = this.#columns[name].filter((value) => value > 0).length;
    return busy === 0 ? 0 : Math.round((this.total(name) / busy) * 10) / 10;
  }

  #second(nowMs: number): number {
    return Math.min(secondsMax, Math.max(0, Math.floor((nowMs - this.#startMs) / 1000)));
  }
}
