import { describe, expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import { reserveBatchMax } from '../core/bounds.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { ReserveReply, ReserveRequest, StockMark } from '../ports/inventory-store.ts';
import { InventoryEngine } from '../stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../stores/memory/inventory-store.ts';
import {
  callTimeoutMs,
  ReserveBatcher,
  type ReserveBatcherOptions,
  type ReserveResult,
  waitingPerSkuMax,
} from './reserve-batcher.ts';

const sku = { activityId: 'a', skuId: 's' } as const;

function request(n: number, change: Partial<ReserveRequest> = {}): ReserveRequest {
  return {
    requestId: `r${n}`,
    userId: `u${n}`,
    personId: `u${n}`,
    fingerprint: 'f',
    nonce: `nonce-${n}`,
    quantity: 1,
    limit: 1,
    reservationId: `rsv_${n}`,
    deadlineMs: Number.MAX_SAFE_INTEGER,
    activityVersion: 1,
    unitAmountMinor: 1,
    currency: 'EUR',
    ...change,
  };
}

function mark(change: Partial<StockMark> = {}): StockMark {
  return {
    total: 10,
    available: 5,
    held: 5,
    ordered: 0,
    sequence: 7,
    generation: 1,
    stockEpoch: 0,
    paused: false,
    ...change,
  };
}

type Reserve = ReserveBatcherOptions['store']['reserve'];

function setUp(
  reserve: Reserve,
  change: Partial<ReserveBatcherOptions> = {},
): {
  world: World;
  batcher: ReserveBatcher;
  sizes: number[];
  sequences: number[];
  kinds: string[];
} {
  const world = new World();
  const sizes: number[] = [];
  const sequences: number[] = [];
  const kinds: string[] = [];
  const batcher = new ReserveBatcher({
    store: {
      reserve: (of, batch, sequence, nowMs) => {
        sizes.push(batch.length);
        sequences.push(sequence);
        return reserve(of, batch, sequence, nowMs);
      },
    },
    wallMs: () => world.wallMs(),
    monoUs: () => world.monoUs(),
    timers: world,
    defer: (task) => void world.after(0, task),
    onTrouble: (_sku, trouble) => kinds.push(trouble),
    ...change,
  });
  return { world, batcher, sizes, sequences, kinds };
}

const done = (batch: readonly ReserveRequest[], of: StockMark): ReserveReply => ({
  kind: 'done',
  outcomes: batch.map(() => ({ kind: 'sold_out' })),
  mark: of,
});

const many = (batcher: ReserveBatcher, count: number, from = 0): Promise<ReserveResult>[] =>
  Array.from({ length: count }, (_, n) => batcher.add(sku, request(from + n)));

describe('batching', () => {
  test('a SKU in several places has a lane for each, and none waits for another', async () => {
    const open: ((reply: ReserveReply) => void)[] = [];
    const asked: string[][] = [];
    const { world, batcher } = setUp(
      (_of, batch) => {
        asked.push(batch.map(({ requestId }) => requestId));
        return new Promise((resolve) => open.push(resolve));
      },
      { placeOf: (_of, { requestId }) => Number(requestId.slice(1)) % 2 },
    );
    const results = many(batcher, 4);
    await world.advance(1);
    expect(asked).toEqual([
      ['r0', 'r2'],
      ['r1', 'r3'],
    ]);
    for (const answer of open) answer(done([request(0), request(1)], mark()));
    expect((await Promise.all(results)).map(({ kind }) => kind)).toEqual(
      Array.from({ length: 4 }, () => 'outcome'),
    );
  });

  test('what has arrived goes together, up to the bound; each hears its own outcome', async () => {
    const store = new MemoryInventoryStore(InventoryEngine.over());
    await store.preload(sku, { total: 300, generation: 1, stockEpoch: 0 });
    const { world, batcher, sizes } = setUp((...call) => store.reserve(...call));
    const results = many(batcher, 600);
    await world.advance(5);
    const said = await Promise.all(results);
    expect(sizes).toEqual([reserveBatchMax, reserveBatchMax, 600 - 2 * reserveBatchMax]);
    said.forEach((result, n) => {
      if (result.kind !== 'outcome') throw new Error(result.kind);
      if (n >= 300) expect(result.outcome.kind).toBe('sold_out');
      else {
        expect(result.outcome).toMatchObject({ kind: 'reserved', record: { requestId: `r${n}` } });
      }
    });
    expect(batcher.waiting).toBe(0);
  });

  test('while a call is in flight the next batch gathers', async () => {
    const release: (() => void)[] = [];
    const { world, batcher, sizes } = setUp(async (_sku, batch) => {
      await new Promise<void>((resolve) => release.push(resolve));
      return done(batch, mark());
    });
    const first = many(batcher, 1);
    await world.advance(0);
    const later = many(batcher, 50, 1);
    await world.advance(3);
    expect(sizes).toEqual([1]);
    release[0]?.();
    await world.advance(0);
    expect(sizes).toEqual([1, 50]);
    release[1]?.();
    await Promise.all([...first, ...later]);
  });

  test('SKUs do not wait for each other', async () => {
    const { world, batcher, sizes } = setUp((of, batch) =>
      of.skuId === 'slow' ? new Promise(() => undefined) : Promise.resolve(done(batch, mark())),
    );
    void batcher.add({ activityId: 'a', skuId: 'slow' }, request(1));
    const quick = batcher.add({ activityId: 'a', skuId: 'quick' }, request(2));
    await world.advance(0);
    expect((await quick).kind).toBe('outcome');
    expect(sizes).toEqual([1, 1]);
  });

  test('waiting is bounded, and the rest is told at once', async () => {
    const { world, batcher } = setUp(() => new Promise(() => undefined));
    void many(batcher, 1);
    await world.advance(0);
    void many(batcher, waitingPerSkuMax, 1);
    expect(await batcher.add(sku, request(-1))).toEqual({ kind: 'full' });
  });
});

describe('what the store says', () => {
  test.each([
    ['paused', { kind: 'paused', mark: mark({ paused: true }) }],
    ['forgotten', { kind: 'forgotten', mark: mark({ generation: 0 }) }],
    ['unknown_sku', { kind: 'unknown_sku' }],
  ] as const)('%s: everybody hears it, and control too', async (kind, reply) => {
    const { world, batcher, kinds } = setUp(() => Promise.resolve(reply));
    const results = many(batcher, 3);
    await world.advance(0);
    expect(await Promise.all(results)).toEqual([{ kind }, { kind }, { kind }]);
    expect(kinds).toEqual([kind]);
  });

  test.each([
    ['unknown', new OutcomeUnknownError('lost')],
    ['unavailable', new UnavailableError('away')],
    // Whatever else is thrown says nothing about what was done.
    ['unknown', new Error('bug')],
  ] as const)('%s when it throws %s', async (kind, error) => {
    const errors: unknown[] = [];
    const { world, batcher } = setUp(() => Promise.reject(error), {
      onError: (_sku, said) => errors.push(said),
    });
    const results = many(batcher, 2);
    await world.advance(0);
    expect(await Promise.all(results)).toEqual([{ kind }, { kind }]);
    expect(errors).toEqual([error]);
  });

  test('an answer for another number of requests is an unknown outcome for all', async () => {
    const { world, batcher } = setUp((_sku, batch) =>
      Promise.resolve(done(batch.slice(1), mark())),
    );
    const results = many(batcher, 2);
    await world.advance(0);
    expect(await Promise.all(results)).toEqual([{ kind: 'unknown' }, { kind: 'unknown' }]);
  });
});

describe('the sequence', () => {
  test('the highest seen goes out with the next call', async () => {
    const marks = [mark({ sequence: 5 }), mark({ sequence: 9 }), mark({ sequence: 7 })];
    const { world, batcher, sequences } = setUp((_sku, batch) =>
      Promise.resolve(done(batch, marks.shift() ?? mark())),
    );
    for (let n = 0; n < 4; n += 1) {
      const result = batcher.add(sku, request(n));
      await world.advance(0);
      await result;
    }
    expect(sequences).toEqual([0, 5, 9, 9]);
  });

  test('a new generation starts it again: we were the ones behind, so we ask once more', async () => {
    const replies: ReserveReply[] = [
      done([request(0)], mark({ sequence: 50 })),
      { kind: 'forgotten', mark: mark({ sequence: 3, generation: 2 }) },
      done([request(1)], mark({ sequence: 4, generation: 2 })),
    ];
    const { world, batcher, sequences, kinds } = setUp(() =>
      Promise.resolve(replies.shift() ?? { kind: 'unknown_sku' }),
    );
    const first = batcher.add(sku, request(0));
    await world.advance(0);
    await first;
    const second = batcher.add(sku, request(1));
    await world.advance(0);
    expect((await second).kind).toBe('outcome');
    expect(sequences).toEqual([0, 50, 3]);
    expect(kinds).toEqual([]);
  });
});

describe('time', () => {
  test('a call that does not return is unknown to its requests; the waiting ones were not sent', async () => {
    let calls = 0;
    const { world, batcher } = setUp((_sku, batch) => {
      calls += 1;
      return calls === 1 ? new Promise(() => undefined) : Promise.resolve(done(batch, mark()));
    });
    const stuck = many(batcher, 2);
    await world.advance(1);
    const early = many(batcher, 1, 10);
    await world.advance(callTimeoutMs - 2);
    const late = many(batcher, 1, 20);
    await world.advance(2);
    expect(await Promise.all(stuck)).toEqual([{ kind: 'unknown' }, { kind: 'unknown' }]);
    expect((await early[0])?.kind).toBe('outcome');
    expect((await late[0])?.kind).toBe('outcome');
  });

  test('who has waited longer than a call may take, unsent, is told that nothing was done', async () => {
    const { world, batcher } = setUp(() => new Promise(() => undefined));
    void many(batcher, 1);
    await world.advance(0);
    const waiting = many(batcher, reserveBatchMax + 5, 1);
    await world.advance(2 * callTimeoutMs);
    const kinds = (await Promise.all(waiting)).map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === 'unknown')).toHaveLength(reserveBatchMax);
    expect(kinds.filter((kind) => kind === 'unavailable')).toHaveLength(5);
  });
});

