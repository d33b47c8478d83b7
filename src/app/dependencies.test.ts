import { describe, expect, test } from 'vitest';
import { SeededRandom, World } from '../../test/support/world.ts';
import { UnavailableError } from '../ports/errors.ts';
import type { PaymentProvider } from '../ports/payment-provider.ts';
import { UnknownSkuError } from '../ports/errors.ts';
import { Dependencies } from './dependencies.ts';
import type { Stores } from './embedded-stores.ts';
import { goneAfterMs, HardTrips } from './hard-trips.ts';

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
