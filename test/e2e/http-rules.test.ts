import { afterEach, describe, expect, test } from 'vitest';
import { judgeRules } from '../../src/core/rules/judge.ts';
import { readRules } from '../../src/core/rules/read.ts';
import {
  openRuledShop,
  ruledContext,
  type RuledShopOptions,
  submitTo,
} from '../support/ruled-shop.ts';
import { type Shop, sku } from '../support/shop.ts';

/** Rules on the path of a running gateway: what the caller sees of each answer. */
let shop: Shop | undefined;
afterEach(async () => {
  const ran = shop;
  shop = undefined;
  if (ran === undefined) return;
  await ran.close();
  expect(ran.ledger.residual()).toBe(0);
});

async function open(rules: object, options: RuledShopOptions = {}): Promise<Shop> {
  shop = await openRuledShop(rules, options);
  return shop;
}

const submit = submitTo;

const ask = (at: Shop, path: string, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(at.url + path, { headers });

const once = { rate: '1/30d', burst: 1 };

describe('answers past a limit', () => {
  test('queue: 202, where to stand, when to come back, and nothing taken', async () => {
    const at = await open([
      { id: 'room', match: { route: 'submit', activity: '*' }, limit: once, on_limit: 'queue' },
    ]);
    expect((await submit(at, 'ann')).status).toBe(202);
    const said = await submit(at, 'bob');
    expect(said.status).toBe(202);
    expect(said.headers.get('content-type')).toBe('application/json');
    expect(said.headers.get('sluice-limited')).toBe('activity');
    expect(said.headers.get('retry-after')).not.toBeNull();
    expect(await said.json()).toMatchObject({
      code: 'WAITING_ROOM',
      next_action: 'RETRY_LATER',
      retryable: true,
      rule_id: 'room',
      standing_path: '/v1/activities/act/entries/me',
    });
    expect((await at.store.mark(sku))?.available).toBe(9);
  });

  test('degrade: the answer that was known, marked, and the stock is not asked', async () => {
    let looks = 0;
    const at = await open(
      [{ id: 'cheap', match: { route: 'facts' }, limit: once, on_limit: 'degrade' }],
      {
        settings: {
          store: (real) => {
            const mark = real.mark.bind(real);
            real.mark = (of) => {
              looks += 1;
              return mark(of);
            };
            return real;
          },
        },
      },
    );
    const path = '/v1/activities/act/skus/sku/availability';
    const full = await ask(at, path);
    expect(full.headers.get('sluice-degraded')).toBeNull();
    await at.world.advance(10_000);
    const before = looks;
    const cheap = await ask(at, path);
    expect(cheap.status).toBe(200);
    expect(cheap.headers.get('sluice-degraded')).toBe('cheap');
    expect(await cheap.json()).toMatchObject({ availability: 'plenty' });
    expect(looks).toBe(before);
  });

  test('delay: the request is held back, and then answered', async () => {
    const at = await open([
      {
        id: 'paced',
        match: { route: 'facts' },
        limit: { algorithm: 'leaky_bucket', rate: '1/s', max_wait: '5s' },
        on_limit: 'delay',
      },
    ]);
    expect((await ask(at, '/v1/activities')).status).toBe(200);
    let answered = false;
    const second = ask(at, '/v1/activities').then((said) => {
      answered = true;
      return said;
    });
    // It is with us, and waits for time that only this test moves.
    while (at.gateway.inSystem === 0) await new Promise((resolve) => setImmediate(resolve));
    await at.world.advance(900);
    expect(answered).toBe(false);
    await at.world.advance(200);
    expect((await second).status).toBe(200);
  });

  test('places of a concurrency limit are free again after every end', async () => {
    const at = await open([
      {
        id: 'one',
        match: { route: ['submit', 'status', 'facts', 'page', 'standing', 'session'] },
        limit: { algorithm: 'concurrency', limit: 1 },
      },
    ]);
    for (let n = 0; n < 3; n += 1) {
      expect((await submit(at, `buyer-${n}`)).status).toBe(202);
      expect((await submit(at, `buyer-${n}`, 'other')).status).not.toBe(429);
      expect((await ask(at, '/v1/activities')).status).toBe(200);
      expect((await ask(at, '/v1/activities/nothing')).status).toBe(404);
      const status = `/v1/requests/buyer-${n}?activity_id=act&sku_id=sku`;
      const { authorization = '' } = at.buyer(`buyer-${n}`).headers;
      expect((await ask(at, status, { authorization })).status).toBe(200);
      expect((await ask(at, status)).status).toBe(401);
    }
  });
});

describe('rules that ask the shared store', () => {
  const exact = (route: string, fail: string): object[] => [
    { id: 'exact', match: { route }, key: ['user'], scope: 'exact', limit: once, fail },
  ];

  test('are exact on every route', async () => {
    const at = await open([
      {
        id: 'e',
        match: { route: ['submit', 'status', 'join'] },
        key: ['user', 'route'],
        scope: 'exact',
        limit: once,
      },
    ]);
    expect((await submit(at, 'ann')).status).toBe(202);
    const again = await submit(at, 'ann');
    expect(again.status).toBe(429);
    expect(await again.json()).toMatchObject({ rule_id: 'e', scope: 'user' });
    expect((await submit(at, 'bob')).status).toBe(202);
    const { authorization = '' } = at.buyer('ann').headers;
    const status = '/v1/requests/ann?activity_id=act&sku_id=sku';
    expect((await ask(at, status, { authorization })).status).toBe(200);
    expect((await ask(at, status, { authorization })).status).toBe(429);
  });

  test('closed: refused while it is away, and said whose fault that is', async () => {
    const at = await open(exact('submit', 'closed'), { away: true });
    const said = await submit(at, 'ann');
    expect(said.status).toBe(503);
    expect(await said.json()).toMatchObject({
      code: 'DEPENDENCY_UNAVAILABLE',
      reason: 'limits_unavailable',
      next_action: 'RETRY_LATER',
    });
    expect((await at.store.mark(sku))?.available).toBe(10);
  });

  test('open: reads go on while it is away', async () => {
    const at = await open(exact('facts', 'open'), { away: true });
    for (let n = 0; n < 3; n += 1) expect((await ask(at, '/v1/activities')).status).toBe(200);
  });
});

test('a rule on headers or claims counts what the request really carries', async () => {
  const at = await open([
    {
      id: 'partner',
      match: { header: { 'x-partner': 'acme' } },
      key: ['header:x-partner'],
      limit: once,
    },
  ]);
  expect((await ask(at, '/v1/activities', { 'x-partner': 'acme' })).status).toBe(200);
  expect((await ask(at, '/v1/activities', { 'x-partner': 'acme' })).status).toBe(429);
  expect((await ask(at, '/v1/activities', { 'x-partner': 'other' })).status).toBe(200);
});

test.each([
  ['queue', 'facts'],
  ['delay', 'submit'],
  ['degrade', 'submit'],
  ['challenge', 'facts'],
  ['accept_later', 'callback'],
])('%s on %s is refused before it could be promised', (answer, route) => {
  const limit =
    answer === 'delay' || answer === 'accept_later'
      ? { algorithm: 'leaky_bucket', rate: '1/s', max_wait: '1s' }
      : once;
  const { set, problems } = readRules([{ id: 'r', match: { route }, limit, on_limit: answer }]);
  expect(problems).toEqual([]);
  const found = judgeRules(set, ruledContext).problems.map(({ path, found: what, allowed }) => [
    path.at(-1),
    `${what} | ${allowed}`,
  ]);
  expect(found).toContainEqual([
    'on_limit',
    expect.stringContaining(`${answer} on routes that may be ${route}`),
  ]);
});
