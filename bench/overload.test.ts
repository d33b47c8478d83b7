import { expect, test } from 'vitest';
import { overload, smallSize } from './overload.bench.ts';

test('the small size runs, serves what the stock can do, and the report has its fields', async () => {
  const { report, tables, plots } = await overload(smallSize);
  expect(report).toMatchObject({
    bench: 'overload',
    better: 'higher',
    ratio: expect.any(Number),
    refuses_per_s: expect.any(Number),
    capacity_per_s: expect.any(Number),
    goodput_10x: expect.any(Number),
    p0_success_10x: expect.any(Number),
    under_pressure: { goodput: expect.any(Number), p0_success: expect.any(Number) },
    result_hash: expect.any(String),
  });
  expect(tables.map(({ name, rows }) => [name, rows.map(([who]) => who)])).toEqual([
    ['overload', ['sluice', expect.stringContaining('under-pressure')]],
  ]);
  expect(plots['overload-goodput']).toContain('<polyline');
});
