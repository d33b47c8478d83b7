import { describe, expect, test } from 'vitest';
import { OrderBook } from '../../test/support/order-book.ts';
import { World } from '../../test/support/world.ts';
import { OutcomeUnknownError, UnavailableError, UnknownSkuError } from '../ports/errors.ts';
import type { RequestRecord } from '../ports/inventory-store.ts';
import {
  lostAfterRebuildMs,
  RequestStatus,
  submitTimeoutMs,
  unknownMarginMs,
  unknownTableMax,
} from './request-status.ts';

const sku = { activityId: 'a', skuId: 's' } as const;

function record(change: Partial<RequestRecord> = {}): RequestRecord {
  return {
    requestId: 'r',
    userId: 'u',
    personId: 'u',
    fingerprint: 'f',
    nonce: 'n',
    reservationId: 'rsv_1',
    quantity: 2,
    reservedAtMs: 0,
    deadlineMs: 1,
    generation: 1,
    state: 'held',
    ...change,
  };
}

function setUp(found?: RequestRecord | Error): {
  world: World;
  orders: OrderBook;
  status: RequestStatus;
  rebuilt: { atMs: number | undefined };
  set: (next: RequestRecord | Error | undefined) => void;
  errors: unknown[];
} {
  const world = new World();
  const orders = new OrderBook(world);
  let held = found;
  const rebuilt: { atMs: number | undefined } = { atMs: undefined };
  const errors: unknown[] = [];
  const status = new RequestStatus({
    inventory: {
      find: () => (held instanceof Error ? Promise.reject(held) : Promise.resolve(held)),
    },
    orders,
    monoUs: () => world.monoUs(),
    wallMs: () => world.wallMs(),
    rebuiltAtMs: () => rebuilt.atMs,
    onError: (_part, error) => errors.push(error),
  });
  return { world, orders, status, rebuilt, errors, set: (next) => (held = next) };
}

const ask = (status: RequestStatus, requestId = 'r') => status.ask(sku, 'u', requestId);

describe('the durable side wins wherever it has spoken', () => {
  test('over a record that still says held, and over a store that does not answer', async () => {
    const { status, orders, set } = setUp(record());
    expect(await ask(status)).toMatchObject({ outcome: { state: 'QUEUED', quantity: 2 } });
    orders.commit(sku, record(), 'PAID');
    expect(await ask(status)).toMatchObject({ outcome: { state: 'PAID' } });
    set(new UnavailableError('away'));
    expect(await ask(status)).toMatchObject({ outcome: { state: 'PAID' } });
  });

  test('but not over a newer reservation of the same request id', async () => {
    const { status, orders, set } = setUp();
    orders.release(record(), 'lost');
    expect(await ask(status)).toEqual({ kind: 'reservation_lost', reservationId: 'rsv_1' });
    set(record({ reservationId: 'rsv_2' }));
    expect(await ask(status)).toMatchObject({
      outcome: { state: 'QUEUED', reservationId: 'rsv_2' },
    });
    // Its release says nothing new: the old fate stands.
    set(record({ reservationId: 'rsv_2', state: 'released', releaseReason: 'lost' }));
    expect((await ask(status)).kind).toBe('reservation_lost');
  });
});

