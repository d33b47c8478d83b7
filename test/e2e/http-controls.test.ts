import { afterEach, expect, test } from 'vitest';
import { Ledger } from '../../src/core/ledger/ledger.ts';
import type { PassVerifier } from '../../src/pipeline/stages/06-identify.ts';
import { SoldOutFlags } from '../../src/pipeline/sold-out-flags.ts';
import { openShop, type Shop, type ShopOptions, sku } from '../support/shop.ts';

/**
 * Controls: each guard of the path is taken out by injection, and the harm that it prevents is seen to
 * happen. Without these, the tests that say "it does not happen" could be tests of nothing.
 */
let shop: Shop | undefined;
afterEach(async () => {
  await shop?.close();
  shop = undefined;
});

async function open(options: ShopOptions = {}): Promise<Shop> {
  shop = await openShop(options);
  return shop;
}

async function submit(
  at: Shop,
  headers: Readonly<Record<string, string>>,
  requestId = 'r1',
): Promise<{ status: number; code: unknown }> {
  const response = await fetch(`${at.url}/v1/seckill/${at.path}/submit`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ request_id: requestId, ...wire, quantity: 1 }),
  });
  const { code } = (await response.json()) as { code?: unknown };
  return { status: response.status, code };
}

const wire = { activity_id: sku.activityId, sku_id: sku.skuId };

/** The same scenario with the pass verifier as given. */
async function strangerWith(passes?: PassVerifier): Promise<{ status: number; left: number }> {
  const at = await open();
  if (passes !== undefined) at.parts.passes = passes;
  const ann = at.buyer('ann');
  const said = await submit(at, { ...ann.headers, 'sluice-pass': 'made.up.pass' });
  const mark = await at.store.mark(sku);
  await at.close();
  return { status: said.status, left: mark?.available ?? -1 };
}

test('no pass, no submit; without the check a made-up pass buys', async () => {
  expect(await strangerWith()).toEqual({ status: 403, left: 10 });
  const believing: PassVerifier = {
    verify: (_raw, expected, nowMs) => ({
      kind: 'valid',
      keyId: 'none',
      claims: {
        ...expected,
        issuer: '',
        audience: '',
        maxQuantity: 1,
        wave: 1,
        nonce: 'n'.repeat(22),
        notBeforeMs: nowMs,
        issuedAtMs: nowMs,
        expiresAtMs: nowMs + 1,
        deviceHash: '',
      },
    }),
  };
  expect(await strangerWith(believing)).toEqual({ status: 202, left: 9 });
});

/** Ann buys the last unit, somebody hears so, ann asks again. */
async function winnerAgain(change?: (at: Shop) => void): Promise<unknown> {
  const at = await open({ stock: 1 });
  change?.(at);
  await submit(at, at.buyer('ann').headers);
  await submit(at, at.buyer('bob').headers, 'b');
  await at.world.advance(0);
  const { code } = await submit(at, at.buyer('ann').headers);
  await at.close();
  return code;
}

test('a winner hears that they won; without the filter of holders they hear "sold out"', async () => {
  expect(await winnerAgain()).toBe('REQUEST_REPLAYED');
  const forgetful = await winnerAgain((at) => {
    at.flags.ask = (of) => SoldOutFlags.prototype.ask.call(at.flags, of, undefined);
  });
  expect(forgetful).toBe('SECKILL_SOLD_OUT');
});

/** A sell-out is heard after the reopening that followed it. */
async function lateSellOut(flags?: (at: Shop) => void): Promise<number> {
  const at = await open();
  flags?.(at);
  at.flags.observe(sku, { generation: 1, stockEpoch: 2 });
  at.flags.observe(sku, { generation: 1, stockEpoch: 1 });
  at.flags.ask(sku, undefined);
  at.flags.load({ ...sku, generation: 1, stockEpoch: 1, soldOut: true, holders: noHolders });
  const said = await submit(at, at.buyer('ann').headers);
  await at.close();
  return said.status;
}

const noHolders = { bits: new Uint8Array(8), hashes: 1, members: 0 };

test('a late sell-out closes nothing; without the comparison of epochs it does', async () => {
  expect(await lateSellOut()).toBe(202);
  const gullible = await lateSellOut((at) => {
    // Every statement starts a new book: whatever comes last is believed.
    let newest = SoldOutFlags.prototype;
    const believe = (): SoldOutFlags =>
      new SoldOutFlags({ store: at.store, monoUs: () => at.world.monoUs() });
    at.flags.observe = (of, mark) => {
      newest = believe();
      SoldOutFlags.prototype.observe.call(newest, of, mark);
    };
    at.flags.load = (snapshot) => SoldOutFlags.prototype.load.call(newest, snapshot);
    at.flags.isSoldOut = (of) => SoldOutFlags.prototype.isSoldOut.call(newest, of);
    at.flags.ask = (of, person) => SoldOutFlags.prototype.ask.call(newest, of, person);
  });
  expect(gullible).toBe(200);
});

test('the ledger closes; a path that forgets to count an exit leaves a residual', async () => {
  const honest = await open();
  await submit(honest, honest.buyer('ann').headers);
  expect(honest.ledger.residual()).toBe(0);
  await honest.close();
  class Forgetful extends Ledger {
    override left(...exit: Parameters<Ledger['left']>): void {
      if (exit[0] !== 'enqueue') super.left(...exit);
    }
  }
  const ledger = new Forgetful(() => 0);
  const lossy = await open({ deps: { ledger } });
  await submit(lossy, lossy.buyer('ann').headers);
  expect(ledger.residual()).toBe(1);
});
