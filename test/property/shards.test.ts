import { afterEach, describe, expect, test, vi } from 'vitest';
import type { SkuKey } from '../../src/core/activity.ts';
import { homeShard, inTransit, shardKey, wholeMark } from '../../src/core/stock/shards.ts';
import { SkuStock } from '../../src/core/stock/sku-stock.ts';
import { OutcomeUnknownError, UnavailableError } from '../../src/ports/errors.ts';
import type { Fate, ReserveRequest, ShardStore } from '../../src/ports/inventory-store.ts';
import { InventoryEngine } from '../../src/stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../../src/stores/memory/inventory-store.ts';
import { ShardedInventoryStore } from '../../src/stores/shards/sharded-inventory.ts';
import { nowMs, request, sku } from '../contract/stock-samples.ts';
import { fc } from '../support/property.ts';

/**
 * Stock in shards, under several processes that die in the middle of moving units between them, whose
 * calls are lost on the way there or on the way back, and whose store restarts from its journal: no unit
 * is lost, none is sold twice, and in the end every one of them can be bought.
 */
const shards = 4;

/** Where the next calls fail: before the store has done it, or after. */
interface Weather {
  next(): 'fine' | 'lost' | 'done, and lost';
}

/** The store as one process reaches it. */
function behind(store: () => ShardStore, weather: Weather): ShardStore {
  const call =
    <Args extends unknown[], Reply>(run: (...args: Args) => Promise<Reply>) =>
    async (...args: Args): Promise<Reply> => {
      const kind = weather.next();
      if (kind === 'lost') throw new UnavailableError('the call did not arrive');
      const reply = await run(...args);
      if (kind === 'done, and lost') throw new OutcomeUnknownError('the reply did not arrive');
      return reply;
    };
  return {
    preload: call((...a) => store().preload(...a)),
    reserve: call((...a) => store().reserve(...a)),
    find: call((...a) => store().find(...a)),
    settle: call((...a) => store().settle(...a)),
    adjust: call((...a) => store().adjust(...a)),
    setPaused: call((...a) => store().setPaused(...a)),
    mark: call((...a) => store().mark(...a)),
    holders: call((...a) => store().holders(...a)),
    live: call((...a) => store().live(...a)),
    rebuild: call((...a) => store().rebuild(...a)),
    forget: call((...a) => store().forget(...a)),
    shard: call((...a) => store().shard(...a)),
    moveOut: call((...a) => store().moveOut(...a)),
    moveIn: call((...a) => store().moveIn(...a)),
    close: () => Promise.resolve(),
  };
}

const fine: Weather = { next: () => 'fine' };

