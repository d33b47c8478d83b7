import { expect, test } from 'vitest';
import { overload, smallSize } from './overload.bench.ts';

test('the small size runs, serves what the stock can do, and the report has its fields', async () => {
  const { report, rows, plots } = await overload(smallSize);
  expect(report).toMatchObject({
    bench: 'overload',
    better: 'higher',
    ratio: expect.any(Number),
    refuses_per_s: expect.any(Number),
    capacity_per_s: expect.any(Number),
    p0_success: expect.any(Number),
    result_hash: expect.any(String),
  });
  expect(rows.map(([who]) => who)).toEqual([
    'stock C',
    'refusals',
    'sluice',
    expect.stringContaining('under-pressure'),
  ]);
  expect(plots['overload-goodput']).toContain('<polyline');
});
