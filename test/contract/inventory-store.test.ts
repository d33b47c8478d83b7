import { afterEach, describe, expect, it, vi } from 'vitest';
import { SkuStock } from '../../src/core/stock/sku-stock.ts';
import type { Reservation } from '../../src/core/stock/reservation.ts';
import type { ReserveRequest } from '../../src/ports/inventory-store.ts';
import { checkAgainstWhiteboard } from './inventory-model.ts';
import { inventoryStoreContract } from './inventory-store.ts';
import { journaled, simulated } from './memory-inventory.ts';
import { sharded } from './sharded-inventory.ts';

inventoryStoreContract('memory, journaled', () => journaled(16 * 1024 * 1024), { modelRuns: 150 });
inventoryStoreContract('memory, a snapshot at every step', () => journaled(0), { modelRuns: 100 });
inventoryStoreContract('memory, over a log of the caller', simulated, { modelRuns: 150 });
inventoryStoreContract('memory, in 3 shards', () => sharded(journaled(0), 3), { modelRuns: 100 });

/** Controls: with one guard off, the property that protects it must fail, or it shows nothing. */
describe('the whiteboard notices', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });
  // oxlint-disable-next-line typescript/unbound-method -- called with a `this` of the test's choice
  const { judge, changes, take, seal, fate } = SkuStock.prototype;
  const broken = (run: () => void) => async () => {
    run();
    await expect(checkAgainstWhiteboard(simulated, 400)).rejects.toThrow();
  };

  /** Judges as if `change` had been said of the request. */
  const judgeAs = (change: (stock: SkuStock, request: ReserveRequest) => Partial<ReserveRequest>) =>
    vi.spyOn(SkuStock.prototype, 'judge').mockImplementation(function (this: SkuStock, request) {
      return judge.call(this, { ...request, ...change(this, request) });
    });

  it('control: nothing is switched off', () => checkAgainstWhiteboard(simulated, 50));

  it(
    'no check of stock',
    broken(() => {
      vi.spyOn(SkuStock.prototype, 'judge').mockImplementation(function (this: SkuStock, request) {
        const judged = judge.call(this, request);
        return judged.kind === 'sold_out' ? { kind: 'grant', seats: undefined } : judged;
      });
    }),
  );

  it(
    'no check of the nonce',
    broken(() => {
      judgeAs((_, { reservationId }) => ({ nonce: `free ${reservationId}` }));
    }),
  );

  it(
    'no check of the person',
    broken(() => {
      judgeAs(() => ({ limit: 1_000 }));
    }),
  );

  it(
    'no check of the fingerprint',
    broken(() => {
      judgeAs((stock, { userId, requestId }) => {
        const known = stock.byRequest(userId, requestId);
        return known === undefined ? {} : { fingerprint: known.fingerprint };
      });
    }),
  );

  it(
    'a second release that gives units again',
    broken(() => {
      vi.spyOn(SkuStock.prototype, 'changes').mockImplementation(function (
        this: SkuStock,
        reservation: Reservation,
        said,
      ) {
        return said === 'released' || changes.call(this, reservation, said);
      });
    }),
  );

  it(
    'a late order that undoes a release',
    broken(() => {
      vi.spyOn(SkuStock.prototype, 'changes').mockImplementation(function (
        this: SkuStock,
        reservation: Reservation,
        said,
      ) {
        return changes.call(this, reservation, said === 'ordered' ? 'retaken' : said);
      });
    }),
  );

  it(
    'an epoch that stands still',
    broken(() => {
      vi.spyOn(SkuStock.prototype, 'seal').mockImplementation(function (this: SkuStock) {
        const { stockEpoch } = this;
        seal.call(this);
        this.stockEpoch = stockEpoch;
      });
    }),
  );

  it(
    'a release that does not say why',
    broken(() => {
      vi.spyOn(SkuStock.prototype, 'fate').mockImplementation(function (
        this: SkuStock,
        reservation: Reservation,
        said,
      ) {
        fate.call(this, reservation, said, undefined);
      });
    }),
  );

  it(
    'a reservation whose nonce is not kept',
    broken(() => {
      vi.spyOn(SkuStock.prototype, 'take').mockImplementation(function (
        this: SkuStock,
        reservation: Reservation,
      ) {
        take.call(this, { ...reservation, nonce: `lost ${reservation.nonce}` });
      });
    }),
  );
});
