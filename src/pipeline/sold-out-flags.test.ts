import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import type { StockMark } from '../ports/inventory-store.ts';
import {
  compareEpochs,
  type Epoch,
  flaggedSkusMax,
  readSnapshot,
  SoldOutFlags,
  type StockEvent,
} from './sold-out-flags.ts';

const sku = { activityId: 'a', skuId: 's' } as const;

function mark(change: Partial<StockMark>): StockMark {
  return {
    total: 10,
    available: 0,
    held: 10,
    ordered: 0,
    sequence: 1,
    generation: 1,
    stockEpoch: 1,
    paused: false,
    ...change,
  };
}

function setUp(holders: readonly string[] = ['winner']): {
  world: World;
  flags: SoldOutFlags;
  store: { now: StockMark | undefined; reads: number; failure: Error | undefined };
  changes: boolean[];
  errors: unknown[];
} {
  const world = new World();
  const store: { now: StockMark | undefined; reads: number; failure: Error | undefined } = {
    now: mark({}),
    reads: 0,
    failure: undefined,
  };
  const changes: boolean[] = [];
  const errors: unknown[] = [];
  const flags = new SoldOutFlags({
    store: {
      mark: () => {
        store.reads += 1;
        return store.failure === undefined
          ? Promise.resolve(store.now)
          : Promise.reject(store.failure);
      },
      holders: () => Promise.resolve(holders),
    },
    monoUs: () => world.monoUs(),
    onChange: (_sku, soldOut) => changes.push(soldOut),
    onError: (_sku, error) => errors.push(error),
  });
  return { world, flags, store, changes, errors };
}

describe('a sold-out flag', () => {
  test('answers only once it knows the holders of its epoch', async () => {
    const { world, flags } = setUp();
    expect(flags.ask(sku, 'anybody')).toBe('pass');
    flags.observe(sku, mark({}));
    expect(flags.ask(sku, 'anybody')).toBe('pass');
    await world.advance(0);
    expect(flags.ask(sku, 'anybody')).toBe('sold_out');
    expect(flags.ask(sku, undefined)).toBe('sold_out');
    expect(flags.ask(sku, 'winner')).toBe('pass');
    expect(flags.hits).toBe(2);
  });

  test('reads the holders once, however many ask', async () => {
    const { world, flags, store } = setUp();
    flags.observe(sku, mark({}));
    for (let n = 0; n < 100; n += 1) flags.ask(sku, `p${n}`);
    await world.advance(0);
    // Before and after the holders, so that both belong to one epoch.
    expect(store.reads).toBe(2);
  });

  test('a holder list of another epoch is not believed', async () => {
    const { world, flags, store } = setUp();
    flags.observe(sku, mark({ stockEpoch: 3 }));
    store.now = mark({ stockEpoch: 1 });
    flags.ask(sku, 'x');
    await world.advance(0);
    expect(flags.ask(sku, 'x')).toBe('pass');
  });

  test('past its time lets exactly one through, and one more when that one is lost', async () => {
    const { world, flags, store } = setUp();
    flags.observe(sku, mark({}));
    flags.ask(sku, 'x');
    await world.advance(1_999);
    expect(flags.ask(sku, 'x')).toBe('sold_out');
    await world.advance(1);
    expect(flags.ask(sku, 'x')).toBe('probe');
    for (let n = 0; n < 50; n += 1) expect(flags.ask(sku, 'x')).toBe('sold_out');
    // The probe never comes back: after another time span, the next one.
    await world.advance(2_000);
    expect(flags.ask(sku, 'x')).toBe('probe');
    // It says at once that it never asked the store: one read of our own heals the flag.
    store.now = mark({ available: 5, held: 5, stockEpoch: 2 });
    flags.probeLost(sku);
    await world.advance(0);
    expect(flags.ask(sku, 'x')).toBe('pass');
    expect(flags.divergenceMs).toBeGreaterThanOrEqual(4_000);
  });

  test('what was found wrong is spoken of for a minute or two, and then no more', async () => {
    const { world, flags } = setUp();
    flags.observe(sku, mark({}));
    await world.advance(3_000);
    // Newer, but sold out as well: nobody was told anything wrong.
    flags.observe(sku, mark({ stockEpoch: 3 }));
    expect(flags.divergenceMs).toBe(0);
    await world.advance(1_500);
    flags.observe(sku, mark({ available: 5, held: 5, stockEpoch: 4 }));
    expect(flags.divergenceMs).toBe(1_500);
    await world.advance(60_000);
    expect(flags.divergenceMs).toBe(1_500);
    await world.advance(60_000);
    expect(flags.divergenceMs).toBe(0);
  });

  test('an answer of the same epoch confirms it', async () => {
    const { world, flags } = setUp();
    flags.observe(sku, mark({}));
    flags.ask(sku, 'x');
    for (let n = 0; n < 5; n += 1) {
      await world.advance(1_500);
      flags.observe(sku, mark({}));
      expect(flags.ask(sku, 'x')).toBe('sold_out');
    }
  });

  test('a store that is away is told of, and asked again', async () => {
    const { world, flags, store, errors } = setUp();
    store.failure = new Error('away');
    flags.observe(sku, mark({}));
    flags.ask(sku, 'x');
    await world.advance(0);
    expect(errors).toHaveLength(1);
    expect(flags.ask(sku, 'x')).toBe('pass');
    store.failure = undefined;
    await world.advance(0);
    flags.ask(sku, 'x');
    await world.advance(0);
    expect(flags.ask(sku, 'x')).toBe('sold_out');
  });

  test('flags are bounded in number', () => {
    const { flags } = setUp();
    for (let n = 0; n <= flaggedSkusMax; n += 1) {
      flags.observe({ activityId: 'a', skuId: `s${n}` }, mark({}));
    }
    expect(flags.isSoldOut({ activityId: 'a', skuId: 's0' })).toBe(true);
    expect(flags.isSoldOut({ activityId: 'a', skuId: `s${flaggedSkusMax}` })).toBe(false);
  });
});

