import type { LimitSpec } from '../../src/core/limit/algorithm.ts';

/**
 * The plainest possible limits, in big integers and exact fractions, written from their definitions and
 * sharing no code and no tricks with the real ones. One key each; time must be steady.
 */
export interface Oracle {
  /** Charges if it fits. `delayUs` is for pacing. */
  take(nowUs: number, costMilli: number): { readonly admitted: boolean; readonly delayUs: number };
  /** A holder of a concurrency limit finishes. */
  release(costMilli: number): void;
}

const plain = (admitted: boolean): { admitted: boolean; delayUs: number } => ({
  admitted,
  delayUs: 0,
});
const noRelease = (): void => undefined;

export function oracleFor(spec: LimitSpec, firstUs: number): Oracle {
  switch (spec.algorithm) {
    case 'token_bucket':
      return tokenBucketOracle(spec, firstUs);
    case 'fixed_window':
      return fixedWindowOracle(spec);
    case 'sliding_window':
      return slidingWindowOracle(spec);
    case 'sliding_log':
      return slidingLogOracle(spec);
    case 'leaky_bucket':
      return leakyOracle(spec);
    case 'warm_up':
      return warmUpOracle(spec);
    case 'concurrency':
      return concurrencyOracle(spec);
  }
}

type Of<Name extends LimitSpec['algorithm']> = Extract<LimitSpec, { algorithm: Name }>;

function tokenBucketOracle(spec: Of<'token_bucket'>, firstUs: number): Oracle {
  // Level in thousandths ÷ period.
  const period = BigInt(spec.rate.periodUs);
  const capacity = BigInt(spec.burstMilli) * period;
  let level = (capacity * BigInt(spec.initialShareMilli ?? 1000)) / 1000n;
  let last = BigInt(firstUs);
  return {
    take(nowUs, costMilli) {
      const now = BigInt(nowUs);
      level += (now - last) * BigInt(spec.rate.tokensMilli);
      if (level > capacity) level = capacity;
      last = now;
      const cost = BigInt(costMilli) * period;
      if (cost > level) return plain(false);
      level -= cost;
      return plain(true);
    },
    release: noRelease,
  };
}

function fixedWindowOracle(spec: Of<'fixed_window'>): Oracle {
  const spent = new Map<bigint, bigint>();
  return {
    take(nowUs, costMilli) {
      const window = BigInt(nowUs) / BigInt(spec.windowUs);
      const sum = (spent.get(window) ?? 0n) + BigInt(costMilli);
      if (sum > BigInt(spec.limitMilli)) return plain(false);
      spent.set(window, sum);
      return plain(true);
    },
    release: noRelease,
  };
}

function slidingWindowOracle(spec: Of<'sliding_window'>): Oracle {
  const size = BigInt(spec.windowUs);
  const spent = new Map<bigint, bigint>();
  return {
    take(nowUs, costMilli) {
      const window = BigInt(nowUs) / size;
      const elapsed = BigInt(nowUs) % size;
      const [before, here] = [spent.get(window - 1n) ?? 0n, spent.get(window) ?? 0n];
      const cost = BigInt(costMilli);
      if (before * (size - elapsed) + (here + cost) * size > BigInt(spec.limitMilli) * size) {
        return plain(false);
      }
      spent.set(window, here + cost);
      return plain(true);
    },
    release: noRelease,
  };
}

function slidingLogOracle(spec: Of<'sliding_log'>): Oracle {
  const calls: number[] = [];
  return {
    take(nowUs, costMilli) {
      const counting = calls.filter((at) => at > nowUs - spec.windowUs).length;
      if ((counting + costMilli / 1000) * 1000 > spec.limitMilli) return plain(false);
      for (let n = 0; n < costMilli / 1000; n += 1) calls.push(nowUs);
      return plain(true);
    },
    release: noRelease,
  };
}

function leakyOracle(spec: Of<'leaky_bucket'>): Oracle {
  // Instants in microseconds times the rate's tokens: the end of the last call's turn.
  const scale = BigInt(spec.rate.tokensMilli);
  let free = 0n;
  return {
    take(nowUs, costMilli) {
      const now = BigInt(nowUs) * scale;
      const start = free > now ? free : now;
      if (start - now > BigInt(spec.maxWaitUs) * scale) return plain(false);
      free = start + BigInt(costMilli) * BigInt(spec.rate.periodUs);
      return { admitted: true, delayUs: Number((start - now + scale - 1n) / scale) };
    },
    release: noRelease,
  };
}

/** Earns microsecond by microsecond: slow, and right by inspection. For short warm-ups only. */
function warmUpOracle(spec: Of<'warm_up'>): Oracle {
  const cold = spec.coldShare ?? { of: 1, parts: 3 };
  const [c, d, w] = [BigInt(cold.of), BigInt(cold.parts), BigInt(spec.warmUpUs)];
  // Unit: a thousandth ÷ (period · 2 · d · w).
  const unit = BigInt(spec.rate.periodUs) * 2n * d * w;
  const tokens = BigInt(spec.rate.tokensMilli);
  const capacity = BigInt(spec.burstMilli) * unit;
  const coldLevel = (capacity * c) / d;
  const fillUs = Number((capacity + tokens * 2n * c * w - 1n) / (tokens * 2n * c * w));
  const idleUs = 2 * (fillUs + Math.max(spec.warmUpUs, 1_000_000));
  let level = coldLevel;
  let warmth = 0n;
  let last = -1;
  let charged = -1;
  return {
    take(nowUs, costMilli) {
      if (last < 0 || nowUs - charged >= idleUs) {
        [level, warmth, charged] = [coldLevel, 0n, nowUs];
      } else {
        for (let at = last; at < nowUs; at += 1) {
          // At warmth x: tokens · (c/d + (1 − c/d)·x/w), taken at the middle of the microsecond.
          const twice = warmth < w ? 2n * warmth + 1n : 2n * w;
          level += warmth < w ? tokens * (2n * c * w + (d - c) * twice) : tokens * 2n * d * w;
          if (warmth < w) warmth += 1n;
          if (level >= capacity && warmth >= w) break;
        }
        if (level > capacity) level = capacity;
      }
      last = nowUs;
      const cost = BigInt(costMilli) * unit;
      if (cost > level) return plain(false);
      level -= cost;
      charged = nowUs;
      return plain(true);
    },
    release: noRelease,
  };
}

function concurrencyOracle(spec: Of<'concurrency'>): Oracle {
  let held = 0;
  return {
    take(_nowUs, costMilli) {
      if (held + costMilli > spec.limitMilli) return plain(false);
      held += costMilli;
      return plain(true);
    },
    release(costMilli) {
      held = Math.max(0, held - costMilli);
    },
  };
}
