import { expect, test } from 'vitest';
import * as bounds from './bounds.ts';

test('relations between bounds hold', () => {
  expect(bounds.headersMaxBytes).toBeGreaterThanOrEqual(3 * bounds.tokenMaxBytes);
  expect(bounds.passSkewMs).toBeLessThan(bounds.passLifeDefaultMs);
  expect(bounds.reservationDeadlineMs).toBeGreaterThan(bounds.passLifeDefaultMs);
});
