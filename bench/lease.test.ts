import { expect, test } from 'vitest';
import { lease, smallSize } from './lease.bench.ts';

test('the small size reaches the goals in virtual time, the same way each time', async () => {
  const [first, second] = [await lease(smallSize), await lease(smallSize)];
  expect(first.report).toEqual(second.report);
  expect(first.report).toMatchObject({ bench: 'lease', better: 'lower', over_admitted: 0 });
  expect(first.report.used).toBeGreaterThanOrEqual(0.97);
  expect(first.report.calls_per_admitted).toBeLessThanOrEqual(0.02);
  expect(first.report.recovery_leases).toBeLessThanOrEqual(2);
});
