import type { Algorithm, LimitSpec } from '../algorithm.ts';
import { concurrencyAlgorithm } from './concurrency.ts';
import { fixedWindowAlgorithm } from './fixed-window.ts';
import { leakyBucketAlgorithm } from './leaky-bucket.ts';
import { slidingLogAlgorithm } from './sliding-log.ts';
import { slidingWindowAlgorithm } from './sliding-window.ts';
import { tokenBucketAlgorithm } from './token-bucket.ts';
import { warmUpAlgorithm } from './warm-up.ts';

/** The algorithm of a limit. @throws LimitParameterError for parameters that can never work. */
export function createAlgorithm(spec: LimitSpec): Algorithm {
  switch (spec.algorithm) {
    case 'token_bucket':
      return tokenBucketAlgorithm(spec);
    case 'fixed_window':
      return fixedWindowAlgorithm(spec);
    case 'sliding_window':
      return slidingWindowAlgorithm(spec);
    case 'sliding_log':
      return slidingLogAlgorithm(spec);
    case 'leaky_bucket':
      return leakyBucketAlgorithm(spec);
    case 'warm_up':
      return warmUpAlgorithm(spec);
    case 'concurrency':
      return concurrencyAlgorithm(spec);
  }
}

/** Are two limits the same, so that a reload has nothing to carry over? */
export function sameLimit(a: LimitSpec, b: LimitSpec): boolean {
  return a === b || JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

function sorted(spec: LimitSpec): [string, unknown][] {
  return Object.entries(spec).sort(([a], [b]) => (a < b ? -1 : 1));
}
