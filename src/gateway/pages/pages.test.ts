import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PagesShop, plainAssets } from '../../../test/support/pages-shop.ts';
import { World } from '../../../test/support/world.ts';
import { solveChallenge } from '../../core/pass/challenge.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';

const host = 'shop.example';
const ours = { host, origin: `http://${host}` };

/** A browser without script, as small as can be: cookies, forms, redirects. */
class Reader {
  readonly cookies = new Map<string, string>();
  readonly #shop: PagesShop;
  readonly #headers: Record<string, string>;

  constructor(shop: PagesShop, headers: Record<string, string> = {}) {
    this.#shop = shop;
    this.#headers = headers;
  }

  async get(url: string, more: Record<string, string> = {}) {
    return this.#send('GET', url, undefined, more);
  }

  async post(url: string, form: Record<string, string> = {}, more: Record<string, string> = ours) {
    return this.#send('POST', url, new URLSearchParams(form).toString(), more);
  }

  async #send(method: 'GET' | 'POST', url: string, payload: string | undefined, more: object) {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const reply = await this.#shop.app.inject({
      method,
      url,
      headers: {
        host,
        ...this.#headers,
        ...(cookie === '' ? {} : { cookie }),
        ...(payload === undefined ? {} : { 'content-type': 'application/x-www-form-urlencoded' }),
        ...more,
      },
      ...(payload === undefined ? {} : { payload }),
    });
    for (const one of reply.cookies) {
      if (one.maxAge === 0) this.cookies.delete(one.name);
      else this.cookies.set(one.name, one.value);
    }
    return reply;
  }
}

let world: World;
let shop: PagesShop;
let reader: Reader;

beforeEach(async () => {
  world = new World();
  shop = new PagesShop(world, plainAssets());
  reader = new Reader(shop);
  await shop.app.ready();
});
afterEach(() => shop.app.close());

const field = (html: string, name: string): string =>
  new RegExp(`name="${name}" value="([^"]*)"`).exec(html)?.[1] ?? '';

async function toConfirm(): Promise<string> {
  await reader.post('/a/night-tide/join', { sku: 'floor' });
  shop.phase = 'open';
  shop.standing = {
    state: 'admitted',
    claim_before: new Date(world.wallMs() + 9_000).toISOString(),
  };
  await reader.post('/a/night-tide/claim', { sku: 'floor' });
  return (await reader.get('/a/night-tide/confirm')).body;
}

describe('where there is nothing', () => {
  it('a browser gets a page, and everybody else what an API client gets', async () => {
    const browser = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';
    const page = await reader.get('/a/night-tide/rom', { accept: browser });
    expect([page.statusCode, page.headers['content-type']]).toEqual([
      404,
      'text/html; charset=utf-8',
    ]);
    expect(page.body).toContain('Nothing here');
    expect(page.headers['content-security-policy']).toContain("default-src 'none'");
    for (const accept of ['*/*', 'application/json', 'application/json, text/html;q=0.5']) {
      const told = await reader.get('/a/night-tide/rom', { accept });
      expect([accept, told.statusCode, told.json()]).toEqual([accept, 404, { code: 'NOT_FOUND' }]);
    }
    const api = await reader.get('/v1/nothing', { accept: browser });
    expect(api.json()).toEqual({ code: 'NOT_FOUND' });
  });
});

