import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { quantityMax, reserveBatchMax } from '../../src/core/bounds.ts';
import { UnknownSkuError } from '../../src/ports/errors.ts';
import type { InventoryStore, RequestRecord, StockMark } from '../../src/ports/inventory-store.ts';
import type { OrderMessage } from '../../src/ports/order-queue.ts';
import { inventoryModelProperty } from './inventory-model.ts';
import { seatsContract } from './inventory-seats.ts';
import {
  kinds,
  messageFor,
  nowMs,
  otherSku,
  request,
  requests,
  reserve,
  retryOf,
  sku,
  stockOf,
} from './stock-samples.ts';

/** One store under test, empty. */
export interface InventoryHarness {
  readonly store: InventoryStore;
  /** Every message in the outbox that is not acknowledged, oldest first within a SKU; takes none away. */
  messages(): Promise<readonly OrderMessage[]>;
  /** The store's process dies without warning and comes back; `store` and `messages` are then of the new one. */
  crash(): Promise<void>;
  dispose(): Promise<void>;
  /** Each SKU lies in several parts, which have numbers, and nonces, of their own. */
  readonly inParts?: true;
}

export interface InventoryContractOptions {
  /** Runs of the model property; fewer where each command crosses a wire. */
  readonly modelRuns: number;
  /** Whether the property's histories hold crashes too. Default true. */
  readonly modelCrashes?: boolean;
}

