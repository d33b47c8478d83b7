import { expect, test } from 'vitest';
import { reserve, smallSize } from './reserve.bench.ts';

test('the small size runs, everybody reserves, and the report has its fields', async () => {
  const { report, rows } = await reserve(smallSize);
  expect(report).toMatchObject({
    bench: 'reserve',
    better: 'higher',
    ratio: expect.any(Number),
    redis_cpu_ratio: expect.any(Number),
    p99_ratio: expect.any(Number),
    per_s: expect.any(Number),
    shards: {
      in_one_per_s: expect.any(Number),
      in_four_per_s: expect.any(Number),
      ratio: expect.any(Number),
      redis_cpu_ratio: expect.any(Number),
    },
  });
  expect(rows).toHaveLength(3);
});
