import { expect, test } from 'vitest';
import type { RequestRecord } from '../stock/model.ts';
import { type SkuFacts, compareSku } from './compare.ts';
import type { Order } from './model.ts';

const nowMs = 1_000_000;

const record = (id: string, over: Partial<RequestRecord> = {}): RequestRecord => ({
  requestId: `req-${id}`,
  userId: id,
  personId: id,
  fingerprint: 'f',
  nonce: `n-${id}`,
  reservationId: `rsv_${id}`,
  quantity: 1,
  reservedAtMs: 0,
  deadlineMs: 60_000,
  generation: 1,
  state: 'held',
  ...over,
});

const order = (id: string): Order => ({
  orderId: `ord_${id}`,
  reservationId: `rsv_${id}`,
  requestId: `req-${id}`,
  activityId: 'show',
  skuId: 'floor',
  userId: id,
  personId: id,
  quantity: 1,
  amountMinor: 100,
  currency: 'EUR',
  state: 'PENDING_PAYMENT',
  createdAtMs: 0,
  payBeforeMs: 900_000,
});

/** One order, told; nine units free; nothing wrong. */
const sound: SkuFacts = {
  nowMs,
  marginMs: 30_000,
  skuId: 'floor',
  mark: {
    total: 10,
    available: 9,
    held: 0,
    ordered: 1,
    sequence: 5,
    generation: 1,
    stockEpoch: 0,
    paused: false,
  },
  live: [record('a', { state: 'ordered' })],
  fates: new Map([
    ['rsv_a', { reservationId: 'rsv_a', fate: 'ordered', order: order('a'), fresh: false }],
  ]),
  orders: [order('a')],
  strangers: new Map(),
  durable: {
    total: 10,
    sold: 1,
    paid: 0,
    generation: 1,
    rowsSold: 1,
    rowsPaid: 0,
    personsWrong: 0,
  },
  due: new Set(),
  still: true,
};

const classes = (over: Partial<SkuFacts>): string[] =>
  compareSku({ ...sound, ...over }).map((finding) => `${finding.class}: ${finding.repair}`);

test('a sound SKU has no findings', () => {
  expect(classes({})).toEqual([]);
});

test('each fault is found as what it is, with its repair', () => {
  const held = record('b');
  const mark = { ...sound.mark, available: 8, held: 1 };
  const live = [...sound.live, held];
  expect(classes({ live, mark })).toEqual(['reservation_without_order: release']);
  const fateOfB = {
    reservationId: 'rsv_b',
    fate: 'released',
    reason: 'refused',
    fresh: false,
  } as const;
  expect(classes({ live, mark, fates: new Map([...sound.fates, ['rsv_b', fateOfB]]) })).toEqual([
    'fate_not_told: tell',
    'stock_does_not_add_up: report',
  ]);
  const released = record('a', { state: 'released' });
  const free = { ...sound.mark, available: 10, ordered: 0 };
  expect(classes({ live: [], mark: free, strangers: new Map([['rsv_a', released]]) })).toEqual([
    'order_without_reservation: retake',
    'stock_does_not_add_up: report',
  ]);
  expect(classes({ live: [], mark: free })[0]).toBe('inventory_forgot: rebuild');
  expect(classes({ mark: { ...sound.mark, total: 12, available: 11 } })).toEqual([
    'total_differs: adjust',
  ]);
  expect(classes({ mark: { ...sound.mark, available: 7 } })).toEqual([
    'stock_does_not_add_up: rebuild',
  ]);
  expect(classes({ durable: { ...sound.durable, rowsSold: 2 } })).toEqual([
    'counters_differ: report',
  ]);
  expect(classes({ durable: { ...sound.durable, personsWrong: 1 } })).toEqual([
    'counters_differ: report',
  ]);
  expect(classes({ durable: { ...sound.durable, total: 10, sold: 11, rowsSold: 11 } })).toContain(
    'overbooked: report',
  );
  expect(classes({ durable: { ...sound.durable, generation: 2 } })).toEqual([
    'generation_behind: rebuild',
  ]);
  expect(classes({ pausedForMs: sound.marginMs + 1 })).toEqual(['paused_alone: rebuild']);
  expect(classes({ pausedForMs: sound.marginMs })).toEqual([]);
});

test('what is young, due to be told, or moving is no fault', () => {
  const mark = { ...sound.mark, available: 8, held: 1 };
  const young = record('b', { deadlineMs: nowMs - 30_000 });
  expect(classes({ live: [...sound.live, young], mark })).toEqual([]);
  const told = record('b', { reservedAtMs: nowMs - 30_000 });
  const fate = {
    reservationId: 'rsv_b',
    fate: 'released',
    reason: 'refused',
    fresh: false,
  } as const;
  const fates = new Map([...sound.fates, ['rsv_b', fate] as const]);
  const moving = { still: false, fates, mark };
  expect(classes({ ...moving, live: [...sound.live, told] })).toEqual([]);
  expect(
    classes({ ...moving, live: [...sound.live, record('b')], due: new Set(['rsv_b']) }),
  ).toEqual([]);
  const fresh = { ...order('c'), createdAtMs: nowMs - 30_000 };
  expect(classes({ orders: [...sound.orders, fresh], still: false })).toEqual([]);
  expect(classes({ mark: { ...sound.mark, total: 12, available: 11 }, still: false })).toEqual([]);
});
