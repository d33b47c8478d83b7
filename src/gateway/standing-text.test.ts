import { fc } from '../../test/support/property.ts';
import { expect, test } from 'vitest';
import type { Standing } from '../wire/standing.ts';
import { standingText } from './standing-text.ts';

const count = fc.option(fc.nat({ max: 10_000_000 }));
const instant = fc
  .date({ min: new Date(0), max: new Date(4e12), noInvalidDate: true })
  .map((date) => date.toISOString());
const standing: fc.Arbitrary<Standing> = fc.record({
  state: fc.constantFrom(
    'waiting',
    'admitted',
    'claimed',
    'left',
    'missed',
    'not_drawn',
    'sold_out',
    'closed',
  ),
  cohort: fc.constantFrom('lobby', 'late'),
  position: count,
  ahead: count,
  eta: fc.option(
    fc.record({
      low_ms: fc.nat(),
      high_ms: fc.nat(),
      held_ratio: fc.option(fc.double({ min: 0, max: 1, noNaN: true, noDefaultInfinity: true })),
    }),
  ),
  sell_through: fc.constantFrom('likely', 'uncertain', 'unlikely', 'gone_for_now'),
  claim_before: fc.option(instant),
  order_rule: fc.constantFrom(
    'draw',
    'fifo',
    'weighted',
    'quota',
    'lottery',
    'passthrough',
    'reject',
  ),
  next_poll_after_ms: fc.nat(),
  server_time: instant,
}) as fc.Arbitrary<Standing>;

test('property: a standing is what a serializer makes of it, in ASCII', () => {
  fc.assert(
    fc.property(standing, (one) => {
      expect(standingText(one)).toBe(JSON.stringify(one));
      expect(standingText(one)).toMatch(/^[\x20-\x7e]+$/);
    }),
  );
});