describe('what a visitor is told', () => {
  it('boxes to tick only where one may join with them', async () => {
    expect((await reader.get('/a/night-tide')).body).toContain('type="checkbox"');
    for (const phase of ['scheduled', 'closed'] as const) {
      shop.phase = phase;
      const page = await reader.get('/a/night-tide');
      expect([phase, page.body.includes('type="checkbox"')]).toEqual([phase, false]);
      expect(page.body).not.toContain('action="/a/night-tide/join"');
    }
  });

  it('that nobody is let in at the moment, and that the place is kept', async () => {
    await reader.post('/a/night-tide/join', { sku: 'floor' });
    shop.phase = 'open';
    shop.standing = { position: 5, ahead: 6 };
    expect((await reader.get('/a/night-tide/room')).body).not.toContain('id="halted"');
    shop.halted = true;
    expect((await reader.get('/a/night-tide/room')).body).toContain('id="halted"');
    // Those whose turn it is go on, or are told otherwise.
    shop.standing = { state: 'left' };
    expect((await reader.get('/a/night-tide/room')).body).not.toContain('id="halted"');
  });

  it('that the room takes nobody in just now, and not silence', async () => {
    shop.stateless = true;
    const joined = await reader.post('/a/night-tide/join', { sku: 'floor' });
    expect(joined.statusCode).toBe(503);
    expect(joined.body).toContain('One moment, please');
    expect(joined.body).toContain('href="/a/night-tide"');
    expect(shop.entries.size).toBe(0);
  });

  it('what was decided so far, to be noted', async () => {
    expect((await reader.get('/a/night-tide')).body).toContain('7-2-0f3b');
  });
});

describe('a turn that is over', () => {
  it('is said so, with the way back into the line, also where a pass was used', async () => {
    await toConfirm();
    shop.standing = { state: 'missed' };
    const claimed = await reader.post('/a/night-tide/claim', { sku: 'floor' });
    expect(claimed.statusCode).toBe(200);
    expect(claimed.body).toContain('Your turn has passed');
    expect(claimed.body).toContain('has run out or has been used');
    expect(claimed.body).toContain('action="/a/night-tide/join"');
  });
});

describe('a challenge before joining', () => {
  const demand = (kind: 'proof_of_work' | 'callback') => ({
    kind,
    token: 'head.body.sig',
    bits: kind === 'callback' ? 0 : 4,
    url: kind === 'callback' ? 'https://vouch.example/check?site=7' : null,
    expiresAtMs: world.wallMs() + 180_000,
  });

  it('is explained to those without script, and takes an answer found elsewhere', async () => {
    shop.demand = demand('proof_of_work');
    const asked = await reader.post('/a/night-tide/join', { sku: 'floor' });
    expect(asked.statusCode).toBe(403);
    expect(asked.body).toContain('needs JavaScript');
    expect(asked.body).toContain('head.body.sig');
    expect(field(asked.body, 'sku')).toBe('floor');
    const wrong = await reader.post('/a/night-tide/join', { sku: 'floor', challenge: 'nonsense' });
    expect([wrong.statusCode, wrong.body.includes('data-again')]).toEqual([403, true]);
    const joined = await reader.post('/a/night-tide/join', {
      sku: 'floor',
      challenge: ` ${solveChallenge('head.body.sig', 4)} `,
    });
    expect([joined.statusCode, joined.headers.location]).toEqual([303, '/a/night-tide/room']);
    expect(shop.calls.at(-1)).toMatch(/^join user-1 floor$/);
  });

  it('leads to a provider and back, and joins nobody by a link', async () => {
    shop.demand = demand('callback');
    const asked = await reader.post('/a/night-tide/join', { sku: 'floor' });
    const there = new URL(
      /href="(https:\/\/vouch[^"]*)"/.exec(asked.body)![1]!.replaceAll('&amp;', '&'),
    );
    expect(there.searchParams.get('site')).toBe('7');
    const token = there.searchParams.get('challenge');
    const back = new URL(there.searchParams.get('return_to')!);
    expect(back.href).toBe(`http://${host}/a/night-tide/join?sku=floor`);
    back.searchParams.set('challenge', `${token}~vouched`);
    const returned = await reader.get(back.pathname + back.search);
    expect(returned.statusCode).toBe(200);
    expect(shop.entries.size).toBe(0);
    const joined = await reader.post('/a/night-tide/join', {
      sku: field(returned.body, 'sku'),
      challenge: field(returned.body, 'challenge'),
    });
    expect(joined.headers.location).toBe('/a/night-tide/room');
    // An address without anything in it is an old one.
    expect((await reader.get('/a/night-tide/join')).headers.location).toBe('/a/night-tide/room');
  });
});

