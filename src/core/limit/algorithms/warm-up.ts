import type { Algorithm, WarmUpSpec } from '../algorithm.ts';
import { assertWhole, ticksUs } from '../algorithm.ts';
import { ceilDiv, greatestCommonDivisor, mulDiv } from '../numbers.ts';
import { formatDuration, formatRate, milli } from '../rate.ts';
import { LimitParameterError, neverUs } from '../token-bucket.ts';

/**
 * Warm-up: a token bucket whose rate rises.
 *
 * What is cold (a fresh instance, a cache that has been idle) is not given the full rate at once. The
 * shape, exactly: a key starts cold, with `coldShare` of its burst. From its first call on (admitted or
 * refused), warmth grows with time from 0 to `warmUp`, and at warmth w tokens are earned at
 *
 *     rate · (coldShare + (1 − coldShare) · w / warmUp)
 *
 * so the earned amount is a parabola until warm and a line after it. A key without a charge for the
 * idle time is cold again, with the burst of a cold one. The idle time is two warm-up times and two
 * times the slowest fill, so that a caller who waits as told is never cooled by waiting.
 *
 * Everything stays whole: with the rate as p/q thousandths per tick (token-bucket.ts), coldShare as
 * c/d and warm-up as W ticks, a unit is 1/(2·q·d·W) of a thousandth, and going from warmth a to b earns
 * p·(2·c·W·(b − a) + (d − c)·(b² − a²)) units. State: level, time counted to, warmth in ticks.
 * @throws LimitParameterError
 */
export function warmUpAlgorithm(spec: WarmUpSpec): Algorithm {
  const { burstMilli } = spec;
  assertWhole('burst', burstMilli, 0, 1_000_000 * milli);
  assertWhole('warm-up', spec.warmUpUs, 1, 86_400_000_000, formatDuration);
  const cold = spec.coldShare ?? { of: 1, parts: 3 };
  if (
    !Number.isInteger(cold.of) ||
    !Number.isInteger(cold.parts) ||
    cold.of < 1 ||
    cold.of > cold.parts ||
    cold.parts > 1000
  ) {
    throw new LimitParameterError(
      `cold share: found ${cold.of}/${cold.parts}; allowed is a fraction above 0 and at most 1, in thousandths or coarser`,
    );
  }
  const { tickUs, perTick, warmTicks, perMilli } = chooseUnits(spec, cold);
  const capacity = burstMilli * perMilli;
  const coldLevel = mulDiv(capacity, cold.of, cold.parts);
  /** Units a tick earns when warm, and when cold. */
  const warmPerTick = perTick * 2 * cold.parts * warmTicks;
  const coldPerTick = perTick * 2 * cold.of * warmTicks;
  const slowFillTicks = perTick === 0 ? 0 : ceilDiv(capacity, coldPerTick);
  const fillUs = perTick === 0 ? neverUs : Math.min(neverUs, slowFillTicks * tickUs);
  const idleUs =
    perTick === 0 ? neverUs : Math.min(neverUs, 2 * (fillUs + Math.max(spec.warmUpUs, 1_000_000)));

  /** Units earned in `ticks` from warmth `warmth` on. */
  const earned = (warmth: number, ticks: number): number => {
    const end = Math.min(warmTicks, warmth + ticks);
    const rising =
      perTick *
      (2 * cold.of * warmTicks * (end - warmth) +
        (cold.parts - cold.of) * (end * end - warmth * warmth));
    return rising + (ticks - (end - warmth)) * warmPerTick;
  };
  const elapsedTicks = (lastUs: number, nowUs: number): number =>
    nowUs <= lastUs ? 0 : Math.floor((nowUs - lastUs) / tickUs);
  const isCold = (lastUs: number, nowUs: number): boolean =>
    perTick > 0 && nowUs - lastUs >= idleUs;
  const levelAt = (cells: Float64Array, at: number, nowUs: number): number => {
    const lastUs = cells[at + 1] ?? 0;
    if (isCold(lastUs, nowUs)) return coldLevel;
    const ticks = elapsedTicks(lastUs, nowUs);
    // Past the slowest fill time the product could leave the exact integers, and is not needed.
    if (perTick > 0 && ticks >= slowFillTicks) return capacity;
    return Math.min(capacity, (cells[at] ?? 0) + earned(cells[at + 2] ?? 0, ticks));
  };

  return {
    spec,
    width: 3,
    capacityMilli: burstMilli,
    fillUs,
    idleUs,
    parameters: [
      tickUs,
      perTick,
      perMilli,
      warmTicks,
      cold.of,
      cold.parts,
      burstMilli,
      idleUs,
      slowFillTicks,
      coldLevel,
    ],
    fresh(cells, at, nowUs) {
      cells[at] = coldLevel;
      cells[at + 1] = nowUs;
      cells[at + 2] = 0;
    },
    wait(cells, at, nowUs, costMilli) {
      if (burstMilli === 0) return neverUs;
      const cost = costMilli * perMilli;
      const level = levelAt(cells, at, nowUs);
      if (level >= cost) return 0;
      if (perTick === 0) return neverUs;
      const lastUs = cells[at + 1] ?? 0;
      if (isCold(lastUs, nowUs)) {
        return leastTicks((ticks) => coldLevel + earned(0, ticks) >= cost, slowFillTicks) * tickUs;
      }
      const stored = cells[at] ?? 0;
      const warmth = cells[at + 2] ?? 0;
      const ticks = leastTicks((n) => stored + earned(warmth, n) >= cost, slowFillTicks);
      return lastUs + ticks * tickUs - nowUs;
    },
    charge(cells, at, nowUs, costMilli) {
      const lastUs = cells[at + 1] ?? 0;
      const level = levelAt(cells, at, nowUs);
      const ticks = elapsedTicks(lastUs, nowUs);
      const cooled = isCold(lastUs, nowUs);
      cells[at] = level - costMilli * perMilli;
      cells[at + 1] = cooled ? nowUs : lastUs + ticks * tickUs;
      cells[at + 2] = cooled ? 0 : Math.min(warmTicks, (cells[at + 2] ?? 0) + ticks);
    },
    give(cells, at, _chargedUs, costMilli) {
      cells[at] = Math.min(capacity, (cells[at] ?? 0) + costMilli * perMilli);
    },
    note(cells, at, nowUs) {
      if (!isCold(cells[at + 1] ?? 0, nowUs)) return;
      cells[at] = coldLevel;
      cells[at + 1] = nowUs;
      cells[at + 2] = 0;
    },
    leftMilli: (cells, at, nowUs) => Math.floor(levelAt(cells, at, nowUs) / perMilli),
    fullUs(cells, at, nowUs) {
      const lastUs = cells[at + 1] ?? 0;
      const level = levelAt(cells, at, nowUs);
      if (level >= capacity) return 0;
      if (perTick === 0) return neverUs;
      const cooled = isCold(lastUs, nowUs);
      const [stored, warmth] = cooled ? [coldLevel, 0] : [cells[at] ?? 0, cells[at + 2] ?? 0];
      const ticks = leastTicks((n) => stored + earned(warmth, n) >= capacity, slowFillTicks);
      return (cooled ? nowUs : lastUs) + ticks * tickUs - nowUs;
    },
    forgettable: (cells, at, nowUs) => isCold(cells[at + 1] ?? 0, nowUs),
    adopt(cells, at, nowUs, leftMilli, ofMilli) {
      cells[at] = ofMilli === 0 ? coldLevel : mulDiv(capacity, leftMilli, ofMilli);
      cells[at + 1] = nowUs;
      // Who was in use under another limit is not made cold by an edit.
      cells[at + 2] = ofMilli === 0 ? 0 : warmTicks;
    },
    carry(cells, at, nowUs, from, fromCells, fromAt) {
      if (from.spec.algorithm !== 'warm_up' || from.capacityMilli === 0) return false;
      const left = from.leftMilli(fromCells, fromAt, nowUs);
      cells[at] = mulDiv(capacity, left, from.capacityMilli);
      cells[at + 1] = nowUs;
      const fromTickUs = chooseUnits(from.spec, from.spec.coldShare ?? { of: 1, parts: 3 }).tickUs;
      const lastUs = fromCells[fromAt + 1] ?? 0;
      const warmUs = (fromCells[fromAt + 2] ?? 0) * fromTickUs + Math.max(0, nowUs - lastUs);
      const share = Math.min(1, warmUs / from.spec.warmUpUs);
      cells[at + 2] = from.forgettable(fromCells, fromAt, nowUs)
        ? 0
        : Math.floor(warmTicks * share);
      return true;
    },
  };
}

