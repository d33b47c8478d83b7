import { expect, test } from 'vitest';
import { refuse, smallSize } from './refuse.bench.ts';

test('the small size runs, every stage refuses what it should, and the report has its fields', async () => {
  const { report, rows } = await refuse(smallSize);
  expect(report).toMatchObject({
    bench: 'refuse',
    better: 'higher',
    ratio: expect.any(Number),
    after_identity: { ratio: expect.any(Number) },
    instrumentation: { cost: expect.any(Number) },
    by_stage: {
      mode: expect.any(Number),
      instance: expect.any(Number),
      source: expect.any(Number),
      sold_out: expect.any(Number),
    },
  });
  expect(rows.map(([kind, status]) => [kind, status])).toEqual([
    ['mode', 503],
    ['instance', 429],
    ['source', 429],
    ['sold_out', 200],
    ['after_identity', 429],
    ['instruments on ÷ off', 503],
  ]);
});
