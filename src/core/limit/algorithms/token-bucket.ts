import type { Algorithm, TokenBucketSpec } from '../algorithm.ts';
import { mulDiv } from '../numbers.ts';
import type { TokenBucket } from '../token-bucket.ts';
import { carryOver, countedTo, levelAt, neverUs, tokenBucket, waitFor } from '../token-bucket.ts';

/** No key is forgotten sooner than this, however fast its bucket fills: it would only come and go. */
const idleMinUs = 1_000_000;

export interface TokenBucketAlgorithm extends Algorithm {
  readonly spec: TokenBucketSpec;
  readonly bucket: TokenBucket;
}

/**
 * Token bucket: at most burst + rate·Δt in any Δt. State: level in units, time counted to. The
 * arithmetic and its essay are in token-bucket.ts.
 * @throws LimitParameterError
 */
export function tokenBucketAlgorithm(spec: TokenBucketSpec): TokenBucketAlgorithm {
  const bucket = tokenBucket(spec.rate, spec.burstMilli, spec.initialShareMilli);
  const idleUs = Math.max(idleMinUs, Math.min(2 * bucket.fillUs, neverUs));
  return {
    spec,
    bucket,
    width: 2,
    capacityMilli: spec.burstMilli,
    fillUs: bucket.fillUs,
    idleUs,
    parameters: [
      bucket.tickUs,
      bucket.unitsPerTick,
      bucket.unitsPerMilli,
      bucket.capacityUnits,
      bucket.initialUnits,
      bucket.fillUs,
      bucket.burstMilli,
    ],
    fresh(cells, at, nowUs) {
      cells[at] = bucket.initialUnits;
      cells[at + 1] = nowUs;
    },
    wait(cells, at, nowUs, costMilli) {
      if (bucket.burstMilli === 0) return neverUs;
      const lastUs = cells[at + 1] ?? 0;
      const costUnits = costMilli * bucket.unitsPerMilli;
      const level = levelAt(bucket, cells[at] ?? 0, lastUs, nowUs);
      if (level >= costUnits) return 0;
      return waitFor(bucket, level, countedTo(bucket, lastUs, nowUs), nowUs, costUnits);
    },
    charge(cells, at, nowUs, costMilli) {
      const lastUs = cells[at + 1] ?? 0;
      const level = levelAt(bucket, cells[at] ?? 0, lastUs, nowUs);
      cells[at] = level - costMilli * bucket.unitsPerMilli;
      cells[at + 1] = countedTo(bucket, lastUs, nowUs);
    },
    give(cells, at, _chargedUs, costMilli) {
      const level = (cells[at] ?? 0) + costMilli * bucket.unitsPerMilli;
      cells[at] = Math.min(bucket.capacityUnits, level);
    },
    leftMilli(cells, at, nowUs) {
      const level = levelAt(bucket, cells[at] ?? 0, cells[at + 1] ?? 0, nowUs);
      return Math.floor(level / bucket.unitsPerMilli);
    },
    fullUs(cells, at, nowUs) {
      const lastUs = cells[at + 1] ?? 0;
      const level = levelAt(bucket, cells[at] ?? 0, lastUs, nowUs);
      if (level >= bucket.capacityUnits) return 0;
      const counted = countedTo(bucket, lastUs, nowUs);
      return waitFor(bucket, level, counted, nowUs, bucket.capacityUnits);
    },
    // A refusal writes nothing, so this is the time since the last charge. After two fill times the
    // bucket is full: forgetting it gives nothing that was not there.
    forgettable: (cells, at, nowUs) => nowUs - (cells[at + 1] ?? 0) >= idleUs,
    adopt(cells, at, nowUs, leftMilli, ofMilli) {
      cells[at] =
        ofMilli === 0 ? bucket.initialUnits : mulDiv(bucket.capacityUnits, leftMilli, ofMilli);
      cells[at + 1] = nowUs;
    },
    carry(cells, at, nowUs, from, fromCells, fromAt) {
      if (!isTokenBucket(from)) return false;
      const state = { levelUnits: fromCells[fromAt] ?? 0, lastUs: fromCells[fromAt + 1] ?? 0 };
      const carried = carryOver(from.bucket, bucket, state, nowUs);
      cells[at] = carried.levelUnits;
      cells[at + 1] = carried.lastUs;
      return true;
    },
  };
}

export function isTokenBucket(algorithm: Algorithm): algorithm is TokenBucketAlgorithm {
  return algorithm.spec.algorithm === 'token_bucket';
}
