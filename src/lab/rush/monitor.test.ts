import { expect, test } from 'vitest';
import { World } from '../../../test/support/world.ts';
import type { Asker } from './ask.ts';
import { newDossier, addRequest } from './dossier.ts';
import { Monitor } from './monitor.ts';
import { Series } from './series.ts';
import { Witness } from './witness.ts';

/** A shop whose board shows `epochNow`, and an onlooker beside a crowd. */
function looking(epochNow: () => number) {
  const world = new World();
  const now = (): number => world.monoUs() / 1_000;
  const witness = new Witness(new Series(now()), () => 1);
  const shop = {
    get: async () => ({ status: 200, json: { stock_epoch: epochNow() }, text: '' }),
  } as unknown as Asker;
  const monitor = new Monitor(shop, undefined, witness, 'a', ['s'], now);
  monitor.start(world);
  const told = (): void => {
    const request = addRequest(newDossier(1, 's'), 1, 1, 0);
    witness.denied(request, 'SOLD_OUT', now(), now() + 1);
  };
  return { world, witness, monitor, told };
}

test('"sold out" in an epoch that was open before and long after is called out', async () => {
  const { world, witness, monitor, told } = looking(() => 0);
  await world.advance(10_000);
  told();
  await world.advance(1_000);
  // Too soon to say: the board may be that old.
  expect(witness.breaches(8).count).toBe(0);
  const last = monitor.lastLooks(world);
  await world.advance(20_000);
  await last;
  expect(witness.breaches(8).count).toBe(1);
});

test('a board that lags behind the sell-out, as in an overloaded shop, is no breach', async () => {
  let epoch = 0;
  const { world, witness, monitor, told } = looking(() => epoch);
  await world.advance(10_000);
  told();
  await world.advance(5_000);
  epoch = 1;
  await world.advance(10_000);
  await monitor.lastLooks(world);
  expect(witness.breaches(8).count).toBe(0);
});

test('nothing is waited for once it is sold out', async () => {
  const { world, witness, monitor, told } = looking(() => 1);
  await world.advance(2_000);
  told();
  await monitor.lastLooks(world);
  expect(witness.breaches(8).count).toBe(0);
});