type Step =
  | { readonly do: 'reserve'; readonly by: number; readonly wishes: readonly [number, number][] }
  | { readonly do: 'release' | 'order' | 'retake'; readonly by: number; readonly which: number }
  | { readonly do: 'adjust'; readonly by: number; readonly delta: number }
  | { readonly do: 'restart' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('reserve' as const),
      by: fc.nat(2),
      wishes: fc.array(fc.tuple(fc.nat(30), fc.integer({ min: 1, max: 3 })), {
        minLength: 1,
        maxLength: 5,
      }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('release' as const, 'order' as const, 'retake' as const),
      by: fc.nat(2),
      which: fc.nat(30),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('adjust' as const),
      by: fc.nat(2),
      delta: fc.integer({ min: -4, max: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
);

async function play(total: number, steps: readonly Step[], storms: readonly number[]) {
  const records: string[] = [];
  const log = {
    append: (record: string) => void records.push(record),
    durable: () => Promise.resolve(),
    failure: undefined,
  };
  let inner = new MemoryInventoryStore(InventoryEngine.over(log));
  let calls = 0;
  const weather: Weather = {
    next: () => {
      const dice = storms[(calls += 1) % storms.length] ?? 0;
      return dice === 0 ? 'lost' : dice === 1 ? 'done, and lost' : 'fine';
    },
  };
  const process = () => new ShardedInventoryStore(behind(() => inner, weather));
  const calm = new ShardedInventoryStore(behind(() => inner, fine));
  await calm.preload(sku, { total, generation: 1, stockEpoch: 0, shards });
  const processes = [process(), process(), process()];
  /** What was asked for, by reservation id; and the adjustments that may have been made. */
  const asked: ReserveRequest[] = [];
  const adjusted: { id: string; delta: number }[] = [];
  let made = 0;

  const states = async () => {
    const all = [];
    for (let at = 0; at < shards; at += 1) {
      const state = await inner.shard(shardKey(sku, at));
      if (state === undefined) throw new Error(`shard ${at} is gone`);
      all.push(state);
    }
    return all;
  };
  let [lastEpoch, lastOpen] = [-1, true];
  /** Of every moment, whatever has been done by halves. */
  const holds = async (): Promise<void> => {
    const mark = wholeMark(await states());
    const done = adjusted.filter(({ id }) => {
      const at = homeShard(id, shards);
      return records.some(
        (line) => line.includes(`"${shardKey(sku, at).skuId}"`) && line.includes(`"${id}"`),
      );
    });
    expect(mark.total).toBe(total + done.reduce((sum, { delta }) => sum + delta, 0));
    expect(mark.available + mark.held + mark.ordered).toBe(mark.total);
    expect(mark.available).toBeGreaterThanOrEqual(0);
    expect(mark.stockEpoch).toBeGreaterThanOrEqual(lastEpoch);
    if (mark.available > 0 !== lastOpen) expect(mark.stockEpoch).toBeGreaterThan(lastEpoch);
    [lastEpoch, lastOpen] = [mark.stockEpoch, mark.available > 0];
  };
  const survived = (error: unknown): void => {
    if (!(error instanceof UnavailableError) && !(error instanceof OutcomeUnknownError))
      throw error;
  };

  for (const each of steps) {
    if (each.do === 'restart') {
      inner = new MemoryInventoryStore(InventoryEngine.over(log, [...records]));
      await holds();
      continue;
    }
    const store = processes[each.by] ?? calm;
    try {
      if (each.do === 'reserve') {
        const batch = each.wishes.map(([person, quantity]) =>
          request({ userId: `p${person}`, quantity, limit: 3 }),
        );
        asked.push(...batch);
        await store.reserve(sku, batch, 0, nowMs);
      } else if (each.do === 'adjust') {
        made += 1;
        const id = `adjust-${made}`;
        adjusted.push({ id, delta: each.delta });
        await store.adjust(sku, id, each.delta, nowMs);
      } else {
        const wish = asked[each.which % Math.max(1, asked.length)];
        if (wish === undefined) continue;
        const said = { release: 'released', order: 'ordered', retake: 'retaken' } as const;
        const fate: Fate = { reservationId: wish.reservationId, fate: said[each.do] };
        await store.settle(sku, [fate], nowMs);
      }
    } catch (error) {
      survived(error);
      // A process that failed dies: what it knew of the shards dies with it.
      processes[each.by] = process();
    }
    await holds();
  }

  // Persons hold no more than they may.
  const live = await calm.live(sku, undefined, 10_000);
  const units = new Map<string, number>();
  for (const { personId, quantity } of live) {
    units.set(personId, (units.get(personId) ?? 0) + quantity);
  }
  for (const held of units.values()) expect(held).toBeLessThanOrEqual(3);
  // Whatever lies where, and on whatever way: all that is left can be bought, and then it is sold out.
  const left = wholeMark(await states()).available;
  for (let n = 0; n < left; n += 1) {
    const reply = await calm.reserve(sku, [request({ userId: `late-${n}` })], 0, nowMs);
    expect(reply.kind === 'done' && reply.outcomes[0]?.kind).toBe('reserved');
  }
  const last = await calm.reserve(sku, [request()], 0, nowMs);
  expect(last.kind === 'done' && last.outcomes[0]?.kind).toBe('sold_out');
  expect(await calm.mark(sku)).toMatchObject({ available: 0 });
  expect(inTransit(await states())).toEqual([]);
}

const property = fc.asyncProperty(
  fc.nat(20),
  fc.array(step, { maxLength: 40, size: 'max' }),
  fc.array(fc.nat(9), { minLength: 7, maxLength: 40 }),
  play,
);
const runs = process.env['SLUICE_LONG'] === '1' ? 2_000 : 120;

describe('stock in shards', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });
  // oxlint-disable-next-line typescript/unbound-method -- called with a `this` of the test's choice
  const { move } = SkuStock.prototype;

  test(
    'loses no unit and sells none twice, wherever its processes die',
    () => fc.assert(property, { numRuns: runs }),
    120_000,
  );

  test('control: a receiver that believes an amount and not the counter makes units', async () => {
    vi.spyOn(SkuStock.prototype, 'move').mockImplementation(function (this: SkuStock, ...said) {
      const [way, other, upTo] = said;
      if (way === 'out') return move.call(this, ...said);
      this.movedIn[other] = upTo;
      this.total += upTo;
      this.available += upTo;
    });
    await expect(fc.assert(property, { numRuns: 400 })).rejects.toThrow();
  }, 60_000);

  test('control: units in transit that nobody fetches are lost', async () => {
    // oxlint-disable-next-line typescript/unbound-method -- called with a `this` of the test's choice
    const receive = MemoryInventoryStore.prototype.moveIn;
    vi.spyOn(MemoryInventoryStore.prototype, 'moveIn').mockImplementation(function (
      this: MemoryInventoryStore,
      key: SkuKey,
      from,
      upTo,
      generation,
    ) {
      // Every third move is never ended.
      return upTo % 3 === 0 ? this.shard(key) : receive.call(this, key, from, upTo, generation);
    });
    await expect(fc.assert(property, { numRuns: 400 })).rejects.toThrow();
  }, 60_000);
});

test('homes are spread evenly, and stay', () => {
  const counts = Array.from({ length: 16 }, () => 0);
  for (let n = 0; n < 16_000; n += 1) {
    const home = homeShard(`user-${n}`, 16);
    expect(homeShard(`user-${n}`, 16)).toBe(home);
    counts[home] = (counts[home] ?? 0) + 1;
  }
  expect(Math.min(...counts)).toBeGreaterThan(850);
  expect(Math.max(...counts)).toBeLessThan(1_150);
  // Written down: another hash would send everybody to another home in the middle of a sale.
  expect(['ann', 'bob', '李雷', ''].map((person) => homeShard(person, 16))).toMatchInlineSnapshot(`
    [
      13,
      0,
      2,
      12,
    ]
  `);
});
