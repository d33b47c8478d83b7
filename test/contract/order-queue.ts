import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { InventoryStore, ReserveRequest } from '../../src/ports/inventory-store.ts';
import type { Delivery, OrderMessage, OrderQueue } from '../../src/ports/order-queue.ts';
import {
  kinds,
  messageFor,
  nowMs,
  otherSku,
  request,
  requests,
  reserve,
  sku,
  stockOf,
} from './stock-samples.ts';

/** One queue under test, empty, and the store whose outbox feeds it. */
export interface QueueHarness {
  readonly queue: OrderQueue;
  readonly store: InventoryStore;
  /** Brings what was reserved to the queue, where something must carry it there. */
  carry(): Promise<void>;
  /** Time passes until what is out may be given again. */
  passVisibility(): Promise<void>;
  /** Store and queue die without warning and come back. */
  crash(): Promise<void>;
  /** How long an empty `receive` with a wait really waits here, ms; virtual time moves meanwhile. */
  readonly waitMs: number;
  /**
   * Why the store forgets a SKU here before its messages are acknowledged: an exemption from the
   * promise that it does not.
   */
  readonly forgetsEarly?: string;
  /** Lets `waitMs` pass, where time is virtual; does nothing where it passes by itself. */
  passWait(): Promise<void>;
  dispose(): Promise<void>;
}