describe('the whole way without script', () => {
  it('goes from home to a paid order', async () => {
    expect((await reader.get('/')).body).toContain('href="/a/night-tide"');
    expect((await reader.get('/a/night-tide')).body).toContain('action="/a/night-tide/join"');
    const joined = await reader.post('/a/night-tide/join', { sku: 'floor' });
    expect([joined.statusCode, joined.headers.location]).toEqual([303, '/a/night-tide/room']);

    const lobby = await reader.get('/a/night-tide/room');
    expect(lobby.body).toContain('You are in the lobby');
    expect(lobby.body).toContain(
      '<noscript><meta http-equiv="refresh" content="1;url=/a/night-tide/room">',
    );

    shop.phase = 'open';
    shop.standing = {
      position: 1234,
      ahead: 1240,
      eta: { low_ms: 60_000, high_ms: 120_000, held_ratio: 0.9 },
    };
    expect((await reader.get('/a/night-tide/room')).body).toContain('1,234');

    shop.standing = {
      state: 'admitted',
      claim_before: new Date(world.wallMs() + 9_000).toISOString(),
    };
    expect((await reader.get('/a/night-tide/room')).body).toContain('It is your turn');
    const claimed = await reader.post('/a/night-tide/claim', { sku: 'floor' });
    expect(claimed.headers.location).toBe('/a/night-tide/confirm');

    const confirm = (await reader.get('/a/night-tide/confirm')).body;
    expect(confirm).not.toContain('secret-pass');
    const requestId = field(confirm, 'request_id');
    const sent = await reader.post('/a/night-tide/submit', {
      sku: 'floor',
      request_id: requestId,
      quantity: '2',
    });
    expect(sent.headers.location).toBe(`/a/night-tide/requests/${requestId}?sku=floor`);

    const queued = await reader.get(String(sent.headers.location));
    expect(queued.body).toContain('It is not an order yet');
    const ordered = await reader.get(String(sent.headers.location));
    const orderPath = String(ordered.headers.location);
    expect(orderPath).toMatch(/^\/orders\/ord_/);
    expect((await reader.get(orderPath)).body).toContain('¥1,360.00');

    expect((await reader.post(`${orderPath}/pay`)).headers.location).toBe(orderPath);
    expect((await reader.get(orderPath)).body).toContain('Paid. It is yours.');
    const late = await reader.post(`${orderPath}/cancel`);
    expect(late.statusCode).toBe(409);
    expect(late.body).toContain('could not be cancelled');
  });

  it('speaks Chinese when asked by browser, address or cookie', async () => {
    const chinese = new Reader(shop, { 'accept-language': 'zh-CN' });
    const home = await chinese.get('/');
    expect(home.body).toContain('<html lang="zh-CN">');
    expect(home.headers['content-language']).toBe('zh-CN');
    expect((await reader.get('/?lang=zh')).body).toContain('正在发售');
    expect((await reader.get('/a/night-tide')).body).toContain('加入候场');
    expect((await reader.get('/a/night-tide?lang=en')).body).toContain('Join the lobby');
  });
});

