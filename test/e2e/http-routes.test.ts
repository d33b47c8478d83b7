import { request as rawRequest } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { checkerOf } from '../../src/gateway/validate.ts';
import { routeTable } from '../../src/gateway/routes/table.ts';
import { noLimits } from '../../src/pipeline/limits.ts';
import { OutcomeUnknownError, UnavailableError } from '../../src/ports/errors.ts';
import type { ReserveRequest } from '../../src/ports/inventory-store.ts';
import { ProblemBody } from '../../src/wire/schemas.ts';
import { openShop, type Shop, type ShopOptions, sku, userTokenOf } from '../support/shop.ts';

let shop: Shop | undefined;
afterEach(async () => {
  const ran = shop;
  shop = undefined;
  if (ran === undefined) return;
  await ran.close();
  expect(ran.ledger.residual()).toBe(0);
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

const checkProblem = checkerOf(ProblemBody);

/** The schema that the route table promises for this method, path and status. */
function promised(method: string, path: string, status: number): ReturnType<typeof checkerOf> {
  const route = routeTable.find(
    (one) =>
      one.method === method &&
      new RegExp(`^${one.path.replaceAll(/\{\w+\}/g, '[^/]+')}$`).test(path),
  );
  const schema = route?.answers[status];
  if (schema === undefined) throw new Error(`${method} ${path} promises no body for ${status}`);
  return checkerOf(schema);
}

/** Every answer of these tests is held against what the document promises. */
async function ask(
  at: Shop,
  method: string,
  path: string,
  options: { body?: unknown; raw?: string; headers?: Record<string, string> } = {},
): Promise<Said> {
  const body =
    options.raw ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
  const response = await fetch(at.url + path, {
    method,
    headers: {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...options.headers,
    },
    ...(body === undefined ? {} : { body }),
  });
  const text = await response.text();
  if (text === '') return { status: response.status, body: {}, headers: response.headers };
  const parsed = JSON.parse(text) as Record<string, unknown>;
  const { pathname } = new URL(at.url + path);
  const check =
    response.headers.get('content-type') === 'application/problem+json'
      ? checkProblem
      : promised(method, pathname, response.status);
  expect(check(parsed)).toEqual({ ok: true, value: parsed });
  return { status: response.status, body: parsed, headers: response.headers };
}

const bearer = (at: Shop, name: string): Record<string, string> => ({
  authorization: `Bearer ${userTokenOf(at.rings.user, name, at.world.wallMs())}`,
});

function reservation(requestId: string, quantity: number): ReserveRequest {
  return {
    requestId,
    userId: 'ann',
    personId: 'ann',
    fingerprint: requestId,
    nonce: `nonce-${requestId}`,
    quantity,
    limit: 10,
    reservationId: `rsv_${requestId}`,
    deadlineMs: Number.MAX_SAFE_INTEGER,
    activityVersion: 1,
    unitAmountMinor: 4500,
    currency: 'EUR',
  };
}

describe('facts', () => {
  test('activities and one of them, cacheable and revalidated', async () => {
    const at = await open();
    const list = await ask(at, 'GET', '/v1/activities');
    expect(list.body).toMatchObject({ activities: [{ activity_id: 'act', phase: 'open' }] });
    const one = await ask(at, 'GET', '/v1/activities/act');
    expect(one.body).toMatchObject({
      phase: 'open',
      room: { mode: 'draw', commitment: null },
      skus: [{ sku_id: 'sku', availability: 'plenty', max_per_person: 1 }],
    });
    expect(one.headers.get('cache-control')).toBe('public, s-maxage=1, stale-while-revalidate=5');
    const tag = one.headers.get('etag') ?? '';
    expect(tag).toMatch(/^W\/"/);
    const again = await ask(at, 'GET', '/v1/activities/act', { headers: { 'if-none-match': tag } });
    expect(again.status).toBe(304);
    const any = await ask(at, 'GET', '/v1/activities/act', { headers: { 'if-none-match': '*' } });
    expect(any.status).toBe(304);
    expect((await ask(at, 'GET', '/v1/activities/none')).body).toMatchObject({
      code: 'NOT_FOUND',
      reason: 'activity',
    });
  });

  test('stock is known before anybody looks: the first glance after a start is true', async () => {
    const at = await open({ stock: 10 });
    expect(at.gateway.board.availability({ activityId: 'act', skuId: 'sku' })).toBe('plenty');
  });

  test('availability follows stock, at one store call a second, and is withheld when backlogged', async () => {
    let depth = 0;
    const at = await open({ stock: 10, backlog: () => depth });
    const path = '/v1/activities/act/skus/sku/availability';
    expect((await ask(at, 'GET', path)).body).toMatchObject({
      availability: 'plenty',
      stock_epoch: 0,
    });
    const take = (requestId: string, quantity: number): Promise<unknown> =>
      at.store.reserve(sku, [reservation(requestId, quantity)], 0, at.world.wallMs());
    await take('r1', 9);
    expect((await ask(at, 'GET', path)).body).toMatchObject({ availability: 'plenty' });
    await at.world.advance(1000);
    await ask(at, 'GET', path);
    expect((await ask(at, 'GET', path)).body).toMatchObject({ availability: 'low' });
    await take('r2', 1);
    await at.world.advance(1000);
    await ask(at, 'GET', path);
    expect((await ask(at, 'GET', path)).body).toMatchObject({
      availability: 'maybe_later',
      stock_epoch: 1,
    });
    expect((await ask(at, 'GET', '/v1/activities/act')).body).toMatchObject({ phase: 'sold_out' });
    for (const requestId of ['r1', 'r2']) {
      const record = await at.store.find(sku, 'ann', requestId);
      at.orders.commit(sku, record!, 'PAID');
      const { reservationId } = record!;
      await at.store.settle(sku, [{ reservationId, fate: 'ordered' }], at.world.wallMs());
    }
    await at.world.advance(1000);
    await ask(at, 'GET', path);
    expect((await ask(at, 'GET', path)).body).toMatchObject({ availability: 'sold_out' });
    depth = 100_000;
    expect((await ask(at, 'GET', path)).body).toMatchObject({
      code: 'SYSTEM_OVERLOADED',
      reason: 'backlog',
    });
    expect((await ask(at, 'GET', '/v1/activities/act/skus/no/availability')).status).toBe(404);
  });

  test('probes tell the truth, and are never shed', async () => {
    const reasons = ['orders: not reachable'];
    const at = await open({
      health: { mode: 'CLOSED', admit: () => false },
      deps: { readiness: () => ({ ready: false, reasons }) },
    });
    expect((await ask(at, 'GET', '/healthz')).body).toEqual({ status: 'alive' });
    const ready = await ask(at, 'GET', '/readyz');
    expect(ready.status).toBe(503);
    expect(ready.body).toMatchObject({ ready: false, reasons });
    expect((await ask(at, 'GET', '/v1/activities')).body).toMatchObject({
      code: 'SYSTEM_OVERLOADED',
    });
  });

  test('the document lists every route, and every listed route is served', async () => {
    const at = await open();
    const document = (await (await fetch(`${at.url}/openapi.json`)).json()) as {
      openapi: string;
      paths: Record<string, Record<string, { operationId: string }>>;
    };
    expect(document.openapi).toBe('3.1.0');
    const listed = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(listed.toSorted()).toEqual(
      routeTable.map(({ method, path }) => `${method} ${path}`).toSorted(),
    );
    for (const { method, path } of routeTable) {
      const url = path.replaceAll(/\{\w+\}/g, 'x');
      if (path.endsWith('/events')) continue;
      const said = await ask(at, method, url);
      expect(said.body['reason'], `${method} ${path}`).not.toBe('route');
      expect(said.status, `${method} ${path}`).not.toBe(405);
    }
  });
});

describe('methods and paths', () => {
  test('405 with what is allowed, 404 for the rest', async () => {
    const at = await open();
    const wrong = await ask(at, 'PUT', '/v1/activities/act/entries');
    expect(wrong.status).toBe(405);
    expect(wrong.headers.get('allow')).toBe('POST');
    const orders = await ask(at, 'PATCH', '/v1/orders/o1');
    expect(orders.headers.get('allow')).toBe('GET, DELETE');
    const status = await ask(at, 'POST', '/v1/requests/r1', { body: {} });
    expect(status.status).toBe(405);
    expect((await ask(at, 'GET', '/v1/nothing')).body).toMatchObject({
      code: 'NOT_FOUND',
      reason: 'route',
    });
    for (const [path, allowed] of [
      ['/%zz', /well-formed/],
      [`/v1/orders/${'x'.repeat(200)}`, /at most 128 characters/],
    ] as const) {
      const answer = await ask(at, 'GET', path);
      expect(answer.status).toBe(400);
      expect(answer.body).toMatchObject({ errors: [{ allowed: expect.stringMatching(allowed) }] });
      // What was sent, not the name that a library has for it.
      expect(JSON.stringify(answer.body)).toContain(path.slice(0, 20));
      expect(JSON.stringify(answer.body)).not.toContain('FST_');
    }
    const head = await fetch(`${at.url}/v1/activities/act`, { method: 'HEAD' });
    expect(head.status).toBe(200);
    expect(await head.text()).toBe('');
  });
});

describe('demo session', () => {
  test('makes somebody, and a cookie for pages', async () => {
    const at = await open();
    const said = await ask(at, 'POST', '/v1/session');
    expect(said.body).toMatchObject({ user_id: expect.stringMatching(/^u_/) });
    const cookie = said.headers.get('set-cookie') ?? '';
    expect(cookie).toMatch(/^sluice-user=.*; HttpOnly; SameSite=Lax$/);
    expect(cookie).not.toContain('Secure');
    const token = String(said.body['token']);
    const me = await ask(at, 'POST', '/v1/activities/act/entries', {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(me.status).toBe(201);
  });

  test('only on this machine, whoever a stranger says they are', async () => {
    const at = await open();
    const said = await ask(at, 'POST', '/v1/session', {
      headers: { 'x-forwarded-for': '203.0.113.9' },
    });
    expect(said.body).toMatchObject({ code: 'NOT_FOUND', reason: 'demo_loopback_only' });
  });

  test('not where the configuration hands none out, and not for another site', async () => {
    const at = await open();
    const foreign = await ask(at, 'POST', '/v1/session', {
      headers: { origin: 'https://evil.example' },
    });
    expect(foreign.body).toMatchObject({ code: 'FORBIDDEN_ORIGIN' });
    await at.close();
    const without = await open({ withoutSessions: true });
    expect((await ask(without, 'POST', '/v1/session')).body).toMatchObject({
      reason: 'no_demo_identity',
    });
  });
});

describe('room', () => {
  test('join once, again, from elsewhere: one place; then stand, take a pass, leave', async () => {
    const at = await open();
    const headers = bearer(at, 'ann');
    const path = '/v1/activities/act/entries';
    const first = await ask(at, 'POST', path, { headers, body: { sku_ids: ['sku'] } });
    expect(first.status).toBe(201);
    expect(first.headers.get('set-cookie')).toMatch(/^sluice-entry=/);
    const second = await ask(at, 'POST', path, { headers });
    expect(second.status).toBe(200);
    expect(second.body['entry_id']).toBe(first.body['entry_id']);

    const byToken = await ask(at, 'GET', `${path}/me`, {
      headers: { 'sluice-entry': String(first.body['entry_token']) },
    });
    expect(byToken.body).toMatchObject({ state: 'admitted' });
    const byUser = await ask(at, 'GET', `${path}/me`, { headers });
    expect(byUser.body).toMatchObject({ state: 'admitted' });
    const badToken = { 'sluice-entry': 'a.b.c' };
    expect((await ask(at, 'GET', `${path}/me`, { headers: badToken })).body).toMatchObject({
      code: 'UNAUTHENTICATED',
      reason: 'entry_token_invalid',
    });
    // A bad entry token beside a good user token costs a store read, and is otherwise ignored.
    const both = await ask(at, 'GET', `${path}/me`, { headers: { ...headers, ...badToken } });
    expect(both.status).toBe(200);
    expect((await ask(at, 'GET', `${path}/me`)).status).toBe(401);
    const eve = await ask(at, 'GET', `${path}/me`, { headers: bearer(at, 'eve') });
    expect(eve.body).toMatchObject({ code: 'NOT_FOUND', next_action: 'REJOIN' });

    const pass = await ask(at, 'POST', '/v1/activities/act/passes', {
      headers,
      body: { sku_id: 'sku' },
    });
    expect(pass.body['submit_path']).toBe(`/v1/seckill/${at.path}/submit`);
    const left = await fetch(`${at.url}${path}/me`, { method: 'DELETE', headers });
    expect(left.status).toBe(204);
    expect((await ask(at, 'GET', `${path}/me`, { headers })).status).toBe(404);
  });

  test('a whole purchase, as a client does it', async () => {
    const at = await open();
    const session = await ask(at, 'POST', '/v1/session');
    const headers = { authorization: `Bearer ${String(session.body['token'])}` };
    await ask(at, 'POST', '/v1/activities/act/entries', { headers });
    const pass = await ask(at, 'POST', '/v1/activities/act/passes', {
      headers,
      body: { sku_id: 'sku' },
    });
    const submitted = await ask(at, 'POST', String(pass.body['submit_path']), {
      headers: { ...headers, 'sluice-pass': String(pass.body['pass']) },
      body: { request_id: 'r1', activity_id: 'act', sku_id: 'sku', quantity: 1 },
    });
    expect(submitted.status).toBe(202);
    const userId = String(session.body['user_id']);
    const order = at.orders.commit(sku, (await at.store.find(sku, userId, 'r1'))!);
    const status = await ask(at, 'GET', '/v1/requests/r1?activity_id=act&sku_id=sku', { headers });
    expect(status.body).toMatchObject({ state: 'ORDERED', order_id: order.orderId });
    const paid = await ask(at, 'POST', `/v1/orders/${order.orderId}/pay`, { headers });
    expect(paid.body).toMatchObject({ state: 'PAID', next_action: 'STOP' });
  });

  test('what the door refuses, and what is wrong with a wish', async () => {
    const at = await open();
    const headers = bearer(at, 'ann');
    const wrong = await ask(at, 'POST', '/v1/activities/act/entries', {
      headers,
      body: { sku_ids: 'sku' },
    });
    expect(wrong.body).toMatchObject({ code: 'INVALID_ARGUMENT', errors: [{ path: '/sku_ids' }] });
    const nowhere = await ask(at, 'POST', '/v1/activities/none/entries', { headers });
    expect(nowhere.status).toBe(404);
    const badPath = await ask(at, 'POST', '/v1/activities/a.b/entries', { headers });
    expect(badPath.body).toMatchObject({ errors: [{ path: 'path:activity_id' }] });
    await ask(at, 'POST', '/v1/activities/act/entries', { headers });
    const other = await ask(at, 'POST', '/v1/activities/act/passes', {
      headers,
      body: { sku_id: 'none' },
    });
    expect(other.body).toMatchObject({ errors: [{ path: '/sku_id', allowed: 'one of sku' }] });
  });

  test('a store that does not answer is said so, and a fault of ours is not a crash', async () => {
    const fails = (error: Error): Partial<ShopOptions> => ({
      door: { join: () => Promise.reject(error) },
    });
    const path = '/v1/activities/act/entries';
    const cases = [
      [new UnavailableError('away'), 'store_unavailable'],
      [new OutcomeUnknownError('lost'), 'outcome_unknown'],
      [new Error('bug'), 'internal_error'],
    ] as const;
    for (const [error, reason] of cases) {
      const at = await open(fails(error));
      const said = await ask(at, 'POST', path, { headers: bearer(at, 'ann') });
      expect(said.status).toBe(503);
      expect(said.body).toMatchObject({ code: 'DEPENDENCY_UNAVAILABLE', reason });
      expect(at.logged.length).toBe(reason === 'internal_error' ? 1 : 0);
      await at.close();
    }
  });
});

test('a part that never answers is spoken for in bounded time, its slot shows that it is used', async () => {
  const never = (): Promise<never> => new Promise(() => undefined);
  const at = await open({ door: { join: never }, slots: { status: 1 } });
  at.orders.fateOfRequest = never;
  const headers = bearer(at, 'ann');
  const joining = ask(at, 'POST', '/v1/activities/act/entries', { headers });
  const status = '/v1/requests/r1?activity_id=act&sku_id=sku';
  const asking = ask(at, 'GET', status, { headers });
  await expect.poll(() => at.gateway.inSystem).toBe(2);
  // Its one slot is taken: the next question is refused rather than made to wait.
  expect((await ask(at, 'GET', status, { headers })).body).toMatchObject({ reason: 'slots' });
  await at.world.advance(8_000);
  expect((await joining).body).toMatchObject({ reason: 'outcome_unknown', next_action: 'POLL' });
  expect((await asking).body).toMatchObject({ code: 'DEPENDENCY_UNAVAILABLE' });
});

describe('standing as events', () => {
  async function events(
    at: Shop,
    headers: Record<string, string>,
  ): Promise<{ next: () => Promise<string>; stop: () => void; status: number }> {
    const abort = new AbortController();
    const response = await fetch(`${at.url}/v1/activities/act/entries/me/events`, {
      headers,
      signal: abort.signal,
    });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let buffered = '';
    return {
      status: response.status,
      stop: () => abort.abort(),
      next: async () => {
        for (;;) {
          const end = buffered.indexOf('\n\n');
          if (end >= 0) {
            const event = buffered.slice(0, end);
            buffered = buffered.slice(end + 2);
            return event;
          }
          const { value, done } = await reader.read();
          if (done) return '';
          buffered += value;
        }
      },
    };
  }

  test('a retry hint, the standing at once, changes within a second, signs of life', async () => {
    const at = await open();
    const joined = await ask(at, 'POST', '/v1/activities/act/entries', {
      headers: bearer(at, 'ann'),
    });
    const stream = await events(at, { 'sluice-entry': String(joined.body['entry_token']) });
    expect(stream.status).toBe(200);
    expect(await stream.next()).toBe('retry: 3000');
    expect(await stream.next()).toMatch(/^id: 1\nevent: standing\ndata: \{"state":"admitted"/);
    at.setStanding('sold_out');
    await at.world.advance(1_000);
    expect(await stream.next()).toMatch(/^id: 2\nevent: standing\ndata: \{"state":"sold_out"/);
    await at.world.advance(16_000);
    expect(await stream.next()).toMatch(/^id: 3\n/);
    expect(at.gateway.streams).toBe(1);
    stream.stop();
    await expect.poll(() => at.gateway.streams).toBe(0);
  });

  test('by identity alone, at one store read per stream and five seconds', async () => {
    const at = await open();
    await ask(at, 'POST', '/v1/activities/act/entries', { headers: bearer(at, 'ann') });
    const stream = await events(at, bearer(at, 'ann'));
    await stream.next();
    await stream.next();
    at.setStanding('closed');
    await at.world.advance(7_000);
    expect(await stream.next()).toContain('"state":"closed"');
    stream.stop();
  });

  test('no more streams than may be, and all end when the gateway closes', async () => {
    const at = await open({ settings: { maxStreams: 1 } });
    const joined = await ask(at, 'POST', '/v1/activities/act/entries', {
      headers: bearer(at, 'ann'),
    });
    const headers = { 'sluice-entry': String(joined.body['entry_token']) };
    const stream = await events(at, headers);
    await stream.next();
    const second = await fetch(`${at.url}/v1/activities/act/entries/me/events`, { headers });
    expect(second.status).toBe(503);
    expect(await second.json()).toMatchObject({ reason: 'streams' });
    await at.close();
    while ((await stream.next()) !== '');
    expect(at.gateway.streams).toBe(0);
  });
});

describe('orders', () => {
  async function ordered(): Promise<{
    at: Shop;
    orderId: string;
    headers: Record<string, string>;
  }> {
    const at = await open();
    const ann = at.buyer('ann');
    await ask(at, 'POST', `/v1/seckill/${at.path}/submit`, {
      headers: ann.headers,
      body: { request_id: 'r1', activity_id: 'act', sku_id: 'sku', quantity: 1 },
    });
    const order = at.orders.commit(sku, (await at.store.find(sku, 'ann', 'r1'))!);
    return { at, orderId: order.orderId, headers: bearer(at, 'ann') };
  }

  test('are their buyer’s alone', async () => {
    const { at, orderId, headers } = await ordered();
    const mine = await ask(at, 'GET', `/v1/orders/${orderId}`, { headers });
    expect(mine.body).toMatchObject({ state: 'PENDING_PAYMENT', next_action: 'PAY' });
    expect(mine.headers.get('cache-control')).toBe('no-store');
    const theirs = await ask(at, 'GET', `/v1/orders/${orderId}`, { headers: bearer(at, 'eve') });
    expect(theirs.status).toBe(404);
    expect(
      (await ask(at, 'POST', `/v1/orders/${orderId}/pay`, { headers: bearer(at, 'eve') })).status,
    ).toBe(404);
  });

  test('are cancelled before payment, once, and not after', async () => {
    const { at, orderId, headers } = await ordered();
    const path = `/v1/orders/${orderId}`;
    expect((await ask(at, 'DELETE', path, { headers })).body).toMatchObject({ state: 'CANCELLED' });
    expect((await ask(at, 'DELETE', path, { headers })).body).toMatchObject({ state: 'CANCELLED' });
    const pay = await ask(at, 'POST', `${path}/pay`, { headers, body: { method: 'card' } });
    expect(pay.status).toBe(409);
    expect(pay.body).toMatchObject({ code: 'ORDER_STATE', state: 'CANCELLED' });
  });

  test('are paid once however often one pays', async () => {
    const { at, orderId, headers } = await ordered();
    const path = `/v1/orders/${orderId}/pay`;
    const bad = await ask(at, 'POST', path, { headers, body: { method: 'gold' } });
    expect(bad.body).toMatchObject({ errors: [{ path: '/method', found: '"gold"' }] });
    expect((await ask(at, 'POST', path, { headers })).body).toMatchObject({ state: 'PAID' });
    expect((await ask(at, 'POST', path, { headers })).body).toMatchObject({ state: 'PAID' });
  });

  test('payment callbacks have their own slots and need their signature', async () => {
    const at = await open({ slots: { submit: 1 }, health: { mode: 'CLOSED' } });
    const send = (headers: Record<string, string>, provider = 'demo'): Promise<Said> =>
      ask(at, 'POST', `/v1/payments/${provider}/callback`, {
        raw: 'event=1',
        headers: { 'content-type': 'text/plain', ...headers },
      });
    expect((await send({ 'x-signature': 'good' })).body).toEqual({
      received: true,
      duplicate: false,
    });
    expect((await send({ 'x-signature': 'bad' })).body).toMatchObject({
      code: 'UNAUTHENTICATED',
      reason: 'callback_signature',
    });
    expect((await send({}, 'none')).status).toBe(404);
  });
});

describe('limits of the other routes', () => {
  test.each(['instance', 'source', 'person'] as const)('%s', async (stage) => {
    const refuse = ({ route }: { route: string }) =>
      route === 'join'
        ? ({ scope: 'source', ruleId: 'j', retryAfterMs: 1_500 } as const)
        : undefined;
    const at = await open({ limits: { ...noLimits, [stage]: refuse } });
    const said = await ask(at, 'POST', '/v1/activities/act/entries', {
      headers: bearer(at, 'ann'),
    });
    expect(said.status).toBe(429);
    expect(said.headers.get('retry-after')).toBe('2');
    expect(said.headers.get('sluice-limited')).toBe('source');
    expect((await ask(at, 'GET', '/v1/activities')).status).toBe(200);
  });
});

describe('cookies', () => {
  async function signedIn(): Promise<{ at: Shop; cookie: string }> {
    const at = await open();
    const said = await ask(at, 'POST', '/v1/session');
    const cookie = (said.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
    return { at, cookie };
  }

  /** fetch will not send Origin or Host of our choice. */
  function change(
    at: Shop,
    path: string,
    headers: Record<string, string>,
  ): Promise<{ status: number; reason: unknown }> {
    return new Promise((resolve, reject) => {
      const sent = rawRequest(`${at.url}${path}`, { method: 'POST', headers }, (answer) => {
        let text = '';
        answer.on('data', (part) => (text += String(part)));
        answer.on('end', () => {
          const { reason } = JSON.parse(text) as { reason?: unknown };
          resolve({ status: answer.statusCode ?? 0, reason });
        });
      });
      sent.on('error', reject);
      sent.end();
    });
  }

  test('serve for reading, and for changes from our own pages only', async () => {
    const { at, cookie } = await signedIn();
    const path = '/v1/activities/act/entries';
    const own = { cookie, origin: at.url };
    expect(await change(at, path, own)).toMatchObject({ status: 201 });
    expect(await change(at, path, { cookie, 'sec-fetch-site': 'same-origin' })).toMatchObject({
      status: 200,
    });
    for (const headers of [
      { cookie },
      { cookie, origin: 'https://evil.example' },
      { cookie, origin: 'null' },
      { cookie, 'sec-fetch-site': 'cross-site' },
    ]) {
      expect(await change(at, path, headers)).toEqual({ status: 403, reason: 'foreign_origin' });
    }
    expect((await ask(at, 'GET', `${path}/me`, { headers: { cookie } })).status).toBe(200);
    const submit = `/v1/seckill/${at.path}/submit`;
    const json = { 'content-type': 'application/json' };
    expect(await change(at, submit, { cookie, ...json })).toMatchObject({
      reason: 'foreign_origin',
    });
    expect(await change(at, submit, { ...own, ...json })).toMatchObject({ reason: 'pass_missing' });
  });

  test('a header wins over a cookie', async () => {
    const { at, cookie } = await signedIn();
    const headers = { cookie, ...bearer(at, 'ann') };
    await ask(at, 'POST', '/v1/activities/act/entries', { headers });
    const me = await ask(at, 'GET', '/v1/activities/act/entries/me', {
      headers: bearer(at, 'ann'),
    });
    expect(me.status).toBe(200);
    const bad = await ask(at, 'GET', '/v1/activities/act/entries/me', {
      headers: { cookie, authorization: 'Bearer nonsense' },
    });
    expect(bad.status).toBe(401);
  });
});

describe('polls, when lookers are shed', () => {
  /** What a poll by entry token is answered, in a room where that is everybody's standing. */
  async function pollWhile(
    state: 'waiting' | 'admitted' | 'claimed',
    admit: (priority: number) => boolean,
  ): Promise<number> {
    let shedding = false;
    const at = await open({
      health: { admit: (priority) => !shedding || admit(priority) },
    });
    const joined = await ask(at, 'POST', '/v1/activities/act/entries', {
      headers: bearer(at, 'ann'),
    });
    at.setStanding(state);
    shedding = true;
    const { status } = await ask(at, 'GET', '/v1/activities/act/entries/me', {
      headers: { 'sluice-entry': String(joined.body['entry_token']) },
    });
    await at.close();
    shop = undefined;
    return status;
  }

  test('whoever was let in hears of it all the same, as whoever holds something', async () => {
    expect(await pollWhile('waiting', (priority) => priority < 3)).toBe(503);
    expect(await pollWhile('admitted', (priority) => priority < 3)).toBe(200);
    expect(await pollWhile('claimed', (priority) => priority < 3)).toBe(200);
    expect(await pollWhile('admitted', () => false)).toBe(503);
  });
});
