import { afterEach, describe, expect, test } from 'vitest';
import { OutcomeUnknownError, UnavailableError } from '../../src/ports/errors.ts';
import type { InventoryStore } from '../../src/ports/inventory-store.ts';
import { noLimits } from '../../src/pipeline/limits.ts';
import { OutcomeBody, ProblemBody } from '../../src/wire/schemas.ts';
import { checkerOf } from '../../src/gateway/validate.ts';
import {
  openShop,
  type Shop,
  type ShopOptions,
  sku,
  userTokenOf,
  withReserve,
} from '../support/shop.ts';

let shop: Shop | undefined;
afterEach(async () => {
  const ran = shop;
  shop = undefined;
  if (ran === undefined) return;
  await ran.close();
  // Whatever a test did, every request that came in was found again.
  expect(ran.ledger.residual()).toBe(0);
  expect(ran.gateway.inSystem).toBe(0);
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

const checkOutcome = checkerOf(OutcomeBody);
const checkProblem = checkerOf(ProblemBody);

async function said(response: Response): Promise<Said> {
  const body = (await response.json()) as Record<string, unknown>;
  const isProblem = response.status >= 400;
  expect((isProblem ? checkProblem : checkOutcome)(body)).toMatchObject({ ok: true });
  expect(response.headers.get('content-type')).toBe(
    isProblem ? 'application/problem+json' : 'application/json',
  );
  expect(response.headers.get('cache-control')).toBe('no-store');
  if (isProblem) expect(body['status']).toBe(response.status);
  return { status: response.status, body, headers: response.headers };
}

async function submit(
  at: Shop,
  headers: Readonly<Record<string, string>>,
  change: Readonly<Record<string, unknown>> = {},
  path = at.path,
): Promise<Said> {
  const response = await fetch(`${at.url}/v1/seckill/${path}/submit`, {
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
  return said(response);
}

async function status(at: Shop, token: string, requestId = 'req_1'): Promise<Said> {
  const response = await fetch(
    `${at.url}/v1/requests/${requestId}?activity_id=${sku.activityId}&sku_id=${sku.skuId}`,
    { headers: { authorization: `Bearer ${token}` } },
  );
  return said(response);
}

describe('taken in', () => {
  test('a submit with a pass is queued, and its units are held', async () => {
    const at = await open();
    const answer = await submit(at, at.buyer('ann').headers);
    expect(answer.status).toBe(202);
    expect(answer.body).toMatchObject({
      request_id: 'req_1',
      state: 'QUEUED',
      code: 'SECKILL_QUEUED',
      next_action: 'POLL',
      next_poll_after_ms: 500,
      order_id: null,
      quantity: 1,
    });
    expect(await at.store.mark(sku)).toMatchObject({ available: 9, held: 1 });
  });

  test('the same request id again changes no stock and says how things stand', async () => {
    const at = await open();
    const ann = at.buyer('ann');
    const first = await submit(at, ann.headers);
    const again = await submit(at, ann.headers);
    expect(again.status).toBe(200);
    expect(again.body).toMatchObject({
      code: 'REQUEST_REPLAYED',
      state: 'QUEUED',
      reservation_id: first.body['reservation_id'],
    });
    expect(await at.store.mark(sku)).toMatchObject({ available: 9, held: 1 });

    const record = await at.store.find(sku, 'ann', 'req_1');
    const order = at.orders.commit(sku, record!);
    const later = await submit(at, ann.headers);
    expect(later.body).toMatchObject({
      code: 'REQUEST_REPLAYED',
      state: 'ORDERED',
      next_action: 'PAY',
      order_id: order.orderId,
      pay_before: new Date(order.payBeforeMs).toISOString(),
    });
  });

  test('a hundred people for ten units: ten are queued, ninety hear sold out, none is left', async () => {
    const at = await open({ stock: 10 });
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, n) =>
        submit(at, at.buyer(`u${n}`).headers, { request_id: `r${n}` }),
      ),
    );
    expect(answers.filter((one) => one.status === 202)).toHaveLength(10);
    expect(answers.filter((one) => one.body['code'] === 'SECKILL_SOLD_OUT')).toHaveLength(90);
    expect(await at.store.mark(sku)).toMatchObject({ available: 0, held: 10 });
    // Together, not one by one.
    expect(at.batcher.calls).toBeLessThan(50);
  });

  test('integer ids are kept as their decimal text; those past 2^53 are refused', async () => {
    const at = await open();
    const answer = await submit(at, at.buyer('ann').headers, { request_id: 42 });
    expect(answer.body).toMatchObject({ state: 'QUEUED', request_id: '42' });

    const raw = async (id: string): Promise<Said> => {
      const body = `{"request_id":${id},"activity_id":"act","sku_id":"sku","quantity":1}`;
      const headers = { 'content-type': 'application/json', ...at.buyer(`u${id}`).headers };
      const url = `${at.url}/v1/seckill/${at.path}/submit`;
      return said(await fetch(url, { method: 'POST', headers, body }));
    };
    expect((await raw('9007199254740992')).body).toMatchObject({
      request_id: '9007199254740992',
    });
    for (const wrong of ['9007199254740993', '9007199254740994', '1e30', '-1', '1.5']) {
      const refused = await raw(wrong);
      expect(refused.status).toBe(400);
      expect(refused.body['errors']).toMatchObject([{ path: '/request_id' }]);
    }
  });
});

describe('refused', () => {
  test('who is asking', async () => {
    const at = await open();
    const ann = at.buyer('ann');
    const bob = at.buyer('bob');
    const none = await submit(at, {});
    expect(none.status).toBe(401);
    expect(none.headers.get('www-authenticate')).toContain('Bearer');
    expect(none.body).toMatchObject({ code: 'UNAUTHENTICATED', next_action: 'SIGN_IN' });

    const forged = `${ann.userToken.slice(0, -2)}AA`;
    const cases: [Record<string, string>, number, string, string][] = [
      [{ authorization: `Bearer ${forged}` }, 401, 'UNAUTHENTICATED', 'user_token_invalid'],
      [{ authorization: `Basic ${ann.userToken}` }, 401, 'UNAUTHENTICATED', 'user_token_missing'],
      [{ authorization: `Bearer ${ann.userToken}` }, 403, 'TOKEN_INVALID', 'pass_missing'],
      [{ ...ann.headers, 'sluice-pass': 'x.y.z' }, 403, 'TOKEN_INVALID', 'pass_structure'],
      [{ ...ann.headers, 'sluice-pass': bob.pass }, 403, 'TOKEN_INVALID', 'pass_user'],
      [{ ...ann.headers, 'sluice-pass': ann.userToken }, 403, 'TOKEN_INVALID', 'pass_type'],
    ];
    for (const [headers, code, name, reason] of cases) {
      const answer = await submit(at, headers);
      expect(answer.status).toBe(code);
      expect(answer.body).toMatchObject({ code: name, reason });
    }
    expect(await at.store.mark(sku)).toMatchObject({ available: 10 });
  });

  test('a path that is known opens nothing without a pass, and an unknown one nothing at all', async () => {
    const at = await open();
    const answer = await submit(at, at.buyer('ann').headers, {}, 'AAAAAAAAAAAAAAAA');
    expect(answer.status).toBe(404);
    expect(answer.body).toMatchObject({ code: 'NOT_FOUND', reason: 'unknown_path' });
  });

  test('an expired pass starts nothing, and still hears of its own request', async () => {
    const at = await open();
    const ann = at.buyer('ann');
    const bob = at.buyer('bob');
    await submit(at, ann.headers);
    await at.world.advance(60_000);
    const late = await submit(at, bob.headers);
    expect(late.status).toBe(403);
    expect(late.body).toMatchObject({ code: 'TOKEN_EXPIRED', next_action: 'REJOIN' });
    const own = await submit(at, ann.headers);
    expect(own.body).toMatchObject({ code: 'REQUEST_REPLAYED', state: 'QUEUED' });
    expect(await at.store.mark(sku)).toMatchObject({ available: 9 });
  });

  test('one pass serves one request id, and one request id one content', async () => {
    const at = await open({ maxPerPerson: 3 });
    const ann = at.buyer('ann');
    await submit(at, ann.headers);
    const replay = await submit(at, ann.headers, { request_id: 'req_2' });
    expect(replay.status).toBe(403);
    expect(replay.body).toMatchObject({ code: 'REPLAY_REJECTED', request_id: 'req_2' });
    const conflict = await submit(at, ann.headers, { quantity: 2 });
    expect(conflict.status).toBe(400);
    expect(conflict.body).toMatchObject({ code: 'REQUEST_ID_CONFLICT' });
  });

  test('a second purchase beyond the limit names what is held', async () => {
    const at = await open();
    const first = await submit(at, at.buyer('ann').headers);
    const second = await submit(at, at.buyer('ann', 2).headers, { request_id: 'req_2' });
    expect(second.status).toBe(409);
    expect(second.body).toMatchObject({
      code: 'ALREADY_PURCHASED',
      next_action: 'POLL',
      holdings: [
        { request_id: 'req_1', reservation_id: first.body['reservation_id'], order_id: null },
      ],
    });
    const order = at.orders.commit(sku, (await at.store.find(sku, 'ann', 'req_1'))!);
    const third = await submit(at, at.buyer('ann', 2).headers, { request_id: 'req_3' });
    expect(third.body).toMatchObject({
      next_action: 'STOP',
      holdings: [{ order_id: order.orderId }],
    });
  });

  test('what is wrong with a body is named, place by place', async () => {
    const at = await open();
    const { headers } = at.buyer('ann');
    const wrong: [Record<string, unknown>, string, string][] = [
      [{ quantity: 0 }, '/quantity', '0'],
      [{ quantity: -1 }, '/quantity', '-1'],
      [{ quantity: 1.5 }, '/quantity', '1.5'],
      [{ quantity: '1' }, '/quantity', '"1"'],
      [{ quantity: 2 }, '/quantity', '2'],
      [{ quantity: null }, '/quantity', 'null'],
      [{ request_id: 'with space' }, '/request_id', '"with space"'],
      [{ request_id: 'x'.repeat(65) }, '/request_id', `"${'x'.repeat(63)}…`],
      [{ request_id: undefined }, '/request_id', 'nothing'],
      [{ extra: 1 }, '/extra', 'an unknown member'],
      [{ seats: ['a', 'a'] }, '/seats', 'an array of 2'],
      [{ seats: ['a', 'b'] }, '/seats', '2 seats for quantity 1'],
      [{ seats: ['a'] }, '/seats', '"a"'],
    ];
    for (const [change, path, found] of wrong) {
      const answer = await submit(at, headers, change);
      expect(answer.status).toBe(400);
      expect(answer.body).toMatchObject({ code: 'INVALID_ARGUMENT', errors: [{ path, found }] });
    }
    const key = await submit(at, { ...headers, 'idempotency-key': 'other' });
    expect(key.body).toMatchObject({ errors: [{ path: 'header:idempotency-key' }] });
    const same = await submit(at, { ...headers, 'idempotency-key': 'req_1' });
    expect(same.status).toBe(202);
  });

  test('a pass for one SKU does not buy another', async () => {
    const at = await open();
    const answer = await submit(at, at.buyer('ann').headers, { sku_id: 'other' });
    expect(answer.status).toBe(403);
    expect(answer.body).toMatchObject({ code: 'TOKEN_INVALID', reason: 'pass_sku' });
  });

  test('method, type and size, before anything is read', async () => {
    const at = await open();
    const url = `${at.url}/v1/seckill/${at.path}/submit`;
    const get = await said(await fetch(url));
    expect(get.status).toBe(405);
    expect(get.headers.get('allow')).toBe('POST');
    const type = await said(await fetch(url, { method: 'POST', body: 'a=b' }));
    expect(type.status).toBe(415);
    const json = { 'content-type': 'application/json; charset=UTF-8' };
    const big = await said(
      await fetch(url, { method: 'POST', headers: json, body: ' '.repeat(20_000) }),
    );
    expect(big.status).toBe(413);
    const { headers } = at.buyer('ann');
    const notJson = await said(
      await fetch(url, { method: 'POST', headers: { ...json, ...headers }, body: '{' }),
    );
    expect(notJson.body).toMatchObject({ code: 'INVALID_ARGUMENT', errors: [{ path: '' }] });
    const notText = new Uint8Array([0x22, 0xff, 0x22]);
    const bytes = await said(
      await fetch(url, { method: 'POST', headers: { ...json, ...headers }, body: notText }),
    );
    expect(bytes.body).toMatchObject({ errors: [{ allowed: 'JSON in UTF-8' }] });
  });

  test('before opening and after closing, by the server clock', async () => {
    const at = await open();
    const ann = at.buyer('ann');
    await submit(at, ann.headers);
    await at.world.advance(3_600_000);
    const late = await submit(at, at.buyer('bob').headers, { request_id: 'late' });
    expect(late.status).toBe(409);
    expect(late.body).toMatchObject({ code: 'NOT_OPEN', reason: 'closed', next_action: 'STOP' });
    // Whoever bought in time still hears of it.
    const again = await submit(at, at.buyer('ann').headers);
    expect(again.body).toMatchObject({ code: 'REQUEST_REPLAYED' });
  });
});

describe('limits and health', () => {
  const limited = (scope: 'instance' | 'source' | 'user' | 'sku') => () =>
    ({ scope, ruleId: 'r1', retryAfterMs: 300 }) as const;

  test.each(['instance', 'source', 'person', 'budget'] as const)(
    'the %s limit answers 429 with its scope and the moment to come back',
    async (stage) => {
      const scope = stage === 'person' ? 'user' : stage === 'budget' ? 'sku' : stage;
      const at = await open({ limits: { ...noLimits, [stage]: limited(scope) } });
      const answer = await submit(at, at.buyer('ann').headers);
      expect(answer.status).toBe(429);
      expect(answer.body).toMatchObject({
        code: 'RATE_LIMITED',
        scope,
        rule_id: 'r1',
        retryable: true,
        retry_after_ms: 300,
        next_action: 'RETRY_LATER',
      });
      expect(answer.headers.get('retry-after')).toBe('1');
      expect(answer.headers.get('sluice-limited')).toBe(scope);
      expect(at.batcher.calls).toBe(0);
    },
  );

  test('closed doors, a pass in hand, a full house', async () => {
    const closed = await open({ health: { mode: 'CLOSED' } });
    const no = await submit(closed, closed.buyer('ann').headers);
    expect(no.status).toBe(503);
    expect(no.body).toMatchObject({ code: 'SYSTEM_OVERLOADED', reason: 'mode_closed' });
    expect(Number(no.headers.get('retry-after'))).toBeGreaterThanOrEqual(5);
    expect(no.headers.get('sluice-limited')).toBeNull();
    await closed.close();

    const queueOnly = await open({ health: { mode: 'QUEUE_ONLY' } });
    const { headers, userToken } = queueOnly.buyer('ann');
    expect((await submit(queueOnly, headers)).status).toBe(202);
    const without = await submit(queueOnly, { authorization: `Bearer ${userToken}` });
    expect(without.body).toMatchObject({ reason: 'queue_only' });
    await queueOnly.close();

    const busy = await open({ backlog: () => 100_000 });
    const backlogged = await submit(busy, busy.buyer('ann').headers);
    expect(backlogged.body).toMatchObject({ reason: 'backlog' });
  });

  test('a slot is given back on every way out', async () => {
    const at = await open({ slots: { submit: 1 } });
    for (const name of ['a', 'b', 'c']) {
      const answer = await submit(at, at.buyer(name).headers, { request_id: name });
      expect(answer.status).toBe(202);
    }
    const again = await submit(at, at.buyer('a').headers, { request_id: 'a2' });
    expect(again.body).toMatchObject({ code: 'REPLAY_REJECTED' });
    expect((await submit(at, at.buyer('d').headers, { request_id: 'd' })).status).toBe(202);
  });
});

describe('a store that does not answer', () => {
  const failing =
    (error: () => Error) =>
    (real: InventoryStore): InventoryStore =>
      withReserve(real, () => Promise.reject(error()));

  test('a sender’s own time is over: nothing is begun; nonsense for a time is none', async () => {
    const at = await open();
    const headers = at.buyer('ann').headers;
    const late = await submit(at, { ...headers, 'sluice-timeout-ms': '0' });
    expect([late.status, late.body['code'], late.body['reason']]).toEqual([
      503,
      'SYSTEM_OVERLOADED',
      'deadline',
    ]);
    expect((await at.store.mark(sku))?.held).toBe(0);
    const served = await submit(at, { ...headers, 'sluice-timeout-ms': 'soon' });
    expect(served.status).toBe(202);
  });

  test('surely nothing done', async () => {
    const at = await open({ store: failing(() => new UnavailableError('away')) });
    const answer = await submit(at, at.buyer('ann').headers);
    expect(answer.status).toBe(503);
    expect(answer.body).toMatchObject({
      code: 'DEPENDENCY_UNAVAILABLE',
      reason: 'stock_unavailable',
      next_action: 'POLL',
    });
  });

  test('perhaps done: unknown, then found, or not found in bounded time', async () => {
    const at = await open({ store: failing(() => new OutcomeUnknownError('lost')) });
    const ann = at.buyer('ann');
    const answer = await submit(at, ann.headers);
    expect(answer.body).toMatchObject({ reason: 'outcome_unknown', request_id: 'req_1' });
    const soon = await status(at, ann.userToken);
    expect(soon.status).toBe(200);
    expect(soon.body).toMatchObject({ state: 'UNKNOWN', next_action: 'POLL' });
    await at.world.advance(5_000);
    const late = await status(at, ann.userToken);
    expect(late.status).toBe(404);
    expect(late.body).toMatchObject({ code: 'NOT_FOUND' });
  });

  test('a fault of ours is never a crash and never a false "failed"', async () => {
    const at = await open({
      limits: {
        ...noLimits,
        source: () => {
          throw new Error('bug');
        },
      },
    });
    const answer = await submit(at, at.buyer('ann').headers);
    expect(answer.status).toBe(503);
    expect(answer.body).toMatchObject({ reason: 'internal_error', next_action: 'POLL' });
    expect(at.logged).toMatchObject([{ event: 'stage_failed' }]);
  });
});

describe('sold out', () => {
  async function soldOutShop(): Promise<Shop> {
    const at = await open({ stock: 1 });
    expect((await submit(at, at.buyer('ann').headers)).status).toBe(202);
    // The first to hear it from the store fetches the holders for everybody after.
    await submit(at, at.buyer('bob').headers, { request_id: 'b' });
    await at.world.advance(0);
    return at;
  }

  test('is told without a store call, without a body, to anybody', async () => {
    const at = await soldOutShop();
    const calls = at.batcher.calls;
    for (let n = 0; n < 50; n += 1) {
      const answer = await submit(at, at.buyer(`late${n}`).headers, { request_id: `l${n}` });
      expect(answer.status).toBe(200);
      expect(answer.body).toMatchObject({
        state: 'SOLD_OUT',
        code: 'SECKILL_SOLD_OUT',
        next_action: 'STOP',
        request_id: null,
      });
    }
    expect((await submit(at, {})).body).toMatchObject({ state: 'SOLD_OUT' });
    const named = await submit(at, { 'idempotency-key': 'mine' });
    expect(named.body).toMatchObject({ request_id: 'mine' });
    expect(at.batcher.calls).toBe(calls);
  });

  test('but the winner who asks again hears that they won', async () => {
    const at = await soldOutShop();
    const answer = await submit(at, at.buyer('ann').headers);
    expect(answer.body).toMatchObject({ code: 'REQUEST_REPLAYED', state: 'QUEUED' });
  });

  test('a lost reopening heals within the TTL, by one probe', async () => {
    const at = await soldOutShop();
    await at.store.adjust(sku, 'more', 5, at.world.wallMs());
    const before = await submit(at, at.buyer('early').headers, { request_id: 'e' });
    expect(before.body).toMatchObject({ state: 'SOLD_OUT' });
    await at.world.advance(2_000);
    const calls = at.batcher.calls;
    const probe = await submit(at, at.buyer('probe').headers, { request_id: 'p' });
    expect(probe.status).toBe(202);
    expect(at.batcher.calls).toBe(calls + 1);
    const next = await submit(at, at.buyer('next').headers, { request_id: 'n' });
    expect(next.status).toBe(202);
  });

  test('a probe by nobody heals it too', async () => {
    const at = await soldOutShop();
    await at.store.adjust(sku, 'more', 5, at.world.wallMs());
    await at.world.advance(2_000);
    expect((await submit(at, {})).status).toBe(401);
    await at.world.advance(0);
    expect((await submit(at, at.buyer('next').headers, { request_id: 'n' })).status).toBe(202);
  });
});

describe('status', () => {
  test('of every end that a request can come to', async () => {
    const at = await open();
    const ann = at.buyer('ann');
    await submit(at, ann.headers);
    expect((await status(at, ann.userToken)).body).toMatchObject({
      state: 'QUEUED',
      code: 'SECKILL_QUEUED',
      next_action: 'POLL',
    });
    const order = at.orders.commit(sku, (await at.store.find(sku, 'ann', 'req_1'))!);
    const states = [
      ['PENDING_PAYMENT', 'ORDERED', 'PAY'],
      ['PAID', 'PAID', 'STOP'],
      ['REFUNDED', 'REFUNDED', 'STOP'],
      ['EXPIRED', 'EXPIRED', 'REJOIN'],
      ['CANCELLED', 'CANCELLED', 'REJOIN'],
    ] as const;
    for (const [to, state, action] of states) {
      at.orders.move(
        order.orderId,
        states.map(([from]) => from),
        to,
      );
      expect((await status(at, ann.userToken)).body).toMatchObject({
        state,
        next_action: action,
        order_id: order.orderId,
      });
    }
  });

  test('of a reservation that became no order', async () => {
    const at = await open();
    const ends = [
      ['deadline', 'EXPIRED'],
      ['refused', 'REJECTED'],
    ] as const;
    for (const [reason, state] of ends) {
      const buyer = at.buyer(reason);
      await submit(at, buyer.headers, { request_id: reason });
      at.orders.release((await at.store.find(sku, reason, reason))!, reason);
      expect((await status(at, buyer.userToken, reason)).body).toMatchObject({ state });
    }
    const lost = at.buyer('lost');
    await submit(at, lost.headers, { request_id: 'lost' });
    at.orders.release((await at.store.find(sku, 'lost', 'lost'))!, 'lost');
    const answer = await status(at, lost.userToken, 'lost');
    expect(answer.status).toBe(409);
    expect(answer.body).toMatchObject({ code: 'RESERVATION_LOST', next_action: 'RETRY_LATER' });
  });

  test('is of one person only', async () => {
    const at = await open();
    await submit(at, at.buyer('ann').headers);
    const other = userTokenOf(at.rings.user, 'eve', at.world.wallMs());
    expect((await status(at, other)).body).toMatchObject({ state: 'UNKNOWN' });
    await at.world.advance(6_000);
    expect((await status(at, other)).status).toBe(404);
  });

  test('is answered when no submit is', async () => {
    const refuseSubmit = ({ route }: { route: string }) =>
      route === 'submit'
        ? ({ scope: 'instance', ruleId: 'r', retryAfterMs: 100 } as const)
        : undefined;
    const at = await open({
      limits: { ...noLimits, instance: refuseSubmit },
      health: { mode: 'CLOSED' },
      slots: { submit: 1 },
    });
    const ann = at.buyer('ann');
    expect((await submit(at, ann.headers)).status).toBe(503);
    expect((await status(at, ann.userToken)).status).toBe(200);
  });

  test('when a store is away, what is certain is said, and nothing else', async () => {
    const at = await open();
    const ann = at.buyer('ann');
    await submit(at, ann.headers);
    at.orders.failure = new UnavailableError('orders away');
    expect((await status(at, ann.userToken)).body).toMatchObject({ state: 'QUEUED' });
    const unknown = await status(at, ann.userToken, 'never');
    expect(unknown.status).toBe(503);
    expect(unknown.body).toMatchObject({ code: 'DEPENDENCY_UNAVAILABLE', next_action: 'POLL' });
  });

  test('wrong questions are named', async () => {
    const at = await open();
    const { userToken } = at.buyer('ann');
    const ask = async (tail: string): Promise<Said> =>
      said(
        await fetch(`${at.url}/v1/requests/${tail}`, {
          headers: { authorization: `Bearer ${userToken}` },
        }),
      );
    expect((await ask('req_1?activity_id=act')).body).toMatchObject({
      code: 'INVALID_ARGUMENT',
      errors: [{ path: 'query:sku_id' }],
    });
    expect((await ask('a%20b?activity_id=act&sku_id=sku')).status).toBe(400);
    expect((await ask('r?activity_id=a&activity_id=b&sku_id=s')).status).toBe(400);
    expect((await ask('r?activity_id=a&sku_id=s&z=1')).status).toBe(400);
  });
});