describe('what may be repeated', () => {
  it('makes one request id for one pass, however often the page is loaded', async () => {
    const first = field(await toConfirm(), 'request_id');
    const again = field((await reader.get('/a/night-tide/confirm')).body, 'request_id');
    expect(first).toMatch(/^req_[A-Za-z0-9_-]{43}$/);
    expect(again).toBe(first);
  });

  it('sends a submit of unknown fate to the page that finds out', async () => {
    const requestId = field(await toConfirm(), 'request_id');
    shop.submitAnswer = new OutcomeUnknownError('store silent');
    const sent = await reader.post('/a/night-tide/submit', {
      sku: 'floor',
      request_id: requestId,
      quantity: '1',
    });
    expect(sent.headers.location).toBe(`/a/night-tide/requests/${requestId}?sku=floor`);
  });

  it('leads a reload of a form’s address on', async () => {
    for (const form of ['join', 'leave', 'claim', 'submit'])
      expect((await reader.get(`/a/night-tide/${form}`)).headers.location).toBe(
        '/a/night-tide/room',
      );
    expect((await reader.get('/orders/ord_1/pay')).headers.location).toBe('/orders/ord_1');
    expect(shop.calls).toEqual([]);
  });

  it('shows the earlier outcome when the pass is over', async () => {
    const requestId = field(await toConfirm(), 'request_id');
    const form = { sku: 'floor', request_id: requestId, quantity: '1' };
    await reader.post('/a/night-tide/submit', form);
    shop.standing = { state: 'missed' };
    const again = await reader.post('/a/night-tide/submit', form);
    expect(again.headers.location).toContain(`/requests/${requestId}`);
    expect(shop.calls.filter((call) => call.startsWith('submit'))).toHaveLength(1);
  });

  it('keeps the form when a limit says no, with the same request id', async () => {
    const requestId = field(await toConfirm(), 'request_id');
    shop.submitAnswer = {
      state: 'REJECTED',
      code: 'RATE_LIMITED',
      nextAction: 'RETRY_LATER',
      retryAfterMs: 2_000,
    };
    const sent = await reader.post('/a/night-tide/submit', {
      sku: 'floor',
      request_id: requestId,
      quantity: '1',
    });
    expect(sent.statusCode).toBe(429);
    expect(field(sent.body, 'request_id')).toBe(requestId);
    expect(sent.body).not.toContain('http-equiv="refresh"');
  });

  it('says sold out as sold out, not as an error', async () => {
    const requestId = field(await toConfirm(), 'request_id');
    shop.submitAnswer = { state: 'SOLD_OUT', code: 'SECKILL_SOLD_OUT', nextAction: 'STOP' };
    const sent = await reader.post('/a/night-tide/submit', {
      sku: 'floor',
      request_id: requestId,
      quantity: '1',
    });
    expect(sent.statusCode).toBe(200);
    expect(sent.body).toContain('Nothing was reserved and nothing is charged');
  });

  it('asks again quickly while a payment is on its way, and the button is out of the way', async () => {
    const requestId = field(await toConfirm(), 'request_id');
    await reader.post('/a/night-tide/submit', {
      sku: 'floor',
      request_id: requestId,
      quantity: '1',
    });
    const [orderId = ''] = shop.orders.keys();
    expect((await reader.get(`/orders/${orderId}`)).body).toContain('content="15;url=');
    shop.paysLater = true;
    expect((await reader.post(`/orders/${orderId}/pay`)).statusCode).toBe(303);
    const paying = (await reader.get(`/orders/${orderId}`)).body;
    expect(paying).toContain('Your payment is on its way');
    expect(paying).toContain('content="1;url=');
    expect(paying).toContain('data-refresh="1000"');
    shop.move(orderId, 'PAID');
    expect((await reader.get(`/orders/${orderId}`)).body).toContain('Paid. It is yours.');
  });
});

