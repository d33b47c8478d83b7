import { describe, expect, test } from 'vitest';
import { SeededRandom, World } from '../../test/support/world.ts';
import { UnavailableError } from '../ports/errors.ts';
import type { PaymentProvider } from '../ports/payment-provider.ts';
import { UnknownSkuError } from '../ports/errors.ts';
import { Dependencies } from './dependencies.ts';
import type { Stores } from './embedded-stores.ts';
import { goneAfterMs, HardTrips } from './hard-trips.ts';
import { guardPort } from '../outbound/guard.ts';
import type { OrderMessage, OrderQueueProducer } from '../ports/order-queue.ts';
import { MemoryOrderStore } from '../stores/memory/order-store.ts';
import { openSale } from '../../test/support/sale.ts';
import { Relay } from '../workers/relay.ts';

const sku = { activityId: 'a', skuId: 's' };

function scene(mark: () => Promise<undefined>) {
  const world = new World();
  let isNormal = true;
  const dependencies = new Dependencies({
    clock: world,
    timers: world,
    random: new SeededRandom('dependencies'),
    mayRetry: () => isNormal,
  });
  const bare = {
    inventory: { mark },
    orders: { payments: {}, audit: {} },
    admission: {},
    queue: {},
  } as unknown as Stores;
  const stores = dependencies.guard(bare);
  const trips: string[] = [];
  const hard = (leaseTokens?: number): HardTrips =>
    new HardTrips({
      overload: {
        trip: (trip) => void trips.push(`+${trip}`),
        clearTrip: (trip) => void trips.push(`-${trip}`),
      },
      dependencies,
      leaseTokens: () => leaseTokens,
    });
  const ask = async (): Promise<unknown> => {
    const call = stores.inventory.mark(sku).catch((error: unknown) => error);
    await world.advance(200);
    return call;
  };
  return { world, dependencies, ask, trips, hard, overloaded: () => void (isNormal = false) };
}

describe('stores behind their way out', () => {
  test('a read is repeated once, by nobody while the system is overloaded', async () => {
    let asked = 0;
    const at = scene(async () => {
      asked += 1;
      throw new UnavailableError('down');
    });
    await at.ask();
    expect(asked).toBe(2);
    at.overloaded();
    await at.ask();
    expect(asked).toBe(3);
  });

  test('what the store says of the question is no failure', async () => {
    const at = scene(async () => {
      throw new UnknownSkuError('a', 's');
    });
    for (let i = 0; i < 40; i += 1) await at.ask();
    expect(at.dependencies.all.get('inventory')?.breakerState).toBe('closed');
    expect(at.dependencies.all.get('inventory')?.numbers.failures).toBe(0);
  });

  test('names are of the composition: one for each part, whatever is asked', async () => {
    const at = scene(async () => undefined);
    for (let i = 0; i < 20; i += 1) await at.ask();
    at.dependencies.provider({ name: 'demo' } as PaymentProvider);
    at.dependencies.keySet(async () => ({}));
    expect([...at.dependencies.all.keys()].toSorted()).toEqual([
      'admission',
      'identity_keys',
      'inventory',
      'orders',
      'payment_demo',
      'queue',
    ]);
  });

  test('how often calls are repeated is told over ten seconds', async () => {
    const at = scene(async () => {
      throw new UnavailableError('down');
    });
    await at.ask();
    await at.world.advance(10_000);
    at.dependencies.sample();
    expect(at.dependencies.amplification).toBe(2);
    await at.world.advance(10_000);
    at.dependencies.sample();
    expect(at.dependencies.amplification).toBeUndefined();
  });
});

