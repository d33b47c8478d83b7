/**
 * Health signals. A signal is measured over the last interval, smoothed so that trouble shows at once
 * and relief is believed slowly, and placed between two marks: `low`, where it is still fine, and
 * `high`, where it is as bad as we are willing to see. "No data" is a value of its own: a part that
 * says nothing is not thereby well.
 */

export interface SignalMarks {
  /** At or below: pressure 0. Same unit as the measurement. */
  readonly low: number;
  /** At: pressure 1. Must exceed `low`. */
  readonly high: number;
}

/** Smoothing factor while a signal rises: half of a jump shows in one interval. */
export const risingAlpha = 0.5;
/** While it falls: relief takes several intervals to be believed. */
export const fallingAlpha = 0.2;
/** Pressure is clamped here, so that one absurd reading cannot take minutes to smooth away. */
export const pressureMax = 1.5;

/**
 * Next smoothed value. `undefined` measurement keeps what is known (and the age grows elsewhere);
 * a first measurement is taken as it is. NaN and infinities count as no data.
 */
export function smooth(
  previous: number | undefined,
  measured: number | undefined,
): number | undefined {
  if (measured === undefined || !Number.isFinite(measured)) return previous;
  if (previous === undefined) return measured;
  const alpha = measured > previous ? risingAlpha : fallingAlpha;
  return previous + alpha * (measured - previous);
}

/** Where a smoothed value stands between its marks, clamped to 0…1.5. */
export function pressure(value: number, marks: SignalMarks): number {
  const raw = (value - marks.low) / (marks.high - marks.low);
  return Math.min(pressureMax, Math.max(0, raw));
}

export interface WorstSignal {
  readonly name: string;
  readonly pressure: number;
}

/** Intervals without a measurement after which a signal is `no data`. */
export const staleIntervals = 3;

interface Kept<Name> {
  readonly name: Name;
  value: number | undefined;
  /** Intervals since it was last measured. */
  silent: number;
}

/** All signals of one instance, fed once per interval. */
export class SignalBoard<Name extends string> {
  readonly #marks: Readonly<Record<Name, SignalMarks>>;
  readonly #values = new Map<Name, Kept<Name>>();
  /** The same, for going over all of them ten times a second. */
  readonly #all: readonly Kept<Name>[];

  constructor(marks: Readonly<Record<Name, SignalMarks>>) {
    this.#marks = marks;
    for (const name of Object.keys(marks) as Name[]) {
      const { low, high } = marks[name];
      if (!(high > low)) {
        throw new RangeError(
          `signal "${name}": high mark ${high} is not above low mark ${low}; allowed: high > low`,
        );
      }
      this.#values.set(name, { name, value: undefined, silent: staleIntervals });
    }
    this.#all = [...this.#values.values()];
  }

  /** One interval's measurements, in one or two parts; a name left out had no data. O(number of signals). */
  feed(
    measured: Partial<Readonly<Record<Name, number>>>,
    more?: Partial<Readonly<Record<Name, number>>>,
  ): void {
    for (const kept of this.#all) {
      const fresh = measured[kept.name] ?? more?.[kept.name];
      if (fresh === undefined || !Number.isFinite(fresh)) {
        kept.silent += 1;
        continue;
      }
      kept.silent = 0;
      kept.value = smooth(kept.value, fresh);
    }
  }

  value(name: Name): number | undefined {
    const kept = this.#values.get(name);
    return kept === undefined || kept.silent >= staleIntervals ? undefined : kept.value;
  }

  /** The worst pressure and whose it is; `undefined` when no signal has data. */
  worst(): WorstSignal | undefined {
    let worst: WorstSignal | undefined;
    for (const { name, value, silent } of this.#all) {
      if (value === undefined || silent >= staleIntervals) continue;
      const here = pressure(value, this.#marks[name]);
      if (worst === undefined || here > worst.pressure) worst = { name, pressure: here };
    }
    return worst;
  }
}