/** Everything that `OrderQueue` promises, on any implementation. */
export function orderQueueContract(name: string, make: () => Promise<QueueHarness>): void {
  describe(`order queue: ${name}`, () => {
    let harness: QueueHarness;
    let queue: OrderQueue;
    beforeEach(async () => {
      harness = await make();
      queue = harness.queue;
      await harness.store.preload(sku, stockOf(1_000));
    });
    afterEach(() => harness.dispose());

    /** Reserves that many, one batch each, and carries them; in order. */
    const produce = async (count: number): Promise<ReserveRequest[]> => {
      const wishes = requests(count);
      for (const wish of wishes) await reserve(harness.store, [wish]);
      await harness.carry();
      return wishes;
    };
    /** Receives until nothing comes: a queue may give fewer than it has. */
    const drain = async (consumer = 'a', max = 100): Promise<Delivery[]> => {
      const all: Delivery[] = [];
      for (;;) {
        const some = await queue.receive(consumer, max, 0);
        expect(some.length).toBeLessThanOrEqual(max);
        if (some.length === 0) return all;
        all.push(...some);
      }
    };
    const ids = (deliveries: readonly Delivery[]): string[] =>
      deliveries.map((each) => each.message.reservationId);
    const wished = (wishes: readonly ReserveRequest[]): string[] =>
      wishes.map((each) => each.reservationId);

    it('gives whole messages, oldest first, at their first attempt', async () => {
      const wish = request({
        quantity: 2,
        limit: 5,
        personId: 'person ü票"\\',
        traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      });
      const batch = [wish, request(), request()];
      await reserve(harness.store, batch);
      await harness.carry();
      const more = await produce(3);
      const given = await drain();
      expect(given.map((each) => each.message)).toEqual(
        [...batch, ...more].map((each): OrderMessage => messageFor(each)),
      );
      expect(given.map((each) => each.attempt)).toEqual(given.map(() => 1));
      expect(new Set(given.map((each) => each.deliveryId)).size).toBe(given.length);
    });

    it('gives no more than asked for, and refuses to be asked for nonsense', async () => {
      const wishes = await produce(7);
      expect(ids(await queue.receive('a', 3, 0))).toEqual(wished(wishes.slice(0, 3)));
      expect(ids(await drain('a', 2))).toEqual(wished(wishes.slice(3)));
      for (const max of [0, -1, 1.5, 1_001])
        await expect(queue.receive('a', max, 0)).rejects.toThrow(RangeError);
    });

    it('splits one batch of the outbox between consumers', async () => {
      const batch = requests(10);
      await reserve(harness.store, batch);
      await harness.carry();
      const parts = await Promise.all([
        queue.receive('a', 4, 0),
        queue.receive('b', 4, 0),
        queue.receive('c', 4, 0),
      ]);
      const all = [...parts.flat(), ...(await drain('d'))];
      expect([...ids(all)].sort()).toEqual([...wished(batch)].sort());
      await queue.acknowledge(all);
      expect(await queue.backlog(nowMs)).toMatchObject({ depth: 0 });
    });

    it('gives a message to one consumer at a time, and again when that one is silent', async () => {
      const wishes = await produce(3);
      const first = await drain('a');
      expect(await drain('b')).toEqual([]);
      await queue.acknowledge(first.slice(0, 1));
      await harness.passVisibility();
      const second = await drain('b');
      expect(ids(second)).toEqual(wished(wishes.slice(1)));
      expect(second.map((each) => each.attempt)).toEqual([2, 2]);
      expect(await drain('a')).toEqual([]);
    });

    it('forgets what is acknowledged, however often that is said and by whom', async () => {
      await produce(3);
      const first = await drain('a');
      await queue.acknowledge(first);
      await queue.acknowledge(first);
      await harness.passVisibility();
      expect(await drain('a')).toEqual([]);
      expect(await queue.backlog(nowMs)).toMatchObject({
        depth: 0,
        producedTotal: 3,
        acknowledgedTotal: 3,
      });
      await queue.acknowledge([]);
    });

    it('believes a late acknowledgement: the fate is committed', async () => {
      await produce(1);
      const late = await drain('a');
      await harness.passVisibility();
      const second = await drain('b');
      expect(second).toHaveLength(1);
      await queue.acknowledge(late);
      await harness.passVisibility();
      expect(await drain('c')).toEqual([]);
      await queue.acknowledge(second);
      expect(await queue.backlog(nowMs)).toMatchObject({ depth: 0, acknowledgedTotal: 1 });
    });

    it('gives back at once, before newer ones, as another attempt', async () => {
      const wishes = await produce(3);
      const [first] = await queue.receive('a', 1, 0);
      await queue.giveBack([first!]);
      await queue.giveBack([first!]);
      const again = await drain('b');
      expect(ids(again)).toEqual(wished(wishes));
      expect(again.map((each) => each.attempt)).toEqual([2, 1, 1]);
    });

    it('does not let a consumer that timed out give away what another has', async () => {
      await produce(1);
      const late = await drain('a');
      await harness.passVisibility();
      expect(await drain('b')).toHaveLength(1);
      await queue.giveBack(late);
      expect(await drain('c')).toEqual([]);
    });

    it('buries what can never succeed, and its neighbours go on', async () => {
      const wishes = await produce(3);
      const given = await drain('a');
      await queue.bury(given[1]!, 'unreadable');
      await queue.bury(given[1]!, 'unreadable');
      await queue.acknowledge([given[0]!]);
      await harness.passVisibility();
      const rest = await drain('b');
      expect(ids(rest)).toEqual([wishes[2]!.reservationId]);
      await queue.bury(rest[0]!, 'too');
      const buried = await queue.buried(10);
      expect(buried.map((each) => [each.message, each.reason])).toEqual([
        [messageFor(wishes[2]!), 'too'],
        [messageFor(wishes[1]!), 'unreadable'],
      ]);
      for (const each of buried) expect(Number.isSafeInteger(each.buriedAtMs)).toBe(true);
      expect((await queue.buried(1)).map((each) => each.reason)).toEqual(['too']);
      expect(await queue.buried(0)).toEqual([]);
      expect(await queue.backlog(nowMs)).toMatchObject({ depth: 0, buried: 2 });
    });

    it('reports depth, given out or not, and the age of the oldest', async () => {
      // Said by a queue behind a relay: everything has been carried here, so that nothing waits there.
      const carried = async (atMs: number): Promise<object> => {
        const { outboxOldestAgeMs = 0, ...backlog } = await queue.backlog(atMs);
        expect(outboxOldestAgeMs).toBe(0);
        return backlog;
      };
      expect(await carried(nowMs)).toEqual({
        depth: 0,
        oldestAgeMs: 0,
        buried: 0,
        producedTotal: 0,
        acknowledgedTotal: 0,
      });
      await produce(1);
      const later = request();
      await harness.store.reserve(sku, [later], 0, nowMs + 5_000);
      await harness.carry();
      const [first] = await queue.receive('a', 1, 0);
      expect(await carried(nowMs + 8_000)).toEqual({
        depth: 2,
        oldestAgeMs: 8_000,
        buried: 0,
        producedTotal: 2,
        acknowledgedTotal: 0,
      });
      await queue.acknowledge([first!]);
      expect(await queue.backlog(nowMs + 8_000)).toMatchObject({ depth: 1, oldestAgeMs: 3_000 });
      // A clock that went back makes nothing negative.
      expect(await queue.backlog(nowMs)).toMatchObject({ oldestAgeMs: 0 });
    });

    it('waits for a message, and no longer than asked', async () => {
      const waiting = queue.receive('a', 10, 60_000);
      const wishes = await produce(1);
      expect(ids(await waiting)).toEqual(wished(wishes));
      const empty = queue.receive('a', 10, harness.waitMs);
      await harness.passWait();
      expect(await empty).toEqual([]);
    });

    it('keeps the order of a SKU, and carries every SKU', async () => {
      await harness.store.preload(otherSku, stockOf(10));
      const mine: string[] = [];
      for (let at = 0; at < 5; at += 1) {
        const [a, b] = [request(), request()];
        await reserve(harness.store, [a]);
        await reserve(harness.store, [b], otherSku);
        mine.push(a.reservationId);
      }
      await harness.carry();
      const given = await drain('a', 3);
      expect(given).toHaveLength(10);
      expect(ids(given.filter((each) => each.message.skuId === sku.skuId))).toEqual(mine);
    });

    it('is bounded by the stock, whatever is asked', async () => {
      await harness.store.preload(otherSku, stockOf(5));
      const outcomes = await reserve(harness.store, requests(100), otherSku);
      await harness.carry();
      expect(kinds(outcomes).filter((kind) => kind === 'reserved')).toHaveLength(5);
      expect(await queue.backlog(nowMs)).toMatchObject({ depth: 5, producedTotal: 5 });
    });

    it('gives everything unacknowledged again after a crash, and keeps what is buried', async () => {
      const wishes = await produce(6);
      const given = await queue.receive('a', 4, 0);
      await queue.acknowledge(given.slice(0, 1));
      await queue.bury(given[1]!, 'bad');
      await harness.crash();
      queue = harness.queue;
      await harness.carry();
      await harness.passVisibility();
      const again = ids(await drain('b'));
      // An acknowledgement may be lost with the crash: then its message comes again, no other.
      expect(again.filter((id) => id !== wishes[0]!.reservationId)).toEqual(
        wished(wishes.slice(2)),
      );
      expect((await queue.buried(10)).map((each) => each.reason)).toEqual(['bad']);
    });

    it('lets a SKU be forgotten once its messages are done', async () => {
      const [wish] = await produce(1);
      const given = await drain('a');
      await harness.store.settle(
        sku,
        [{ reservationId: wish!.reservationId, fate: 'released' }],
        nowMs,
      );
      if (harness.forgetsEarly === undefined) expect(await harness.store.forget(sku)).toBe(false);
      await queue.acknowledge(given);
      expect(await harness.store.forget(sku)).toBe(true);
      expect(await harness.store.mark(sku)).toBeUndefined();
      expect(await harness.store.find(sku, wish!.userId, wish!.requestId)).toBeUndefined();
    });

    it('ends a wait when it is closed', async () => {
      const waiting = queue.receive('a', 1, 60_000);
      await queue.close();
      expect(await waiting).toEqual([]);
    });
  });
}