describe('a caller’s own time', () => {
  test('over before it was sent: it never is, and nothing was taken', async () => {
    const sent: string[] = [];
    const { world, batcher } = setUp(async (_sku, batch) => {
      sent.push(...batch.map(({ requestId }) => requestId));
      await new Promise<void>((resolve) => void world.after(100, resolve));
      return replyTo(batch);
    });
    const first = batcher.add(sku, request(1));
    await world.advance(2);
    const late = batcher.add(sku, request(2), 50);
    const patient = batcher.add(sku, request(3), 500);
    await world.advance(60);
    expect(await late).toEqual({ kind: 'late' });
    await world.advance(300);
    expect((await first).kind).toBe('outcome');
    expect((await patient).kind).toBe('outcome');
    expect(sent).toEqual(['r1', 'r3']);
  });

  test('over while the store works: nobody knows, and whatever it says later changes nothing', async () => {
    const { world, batcher } = setUp(async (_sku, batch) => {
      await new Promise<void>((resolve) => void world.after(100, resolve));
      return replyTo(batch);
    });
    const asked = batcher.add(sku, request(1), 30);
    await world.advance(40);
    expect(await asked).toEqual({ kind: 'unknown' });
    await world.advance(200);
    expect(batcher.waiting).toBe(0);
  });

  test('a longer time than ours changes nothing', async () => {
    const { world, batcher } = setUp(() => new Promise(() => undefined));
    const asked = batcher.add(sku, request(1), 1_000_000);
    await world.advance(callTimeoutMs + 10);
    expect(await asked).toEqual({ kind: 'unknown' });
  });
});

const replyTo = (batch: readonly ReserveRequest[]): ReserveReply => ({
  kind: 'done',
  mark: mark(),
  outcomes: batch.map(() => ({ kind: 'sold_out' })),
});