describe('guards', () => {
  it('refuses every change from another origin, and does nothing', async () => {
    await reader.post('/a/night-tide/join', { sku: 'floor' });
    const before = shop.calls.length;
    const foreign = { host, origin: 'http://evil.example' };
    for (const path of [
      '/a/night-tide/join',
      '/a/night-tide/leave',
      '/a/night-tide/claim',
      '/a/night-tide/submit',
      '/orders/ord_1/pay',
      '/orders/ord_1/cancel',
    ]) {
      for (const headers of [foreign, { host }, { host, origin: 'null' }]) {
        expect([
          path,
          (await reader.post(path, {}, headers as Record<string, string>)).statusCode,
        ]).toEqual([path, 403]);
      }
    }
    expect(shop.calls).toHaveLength(before);
    // Control: the same change from our own page goes through.
    expect((await reader.post('/a/night-tide/leave')).statusCode).toBe(303);
    expect(shop.calls.length).toBeGreaterThan(before);
  });

  it('starts no pass by a link: without the claim cookie the page goes back to the room', async () => {
    await reader.post('/a/night-tide/join', { sku: 'floor' });
    shop.standing = { state: 'admitted' };
    const reply = await reader.get('/a/night-tide/confirm');
    expect(reply.headers.location).toBe('/a/night-tide/room');
    expect(shop.calls.some((call) => call.startsWith('pass'))).toBe(false);
  });

  it('escapes what operators and buyers wrote', async () => {
    const evil = '"><script>alert(1)</script>';
    shop.activity = {
      ...shop.activity,
      name: evil,
      skus: shop.activity.skus.map((sku) => ({ ...sku, name: evil })),
    };
    for (const path of [
      '/',
      '/a/night-tide',
      `/a/${encodeURIComponent(evil)}`,
      `/?lang=${encodeURIComponent(evil)}`,
    ]) {
      const { body } = await reader.get(path);
      expect(body).not.toContain('<script>alert');
    }
    await reader.post('/a/night-tide/join', { sku: 'floor' });
    expect((await reader.get('/a/night-tide/room')).body).not.toContain('<script>alert');
  });

  it('shows an order to its owner only', async () => {
    const requestId = field(await toConfirm(), 'request_id');
    await reader.post('/a/night-tide/submit', {
      sku: 'floor',
      request_id: requestId,
      quantity: '1',
    });
    const [orderId] = [...shop.orders.keys()];
    expect((await reader.get(`/orders/${orderId}`)).statusCode).toBe(200);
    const other = new Reader(shop);
    await other.post('/a/night-tide/join', { sku: 'floor' });
    expect((await other.get(`/orders/${orderId}`)).statusCode).toBe(404);
    expect((await new Reader(shop).get(`/orders/${orderId}`)).statusCode).toBe(404);
  });

  it('sends a strict policy and nothing cacheable', async () => {
    const { headers } = await reader.get('/');
    expect(headers['content-security-policy']).toContain("default-src 'none'");
    expect(headers['content-security-policy']).not.toContain('unsafe');
    expect(headers['cache-control']).toBe('no-store');
    expect(headers['x-content-type-options']).toBe('nosniff');
  });

  it('has no inline script, style or handler on any page', async () => {
    await reader.post('/a/night-tide/join', { sku: 'floor' });
    for (const path of ['/', '/a/night-tide', '/a/night-tide/room', '/a/nowhere']) {
      const { body } = await reader.get(path);
      expect(body).not.toMatch(/<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=/);
    }
  });

  it('answers wrong forms with a page and no crash', async () => {
    await toConfirm();
    for (const form of [
      {},
      { sku: 'floor' },
      { sku: 'x', request_id: 'r', quantity: '1' },
      { sku: 'floor', request_id: 'r r', quantity: '1' },
      { sku: 'floor', request_id: 'r', quantity: '-1' },
      { sku: 'floor', request_id: 'r', quantity: '1e9' },
    ] as Record<string, string>[])
      expect((await reader.post('/a/night-tide/submit', form)).statusCode).toBe(400);
    const long = await reader.post('/a/night-tide/join', { sku: 'x'.repeat(9_000) });
    expect(long.statusCode).toBe(413);
    expect(long.headers['content-type']).toContain('text/html');
  });

  it('shows a part that does not answer as a page that asks again', async () => {
    const requestId = field(await toConfirm(), 'request_id');
    shop.submitAnswer = new UnavailableError('gone');
    const sent = await reader.post('/a/night-tide/submit', {
      sku: 'floor',
      request_id: requestId,
      quantity: '1',
    });
    expect(sent.statusCode).toBe(503);
    expect(sent.body).toContain('url=/a/night-tide/room');
  });
});

describe('JSON for those who ask for it', () => {
  it('answers the standing in any position of Accept', async () => {
    await reader.post('/a/night-tide/join', { sku: 'floor' });
    const reply = await reader.get('/a/night-tide/room', {
      accept: 'text/plain, application/json',
    });
    expect(reply.json()).toMatchObject({ state: 'waiting', order_rule: 'draw' });
    const facts = await reader.get('/a/night-tide', { accept: 'application/json' });
    expect(facts.json()).toMatchObject({ activity_id: 'night-tide', phase: 'lobby' });
  });
});