/** The smallest number of ticks for which `enough`, which is monotone and true at `most`, holds. */
function leastTicks(enough: (ticks: number) => boolean, most: number): number {
  let [low, high] = [0, most];
  while (low < high) {
    const middle = low + Math.floor((high - low) / 2);
    if (enough(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

function chooseUnits(
  spec: WarmUpSpec,
  cold: { readonly of: number; readonly parts: number },
): { tickUs: number; perTick: number; warmTicks: number; perMilli: number } {
  const { rate, burstMilli, warmUpUs } = spec;
  if (rate.tokensMilli === 0) return { tickUs: 1, perTick: 0, warmTicks: 1, perMilli: 1 };
  for (const tickUs of ticksUs) {
    if (rate.periodUs % tickUs !== 0 || warmUpUs % tickUs !== 0) continue;
    const ticks = rate.periodUs / tickUs;
    const divisor = greatestCommonDivisor(rate.tokensMilli, ticks);
    const perTick = rate.tokensMilli / divisor;
    const warmTicks = warmUpUs / tickUs;
    const perMilli = (ticks / divisor) * 2 * cold.parts * warmTicks;
    // The most that is ever added up: a full bucket, and one slowest fill time earned at full speed.
    const capacity = burstMilli * perMilli;
    const earnedMost = (capacity * cold.parts) / cold.of + 2 * perTick * cold.parts * warmTicks;
    if (capacity + earnedMost + perTick * cold.parts * warmTicks * warmTicks <= 2 ** 53) {
      return { tickUs, perTick, warmTicks, perMilli };
    }
  }
  throw new LimitParameterError(
    `rate, burst and warm-up: found ${formatRate(rate)} over ${formatDuration(warmUpUs)}, which cannot be counted exactly; allowed is a rounder rate, a smaller burst or a shorter warm-up`,
  );
}
