import { expect, test } from 'vitest';
import { SeededRandom, World } from '../../test/support/world.ts';
import { type PassResult, WorkLoop } from './loop.ts';

function loopOf(world: World, pass: () => PassResult): { loop: WorkLoop; errors: unknown[] } {
  const errors: unknown[] = [];
  const loop = new WorkLoop({
    timers: world,
    random: new SeededRandom('loop'),
    pass: async () => pass(),
    idleMs: 500,
    backOffMs: { first: 100, most: 1_000 },
    onError: (error) => errors.push(error),
  });
  return { loop, errors };
}

test('more goes on at once, idle waits, a nudge ends the wait', async () => {
  const world = new World();
  const results: PassResult[] = ['more', 'more', 'idle'];
  let passes = 0;
  const { loop } = loopOf(world, () => results[passes++] ?? 'idle');
  loop.start();
  loop.start();
  await world.advance(0);
  expect(passes).toBe(3);
  await world.advance(499);
  expect(passes).toBe(3);
  loop.nudge();
  await world.advance(0);
  expect(passes).toBe(4);
  await world.advance(500);
  expect(passes).toBe(5);
  await loop.stop();
  await world.advance(5_000);
  expect(passes).toBe(5);
});

test('a nudge in the middle of a pass is not lost', async () => {
  const world = new World();
  let passes = 0;
  const { loop } = loopOf(world, () => {
    passes += 1;
    if (passes === 1) loop.nudge();
    return 'idle';
  });
  loop.start();
  await world.advance(0);
  expect(passes).toBe(2);
  await loop.stop();
});

test('blocked backs off, doubling to the most, and a nudge does not hurry it', async () => {
  const world = new World();
  let passes = 0;
  const { loop, errors } = loopOf(world, () => {
    passes += 1;
    throw new Error('away');
  });
  loop.start();
  await world.advance(0);
  expect(passes).toBe(1);
  loop.nudge();
  await world.advance(49);
  expect(passes).toBe(1);
  await world.advance(10_000);
  // Between 50 and 100, 100 and 200, … at most 1,000 ms: 10 s hold 12 to 23 passes.
  expect(passes).toBeGreaterThanOrEqual(12);
  expect(passes).toBeLessThanOrEqual(23);
  expect(errors).toHaveLength(passes);
  const stopped = loop.stop();
  await world.advance(0);
  await stopped;
});
