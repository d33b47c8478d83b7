import { beforeEach, describe, expect, test } from 'vitest';
import { Air } from '../../test/support/air.ts';
import { newRing, saleAt, sku } from '../../test/support/shop.ts';
import { SeededRandom, World } from '../../test/support/world.ts';
import { epochIsSoldOut, soldOutTtlMs } from '../pipeline/sold-out-flags.ts';
import type { InventoryStore, ReserveRequest } from '../ports/inventory-store.ts';
import { macOf } from '../pipeline/keys.ts';
import { MemoryAdmissionStore } from '../stores/memory/admission-store.ts';
import { InventoryEngine } from '../stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../stores/memory/inventory-store.ts';
import type { Keys } from './keys-folder.ts';
import { Sale } from './sale.ts';
import type { SaleParts } from './sale-parts.ts';

/**
 * How fast a sell-out and a reopening are known at every gateway, and what submits cost the store from
 * then on: gateways as they are composed, in virtual time, with words between them that may be lost.
 */
const gateways = 4;
/** Submits at each gateway, a second. */
const perSecond = 2_000;
const total = 50;

describe('news of stock', () => {
  let world: World;
  let air: Air;
  let store: MemoryInventoryStore;
  let sales: Sale[];
  /** Calls that a submit alone causes, at the store, by gateway. */
  let calls: number[];
  let buyers: number;
  let troubles: Set<string>;

  beforeEach(async () => {
    world = new World();
    air = new Air(world);
    store = new MemoryInventoryStore(InventoryEngine.over());
    await store.preload(sku, { total, generation: 1, stockEpoch: 0 });
    calls = [];
    buyers = 0;
    troubles = new Set();
    sales = [];
    for (let at = 0; at < gateways; at += 1) {
      calls.push(0);
      sales.push(gateway(at));
    }
  });
  const start = async (): Promise<void> => {
    for (const sale of sales) await sale.start();
  };

  function gateway(at: number): Sale {
    const counted: InventoryStore = new Proxy(store, {
      get(of, name) {
        const value: unknown = Reflect.get(of, name, of);
        if (name === 'reserve' || name === 'find') calls[at] = (calls[at] ?? 0) + 1;
        return typeof value === 'function' ? (value.bind(of) as unknown) : value;
      },
    });
    const nothing = { asked: 0 };
    const parts = {
      activities: [saleAt(world.wallMs())],
      paymentGraceMs: 0,
      backlogCeiling: 1_000,
      stores: {
        inventory: counted,
        admission: new MemoryAdmissionStore(),
        broadcast: air.broadcast(),
        queue: { backlog: async () => ({ depth: 0 }) },
        orders: nothing,
        close: async () => undefined,
      },
      keys: {
        rings: Object.fromEntries(
          (['user', 'entry', 'pass', 'decision', 'challenge'] as const).map((type) => [
            type,
            newRing(type),
          ]),
        ) as Keys['rings'],
        pathMac: macOf(new Uint8Array(32).fill(1)),
        nonceMac: macOf(new Uint8Array(32).fill(2)),
      },
      issuer: 'test',
      clock: world,
      timers: world,
      random: new SeededRandom(`gateway ${at}`),
      defer: (task: () => void) => void world.after(0, task),
      overload: { mode: 'NORMAL', modeForWaves: 'NORMAL', reading: {} },
      ledger: {},
      demoPayments: false,
      instance: `g${at}`,
      roles: ['gateway'],
      report: () => ({ instance: `g${at}`, roles: ['gateway'], mode: 'NORMAL' }),
      hooks: {
        onReserveWait: () => undefined,
        onReserveCall: () => undefined,
        onTrouble: () => undefined,
        onSoldOut: () => undefined,
        onWorkerEvent: () => undefined,
        onReconciled: () => undefined,
        onLeading: () => undefined,
        onForgotten: () => undefined,
        onError: (what: string) => void troubles.add(what),
      },
    };
    return new Sale(parts as unknown as SaleParts);
  }

  /** One submit, as the path treats it: the flag first, then the store. */
  function submit(sale: Sale): void {
    buyers += 1;
    const name = `buyer-${buyers}`;
    if (sale.flags.ask(sku, name) === 'sold_out') return;
    const request: ReserveRequest = {
      requestId: name,
      userId: name,
      personId: name,
      fingerprint: name,
      nonce: name,
      quantity: 1,
      limit: 1,
      reservationId: `rsv_${name}`,
      deadlineMs: world.wallMs() + 60_000,
      activityVersion: 1,
      unitAmountMinor: 1,
      currency: 'EUR',
    };
    void sale.batcher.add(sku, request);
  }

  /** So long, with submits at every gateway; calls that each of them made for them. */
  async function rush(ms: number, at = sales): Promise<readonly number[]> {
    const before = [...calls];
    const everyMs = 5;
    for (let goneMs = 0; goneMs < ms; goneMs += everyMs) {
      for (const sale of at)
        for (let n = 0; n < (perSecond * everyMs) / 1_000; n += 1) submit(sale);
      await world.advance(everyMs);
    }
    return calls.map((count, of) => count - (before[of] ?? 0));
  }

  const soldOutAt = (): readonly boolean[] => sales.map((sale) => sale.flags.isSoldOut(sku));

  /** All units go at one gateway; the others hear of it, or find it out. */
  async function sellOut(): Promise<void> {
    const [first] = sales;
    for (let n = 0; n < total; n += 1) if (first !== undefined) submit(first);
    for (;;) {
      await world.advance(1);
      const mark = await store.mark(sku);
      if (mark !== undefined && epochIsSoldOut(mark.stockEpoch)) return;
    }
  }

  test.each([
    ['every word is heard', (): void => undefined, 1_000],
    ['no word is heard', (): void => void (air.deaf = true), soldOutTtlMs],
    ['no word can be said', (): void => void (air.dumb = true), soldOutTtlMs],
  ])('%s: known everywhere in time, and from then on submits ask nobody', async (_, spoil, ms) => {
    await start();
    spoil();
    await sellOut();
    await rush(ms);
    expect(soldOutAt()).toEqual(sales.map(() => true));
    const seconds = 10;
    for (const asked of await rush(seconds * 1_000))
      expect(asked / (seconds * perSecond)).toBeLessThan(0.001);

    await store.adjust(sku, 'more', 1_000_000, world.wallMs());
    await world.advance(ms);
    expect(soldOutAt()).toEqual(sales.map(() => false));
    // And they do sell there.
    for (const asked of await rush(50)) expect(asked).toBeGreaterThan(0);
    // Nothing went wrong that was not meant to.
    expect([...troubles].filter((what) => !what.startsWith('telling'))).toEqual([]);
  });

  test('negative control: gateways that neither listen nor look know nothing', async () => {
    await sellOut();
    await world.advance(1_000);
    expect(soldOutAt()).toEqual(sales.map((_, at) => at === 0));
  });
});
