import { expect, test } from 'vitest';
import { sale, smallSize } from './sale.bench.ts';

test('the small size sells, and the report has its four rates', async () => {
  const { report } = await sale(smallSize);
  expect(report).toMatchObject({
    bench: 'sale',
    ratio: null,
    joins_per_s: expect.any(Number),
    polls_per_s: expect.any(Number),
    reservations_per_s: expect.any(Number),
    orders_per_s: expect.any(Number),
    refused: expect.any(Number),
  });
}, 120_000);
