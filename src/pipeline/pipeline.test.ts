import { expect, test } from 'vitest';
import { SeededRandom, World } from '../../test/support/world.ts';
import { OrderBook } from '../../test/support/order-book.ts';
import { openHealth, saleAt } from '../../test/support/shop.ts';
import { Ledger } from '../core/ledger/ledger.ts';
import { InventoryEngine } from '../stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../stores/memory/inventory-store.ts';
import { RetrySpread } from './health.ts';
import { noLimits } from './limits.ts';
import { SubmitPipeline } from './pipeline.ts';
import { RequestStatus } from './request-status.ts';
import { ReserveBatcher } from './reserve-batcher.ts';
import { SoldOutFlags } from './sold-out-flags.ts';
import { nothingYet, type Submission, type Verdict } from './stage.ts';

const sku = { activityId: 'act', skuId: 'sku' } as const;

interface Sale {
  readonly world: World;
  readonly ledger: Ledger;
  readonly pipeline: SubmitPipeline;
  readonly flags: SoldOutFlags;
  readonly store: MemoryInventoryStore;
  /** Calls of any kind at the store. */
  calls: number;
  submit(user: string, change?: Partial<Submission>): Promise<Verdict>;
}

/** The path alone, without HTTP: tokens are the users' names, every pass is good. */
async function openSale(stock: number, inSystem: () => number = () => 0): Promise<Sale> {
  const world = new World();
  const store = new MemoryInventoryStore(InventoryEngine.over());
  await store.preload(sku, { total: stock, generation: 1, stockEpoch: 0 });
  const activity = saleAt(world.wallMs());
  const orders = new OrderBook(world);
  const random = new SeededRandom('sale');
  const monoUs = (): number => world.monoUs();
  const wallMs = (): number => world.wallMs();
  const counted = <Args extends unknown[], Result>(call: (...args: Args) => Result) => {
    return (...args: Args): Result => {
      sale.calls += 1;
      return call(...args);
    };
  };
  const inventory = {
    mark: counted((of: typeof sku) => store.mark(of)),
    holders: counted((of: typeof sku) => store.holders(of)),
    find: counted((...of: Parameters<typeof store.find>) => store.find(...of)),
    reserve: counted((...of: Parameters<typeof store.reserve>) => store.reserve(...of)),
  };
  const flags = new SoldOutFlags({ store: inventory as never, monoUs });
  const ledger = new Ledger(inSystem);
  const pipeline = new SubmitPipeline({
    health: openHealth(),
    limits: noLimits,
    paths: { resolve: (id) => (id === 'path' ? target : undefined) },
    flags,
    identity: {
      verify: (token) => ({ kind: 'person', userId: token, personId: token }),
      claimedPerson: (token) => token,
    },
    passes: {
      verify: (raw, expected, nowMs) => ({
        kind: 'valid',
        keyId: 'k',
        claims: {
          ...expected,
          issuer: '',
          audience: '',
          maxQuantity: 1,
          wave: 1,
          nonce: raw,
          notBeforeMs: nowMs,
          issuedAtMs: nowMs,
          expiresAtMs: nowMs + 1,
          deviceHash: '',
        },
      }),
    },
    backlog: () => 0,
    ledger,
    activities: { list: () => [activity], get: () => activity },
    batcher: new ReserveBatcher({
      store: inventory,
      wallMs,
      monoUs,
      timers: world,
      defer: (task) => void setImmediate(task),
      onMark: (of, mark) => flags.observe(of, mark),
    }),
    status: new RequestStatus({ inventory, orders, monoUs, wallMs }),
    orders,
    random,
    spread: new RetrySpread(random),
    onError: (_what, error) => {
      throw error;
    },
  });
  const target = { ...sku, activityVersion: 1 };
  const sale: Sale = {
    world,
    ledger,
    pipeline,
    flags,
    store,
    calls: 0,
    submit: async (user, change = {}) => pipeline.run({ ...submission(world, user), ...change }),
  };
  return sale;
}

function submission(world: World, user: string): Submission {
  return {
    ...nothingYet,
    arrivedUs: world.monoUs(),
    nowMs: world.wallMs(),
    address: '192.0.2.1',
    pathId: 'path',
    head: {
      method: 'POST',
      headerCount: 5,
      contentType: 'application/json',
      contentEncoding: undefined,
      contentLength: 100,
      repeated: undefined,
    },
    userToken: user,
    passToken: `nonce-of-${user}`,
    deviceHash: undefined,
    idempotencyKey: undefined,
    traceparent: undefined,
    fromForeignOrigin: false,
    readBody: () => Promise.resolve({ requestId: `r-${user}`, ...sku, quantity: 1 }),
  };
}

test('after sell-out a store call is made for fewer than one submit in a thousand', async () => {
  const sale = await openSale(500);
  const winners = await Promise.all(
    Array.from({ length: 1_000 }, (_, n) => sale.submit(`early${n}`)),
  );
  expect(winners.filter(({ code }) => code === 'SECKILL_QUEUED')).toHaveLength(500);
  await sale.submit('first-to-hear');
  await sale.world.advance(0);
  sale.calls = 0;
  const submits = 20_000;
  for (let n = 0; n < submits; n += 1) {
    const said = await sale.submit(`late${n}`);
    if (said.decision !== 'handle') throw new Error(said.reason);
    expect(said.outcome.state).toBe('SOLD_OUT');
    // Ten seconds of them: the flag's time to live passes five times.
    if (n % 2_000 === 0) await sale.world.advance(1_000);
  }
  expect(sale.calls / submits).toBeLessThan(0.001);
  expect(sale.calls).toBeGreaterThan(0);
  // Every winner is still owed their own answer.
  for (const [n, { code }] of winners.entries()) {
    if (code !== 'SECKILL_QUEUED') continue;
    expect((await sale.submit(`early${n}`)).code).toBe('REQUEST_REPLAYED');
  }
  expect(sale.ledger.residual()).toBe(0);
});

test('early refusals come at once, without a turn of the loop', async () => {
  const sale = await openSale(1);
  const { pipeline, world } = sale;
  const early = [
    { pathId: 'unknown' },
    { userToken: undefined },
    { passToken: undefined },
    { fromForeignOrigin: true },
    { head: { ...submission(world, 'u').head, contentType: 'text/plain' } },
  ];
  for (const change of early) {
    const said = pipeline.run({ ...submission(world, 'u'), ...change });
    expect(said).not.toBeInstanceOf(Promise);
  }
  expect(pipeline.run(submission(world, 'u'))).toBeInstanceOf(Promise);
});

test('every exit is counted at its stage, once', async () => {
  let open = 0;
  const sale = await openSale(1, () => open);
  const said = await Promise.all([
    sale.submit('ann'),
    sale.submit('bob'),
    sale.submit('eve', { userToken: undefined }),
    sale.submit('dan', { pathId: 'unknown' }),
  ]);
  const { rows, arrivals } = sale.ledger.snapshot();
  expect(arrivals).toBe(4);
  expect(
    rows.map(({ stage, decision, reason, count }) => `${stage} ${decision} ${reason} ${count}`),
  ).toEqual(
    expect.arrayContaining([
      'enqueue handle queued 1',
      'reserve handle stock 1',
      'identify reject user_token_missing 1',
      'sold_out reject unknown_path 1',
    ]),
  );
  expect(rows).toHaveLength(said.length);
  expect(sale.ledger.residual()).toBe(0);
  open = 1;
  expect(sale.ledger.residual()).toBe(-1);
});