describe('what is not known', () => {
  test('is unknown for the time of a submit and its margin, and then not found', async () => {
    const { world, status } = setUp();
    const limitMs = submitTimeoutMs + unknownMarginMs;
    expect(await ask(status)).toMatchObject({ outcome: { state: 'UNKNOWN' } });
    await world.advance(limitMs - 1);
    expect(await ask(status)).toMatchObject({ outcome: { state: 'UNKNOWN' } });
    await world.advance(1);
    expect(await ask(status)).toEqual({ kind: 'not_found' });
    expect(await ask(status)).toEqual({ kind: 'not_found' });
  });

  test('counts from the submit that ended unknown, not from the first question', async () => {
    const { world, status } = setUp();
    status.noteUnknown(sku, 'u', 'r');
    await world.advance(submitTimeoutMs + unknownMarginMs);
    expect(await ask(status)).toEqual({ kind: 'not_found' });
  });

  test('wins nothing from a wall clock that jumps', async () => {
    const { world, status } = setUp();
    await ask(status);
    world.jumpWall(86_400_000);
    expect(await ask(status)).toMatchObject({ outcome: { state: 'UNKNOWN' } });
  });

  test('becomes known when the late write shows', async () => {
    const { status, set } = setUp();
    await ask(status);
    set(record());
    expect(await ask(status)).toMatchObject({ outcome: { state: 'QUEUED' } });
  });

  test('is lost, not unknown, after a rebuild; and only for a while', async () => {
    const { world, status, rebuilt } = setUp();
    rebuilt.atMs = world.wallMs();
    expect(await ask(status)).toEqual({ kind: 'reservation_lost', reservationId: null });
    await world.advance(lostAfterRebuildMs);
    expect((await ask(status)).kind).toBe('outcome');
  });

  test('is kept in a bounded table, oldest out first', async () => {
    const { world, status } = setUp();
    for (let n = 0; n < unknownTableMax + 500; n += 1) status.noteUnknown(sku, 'u', `r${n}`);
    expect(status.remembered).toBe(unknownTableMax);
    await world.advance(submitTimeoutMs + unknownMarginMs);
    expect((await ask(status, `r${unknownTableMax + 499}`)).kind).toBe('not_found');
    // Its clock starts again: later, never wrong.
    expect(await ask(status, 'r0')).toMatchObject({ outcome: { state: 'UNKNOWN' } });
    await world.advance(10 * 60_000);
    for (let n = 0; n < 10_000; n += 1) status.noteUnknown(sku, 'u', `later${n}`);
    expect(status.remembered).toBeLessThan(unknownTableMax);
  });
});

describe('a part that does not answer', () => {
  test('is named, and never taken for "no"', async () => {
    const { status, orders, set, errors } = setUp(new UnavailableError('away'));
    expect(await ask(status)).toEqual({ kind: 'unavailable', part: 'inventory' });
    set(new OutcomeUnknownError('lost'));
    expect(await ask(status)).toEqual({ kind: 'unavailable', part: 'inventory' });
    set(undefined);
    orders.failure = new UnavailableError('away');
    expect(await ask(status)).toEqual({ kind: 'unavailable', part: 'orders' });
    set(record({ state: 'ordered' }));
    expect(await ask(status)).toEqual({ kind: 'unavailable', part: 'orders' });
    expect(errors).toEqual([]);
    set(new Error('bug'));
    await ask(status);
    expect(errors).toHaveLength(1);
  });

  test('a store that does not hold the SKU has answered: it knows nothing of the request', async () => {
    const { status } = setUp(new UnknownSkuError('a', 's'));
    expect(await ask(status)).toMatchObject({ outcome: { state: 'UNKNOWN' } });
  });
});

test('users with the same request id are different requests', async () => {
  const { world, status } = setUp();
  status.noteUnknown(sku, 'u', 'r');
  await world.advance(submitTimeoutMs + unknownMarginMs);
  expect(await status.ask(sku, 'u', 'r')).toEqual({ kind: 'not_found' });
  expect((await status.ask(sku, 'other', 'r')).kind).toBe('outcome');
});

describe('the same question at the same time', () => {
  function slow(found: () => RequestRecord | undefined) {
    const world = new World();
    let reads = 0;
    const status = new RequestStatus({
      inventory: {
        find: () => {
          reads += 1;
          const at = found();
          return new Promise((resolve) => void world.after(10, () => resolve(at)));
        },
      },
      orders: new OrderBook(world),
      monoUs: () => world.monoUs(),
      wallMs: () => world.wallMs(),
    });
    return { world, status, reads: () => reads };
  }

  test('is one read', async () => {
    const { world, status, reads } = slow(() => record());
    const all = [ask(status), ask(status), ask(status), ask(status, 'another')];
    await world.advance(20);
    const states = (await Promise.all(all)).map((said) => said.kind);
    expect([states, reads()]).toEqual([['outcome', 'outcome', 'outcome', 'outcome'], 2]);
    // And not a cache: the next one asks.
    const next = ask(status);
    await world.advance(20);
    await next;
    expect(reads()).toBe(3);
  });

  test('"nobody knows" is never shared with who may have submitted since', async () => {
    let kept: RequestRecord | undefined;
    const { world, status } = slow(() => kept);
    const before = ask(status);
    await world.advance(5);
    kept = record();
    const after = ask(status);
    await world.advance(40);
    expect((await before).kind === 'outcome' && (await before)).toMatchObject({
      outcome: { state: 'UNKNOWN' },
    });
    expect(await after).toMatchObject({ outcome: { state: 'QUEUED' } });
  });
});
