import { beforeEach, expect, test } from 'vitest';
import type { OrderMessage } from '../ports/order-queue.ts';
import type { CommitFate, Order } from '../ports/order-store.ts';
import { RoomNews } from './room-news.ts';

let said: string[] = [];
let held: number[] = [];
let faults: unknown[] = [];
let news: RoomNews;

beforeEach(() => {
  said = [];
  held = [];
  faults = [];
  news = new RoomNews({
    rooms: {
      finish: async (_activityId, personId, outcome) => void said.push(`${personId} ${outcome}`),
      endAttempt: async (_sku, personId, nonce) => void said.push(`${personId} ends ${nonce}`),
    },
    inventory: { find: () => Promise.resolve(undefined) },
    orders: {
      liveOfPerson: () => Promise.resolve(held.map((quantity) => ({ quantity }) as Order)),
    },
    onError: (error) => faults.push(error),
  });
});

const message = (limit: number, quantity = 1): OrderMessage =>
  ({
    activityId: 'a',
    skuId: 's',
    reservationId: 'rsv',
    personId: 'ann',
    nonce: 'n',
    quantity,
    limit,
  }) as OrderMessage;

async function settle(one: OrderMessage, fate: 'ordered' | 'released'): Promise<string[]> {
  news.settled([one], [{ reservationId: 'rsv', fate } as CommitFate]);
  await new Promise((resume) => setImmediate(resume));
  return said;
}

test('bought up to the limit: finished, and the nonce stays used', async () => {
  expect(await settle(message(1), 'ordered')).toEqual(['ann bought']);
  said = [];
  held = [1, 1];
  expect(await settle(message(2), 'ordered')).toEqual(['ann bought']);
});

test('bought, and may buy more: another try before it is finished', async () => {
  held = [1];
  expect(await settle(message(2), 'ordered')).toEqual(['ann ends n', 'ann bought']);
});

test('nothing was bought: the place is free and the holder may try again', async () => {
  expect(await settle(message(2), 'released')).toEqual(['ann failed', 'ann ends n']);
});

test('a message without a fate says nothing, and a room that does not listen is told of', async () => {
  news.settled([message(1)], []);
  expect(said).toEqual([]);
  news = new RoomNews({
    rooms: {
      finish: () => Promise.reject(new Error('away')),
      endAttempt: () => Promise.resolve(),
    },
    inventory: { find: () => Promise.resolve(undefined) },
    orders: { liveOfPerson: () => Promise.resolve([]) },
    onError: (error) => faults.push(error),
  });
  await settle(message(1), 'ordered');
  expect(faults).toHaveLength(1);
});
