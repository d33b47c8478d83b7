import type { Algorithm, SlidingLogSpec } from '../algorithm.ts';
import { assertWhole } from '../algorithm.ts';
import { formatDuration, milli, periodMaxUs } from '../rate.ts';
import { CostNeverFitsError, LimitParameterError, neverUs } from '../token-bucket.ts';

/** Each call is stored, so the log is for few and valuable calls. */
export const slidingLogMax = 1_000;

/**
 * Sliding log: exactly `limit` calls in any span of one window. A call at t counts until t + window,
 * and no longer.
 *
 * State: a ring of the instants of the calls that count: index of the oldest, how many, the instants.
 * A cost of n stores n instants, so costs are whole.
 * @throws LimitParameterError
 */
export function slidingLogAlgorithm(spec: SlidingLogSpec): Algorithm {
  const { windowUs } = spec;
  assertWhole('limit', spec.limitMilli, 0, slidingLogMax * milli);
  assertWhole('window', windowUs, 1, periodMaxUs, formatDuration);
  if (spec.limitMilli % milli !== 0) {
    throw new LimitParameterError(
      `limit: found ${spec.limitMilli / milli}; allowed is a whole number, because each call is stored`,
    );
  }
  const limit = spec.limitMilli / milli;

  /** The instant of the nth oldest stored call. */
  const instant = (cells: Float64Array, at: number, nth: number): number =>
    cells[at + 2 + (((cells[at] ?? 0) + nth) % limit)] ?? 0;
  /** Stored calls that no longer count at `nowUs`. */
  const gone = (cells: Float64Array, at: number, nowUs: number): number => {
    const count = cells[at + 1] ?? 0;
    let nth = 0;
    while (nth < count && instant(cells, at, nth) + windowUs <= nowUs) nth += 1;
    return nth;
  };
  const store = (cells: Float64Array, at: number, nowUs: number): void => {
    const [head, count] = [cells[at] ?? 0, cells[at + 1] ?? 0];
    cells[at + 2 + ((head + count) % limit)] = nowUs;
    cells[at + 1] = count + 1;
  };

  return {
    spec,
    width: limit + 2,
    capacityMilli: spec.limitMilli,
    fillUs: windowUs,
    idleUs: 2 * windowUs,
    parameters: [spec.limitMilli, windowUs],
    fresh(cells, at) {
      cells[at] = 0;
      cells[at + 1] = 0;
    },
    wait(cells, at, nowUs, costMilli) {
      if (limit === 0) return neverUs;
      const cost = wholeCost(costMilli, spec.limitMilli);
      const count = cells[at + 1] ?? 0;
      const counting = count - gone(cells, at, nowUs);
      if (counting + cost <= limit) return 0;
      // The call whose leaving makes room, counted from the oldest.
      return instant(cells, at, count + cost - limit - 1) + windowUs - nowUs;
    },
    charge(cells, at, nowUs, costMilli) {
      const leaving = gone(cells, at, nowUs);
      cells[at] = ((cells[at] ?? 0) + leaving) % limit;
      cells[at + 1] = (cells[at + 1] ?? 0) - leaving;
      // Instants in the ring never go back: a call that is seen late counts from the newest.
      const count = cells[at + 1] ?? 0;
      const newest = count === 0 ? nowUs : Math.max(nowUs, instant(cells, at, count - 1));
      for (let n = 0; n < costMilli / milli; n += 1) store(cells, at, newest);
    },
    give(cells, at, chargedUs, costMilli) {
      const count = cells[at + 1] ?? 0;
      const kept: number[] = [];
      let left = costMilli / milli;
      for (let nth = 0; nth < count; nth += 1) {
        const stored = instant(cells, at, nth);
        if (left > 0 && stored === chargedUs) left -= 1;
        else kept.push(stored);
      }
      cells[at] = 0;
      cells[at + 1] = 0;
      for (const stored of kept) store(cells, at, stored);
    },
    leftMilli: (cells, at, nowUs) =>
      (limit - ((cells[at + 1] ?? 0) - gone(cells, at, nowUs))) * milli,
    fullUs(cells, at, nowUs) {
      const count = cells[at + 1] ?? 0;
      if (count - gone(cells, at, nowUs) === 0) return 0;
      return instant(cells, at, count - 1) + windowUs - nowUs;
    },
    forgettable(cells, at, nowUs) {
      const count = cells[at + 1] ?? 0;
      return count === 0 || instant(cells, at, count - 1) + 2 * windowUs <= nowUs;
    },
    adopt(cells, at, nowUs, leftMilli, ofMilli) {
      cells[at] = 0;
      cells[at + 1] = 0;
      if (ofMilli === 0) return;
      const used = Math.ceil((limit * (ofMilli - leftMilli)) / ofMilli);
      for (let n = 0; n < used; n += 1) store(cells, at, nowUs);
    },
    carry(cells, at, nowUs, from, fromCells, fromAt) {
      if (from.spec.algorithm !== 'sliding_log' || from.capacityMilli === 0) return false;
      const fromLimit = from.capacityMilli / milli;
      const used = fromLimit - from.leftMilli(fromCells, fromAt, nowUs) / milli;
      const [head, count] = [fromCells[fromAt] ?? 0, fromCells[fromAt + 1] ?? 0];
      const keep = Math.ceil((used * limit) / fromLimit);
      cells[at] = 0;
      cells[at + 1] = 0;
      // As many as the share asks for, spread over the instants there were, so that they leave when
      // the old ones would have left.
      for (let n = 0; n < keep; n += 1) {
        const nth = count - used + Math.floor((n * used) / keep);
        store(cells, at, fromCells[fromAt + 2 + ((head + nth) % fromLimit)] ?? nowUs);
      }
      return true;
    },
  };
}

function wholeCost(costMilli: number, limitMilli: number): number {
  if (costMilli % milli !== 0) {
    throw new RangeError(
      `cost: found ${costMilli / milli}; allowed is a whole number, because each call is stored`,
    );
  }
  if (costMilli > limitMilli) throw new CostNeverFitsError(costMilli, limitMilli);
  return costMilli / milli;
}
