import { expect, test } from 'vitest';
import type { Sale } from './sale.ts';
import { readinessOf } from './shop.ts';

/** A sale in which all is well, but for what is given. */
function saleWith(trouble: Partial<Record<'failures' | 'unseen' | 'unready', readonly unknown[]>>) {
  return {
    lookAgeMs: 10,
    leads: true,
    failures: () => trouble.failures ?? [],
    unseen: () => trouble.unseen ?? [],
    rooms: { unready: () => trouble.unready ?? [] },
  } as unknown as Sale;
}

test('a process is ready where nothing is wrong, and else names everything that is', () => {
  expect(readinessOf(saleWith({}), ['gateway'])).toEqual({ ready: true, reasons: [] });
  const sale = saleWith({
    failures: ['the inventory journal has failed: no space left'],
    unseen: [{ activityId: 'concert', skuId: 'front' }],
    unready: ['room "concert" has published nothing'],
  });
  expect(readinessOf(sale, ['gateway'])).toEqual({
    ready: false,
    reasons: [
      'the inventory journal has failed: no space left',
      'stock of concert/front is not loaded',
      'room "concert" has published nothing',
    ],
  });
});
