import { expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import type { HealthReading } from '../ports/health-probe.ts';
import { OverloadLoop } from './overload-loop.ts';

function setUp(): { world: World; loop: OverloadLoop; says: (reading: HealthReading) => void } {
  const world = new World();
  let reading: HealthReading = { queueWaitMs: 1 };
  const loop = new OverloadLoop({ clock: world, probe: { read: () => reading } });
  loop.start(world);
  return { world, loop, says: (next) => (reading = next) };
}

test('a long queue wait closes the doors level by level, relief opens them by the ramp', async () => {
  const { world, loop, says } = setUp();
  await world.advance(2000);
  expect(loop.mode).toBe('NORMAL');
  says({ queueWaitMs: 1000 });
  await world.advance(4000);
  expect(loop.mode).toBe('DEGRADED');
  await world.advance(6000);
  expect(loop.mode).toBe('CLOSED');
  expect(loop.share).toBe(0);
  says({ queueWaitMs: 1 });
  await world.advance(90_000);
  expect(loop.mode).toBe('NORMAL');
  expect(loop.share).toBe(1);
});

test('the in-flight limit follows the wait down to its floor and back', async () => {
  const { world, loop, says } = setUp();
  const { submit } = loop.slots;
  const ceiling = submit.limitInForce;
  says({ queueWaitMs: 200 });
  await world.advance(3000);
  expect(submit.limitInForce).toBe(ceiling * 0.002);
  says({ queueWaitMs: 1 });
  for (let i = 0; i < 400; i += 1) {
    while (submit.tryTake());
    await world.advance(100);
  }
  expect(submit.limitInForce).toBe(ceiling);
});

test('a trip closes at once and only its end opens again', async () => {
  const { world, loop } = setUp();
  loop.trip('inventory_gone');
  expect(loop.mode).toBe('CLOSED');
  await world.advance(200_000);
  expect(loop.mode).toBe('CLOSED');
  loop.clearTrip('inventory_gone');
  await world.advance(120_000);
  expect(loop.mode).toBe('NORMAL');
});

test('when the doors are closed nobody but P0 gets in', async () => {
  const { world, loop } = setUp();
  loop.trip('stock_invariant');
  await world.advance(200);
  expect(loop.admit(1, 'u')).toBe(false);
  expect(loop.admit(0, 'payment')).toBe(true);
});

test('a pinned mode is in force until it expires', async () => {
  const { world, loop } = setUp();
  loop.pin({ mode: 'QUEUE_ONLY', reason: 'drill', who: 'op', forMs: 5000 });
  expect(loop.mode).toBe('QUEUE_ONLY');
  await world.advance(5100);
  expect(loop.mode).toBe('NORMAL');
});

test('outside NORMAL the lowest work goes first, and some of those who wait still learn something', async () => {
  const { world, loop } = setUp();
  const answered = (priority: 2 | 3 | 4, callers = 1_000): number =>
    Array.from({ length: callers }, (_, i) => loop.admit(priority, `caller-${i}`)).filter(Boolean)
      .length;
  expect([answered(2, 500), answered(3, 500), answered(4, 500)]).toEqual([500, 500, 500]);
  loop.pin({ mode: 'DEGRADED', reason: 'drill', who: 'op', forMs: 60_000 });
  await world.advance(200);
  expect([answered(2), answered(3), answered(4)]).toEqual([1000, 1000, 0]);
  loop.pin({ mode: 'QUEUE_ONLY', reason: 'drill', who: 'op', forMs: 60_000 });
  await world.advance(200);
  expect(answered(3)).toBeGreaterThan(50);
  expect(answered(3)).toBeLessThan(150);
});

test('a full adaptive limit is no trouble: the doors stay open under constant overload', async () => {
  const { world, loop, says } = setUp();
  says({ queueWaitMs: 19 });
  for (let second = 0; second < 60; second += 1) {
    while (loop.slots.submit.tryTake());
    await world.advance(1000);
    for (let i = loop.slots.submit.inflight; i > 1; i -= 1) loop.slots.submit.release('success');
    says({ queueWaitMs: second % 2 === 0 ? 25 : 15 });
  }
  expect([loop.mode, loop.modeChanges]).toEqual(['NORMAL', 0]);
});
