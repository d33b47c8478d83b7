import { expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import { OverloadLoop } from '../control/overload-loop.ts';
import { obeyDoors } from './doors.ts';

function scene() {
  const world = new World();
  const loop = new OverloadLoop({ clock: world, probe: { read: () => ({ queueWaitMs: 1 }) } });
  loop.start(world);
  return { world, loop };
}

test('a pin lasts what is left of it, and one that has run out on its way is none', async () => {
  const { world, loop } = scene();
  const pin = { kind: 'pin', mode: 'CLOSED', forMs: 5_000, who: 'op', reason: 'drill' } as const;
  obeyDoors(loop, pin, 6_000);
  expect(loop.mode).toBe('NORMAL');
  obeyDoors(loop, pin, 3_000);
  await world.advance(1_900);
  expect(loop.mode).toBe('CLOSED');
  await world.advance(200);
  expect(loop.mode).toBe('NORMAL');
  obeyDoors(loop, pin, 0);
  obeyDoors(loop, { kind: 'unpin' }, 0);
  expect(loop.mode).toBe('NORMAL');
});

test('doors that were stopped open by the ramp, and waves are smaller meanwhile', async () => {
  const { world, loop } = scene();
  await world.advance(1_000);
  expect([loop.share, loop.modeForWaves]).toEqual([1, 'NORMAL']);
  obeyDoors(loop, { kind: 'ramp' }, 60_000);
  expect(loop.share).toBe(1);
  obeyDoors(loop, { kind: 'ramp' }, 50);
  expect([loop.share, loop.mode, loop.modeForWaves]).toEqual([0.05, 'NORMAL', 'DEGRADED']);
  const shares = new Set<number>();
  for (let second = 0; second < 30; second += 1) {
    await world.advance(1_000);
    shares.add(loop.share);
  }
  expect([...shares]).toEqual([0.05, 0.1, 0.25, 0.5, 0.75, 1]);
  expect(loop.modeForWaves).toBe('NORMAL');
});
