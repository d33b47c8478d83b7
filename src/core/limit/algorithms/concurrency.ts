import type { Algorithm, ConcurrencySpec } from '../algorithm.ts';
import { assertWhole, limitMaxMilli } from '../algorithm.ts';
import { neverUs } from '../token-bucket.ts';

/**
 * What a refused caller is told to wait, µs: nobody knows when a holder finishes, so this is a hint
 * that only keeps callers from asking at once.
 */
export const concurrencyHintUs = 200_000;

/**
 * Concurrency: at most `limit` at the same time. Checking and taking are one step, because two checks
 * before either takes would both pass. State: how much is held.
 *
 * A holder finishes through `give`; in a process that is a `finally`, in a shared store a holder
 * that vanished is found by its deadline.
 * @throws LimitParameterError
 */
export function concurrencyAlgorithm(spec: ConcurrencySpec): Algorithm {
  const { limitMilli } = spec;
  assertWhole('limit', limitMilli, 0, limitMaxMilli);
  return {
    spec,
    width: 1,
    capacityMilli: limitMilli,
    fillUs: neverUs,
    idleUs: 0,
    parameters: [limitMilli],
    fresh(cells, at) {
      cells[at] = 0;
    },
    wait(cells, at, _nowUs, costMilli) {
      if (limitMilli === 0) return neverUs;
      return (cells[at] ?? 0) + costMilli <= limitMilli ? 0 : concurrencyHintUs;
    },
    charge(cells, at, _nowUs, costMilli) {
      cells[at] = (cells[at] ?? 0) + costMilli;
    },
    give(cells, at, _chargedUs, costMilli) {
      cells[at] = Math.max(0, (cells[at] ?? 0) - costMilli);
    },
    leftMilli: (cells, at) => Math.max(0, limitMilli - (cells[at] ?? 0)),
    fullUs: (cells, at) => (cells[at] === 0 ? 0 : neverUs),
    forgettable: (cells, at) => cells[at] === 0,
    // Another algorithm knows of no holders.
    adopt(cells, at) {
      cells[at] = 0;
    },
    carry(cells, at, _nowUs, from, fromCells, fromAt) {
      if (from.spec.algorithm !== 'concurrency') return false;
      // Holders are real: they stay, even where the new limit is below them.
      cells[at] = fromCells[fromAt] ?? 0;
      return true;
    },
  };
}