describe('a broker behind its way out', () => {
  type Broker = 'well' | 'silent' | 'hangs';

  /** Reservations in an outbox, a broker in any state, and the relay between, all of it guarded. */
  async function relayed() {
    const sale = await openSale(new MemoryOrderStore(), 100);
    const stored: OrderMessage[] = [];
    const at: { broker: Broker; published: number } = { broker: 'well', published: 0 };
    const broker: OrderQueueProducer = {
      publish: async (messages) => {
        at.published += 1;
        if (at.broker === 'hangs') return new Promise<never>(() => undefined);
        if (at.broker === 'well') {
          stored.push(...messages);
          return messages.map(() => ({ kind: 'stored' }));
        }
        const error = new UnavailableError('no quorum');
        return messages.map(() => ({ kind: 'again', error }));
      },
    };
    const { world, random, queue: outbox } = sale;
    const dependencies = new Dependencies({
      clock: world,
      timers: world,
      random,
      mayRetry: () => true,
    });
    const bare = {
      inventory: {},
      orders: { payments: {}, audit: {} },
      admission: {},
      queue: {},
      relay: { outbox, broker, outboxVisibilityMs: 0 },
    } as unknown as Stores;
    const { relay: road } = dependencies.guard(bare);
    if (road === undefined) throw new Error('no road was guarded');
    const relay = new Relay(
      { ...road, clock: world, timers: world, random, leads: () => true },
      { consumer: 'relay', outboxVisibilityMs: 0 },
    );
    const passes = async (count: number, everyMs: number): Promise<void> => {
      for (let pass = 0; pass < count; pass += 1) {
        const passing = relay.runOnce(0);
        await world.advance(everyMs);
        await passing;
      }
    };
    const state = (): string | undefined => dependencies.all.get('broker')?.breakerState;
    return { sale, at, stored, broker, passes, state, dependencies };
  }

  test('that takes nothing is soon left alone, and nothing is lost or turned round', async () => {
    const { sale, at, stored, passes, state, dependencies } = await relayed();
    await sale.reserve('ann');
    await passes(1, 10);
    at.broker = 'silent';
    for (const who of ['bob', 'cid', 'dan']) await sale.reserve(who);
    await passes(12, 10);
    expect(state()).toBe('open');
    const asked = at.published;
    await passes(12, 10);
    // Refusals are no publishes, and no failures of the broker.
    expect(at.published).toBe(asked);
    expect(dependencies.all.get('broker')?.numbers).toMatchObject({
      failures: asked - 1,
      refused: { breaker: expect.any(Number) },
    });
    expect((await sale.queue.backlog(0)).depth).toBe(3);
    at.broker = 'well';
    await sale.reserve('eve');
    await passes(20, 250);
    expect(state()).toBe('closed');
    expect(stored.map(({ userId }) => userId)).toEqual(['ann', 'bob', 'cid', 'dan', 'eve']);
    expect(await sale.queue.backlog(0)).toMatchObject({ depth: 0, acknowledgedTotal: 5 });
  });

  test('control: without a look at the outcomes its breaker would see nothing but good calls', async () => {
    const { sale, at, broker, dependencies } = await relayed();
    await sale.reserve('ann');
    at.broker = 'silent';
    const outbound = dependencies.all.get('broker');
    if (outbound === undefined) throw new Error('no way out to the broker');
    const bare = guardPort<OrderQueueProducer>(broker, outbound, { publish: 'write' });
    const [delivery] = await sale.queue.receive('w', 1, 0);
    if (delivery === undefined) throw new Error('nothing was received');
    for (let call = 0; call < 30; call += 1) await bare.publish([delivery.message]);
    expect(outbound.breakerState).toBe('closed');
  });

  test('that hangs is cut; the batch is kept, and sent before anything newer', async () => {
    const { sale, at, stored, passes } = await relayed();
    at.broker = 'hangs';
    await sale.reserve('ann');
    await passes(1, 13_000);
    expect((await sale.queue.backlog(0)).depth).toBe(1);
    at.broker = 'well';
    await sale.reserve('bob');
    await passes(3, 10);
    expect(stored.map(({ userId }) => userId)).toEqual(['ann', 'bob']);
    expect((await sale.queue.backlog(0)).depth).toBe(0);
  });
});

describe('hard trips', () => {
  test('an inventory that has not answered for two seconds is gone, until it answers', async () => {
    let down = true;
    const at = scene(async () => {
      if (down) throw new UnavailableError('down');
      return undefined;
    });
    const hard = at.hard();
    const looks = async (times: number): Promise<void> => {
      for (let i = 0; i < times; i += 1) {
        await at.ask();
        hard.look();
      }
    };
    await looks(8);
    // Not at the first failures: that would close the doors for a failover of half a second.
    expect(at.trips).not.toContain('+inventory_gone');
    await looks(goneAfterMs / 200 + 4);
    expect(at.trips).toContain('+inventory_gone');
    down = false;
    await looks(20);
    expect(at.trips.filter((trip) => trip.endsWith('inventory_gone')).at(-1)).toBe(
      '-inventory_gone',
    );
  });

  test('spent leases alone are no reason, and more sold than there is closes at once', () => {
    const at = scene(async () => undefined);
    const hard = at.hard(0);
    hard.look();
    expect(at.trips).not.toContain('+leases_spent');
    hard.reconciled({ overbooked: 1 });
    expect(at.trips.at(-1)).toBe('+stock_invariant');
    hard.reconciled({ fate_not_told: 9 });
    expect(at.trips.at(-1)).toBe('-stock_invariant');
  });
});
