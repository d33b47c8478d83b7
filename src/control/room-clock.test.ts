import { describe, expect, test } from 'vitest';
import { RoomWorld } from '../../test/support/room.ts';
import { RoomLog } from './room-log.ts';

/** An open room of ten units with people in line, some of them let in. */
async function openRoom(): Promise<RoomWorld> {
  const world = await RoomWorld.started({ stock: 10 });
  await world.joinMany('p', 60);
  await world.open();
  await world.run(2_000);
  expect(world.state.counts.released).toBeGreaterThan(0);
  return world;
}

const instants = async (world: RoomWorld): Promise<readonly number[]> =>
  (await new RoomLog(world.store, 'concert').load()).map(({ atMs }) => atMs);

describe('the wall clock is set back while the room is open', () => {
  test('by a correction: the room’s time stands still until it is caught up, and never goes back', async () => {
    const world = await openRoom();
    const { publishedAtMs, epoch } = world.state;
    world.world.jumpWall(-1_500);
    for (let at = 0; at < 12; at += 1) {
      await world.loop.bypass(await world.door.entryIdOf('concert', `p${at + 40}`), 'desk', 'test');
      await world.run(100);
      expect(world.state.publishedAtMs).toBeGreaterThanOrEqual(publishedAtMs);
    }
    expect(world.state.epoch).toBe(epoch);
    const all = await instants(world);
    expect(all).toEqual([...all].sort((a, b) => a - b));
  });

  test('by more: the log is read again, and the room goes on by the clock as it is', async () => {
    const world = await openRoom();
    const { publishedAtMs, epoch } = world.state;
    world.world.jumpWall(-60_000);
    await world.run(3_000);
    expect(world.state.epoch).toBeGreaterThan(epoch);
    // What the log says still holds: nothing expires before its time by the log.
    expect(world.state.publishedAtMs).toBeLessThan(publishedAtMs);
    world.world.jumpWall(60_000);
    await world.run(3_000);
    expect(world.state.publishedAtMs).toBeGreaterThan(publishedAtMs);
  });
});
