import { expect, test } from 'vitest';
import { UnavailableError } from '../ports/errors.ts';
import type { Backlog, OrderQueue } from '../ports/order-queue.ts';
import { RelayedQueue } from './relayed-queue.ts';

const backlogOf = (depth: number, oldestAgeMs: number, total: number): Backlog => ({
  depth,
  oldestAgeMs,
  buried: 0,
  producedTotal: total,
  acknowledgedTotal: total - depth,
});

/** A queue of which only the backlog is asked. */
function queueWith(backlog: () => Promise<Backlog>): OrderQueue {
  const never = (): never => {
    throw new Error('nobody asks for this here');
  };
  return {
    receive: never,
    acknowledge: never,
    bury: never,
    giveBack: never,
    buried: never,
    close: never,
    backlog,
  };
}

test('while the broker is away its last answer counts, growing older; the outbox as it is', async () => {
  let outbox = backlogOf(1, 20, 50);
  let broker: Backlog | Error = new UnavailableError('no broker');
  const queue = new RelayedQueue(
    queueWith(async () => outbox),
    queueWith(async () => {
      if (broker instanceof Error) throw broker;
      return broker;
    }),
  );
  // Until it has answered once nobody knows, and that is what is said.
  await expect(queue.backlog(1_000)).rejects.toThrow('no broker');
  broker = backlogOf(3, 100, 49);
  const both = {
    depth: 4,
    oldestAgeMs: 100,
    buried: 0,
    producedTotal: 50,
    acknowledgedTotal: 46,
    outboxOldestAgeMs: 20,
  };
  expect(await queue.backlog(2_000)).toEqual(both);
  broker = new UnavailableError('gone again');
  outbox = backlogOf(7, 700, 56);
  expect(await queue.backlog(2_500)).toMatchObject({ depth: 10, oldestAgeMs: 700 });
  expect(await queue.backlog(4_000)).toMatchObject({
    depth: 10,
    oldestAgeMs: 2_100,
    outboxOldestAgeMs: 700,
  });
  // A wall clock that was set back makes nothing younger than it was.
  expect(await queue.backlog(1_000)).toMatchObject({ oldestAgeMs: 700 });
  broker = backlogOf(0, 0, 56);
  expect(await queue.backlog(5_000)).toMatchObject({ depth: 7, acknowledgedTotal: 56 });
  broker = new UnavailableError('and again');
  expect(await queue.backlog(9_000)).toMatchObject({ depth: 7, oldestAgeMs: 700 });
  // A fault of ours is none of the broker's.
  broker = new TypeError('a fault');
  await expect(queue.backlog(9_000)).rejects.toThrow('a fault');
});
