import { describe, expect, it } from 'vitest';
import type { InventoryHarness } from './inventory-store.ts';
import { kinds, messageFor, nowMs, request, reserve, sku, stockOf } from './stock-samples.ts';

/** Named seats, and the best beside each other. Part of the inventory store's contract. */
export function seatsContract(harness: () => InventoryHarness): void {
  describe('seats', () => {
    const rows = (...lengths: number[]): string[] =>
      lengths.flatMap((length, row) =>
        Array.from({ length }, (_, at) => `${'ABCDEFGH'[row]}-${at + 1}`),
      );
    const load = (...lengths: number[]) => {
      const seats = rows(...lengths);
      return harness().store.preload(sku, stockOf(seats.length, { seats }));
    };
    const named = (...seats: string[]) => request({ quantity: seats.length, limit: 50, seats });
    const any = (quantity: number) => request({ quantity, limit: 50 });
    const seatsOf = async (quantity: number): Promise<readonly string[] | string> => {
      const [outcome] = await reserve(harness().store, [any(quantity)]);
      if (outcome?.kind === 'reserved') return outcome.record.seats ?? 'no seats';
      return outcome?.kind ?? 'no outcome';
    };

    it('gives the named ones, and says which of them are gone', async () => {
      await load(4);
      const wish = named('A-2', 'A-3');
      const [first] = await reserve(harness().store, [wish]);
      expect(first).toMatchObject({ kind: 'reserved', record: { seats: ['A-2', 'A-3'] } });
      expect(await harness().messages()).toEqual([messageFor(wish)]);
      expect(await reserve(harness().store, [named('A-3', 'A-4'), named('Z-9')])).toEqual([
        { kind: 'seat_taken', seats: ['A-3'] },
        { kind: 'seat_taken', seats: ['Z-9'] },
      ]);
      expect(await harness().store.mark(sku)).toMatchObject({ available: 2, held: 2 });
    });

    it('gives each of two who name the same seat at once to one', async () => {
      await load(3);
      const outcomes = await Promise.all(
        [named('A-1'), named('A-1')].map((each) => reserve(harness().store, [each])),
      );
      expect(kinds(outcomes.flat()).sort()).toEqual(['reserved', 'seat_taken']);
    });

    it('gives the best that are beside each other, never over the end of a row', async () => {
      await load(3, 4);
      expect(await seatsOf(2)).toEqual(['A-1', 'A-2']);
      // A-3 and B-1 are neighbours in the list and not in the hall.
      expect(await seatsOf(2)).toEqual(['B-1', 'B-2']);
      expect(await seatsOf(3)).toBe('seat_taken');
      expect(await seatsOf(1)).toEqual(['A-3']);
      expect(await seatsOf(2)).toEqual(['B-3', 'B-4']);
      expect(await seatsOf(1)).toBe('sold_out');
    });

    it('says seat_taken with no names where enough are left but not together', async () => {
      await load(5);
      await reserve(harness().store, [named('A-2'), named('A-4')]);
      const [outcome] = await reserve(harness().store, [any(2)]);
      expect(outcome).toEqual({ kind: 'seat_taken', seats: [] });
    });

    it('asks for stock before seats', async () => {
      await load(2);
      await reserve(harness().store, [named('A-1')]);
      expect(kinds(await reserve(harness().store, [named('A-1', 'A-2')]))).toEqual(['sold_out']);
    });

    it('gives released seats again, the best first', async () => {
      await load(6);
      const [first] = await reserve(harness().store, [named('A-2', 'A-3')]);
      expect(await seatsOf(2)).toEqual(['A-4', 'A-5']);
      expect(await seatsOf(2)).toBe('seat_taken');
      if (first?.kind !== 'reserved') throw new Error('not reserved');
      const { reservationId } = first.record;
      await harness().store.settle(sku, [{ reservationId, fate: 'released' }], nowMs);
      expect(await seatsOf(2)).toEqual(['A-1', 'A-2']);
      // Late money finds one of its seats taken by now.
      const late = [{ reservationId, fate: 'retaken' as const }];
      expect(await harness().store.settle(sku, late, nowMs)).toMatchObject({ changed: 0 });
      expect(await seatsOf(1)).toEqual(['A-3']);
    });

    it('retakes seats that are still free', async () => {
      await load(3);
      const wish = named('A-1', 'A-2');
      await reserve(harness().store, [wish]);
      const say = (fate: 'released' | 'retaken') =>
        harness().store.settle(sku, [{ reservationId: wish.reservationId, fate }], nowMs);
      await say('released');
      expect(await say('retaken')).toMatchObject({ changed: 1, mark: { ordered: 2 } });
      expect(await seatsOf(1)).toEqual(['A-3']);
    });

    it('survives a crash and a rebuild', async () => {
      await load(4);
      const wish = named('A-2');
      await reserve(harness().store, [wish]);
      await harness().crash();
      expect(kinds(await reserve(harness().store, [named('A-2')]))).toEqual(['seat_taken']);
      const record = await harness().store.find(sku, wish.userId, wish.requestId);
      await harness().store.rebuild(sku, {
        total: 4,
        generation: 2,
        stockEpoch: 0,
        live: [record!],
      });
      expect(await reserve(harness().store, [named('A-2')])).toEqual([
        { kind: 'seat_taken', seats: ['A-2'] },
      ]);
      expect(await seatsOf(2)).toEqual(['A-3', 'A-4']);
      expect(await seatsOf(1)).toEqual(['A-1']);
    });

    it('keeps as many units as seats', async () => {
      await load(4);
      await expect(harness().store.adjust(sku, 'more', 1, nowMs)).rejects.toThrow(RangeError);
      const wrong = stockOf(3, { generation: 2, seats: ['A-1'] });
      await expect(harness().store.preload(sku, wrong)).rejects.toThrow(RangeError);
      const twice = stockOf(2, { generation: 2, seats: ['A-1', 'A-1'] });
      await expect(harness().store.preload(sku, twice)).rejects.toThrow(/twice/);
      await expect(
        reserve(harness().store, [request({ quantity: 2, limit: 2, seats: ['A-1'] })]),
      ).rejects.toThrow(RangeError);
      await expect(
        reserve(harness().store, [request({ quantity: 2, limit: 2, seats: ['A-1', 'A-1'] })]),
      ).rejects.toThrow(RangeError);
      expect(await harness().store.mark(sku)).toMatchObject({ available: 4 });
    });

    it('has none to name where the SKU lists none', async () => {
      await harness().store.preload(sku, stockOf(4));
      expect(await reserve(harness().store, [named('A-1')])).toEqual([
        { kind: 'seat_taken', seats: ['A-1'] },
      ]);
      expect(await seatsOf(1)).toBe('no seats');
    });
  });
}