const epochs = fc.record({
  generation: fc.integer({ min: 1, max: 3 }),
  stockEpoch: fc.integer({ min: 0, max: 6 }),
});

type Receive = (flags: SoldOutFlags, epoch: Epoch) => void;

/** Every way in which a statement about stock can come. */
const ways: Readonly<Record<string, Receive>> = {
  answer: (flags, epoch) => flags.observe(sku, epoch),
  event: (flags, epoch) => flags.hear(eventOf(epoch)),
  snapshot: (flags, epoch) => {
    const soldOut = epoch.stockEpoch % 2 === 1;
    flags.load({ ...sku, ...epoch, soldOut });
  },
};

function eventOf(epoch: Epoch): StockEvent {
  return {
    schemaVersion: 1,
    messageId: 'm',
    eventType: epoch.stockEpoch % 2 === 1 ? 'SOLD_OUT' : 'STOCK_REOPENED',
    ...sku,
    activityVersion: 1,
    ...epoch,
    emittedAtMs: 0,
  };
}

/** The property, over statements taken in by `receive`: what stands at the end is the newest. */
function newestWins(receive: (flags: SoldOutFlags, way: string, epoch: Epoch) => void): void {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom(...Object.keys(ways)), epochs), { minLength: 1 }),
      (statements) => {
        const { flags } = setUp();
        let newest: Epoch | undefined;
        for (const [way, epoch] of statements) {
          receive(flags, way, epoch);
          if (newest === undefined || compareEpochs(epoch, newest) > 0) newest = epoch;
          expect(flags.isSoldOut(sku)).toBe((newest?.stockEpoch ?? 0) % 2 === 1);
          expect(flags.epochOf(sku)).toEqual(newest);
        }
      },
    ),
    { numRuns: 500, seed: 7 },
  );
}

describe('order of statements', () => {
  test('only a newer one changes a flag, by whatever way and in whatever order they come', () => {
    newestWins((flags, way, epoch) => ways[way]?.(flags, epoch));
  });

  test('control: without the comparison of epochs that property fails', () => {
    expect(() =>
      newestWins((flags, way, epoch) => {
        // A generation nobody has seen makes every statement look newest: the comparison is off.
        const current = flags.epochOf(sku)?.generation ?? 0;
        ways[way]?.(flags, { ...epoch, generation: current + 1 });
      }),
    ).toThrow();
  });

  test('changes are announced once each', () => {
    const { flags, changes } = setUp();
    for (const stockEpoch of [0, 1, 1, 0, 2, 1, 3, 3])
      flags.observe(sku, { generation: 1, stockEpoch });
    expect(changes).toEqual([true, false, true]);
  });

  test('an event whose type contradicts its epoch is dropped', () => {
    const { flags } = setUp();
    flags.hear({ ...eventOf({ generation: 1, stockEpoch: 1 }), eventType: 'STOCK_REOPENED' });
    expect(flags.epochOf(sku)).toBeUndefined();
  });
});

test('a snapshot taken while stock moves says the later state, without holders', async () => {
  const marks = [mark({ stockEpoch: 1 }), mark({ stockEpoch: 2, available: 3 })];
  const snapshot = await readSnapshot(
    { mark: () => Promise.resolve(marks.shift()), holders: () => Promise.resolve(['x']) },
    sku,
  );
  expect(snapshot).toEqual({ ...sku, soldOut: false, stockEpoch: 2, generation: 1 });
});
