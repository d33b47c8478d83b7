import { describe } from 'vitest';
import { limitSuite } from '../../../../test/contract/limits.ts';
import { KeyedLimiter } from '../keyed-limiter.ts';
import { parseRate } from '../rate.ts';

describe('limits in memory', () => {
  limitSuite((spec) => {
    const limiter = new KeyedLimiter({
      ruleId: 'rule',
      limit: spec,
      maxKeys: 100,
      overflow: { rate: parseRate('1/s'), burstMilli: 1_000 },
      hashSeed: [1, 2],
    });
    return {
      take(key, costMilli, nowUs) {
        const waitUs = limiter.takeParts([key], costMilli, nowUs);
        const delayUs = waitUs === 0 ? limiter.delayUs : 0;
        return { waitUs, delayUs, leftMilli: limiter.leftMilli() };
      },
      release(key, costMilli, nowUs) {
        if (spec.algorithm === 'concurrency') limiter.giveParts([key], costMilli, nowUs);
      },
    };
  });
});
