import type { Algorithm, FixedWindowSpec } from '../algorithm.ts';
import { assertWhole, limitMaxMilli } from '../algorithm.ts';
import { mulDiv } from '../numbers.ts';
import { formatDuration, periodMaxUs } from '../rate.ts';
import { neverUs } from '../token-bucket.ts';

/**
 * Fixed window: at most `limit` in each window, windows aligned to the clock's zero.
 *
 * Its edge is part of its contract: a caller that spends one window at its end and the next at its
 * start gets up to 2 × limit within an instant, and never more than 2 × limit in any span of one
 * window. Whoever cannot take that uses the token bucket. State: start of the window, spent in it.
 * @throws LimitParameterError
 */
export function fixedWindowAlgorithm(spec: FixedWindowSpec): Algorithm {
  const { limitMilli, windowUs } = spec;
  assertWhole('limit', limitMilli, 0, limitMaxMilli);
  assertWhole('window', windowUs, 1, periodMaxUs, formatDuration);

  /** Start of the window that holds `nowUs`, never before the state's own. */
  const startAt = (cells: Float64Array, at: number, nowUs: number): number => {
    const own = cells[at] ?? 0;
    return nowUs < own + windowUs ? own : nowUs - (nowUs % windowUs);
  };
  const spentAt = (cells: Float64Array, at: number, nowUs: number): number =>
    startAt(cells, at, nowUs) === cells[at] ? (cells[at + 1] ?? 0) : 0;

  return {
    spec,
    width: 2,
    capacityMilli: limitMilli,
    fillUs: windowUs,
    idleUs: 2 * windowUs,
    parameters: [limitMilli, windowUs],
    fresh(cells, at, nowUs) {
      cells[at] = nowUs - (nowUs % windowUs);
      cells[at + 1] = 0;
    },
    wait(cells, at, nowUs, costMilli) {
      if (limitMilli === 0) return neverUs;
      if (spentAt(cells, at, nowUs) + costMilli <= limitMilli) return 0;
      return startAt(cells, at, nowUs) + windowUs - nowUs;
    },
    charge(cells, at, nowUs, costMilli) {
      const spent = spentAt(cells, at, nowUs);
      cells[at] = startAt(cells, at, nowUs);
      cells[at + 1] = spent + costMilli;
    },
    give(cells, at, chargedUs, costMilli) {
      if (startAt(cells, at, chargedUs) !== cells[at] || chargedUs < (cells[at] ?? 0)) return;
      cells[at + 1] = Math.max(0, (cells[at + 1] ?? 0) - costMilli);
    },
    leftMilli: (cells, at, nowUs) => limitMilli - spentAt(cells, at, nowUs),
    fullUs: (cells, at, nowUs) =>
      spentAt(cells, at, nowUs) === 0 ? 0 : startAt(cells, at, nowUs) + windowUs - nowUs,
    forgettable: (cells, at, nowUs) => nowUs - (cells[at] ?? 0) >= 2 * windowUs,
    adopt(cells, at, nowUs, leftMilli, ofMilli) {
      cells[at] = nowUs - (nowUs % windowUs);
      cells[at + 1] = ofMilli === 0 ? 0 : limitMilli - mulDiv(limitMilli, leftMilli, ofMilli);
    },
  };
}
