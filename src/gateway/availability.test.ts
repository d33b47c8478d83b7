import { expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import type { StockMark } from '../ports/inventory-store.ts';
import { AvailabilityBoard } from './availability.ts';

const sku = { activityId: 'a', skuId: 's' };
const mark = (sequence: number): StockMark => ({
  total: 10,
  available: 5,
  held: 0,
  ordered: 5,
  sequence,
  generation: 1,
  stockEpoch: 0,
  paused: false,
});

function scene() {
  const world = new World();
  let reads = 0;
  let calm = true;
  const board = new AvailabilityBoard(
    { mark: async () => mark((reads += 1)) },
    { stock: async () => undefined },
    world,
    () => undefined,
    { isCalm: () => calm, draw: () => 0.5 },
  );
  const lookFor = async (seconds: number): Promise<number> => {
    const before = reads;
    for (let step = 0; step < seconds * 10; step += 1) {
      for (let looker = 0; looker < 50; looker += 1) board.glance(sku);
      await world.advance(100);
    }
    return reads - before;
  };
  return { world, board, lookFor, trouble: () => void (calm = false) };
}

test('however many look, the store is asked once a second, and every five seconds in trouble', async () => {
  const { lookFor, trouble } = scene();
  expect(await lookFor(10)).toBeLessThanOrEqual(11);
  trouble();
  await lookFor(2);
  expect(await lookFor(20)).toBeLessThanOrEqual(5);
});

test('a mark that comes by itself is fresh and saves a read', async () => {
  const { board, world, lookFor } = scene();
  await lookFor(1);
  await world.advance(900);
  board.learn(sku, mark(1_000));
  expect(board.glance(sku)?.sequence).toBe(1_000);
  expect(await lookFor(0.5)).toBe(0);
});
