import { afterEach, expect, test } from 'vitest';
import { openShop, type Shop, type ShopOptions, sku } from '../support/shop.ts';

let shop: Shop | undefined;
afterEach(async () => {
  await shop?.close();
  shop = undefined;
});

async function open(options: ShopOptions = {}): Promise<Shop> {
  shop = await openShop(options);
  return shop;
}

interface Said {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly headers: Headers;
}

async function submit(
  at: Shop,
  headers: Readonly<Record<string, string>>,
  change: Readonly<Record<string, unknown>> = {},
): Promise<Said> {
  const response = await fetch(`${at.url}/v1/seckill/${at.path}/submit`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({
      request_id: 'req_1',
      activity_id: sku.activityId,
      sku_id: sku.skuId,
      quantity: 1,
      ...change,
    }),
  });
  return {
    status: response.status,
    body: (await response.json()) as Record<string, unknown>,
    headers: response.headers,
  };
}

test('a submit with a pass is taken in, and its units are held', async () => {
  const at = await open();
  const said = await submit(at, at.buyer('ann').headers);
  expect(said.status).toBe(202);
  expect(said.body).toMatchObject({
    request_id: 'req_1',
    state: 'QUEUED',
    code: 'SECKILL_QUEUED',
    next_action: 'POLL',
    order_id: null,
    quantity: 1,
  });
  expect(said.headers.get('cache-control')).toBe('no-store');
  expect(await at.store.mark(sku)).toMatchObject({ available: 9, held: 1 });
});
