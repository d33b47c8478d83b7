import type { Algorithm, LeakyBucketSpec } from '../algorithm.ts';
import { assertWhole, ticksUs } from '../algorithm.ts';
import { ceilDiv, floorDiv, greatestCommonDivisor, mulDiv } from '../numbers.ts';
import { formatDuration, formatRate, milli, periodMaxUs } from '../rate.ts';
import { LimitParameterError, neverUs } from '../token-bucket.ts';

/**
 * Leaky bucket, as pacing: calls leave at a fixed rate, each held back until its turn, and a call
 * whose turn is further away than `maxWait` is refused at once. With `maxWait` 0 nobody is held: a
 * call is admitted when the spacing has passed, else refused.
 *
 * The queue is a number, not a list: what is ahead, in units of which each tick drains a whole number
 * (see token-bucket.ts for units and ticks), so spacing below a millisecond is as exact as spacing of
 * a day. Waiting costs the caller's patience and a connection; it is refused by the validation of rules on
 * the submit path.
 *
 * State: backlog in units, time drained to.
 * @throws LimitParameterError
 */
export function leakyBucketAlgorithm(spec: LeakyBucketSpec): Algorithm {
  const { rate, maxWaitUs } = spec;
  assertWhole('max wait', maxWaitUs, 0, periodMaxUs, formatDuration);
  const capacityMilli = rate.tokensMilli === 0 ? 0 : costMaxMilli;
  const units = chooseUnits(spec);
  const { tickUs, perTick, perMilli } = units;
  const allowed = floorDiv(maxWaitUs, tickUs) * perTick;
  const drainUs =
    perTick === 0
      ? neverUs
      : Math.min(neverUs, ceilDiv(allowed + costMaxMilli * perMilli, perTick) * tickUs);

  const countedTo = (lastUs: number, nowUs: number): number =>
    nowUs <= lastUs ? lastUs : nowUs - ((nowUs - lastUs) % tickUs);
  const backlogAt = (cells: Float64Array, at: number, nowUs: number): number => {
    const backlog = cells[at] ?? 0;
    const elapsed = countedTo(cells[at + 1] ?? 0, nowUs) - (cells[at + 1] ?? 0);
    // Past the drain time the product could leave the exact integers, and is not needed.
    if (elapsed >= drainUs) return 0;
    return Math.max(0, backlog - (elapsed / tickUs) * perTick);
  };
  /** From now until a backlog has drained. */
  const drained = (backlog: number, lastUs: number, nowUs: number): number =>
    backlog <= 0 ? 0 : ceilDiv(backlog, perTick) * tickUs - (nowUs - countedTo(lastUs, nowUs));

  return {
    spec,
    width: 2,
    capacityMilli,
    fillUs: drainUs,
    idleUs: Math.min(neverUs, 2 * drainUs),
    parameters: [tickUs, perTick, perMilli, allowed, drainUs, capacityMilli],
    fresh(cells, at, nowUs) {
      cells[at] = 0;
      cells[at + 1] = nowUs;
    },
    wait(cells, at, nowUs) {
      if (perTick === 0) return neverUs;
      const backlog = backlogAt(cells, at, nowUs);
      return backlog <= allowed ? 0 : drained(backlog - allowed, cells[at + 1] ?? 0, nowUs);
    },
    charge(cells, at, nowUs, costMilli) {
      const backlog = backlogAt(cells, at, nowUs);
      cells[at] = backlog + costMilli * perMilli;
      cells[at + 1] = countedTo(cells[at + 1] ?? 0, nowUs);
    },
    give(cells, at, _chargedUs, costMilli) {
      cells[at] = Math.max(0, (cells[at] ?? 0) - costMilli * perMilli);
    },
    delayUs: (cells, at, nowUs) => drained(backlogAt(cells, at, nowUs), cells[at + 1] ?? 0, nowUs),
    leftMilli(cells, at, nowUs) {
      const room = allowed - backlogAt(cells, at, nowUs);
      return room < 0 || perTick === 0
        ? 0
        : Math.min(capacityMilli, floorDiv(room, perMilli) + milli);
    },
    fullUs: (cells, at, nowUs) =>
      perTick === 0 ? neverUs : drained(backlogAt(cells, at, nowUs), cells[at + 1] ?? 0, nowUs),
    forgettable: (cells, at, nowUs) => perTick > 0 && nowUs - (cells[at + 1] ?? 0) >= 2 * drainUs,
    adopt(cells, at, nowUs, leftMilli, ofMilli) {
      cells[at] = ofMilli === 0 ? 0 : mulDiv(allowed, ofMilli - leftMilli, ofMilli);
      cells[at + 1] = nowUs;
    },
    carry(cells, at, nowUs, from, fromCells, fromAt) {
      const delay = from.delayUs?.(fromCells, fromAt, nowUs);
      if (from.spec.algorithm !== 'leaky_bucket' || delay === undefined) return false;
      // What is ahead in time is what callers were promised: it stays, within the new bound.
      cells[at] = Math.min(allowed, ceilDiv(delay, tickUs) * perTick);
      cells[at + 1] = nowUs;
      return true;
    },
  };
}

/** The largest cost of one paced call: bounds the arithmetic. */
const costMaxMilli = 1_000 * milli;

function chooseUnits(spec: LeakyBucketSpec): {
  tickUs: number;
  perTick: number;
  perMilli: number;
} {
  const { rate, maxWaitUs } = spec;
  if (rate.tokensMilli === 0) return { tickUs: 1, perTick: 0, perMilli: 1 };
  for (const tickUs of ticksUs) {
    if (rate.periodUs % tickUs !== 0 || maxWaitUs % tickUs !== 0) continue;
    const ticks = rate.periodUs / tickUs;
    const divisor = greatestCommonDivisor(rate.tokensMilli, ticks);
    const perTick = rate.tokensMilli / divisor;
    const perMilli = ticks / divisor;
    const most = (maxWaitUs / tickUs) * perTick + costMaxMilli * perMilli + perTick;
    if (most <= Number.MAX_SAFE_INTEGER) return { tickUs, perTick, perMilli };
  }
  throw new LimitParameterError(
    `rate and max wait: found ${formatRate(rate)} with ${formatDuration(maxWaitUs)}, which cannot be counted exactly; allowed is a rounder rate or a shorter wait`,
  );
}
