import { expect, test } from 'vitest';
import { orders, smallSize } from './orders.bench.ts';

test('the small size runs, every order is counted in every table, and the report has its fields', async () => {
  const { report } = await orders(smallSize);
  expect(report).toMatchObject({
    bench: 'orders',
    better: 'higher',
    ratio: expect.any(Number),
    per_s: expect.any(Number),
    peer: expect.stringMatching(/bare multi-row insert, PostgreSQL \d+/),
    result_hash: expect.stringMatching(/^[0-9a-f]{8}$/),
  });
}, 60_000);
