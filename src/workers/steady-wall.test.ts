import { expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import { SteadyWall } from './steady-wall.ts';

const hour = 3_600_000;

test('follows the wall clock, and its slewing within the tolerance', async () => {
  const world = new World();
  const steady = new SteadyWall(world);
  await world.advance(10_000);
  world.jumpWall(4_999);
  expect(steady.nowMs()).toBe(world.wallMs());
  world.jumpWall(-4_999);
  expect(steady.nowMs()).toBe(world.wallMs());
});

test('a leap forward that is taken back was never there', async () => {
  const world = new World();
  const leaps: number[] = [];
  const steady = new SteadyWall(world, { onLeap: (byMs) => leaps.push(byMs) });
  const before = world.wallMs();
  world.jumpWall(hour);
  expect(steady.nowMs()).toBe(before);
  await world.advance(60_000);
  expect(steady.nowMs()).toBe(before + 60_000);
  world.jumpWall(-hour);
  expect(steady.nowMs()).toBe(world.wallMs());
  expect(leaps).toEqual([hour]);
});

test('one that stands for the hold is true', async () => {
  const world = new World();
  const steady = new SteadyWall(world);
  const before = world.wallMs();
  world.jumpWall(hour);
  expect(steady.nowMs()).toBe(before);
  await world.advance(599_999);
  expect(steady.nowMs()).toBe(before + 599_999);
  await world.advance(1);
  expect(steady.nowMs()).toBe(world.wallMs());
});

test('a leap backward is believed at once', () => {
  const world = new World();
  const steady = new SteadyWall(world);
  world.jumpWall(-hour);
  expect(steady.nowMs()).toBe(world.wallMs());
});
