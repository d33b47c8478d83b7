import type { Algorithm, SlidingWindowSpec } from '../algorithm.ts';
import { assertWhole, limitMaxMilli, ticksUs } from '../algorithm.ts';
import { floorDiv, mulDiv } from '../numbers.ts';
import { formatDuration, formatMilli, periodMaxUs } from '../rate.ts';
import { LimitParameterError, neverUs } from '../token-bucket.ts';

/**
 * Sliding window by two counters: the spending of the last window is taken to be spread evenly over
 * it, and counts with the part that the sliding window still covers:
 *
 *     before · (1 − elapsed/window) + now ≤ limit
 *
 * Three numbers of state whatever the limit. The error, stated: what was spent at the very end of the
 * last window fades as if it had been spent earlier, so a span of length Δt ≤ window may admit up to
 * limit · (1 + Δt/window), the bound of a token bucket with burst = limit and the same rate; never
 * 2 × limit at once, as a fixed window may. A caller that asks all the time gets `limit` per window,
 * less up to one call where the calls do not fall on the instants at which the sum allows one.
 *
 * State: start of the window, spent in the one before, spent in this one. The comparison is made in
 * whole numbers, thousandths times ticks; the tick is the finest with which limit · window fits.
 * @throws LimitParameterError
 */
export function slidingWindowAlgorithm(spec: SlidingWindowSpec): Algorithm {
  const { limitMilli, windowUs } = spec;
  assertWhole('limit', limitMilli, 0, limitMaxMilli);
  assertWhole('window', windowUs, 1, periodMaxUs, formatDuration);
  const tickUs = ticksUs.find(
    (tick) =>
      windowUs % tick === 0 && limitMilli * 2 * (windowUs / tick) <= Number.MAX_SAFE_INTEGER,
  );
  if (tickUs === undefined) {
    throw new LimitParameterError(
      `limit and window: found ${formatMilli(limitMilli)} per ${formatDuration(windowUs)}, which cannot be counted exactly; allowed is a smaller limit or a window of whole seconds`,
    );
  }
  const ticks = windowUs / tickUs;

  /** Start of the window that counts at `nowUs`. */
  const startAt = (own: number, nowUs: number): number =>
    nowUs < own + windowUs ? own : nowUs - (nowUs % windowUs);
  /** Spending of the window before the one that starts at `start`. */
  const beforeAt = (cells: Float64Array, at: number, start: number): number => {
    const own = cells[at] ?? 0;
    if (start === own) return cells[at + 1] ?? 0;
    return start === own + windowUs ? (cells[at + 2] ?? 0) : 0;
  };
  const spentAt = (cells: Float64Array, at: number, start: number): number =>
    start === cells[at] ? (cells[at + 2] ?? 0) : 0;
  const ticksSince = (start: number, nowUs: number): number =>
    nowUs <= start ? 0 : floorDiv(nowUs - start, tickUs);

  return {
    spec,
    width: 3,
    capacityMilli: limitMilli,
    fillUs: 2 * windowUs,
    idleUs: 2 * windowUs,
    parameters: [limitMilli, windowUs, tickUs],
    fresh(cells, at, nowUs) {
      cells[at] = nowUs - (nowUs % windowUs);
      cells[at + 1] = 0;
      cells[at + 2] = 0;
    },
    wait(cells, at, nowUs, costMilli) {
      if (limitMilli === 0) return neverUs;
      const start = startAt(cells[at] ?? 0, nowUs);
      const before = beforeAt(cells, at, start);
      const spent = spentAt(cells, at, start);
      const elapsed = ticksSince(start, nowUs);
      const room = limitMilli - spent - costMilli;
      if (before * (ticks - elapsed) <= room * ticks) return 0;
      // The first tick at which the fading part leaves room: in this window, or, where this window's
      // own spending is what is in the way, in the next.
      const free =
        room >= 0
          ? ticks - floorDiv(room * ticks, before)
          : 2 * ticks - floorDiv((limitMilli - costMilli) * ticks, spent);
      return start + free * tickUs - nowUs;
    },
    charge(cells, at, nowUs, costMilli) {
      const start = startAt(cells[at] ?? 0, nowUs);
      const before = beforeAt(cells, at, start);
      const spent = spentAt(cells, at, start);
      cells[at] = start;
      cells[at + 1] = before;
      cells[at + 2] = spent + costMilli;
    },
    give(cells, at, chargedUs, costMilli) {
      const start = cells[at] ?? 0;
      const place = chargedUs >= start ? at + 2 : chargedUs >= start - windowUs ? at + 1 : -1;
      if (place < 0) return;
      cells[place] = Math.max(0, (cells[place] ?? 0) - costMilli);
    },
    leftMilli(cells, at, nowUs) {
      const start = startAt(cells[at] ?? 0, nowUs);
      const fading = beforeAt(cells, at, start) * (ticks - ticksSince(start, nowUs));
      const left = (limitMilli - spentAt(cells, at, start)) * ticks - fading;
      return left <= 0 ? 0 : floorDiv(left, ticks);
    },
    fullUs(cells, at, nowUs) {
      const start = startAt(cells[at] ?? 0, nowUs);
      if (spentAt(cells, at, start) > 0) return start + 2 * windowUs - nowUs;
      return beforeAt(cells, at, start) > 0 ? start + windowUs - nowUs : 0;
    },
    forgettable: (cells, at, nowUs) => nowUs - (cells[at] ?? 0) >= 2 * windowUs,
    adopt(cells, at, nowUs, leftMilli, ofMilli) {
      cells[at] = nowUs - (nowUs % windowUs);
      cells[at + 1] = 0;
      cells[at + 2] = ofMilli === 0 ? 0 : limitMilli - mulDiv(limitMilli, leftMilli, ofMilli);
    },
    carry(cells, at, _nowUs, from, fromCells, fromAt) {
      const { spec: old } = from;
      if (old.algorithm !== 'sliding_window' || old.windowUs !== windowUs) return false;
      if (old.limitMilli === 0) return false;
      cells[at] = fromCells[fromAt] ?? 0;
      cells[at + 1] = mulDiv(fromCells[fromAt + 1] ?? 0, limitMilli, old.limitMilli);
      cells[at + 2] = mulDiv(fromCells[fromAt + 2] ?? 0, limitMilli, old.limitMilli);
      return true;
    },
  };
}