/** Everything that `InventoryStore` promises, on any implementation. */
export function inventoryStoreContract(
  name: string,
  make: () => Promise<InventoryHarness>,
  options: InventoryContractOptions,
): void {
  describe(`inventory store: ${name}`, () => {
    let harness: InventoryHarness;
    let store: InventoryStore;
    beforeEach(async () => {
      harness = await make();
      store = harness.store;
    });
    afterEach(() => harness.dispose());

    const markOf = async (): Promise<StockMark> => {
      const mark = await store.mark(sku);
      if (mark === undefined) throw new Error('The SKU is not loaded');
      expect(mark.available + mark.held + mark.ordered).toBe(mark.total);
      return mark;
    };
    /** Parts of a SKU have numbers of their own, and moving units between them takes steps. */
    const alike = (mark: StockMark): Partial<StockMark> => {
      const { sequence: _, stockEpoch: __, ...units } = mark;
      return harness.inParts === true ? units : mark;
    };
    /** A pass, and with it its nonce, is of one person: parts look for it in that person's part alone. */
    const onePerson = (personId: string): { readonly personId?: string } =>
      harness.inParts === true ? { personId } : {};
    const inOrder = <Thing>(things: readonly Thing[]): readonly Thing[] =>
      harness.inParts === true
        ? things.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))
        : things;
    const recordOf = async (userId: string, requestId: string): Promise<RequestRecord> => {
      const record = await store.find(sku, userId, requestId);
      if (record === undefined) throw new Error(`${requestId} is not known`);
      return record;
    };

    describe('preload', () => {
      it('creates a SKU, and leaves one of the same or a higher generation alone', async () => {
        expect(await store.mark(sku)).toBeUndefined();
        const first = await store.preload(sku, stockOf(10, { generation: 2 }));
        expect(first).toMatchObject({
          total: 10,
          available: 10,
          held: 0,
          ordered: 0,
          generation: 2,
          stockEpoch: 0,
          paused: false,
        });
        await reserve(store, [request()]);
        const standing = await markOf();
        expect(await store.preload(sku, stockOf(99, { generation: 2 }))).toEqual(standing);
        expect(await store.preload(sku, stockOf(99, { generation: 1 }))).toEqual(standing);
        expect(await store.mark(otherSku)).toBeUndefined();
      });

      it('replaces one of a lower generation, and every number goes on from there', async () => {
        await store.preload(sku, stockOf(1));
        await reserve(store, [request()]);
        const before = await markOf();
        const after = await store.preload(sku, stockOf(7, { generation: 2 }));
        expect(after).toMatchObject({ total: 7, available: 7, held: 0, generation: 2 });
        expect(after.sequence).toBeGreaterThan(before.sequence);
        expect(after.stockEpoch).toBeGreaterThan(before.stockEpoch);
        expect(after.stockEpoch % 2).toBe(0);
      });

      it('of nothing is sold out from the start', async () => {
        const mark = await store.preload(sku, stockOf(0));
        expect(mark.stockEpoch % 2).toBe(1);
        expect(kinds(await reserve(store, [request()]))).toEqual(['sold_out']);
      });

      it('refuses numbers that cannot be', async () => {
        await expect(store.preload(sku, stockOf(-1))).rejects.toThrow(RangeError);
        await expect(store.preload(sku, stockOf(1.5))).rejects.toThrow(/1\.5/);
        await expect(store.preload(sku, stockOf(1, { generation: 0 }))).rejects.toThrow(RangeError);
        expect(await store.mark(sku)).toBeUndefined();
      });
    });

    describe('reserve', () => {
      it('answers unknown_sku for what is not loaded', async () => {
        expect(await store.reserve(sku, [request()], 0, nowMs)).toEqual({ kind: 'unknown_sku' });
      });

      it('takes units, remembers the request, and puts the message into the outbox', async () => {
        await store.preload(sku, stockOf(10));
        const before = await markOf();
        const wish = request({
          quantity: 2,
          limit: 4,
          personId: 'digest:ü票',
          traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
        });
        const reply = await store.reserve(sku, [wish], before.sequence, nowMs);
        const record: RequestRecord = {
          requestId: wish.requestId,
          userId: wish.userId,
          personId: wish.personId,
          fingerprint: wish.fingerprint,
          nonce: wish.nonce,
          reservationId: wish.reservationId,
          quantity: 2,
          reservedAtMs: nowMs,
          deadlineMs: wish.deadlineMs,
          generation: 1,
          state: 'held',
        };
        expect(reply).toEqual({
          kind: 'done',
          outcomes: [{ kind: 'reserved', record }],
          mark: { ...before, available: 8, held: 2, sequence: before.sequence + 1 },
        });
        expect(await store.find(sku, wish.userId, wish.requestId)).toEqual(record);
        expect(await harness.messages()).toEqual([messageFor(wish)]);
        expect(await markOf()).toEqual({
          ...before,
          available: 8,
          held: 2,
          sequence: before.sequence + 1,
        });
      });

      it('judges an empty batch without changing anything', async () => {
        const mark = await store.preload(sku, stockOf(1));
        expect(await store.reserve(sku, [], 0, nowMs)).toEqual({
          kind: 'done',
          outcomes: [],
          mark,
        });
      });

      it('answers a retry with what the first try became, and changes nothing', async () => {
        await store.preload(sku, stockOf(1));
        const wish = request();
        await reserve(store, [wish]);
        const before = await markOf();
        const record = await recordOf(wish.userId, wish.requestId);
        // The store is sold out by now; a winner who asks again hears that they won.
        for (const batch of [[retryOf(wish)], [retryOf(wish), retryOf(wish)]])
          for (const outcome of await reserve(store, batch))
            expect(outcome).toEqual({ kind: 'existing', record });
        expect(alike(await markOf())).toEqual(alike(before));
        expect(await harness.messages()).toHaveLength(1);
      });

      it('answers the second of two equal requests in one batch with the first', async () => {
        await store.preload(sku, stockOf(5));
        const wish = request();
        const outcomes = await reserve(store, [wish, retryOf(wish)]);
        expect(kinds(outcomes)).toEqual(['reserved', 'existing']);
        expect(await markOf()).toMatchObject({ available: 4, held: 1 });
      });

      it('calls the same request id with another fingerprint a conflict', async () => {
        await store.preload(sku, stockOf(5));
        const wish = request({ limit: 5 });
        await reserve(store, [wish]);
        const before = await markOf();
        const other = { ...retryOf(wish), quantity: 2, fingerprint: 'another' };
        expect(await reserve(store, [other])).toEqual([{ kind: 'conflict' }]);
        expect(alike(await markOf())).toEqual(alike(before));
      });

      it('scopes a request id by SKU and user, however the parts are cut', async () => {
        await store.preload(sku, stockOf(5));
        await store.preload(otherSku, stockOf(5));
        const one = request({ requestId: 'a', userId: 'b:c' });
        const two = request({ requestId: 'a:b', userId: 'c' });
        const three = request({ requestId: 'a', userId: 'c', limit: 2 });
        expect(kinds(await reserve(store, [one, two, three]))).toEqual([
          'reserved',
          'reserved',
          'reserved',
        ]);
        expect(kinds(await reserve(store, [retryOf(one)], otherSku))).toEqual(['reserved']);
        expect(await store.find(sku, 'b', 'a')).toBeUndefined();
      });

      it('binds a nonce to one request id for ever, through release too', async () => {
        await store.preload(sku, stockOf(5));
        const wish = request();
        await reserve(store, [wish]);
        const replay = request({ nonce: wish.nonce, ...onePerson(wish.personId) });
        expect(await reserve(store, [replay])).toEqual([{ kind: 'nonce_used' }]);
        // The same user with another request id is a replay as well.
        const again = request({ nonce: wish.nonce, userId: wish.userId });
        expect(await reserve(store, [again])).toEqual([{ kind: 'nonce_used' }]);
        await store.settle(
          sku,
          [{ reservationId: wish.reservationId, fate: 'released', reason: 'expired' }],
          nowMs,
        );
        expect(await reserve(store, [again])).toEqual([{ kind: 'nonce_used' }]);
        // Within one batch too.
        const [a, b] = [
          request({ nonce: 'shared', ...onePerson('x') }),
          request({ nonce: 'shared', ...onePerson('x') }),
        ];
        expect(kinds(await reserve(store, [a, b]))).toEqual(['reserved', 'nonce_used']);
      });

      it('remembers nothing of a request that reserved nothing, its nonce neither', async () => {
        await store.preload(sku, stockOf(0));
        const before = await markOf();
        const wish = request();
        expect(await reserve(store, [wish])).toEqual([{ kind: 'sold_out' }]);
        expect(alike(await markOf())).toEqual(alike(before));
        expect(await store.find(sku, wish.userId, wish.requestId)).toBeUndefined();
        expect(await harness.messages()).toEqual([]);
        await store.adjust(sku, 'more', 1, nowMs);
        expect(kinds(await reserve(store, [{ ...wish, fingerprint: 'changed' }]))).toEqual([
          'reserved',
        ]);
      });

      it('asks in order: request id, nonce, limit, stock', async () => {
        await store.preload(sku, stockOf(1));
        const wish = request();
        await reserve(store, [wish]);
        // Everything is wrong with these; the first question decides.
        expect(kinds(await reserve(store, [retryOf(wish)]))).toEqual(['existing']);
        expect(
          kinds(await reserve(store, [request({ nonce: wish.nonce, personId: wish.personId })])),
        ).toEqual(['nonce_used']);
        expect(kinds(await reserve(store, [request({ personId: wish.personId })]))).toEqual([
          'limit_reached',
        ]);
        expect(kinds(await reserve(store, [request()]))).toEqual(['sold_out']);
      });

      it('answers a double click with the ids of the first', async () => {
        await store.preload(sku, stockOf(10));
        const first = request({ userId: 'ann' });
        const second = request({ userId: 'ann' });
        await reserve(store, [first]);
        const [outcome] = await reserve(store, [second]);
        expect(outcome).toEqual({
          kind: 'limit_reached',
          live: [await recordOf('ann', first.requestId)],
        });
        expect(await markOf()).toMatchObject({ available: 9, held: 1 });
      });

      it('adds up what a person holds: 3, then 4 of a limit of 4', async () => {
        await store.preload(sku, stockOf(100));
        const person = { personId: 'id-card', limit: 4 };
        const three = request({ ...person, userId: 'ann', quantity: 3 });
        const four = request({ ...person, userId: 'ann on her phone', quantity: 4 });
        const one = request({ ...person, userId: 'ann again', quantity: 1 });
        const outcomes = await reserve(store, [three, four, one]);
        expect(kinds(outcomes)).toEqual(['reserved', 'limit_reached', 'reserved']);
        const [last] = await reserve(store, [request({ ...person })]);
        if (last?.kind !== 'limit_reached') throw new Error(`${last?.kind}`);
        expect(last.live.map((each) => each.reservationId).sort()).toEqual(
          [three.reservationId, one.reservationId].sort(),
        );
        // What went back no longer counts; a limit of nothing lets nothing through.
        await store.settle(sku, [{ reservationId: three.reservationId, fate: 'released' }], nowMs);
        expect(kinds(await reserve(store, [request({ ...person, quantity: 3 })]))).toEqual([
          'reserved',
        ]);
        expect(kinds(await reserve(store, [request({ limit: 0 })]))).toEqual(['limit_reached']);
      });

      it('of 2 left, gives two devices of two users who order 2 at once to one of them', async () => {
        await store.preload(sku, stockOf(2));
        const wish = { quantity: 2, limit: 2 };
        const devices = [
          request({ ...wish, userId: 'ann' }),
          request({ ...wish, userId: 'bob' }),
          request({ ...wish, userId: 'ann' }),
          request({ ...wish, userId: 'bob' }),
        ];
        const outcomes = await Promise.all(devices.map((each) => reserve(store, [each])));
        const all = kinds(outcomes.flat());
        expect(all.filter((kind) => kind === 'reserved')).toHaveLength(1);
        expect(all.filter((kind) => kind === 'limit_reached')).toHaveLength(1);
        expect(all.filter((kind) => kind === 'sold_out')).toHaveLength(2);
        expect(await markOf()).toMatchObject({ available: 0, held: 2 });
      });

      it('of 10 units and 100 calls at once sells exactly 10, each once', async () => {
        await store.preload(sku, stockOf(10));
        const wishes = requests(100);
        const outcomes = await Promise.all(wishes.map((each) => reserve(store, [each])));
        const reserved = outcomes
          .flat()
          .flatMap((each) => (each.kind === 'reserved' ? [each] : []));
        expect(reserved).toHaveLength(10);
        expect(await markOf()).toMatchObject({ available: 0, held: 10, total: 10 });
        const live = await store.live(sku, undefined, 100);
        expect(new Set(live.map((each) => each.reservationId))).toEqual(
          new Set(reserved.map(({ record }) => record.reservationId)),
        );
        // The queue holds as many messages as there was stock, whatever was asked.
        expect(await harness.messages()).toHaveLength(10);
      });

      it('judges a whole batch in order: the 10th and the 40th are one user', async () => {
        await store.preload(sku, stockOf(63));
        const batch = requests(64);
        batch[9] = request({ userId: 'twice' });
        batch[39] = request({ userId: 'twice' });
        const outcomes = await reserve(store, batch);
        expect(outcomes[9]?.kind).toBe('reserved');
        expect(outcomes[39]).toMatchObject({
          kind: 'limit_reached',
          live: [{ requestId: batch[9]?.requestId }],
        });
        expect(kinds(outcomes).filter((kind) => kind === 'reserved')).toHaveLength(63);
        const sent = (await harness.messages()).map((each) => each.requestId);
        expect(inOrder(sent)).toEqual(
          inOrder(batch.filter((_, at) => at !== 39).map((each) => each.requestId)),
        );
        expect(await markOf()).toMatchObject({ available: 0, held: 63 });
      });

      it('goes on past one who asks for too many', async () => {
        await store.preload(sku, stockOf(3));
        const outcomes = await reserve(store, [
          request({ quantity: 2, limit: 9 }),
          request({ quantity: 2, limit: 9 }),
          request({ quantity: 1 }),
          request({ quantity: 1 }),
        ]);
        expect(kinds(outcomes)).toEqual(['reserved', 'sold_out', 'reserved', 'sold_out']);
      });

      it('takes the largest batch and refuses a larger one whole', async () => {
        await store.preload(sku, stockOf(10_000));
        expect(await reserve(store, requests(reserveBatchMax))).toHaveLength(reserveBatchMax);
        const before = await markOf();
        await expect(reserve(store, requests(reserveBatchMax + 1))).rejects.toThrow(RangeError);
        for (const quantity of [0, -1, 1.5, Number.NaN, quantityMax + 1])
          await expect(reserve(store, [request(), request({ quantity })])).rejects.toThrow(
            new RegExp(`quantity is ${quantity}`),
          );
        expect(alike(await markOf())).toEqual(alike(before));
        expect(await harness.messages()).toHaveLength(reserveBatchMax);
      });
    });

    describe('sold out and reopened', () => {
      it('raises the epoch at each change, odd while nothing is left', async () => {
        await store.preload(sku, stockOf(2, { stockEpoch: 4 }));
        const wishes = requests(2);
        let last = -1;
        /** Exactly so, or, of several parts, as odd or even, and higher where it changed. */
        const epochIs = async (
          stockEpoch: number,
          units: Partial<StockMark> = {},
        ): Promise<void> => {
          const mark = await markOf();
          expect(mark).toMatchObject(units);
          if (harness.inParts !== true) expect(mark.stockEpoch).toBe(stockEpoch);
          expect(mark.stockEpoch % 2).toBe(stockEpoch % 2);
          expect(mark.stockEpoch).toBeGreaterThanOrEqual(last);
          if (mark.stockEpoch % 2 !== last % 2) expect(mark.stockEpoch).toBeGreaterThan(last);
          last = mark.stockEpoch;
        };
        await epochIs(4);
        await reserve(store, [wishes[0]!]);
        await epochIs(4);
        // Too many for one buyer is not sold out for all.
        expect(kinds(await reserve(store, [request({ quantity: 2, limit: 2 })]))).toEqual([
          'sold_out',
        ]);
        await epochIs(4, { available: 1 });
        await reserve(store, [wishes[1]!]);
        await epochIs(5, { available: 0 });
        await store.settle(
          sku,
          wishes.map((each) => ({ reservationId: each.reservationId, fate: 'released' as const })),
          nowMs,
        );
        await epochIs(6, { available: 2 });
        await store.adjust(sku, 'away', -2, nowMs);
        await epochIs(7, { available: 0, total: 0 });
        await store.adjust(sku, 'back', 1, nowMs);
        await epochIs(8, { available: 1, total: 1 });
      });
    });

    describe('settle', () => {
      const wish = request();
      const settle = (
        fate: 'ordered' | 'released' | 'retaken',
        reservationId = wish.reservationId,
      ) => store.settle(sku, [{ reservationId, fate, reason: 'expired' }], nowMs);

      beforeEach(async () => {
        await store.preload(sku, stockOf(1));
        await reserve(store, [wish]);
      });

      it('keeps the units of an order, once however often it is said', async () => {
        const { sequence } = await markOf();
        expect(await settle('ordered')).toMatchObject({
          changed: 1,
          mark: { ordered: 1, held: 0, available: 0, sequence: sequence + 1 },
        });
        expect(await settle('ordered')).toMatchObject({
          changed: 0,
          mark: { ordered: 1, sequence: sequence + 1 },
        });
        expect(await recordOf(wish.userId, wish.requestId)).toMatchObject({ state: 'ordered' });
      });

      it('gives the units of a release back, once however often it is said', async () => {
        expect(await settle('released')).toMatchObject({
          changed: 1,
          mark: { available: 1, held: 0 },
        });
        expect(await settle('released')).toMatchObject({ changed: 0, mark: { available: 1 } });
        expect(await recordOf(wish.userId, wish.requestId)).toMatchObject({
          state: 'released',
          releaseReason: 'expired',
        });
        // The same intention does not start anew; a new one of the same person does.
        expect(await reserve(store, [retryOf(wish)])).toMatchObject([
          { kind: 'existing', record: { state: 'released' } },
        ]);
        expect(kinds(await reserve(store, [request({ userId: wish.userId })]))).toEqual([
          'reserved',
        ]);
        expect(await settle('released')).toMatchObject({ changed: 0, mark: { available: 0 } });
      });

      it('releases an order too, and a late order never undoes a release', async () => {
        await settle('ordered');
        expect(await settle('released')).toMatchObject({ mark: { available: 1, ordered: 0 } });
        expect(await settle('ordered')).toMatchObject({ changed: 0, mark: { available: 1 } });
        expect(await recordOf(wish.userId, wish.requestId)).toMatchObject({ state: 'released' });
      });

      it('restocks once when two say it at the same instant', async () => {
        await settle('ordered');
        const replies = await Promise.all([settle('released'), settle('released')]);
        expect(replies.reduce((sum, each) => sum + each.changed, 0)).toBe(1);
        expect(await markOf()).toMatchObject({ available: 1 });
      });

      it('judges the fates of one step in order', async () => {
        const reply = await store.settle(
          sku,
          [
            { reservationId: wish.reservationId, fate: 'ordered' },
            { reservationId: wish.reservationId, fate: 'released', reason: 'cancelled' },
            { reservationId: wish.reservationId, fate: 'ordered' },
          ],
          nowMs,
        );
        expect(reply).toMatchObject({ changed: 2, mark: { available: 1, held: 0, ordered: 0 } });
      });

      it('retakes the units of a release for late money where they are left', async () => {
        expect(await settle('retaken')).toMatchObject({ changed: 0, mark: { held: 1 } });
        await settle('released');
        expect(await settle('retaken')).toMatchObject({
          changed: 1,
          mark: { available: 0, ordered: 1 },
        });
        expect(await settle('retaken')).toMatchObject({ changed: 0, mark: { ordered: 1 } });
        const record = await recordOf(wish.userId, wish.requestId);
        expect(record.state).toBe('ordered');
        expect(record).not.toHaveProperty('releaseReason');
        // They count for the person again.
        expect(kinds(await reserve(store, [request({ userId: wish.userId })]))).toEqual([
          'limit_reached',
        ]);
        expect(await settle('released')).toMatchObject({ changed: 1, mark: { available: 1 } });
      });

      it('does not retake what somebody else has by now', async () => {
        await settle('released');
        await reserve(store, [request()]);
        expect(await settle('retaken')).toMatchObject({
          changed: 0,
          mark: { available: 0, held: 1, ordered: 0 },
        });
      });

      it('ignores what it does not know', async () => {
        const before = await markOf();
        expect(await settle('released', 'of a generation that is gone')).toEqual({
          changed: 0,
          mark: before,
        });
        expect(await store.settle(sku, [], nowMs)).toEqual({ changed: 0, mark: before });
        const elsewhere = await store.settle(
          otherSku,
          [{ reservationId: wish.reservationId, fate: 'released' }],
          nowMs,
        );
        expect(elsewhere).toMatchObject({ changed: 0, mark: { generation: 0, available: 0 } });
        expect(await store.mark(otherSku)).toBeUndefined();
      });
    });

    describe('adjust', () => {
      it('adds and removes units once per adjustment', async () => {
        await store.preload(sku, stockOf(5));
        const { sequence } = await markOf();
        expect(await store.adjust(sku, 'a', 3, nowMs)).toMatchObject({
          applied: true,
          mark: { total: 8, available: 8, sequence: sequence + 1 },
        });
        expect(await store.adjust(sku, 'a', 3, nowMs)).toMatchObject({
          applied: true,
          mark: { total: 8, sequence: sequence + 1 },
        });
        await expect(store.adjust(sku, 'a', 4, nowMs)).rejects.toThrow(/by 3, not 4/);
        expect(await store.adjust(sku, 'b', -8, nowMs)).toMatchObject({
          applied: true,
          mark: { total: 0, available: 0 },
        });
      });

      it('never takes what is not available', async () => {
        await store.preload(sku, stockOf(5));
        await reserve(store, requests(2));
        const before = await markOf();
        expect(await store.adjust(sku, 'a', -4, nowMs)).toEqual({ applied: false, mark: before });
        expect(alike(await markOf())).toEqual(alike(before));
        // Refused, so not remembered: the same id may do what is possible now.
        expect(await store.adjust(sku, 'a', -3, nowMs)).toMatchObject({
          applied: true,
          mark: { total: 2, available: 0, held: 2 },
        });
      });

      it('throws for a SKU that is not loaded, and for no number', async () => {
        await expect(store.adjust(sku, 'a', 1, nowMs)).rejects.toThrow(UnknownSkuError);
        await store.preload(sku, stockOf(5));
        await expect(store.adjust(sku, 'a', 0.5, nowMs)).rejects.toThrow(RangeError);
        expect(await markOf()).toMatchObject({ total: 5 });
      });
    });

    describe('pause', () => {
      it('stops reserving and nothing else', async () => {
        await store.preload(sku, stockOf(5));
        const wish = request();
        await reserve(store, [wish]);
        const { sequence } = await markOf();
        const paused = await store.setPaused(sku, true);
        expect(paused.paused).toBe(true);
        if (harness.inParts !== true) expect(paused.sequence).toBe(sequence + 1);
        expect(paused.sequence).toBeGreaterThan(sequence);
        expect(await store.setPaused(sku, true)).toEqual(paused);
        expect(await store.reserve(sku, [request(), wish], 0, nowMs)).toEqual({
          kind: 'paused',
          mark: paused,
        });
        expect(await store.find(sku, wish.userId, wish.requestId)).toBeDefined();
        await store.settle(sku, [{ reservationId: wish.reservationId, fate: 'ordered' }], nowMs);
        const resumed = await store.setPaused(sku, false);
        expect(resumed).toMatchObject({ paused: false, ordered: 1 });
        if (harness.inParts !== true) expect(resumed.sequence).toBe(sequence + 3);
        expect(resumed.sequence).toBeGreaterThan(paused.sequence);
        expect(kinds(await reserve(store, [request()]))).toEqual(['reserved']);
        await expect(store.setPaused(otherSku, true)).rejects.toThrow(UnknownSkuError);
      });
    });

    describe('a store that has forgotten', () => {
      it('is noticed by the sequence, pauses the SKU, and sells nothing to anybody', async () => {
        const { sequence } = await store.preload(sku, stockOf(5));
        // The caller has seen exactly this: nothing is wrong.
        expect(await store.reserve(sku, [request()], sequence, nowMs)).toMatchObject({
          kind: 'done',
        });
        const standing = await markOf();
        const reply = await store.reserve(sku, [request()], standing.sequence + 1, nowMs);
        expect(reply).toMatchObject({ kind: 'forgotten', mark: { paused: true, available: 4 } });
        // A caller who has seen less than was lost is stopped too.
        expect(await store.reserve(sku, [request()], 0, nowMs)).toMatchObject({ kind: 'paused' });
        // Saying it again moves nothing on, or the sequence would catch up with what was lost.
        const after = await markOf();
        for (let again = 0; again < 3; again += 1)
          expect(await store.reserve(sku, [request()], standing.sequence + 5, nowMs)).toMatchObject(
            { kind: 'forgotten' },
          );
        expect(await markOf()).toEqual(after);
        expect(await harness.messages()).toHaveLength(1);
      });
    });

    describe('rebuild', () => {
      it('replaces everything by what the durable side says, above every number seen', async () => {
        await store.preload(sku, stockOf(5));
        const wishes = requests(3);
        await reserve(store, wishes);
        await store.settle(
          sku,
          [{ reservationId: wishes[0]!.reservationId, fate: 'ordered' }],
          nowMs,
        );
        const ordered = await recordOf(wishes[0]!.userId, wishes[0]!.requestId);
        const held = await recordOf(wishes[1]!.userId, wishes[1]!.requestId);
        await store.setPaused(sku, true);
        const before = await markOf();
        const mark = await store.rebuild(sku, {
          total: 4,
          generation: 2,
          stockEpoch: 0,
          live: [ordered, held],
        });
        expect(mark).toMatchObject({
          total: 4,
          available: 2,
          ordered: 1,
          held: 1,
          generation: 2,
          paused: true,
        });
        // Any number a caller may have seen of the old generation is below.
        expect(mark.sequence).toBeGreaterThan(before.sequence + 1_000_000);
        expect(mark.stockEpoch).toBeGreaterThan(before.stockEpoch);
        expect(mark.stockEpoch % 2).toBe(0);
        await store.setPaused(sku, false);

        expect(kinds(await reserve(store, [retryOf(wishes[0]!)]))).toEqual(['existing']);
        const { nonce, personId } = wishes[1]!;
        const replay = request({ nonce, ...onePerson(personId) });
        expect(kinds(await reserve(store, [replay]))).toEqual(['nonce_used']);
        expect(kinds(await reserve(store, [request({ userId: wishes[1]!.userId })]))).toEqual([
          'limit_reached',
        ]);
        // What did not survive is unknown, and settling it changes nothing.
        const gone = wishes[2]!;
        expect(await store.find(sku, gone.userId, gone.requestId)).toBeUndefined();
        expect(
          await store.settle(sku, [{ reservationId: gone.reservationId, fate: 'released' }], nowMs),
        ).toMatchObject({ changed: 0 });
        expect(inOrder(await store.live(sku, undefined, 10))).toEqual(inOrder([ordered, held]));
        const fresh = request({ userId: gone.userId });
        await reserve(store, [fresh]);
        expect((await recordOf(fresh.userId, fresh.requestId)).generation).toBe(2);
      });

      it('is refused unless its generation is higher', async () => {
        await store.preload(sku, stockOf(5, { generation: 3 }));
        const standing = await markOf();
        for (const generation of [1, 3])
          expect(
            await store.rebuild(sku, { total: 1, generation, stockEpoch: 9, live: [] }),
          ).toEqual(standing);
        expect(await markOf()).toEqual(standing);
      });

      it('makes a SKU that was lost whole, sold out where nothing is left', async () => {
        const wish = request();
        const record: RequestRecord = {
          requestId: wish.requestId,
          userId: wish.userId,
          personId: wish.personId,
          fingerprint: wish.fingerprint,
          nonce: wish.nonce,
          reservationId: wish.reservationId,
          quantity: 2,
          reservedAtMs: nowMs,
          deadlineMs: nowMs + 1,
          generation: 1,
          state: 'ordered',
        };
        const mark = await store.rebuild(sku, {
          total: 2,
          generation: 2,
          stockEpoch: 6,
          live: [record],
        });
        expect(mark).toMatchObject({ available: 0, ordered: 2, paused: false });
        if (harness.inParts !== true) expect(mark.stockEpoch).toBe(7);
        expect(mark.stockEpoch).toBeGreaterThanOrEqual(7);
        expect(mark.stockEpoch % 2).toBe(1);
      });

      it('refuses more live units than there are, and changes nothing', async () => {
        await store.preload(sku, stockOf(5));
        const wish = request({ quantity: 3, limit: 3 });
        await reserve(store, [wish]);
        const record = await recordOf(wish.userId, wish.requestId);
        const before = await markOf();
        await expect(
          store.rebuild(sku, { total: 2, generation: 2, stockEpoch: 0, live: [record] }),
        ).rejects.toThrow(/3 live units in a total of 2/);
        await expect(
          store.rebuild(sku, { total: 9, generation: 2, stockEpoch: 0, live: [record, record] }),
        ).rejects.toThrow(/twice/);
        expect(alike(await markOf())).toEqual(alike(before));
      });

      it('takes thousands of live records', async () => {
        const live = requests(3_000).map(
          (wish): RequestRecord => ({
            requestId: wish.requestId,
            userId: wish.userId,
            personId: wish.personId,
            fingerprint: wish.fingerprint,
            nonce: wish.nonce,
            reservationId: wish.reservationId,
            quantity: 1,
            reservedAtMs: nowMs,
            deadlineMs: nowMs + 1,
            generation: 1,
            state: 'ordered',
          }),
        );
        const mark = await store.rebuild(sku, { total: 4_000, generation: 2, stockEpoch: 0, live });
        expect(mark).toMatchObject({ available: 1_000, ordered: 3_000 });
        const all = await store.live(sku, undefined, 3_000);
        expect(inOrder(all)).toEqual(inOrder(live));
        const from = all[2_989]!.reservationId;
        expect(await store.live(sku, from, 100)).toEqual(all.slice(2_990));
        if (harness.inParts !== true) expect(all).toEqual(live);
      });
    });

    describe('listings', () => {
      it('names those with live units', async () => {
        await store.preload(sku, stockOf(9));
        const [a, b, c] = [
          request({ userId: 'a' }),
          request({ userId: 'b' }),
          request({ userId: 'c' }),
        ];
        await reserve(store, [a, b, c]);
        await store.settle(
          sku,
          [
            { reservationId: a.reservationId, fate: 'ordered' },
            { reservationId: b.reservationId, fate: 'released' },
          ],
          nowMs,
        );
        expect([...(await store.holders(sku))].sort()).toEqual(['a', 'c']);
        expect(await store.holders(otherSku)).toEqual([]);
      });

      it('pages through live reservations, oldest first', async () => {
        await store.preload(sku, stockOf(20));
        const wishes = requests(9);
        await reserve(store, wishes.slice(0, 4));
        await reserve(store, wishes.slice(4));
        await store.settle(
          sku,
          [3, 4].map((at) => ({
            reservationId: wishes[at]!.reservationId,
            fate: 'released' as const,
          })),
          nowMs,
        );
        const expected = wishes.filter((_, at) => at !== 3 && at !== 4);
        const seen: string[] = [];
        for (let after: string | undefined; ; ) {
          const page = await store.live(sku, after, 2);
          expect(page.length).toBeLessThanOrEqual(2);
          for (const each of page) seen.push(each.reservationId);
          if (page.length < 2) break;
          after = page.at(-1)!.reservationId;
        }
        expect(inOrder(seen)).toEqual(inOrder(expected.map((each) => each.reservationId)));
        // A page may go on from one that was released meanwhile.
        const [next] = await store.live(sku, wishes[3]!.reservationId, 1);
        if (harness.inParts !== true) expect(next?.reservationId).toBe(wishes[5]!.reservationId);
        await expect(store.live(sku, 'nobody', 1)).rejects.toThrow(RangeError);
        expect(await store.live(otherSku, undefined, 1)).toEqual([]);
      });
    });

    describe('forget', () => {
      it('waits until nobody is owed an outcome, then removes everything', async () => {
        expect(await store.forget(sku)).toBe(true);
        await store.preload(sku, stockOf(1));
        const wish = request();
        await reserve(store, [wish]);
        expect(await store.forget(sku)).toBe(false);
        await store.settle(sku, [{ reservationId: wish.reservationId, fate: 'ordered' }], nowMs);
        // Settled, but its message still waits for its acknowledgement.
        expect(await store.forget(sku)).toBe(false);
        expect(await markOf()).toMatchObject({ ordered: 1 });
      });

      it('forgets a SKU that nobody bought', async () => {
        await store.preload(sku, stockOf(5));
        await store.preload(otherSku, stockOf(5));
        expect(await store.forget(sku)).toBe(true);
        expect(await store.mark(sku)).toBeUndefined();
        expect(await store.forget(sku)).toBe(true);
        expect(await store.mark(otherSku)).toBeDefined();
      });
    });

    describe('a crash', () => {
      it('loses nothing that was answered', async () => {
        await store.preload(sku, stockOf(100));
        await store.preload(otherSku, stockOf(5));
        const wishes = requests(60);
        await Promise.all(wishes.map((each) => reserve(store, [each])));
        await store.settle(
          sku,
          wishes.slice(0, 10).map((each, at) => ({
            reservationId: each.reservationId,
            fate: at % 2 === 0 ? ('ordered' as const) : ('released' as const),
            reason: 'cancelled' as const,
          })),
          nowMs,
        );
        await store.adjust(sku, 'more', 7, nowMs);
        await store.setPaused(otherSku, true);
        const before = [await store.mark(sku), await store.mark(otherSku)];
        const records = await Promise.all(
          wishes.map((each) => store.find(sku, each.userId, each.requestId)),
        );
        const live = await store.live(sku, undefined, 1000);
        const messages = await harness.messages();
        await harness.crash();
        store = harness.store;
        expect([await store.mark(sku), await store.mark(otherSku)]).toEqual(before);
        expect(
          await Promise.all(wishes.map((each) => store.find(sku, each.userId, each.requestId))),
        ).toEqual(records);
        expect(await store.live(sku, undefined, 1000)).toEqual(live);
        expect(inOrder(await harness.messages())).toEqual(inOrder(messages));
        expect(kinds(await reserve(store, [retryOf(wishes[0]!)]))).toEqual(['existing']);
        expect(await store.adjust(sku, 'more', 7, nowMs)).toMatchObject({ mark: { total: 107 } });
      });
    });

    seatsContract(() => harness);
    inventoryModelProperty(make, options.modelRuns, options.modelCrashes ?? true);
  });
}
