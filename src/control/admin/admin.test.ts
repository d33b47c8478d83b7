import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SeededRandom, World } from '../../../test/support/world.ts';
import { OutcomeUnknownError } from '../../ports/errors.ts';
import type { AuditRow, Order } from '../../ports/order-store.ts';
import { linkLifeMs, sessionIdleMs, sessionLifeMs } from './access.ts';
import { ensureAdminToken } from './admin-token.ts';
import { csvLine } from './csv.ts';
import { History, historyPoints, historyReasonsMax, limitedShare } from './history.ts';
import { isLoopback } from './hosts.ts';
import { type AdminServer, createAdminServer } from './server.ts';
import type { ActionReply, OperatorAction, Overview } from './source.ts';
import { toWire } from './wire.ts';

async function* audited(activityId: string): AsyncGenerator<string> {
  if (activityId === 'early') throw new Error('room "early" has not been drawn yet');
  yield '["p","A"]\n';
  yield '["end",1,"00"]\n';
}

export function overviewAt(takenAtMs: number, scale: number): Overview {
  return {
    takenAtMs,
    counters: {
      arrivals: 100 * scale,
      handled: 40 * scale,
      rejected: 60 * scale,
      failed: 0,
      limited: 2 * scale,
      shed: 0,
      reserved: 5 * scale,
      ordered: 4 * scale,
      paid: 3 * scale,
    },
    funnel: [{ step: 'arrived', count: 100 * scale }],
    refusals: [{ stage: 'source', reason: 'address', count: 60 * scale }],
    stock: [
      {
        activityId: 'a',
        skuId: 's',
        name: 'S',
        total: 100,
        paid: 30,
        pending: 10,
        held: 10,
        available: 50,
      },
    ],
    mode: { mode: 'NORMAL', sinceMs: takenAtMs, driver: null },
    rooms: [],
    queue: { depth: 1, oldestAgeMs: 5, buried: 0 },
    latency: { admitted: null, refused: null },
    instances: [],
    ledgerResidual: 0,
  };
}

function orderNo(at: number): Order {
  return {
    orderId: `ord_${at}`,
    reservationId: `rsv_${at}`,
    requestId: `req_${at}`,
    activityId: 'a',
    skuId: 's',
    userId: '=cmd',
    personId: 'p',
    quantity: 1,
    amountMinor: 100,
    currency: 'CNY',
    state: 'PAID',
    createdAtMs: 0,
    payBeforeMs: 0,
  };
}

let world: World;
let server: AdminServer;
let base: string;
let rows: AuditRow[];
let done: OperatorAction[];
let answer: () => Promise<ActionReply>;
const token = 'a-token-of-the-data-folder-0123456789';

beforeEach(async () => {
  world = new World();
  rows = [];
  done = [];
  answer = async () => ({ kind: 'done', detail: 'ok' });
  let seconds = 0;
  server = createAdminServer({
    settings: { host: '127.0.0.1', port: 0 },
    clock: world,
    timers: world,
    random: new SeededRandom('admin'),
    log: { warn: () => undefined, error: () => undefined },
    adminToken: token,
    source: { overview: () => overviewAt(world.wallMs(), (seconds += 1)) },
    actions: {
      offered: ['pause', 'restock', 'stop'],
      perform: async (action) => {
        const reply = await answer();
        done.push(action);
        return reply;
      },
    },
    audit: { append: async (row) => void rows.push(row), list: async () => rows },
    drawAudit: (activityId) => (activityId === 'none' ? undefined : audited(activityId)),
    orders: {
      search: async ({ after, limit }) => {
        const from = Number(after ?? 0);
        const orders = Array.from({ length: Math.min(limit, 450 - from) }, (_, at) =>
          orderNo(from + at),
        );
        return from + limit < 450 ? { orders, next: String(from + limit) } : { orders };
      },
      find: async () => undefined,
      payments: async () => [],
    },
    metrics: async () => ({ contentType: 'text/plain; version=0.0.4', body: 'up 1\n' }),
    commands: [
      { name: 'reconcile', role: 'operator', changes: true, run: async () => ({ findings: [] }) },
    ],
  });
  base = (await server.start()).url;
});
afterEach(() => server.close());

const own = (): Record<string, string> => ({
  origin: base,
  'sluice-console': '1',
  'content-type': 'application/json',
});

async function signIn(role: 'viewer' | 'operator' | 'admin' = 'admin'): Promise<string> {
  const { url } = server.signInUrl({ name: 'alice', role });
  const secret = new URL(url).hash.replace('#sign-in=', '');
  const reply = await fetch(`${base}/admin/v1/session`, {
    method: 'POST',
    headers: own(),
    body: JSON.stringify({ secret }),
  });
  expect(reply.status).toBe(200);
  return reply.headers.get('set-cookie')!.split(';')[0]!;
}

const act = (headers: Record<string, string>, body: unknown): Promise<Response> =>
  fetch(`${base}/admin/v1/actions`, { method: 'POST', headers, body: JSON.stringify(body) });

const pause = { action: 'pause', activity_id: 'a', reason: 'rehearsal', action_id: 'x1' };

describe('signing in', () => {
  it('puts the secret in the fragment and takes it once', async () => {
    const { url, expiresAtMs } = server.signInUrl({ name: 'alice', role: 'admin' });
    expect(new URL(url).search).toBe('');
    expect(expiresAtMs - world.wallMs()).toBe(linkLifeMs);
    const body = JSON.stringify({ secret: new URL(url).hash.replace('#sign-in=', '') });
    const first = await fetch(`${base}/admin/v1/session`, { method: 'POST', headers: own(), body });
    expect(first.status).toBe(200);
    expect(first.headers.get('set-cookie')).toMatch(
      /Path=\/admin\/v1; .*HttpOnly; SameSite=Strict/,
    );
    const second = await fetch(`${base}/admin/v1/session`, {
      method: 'POST',
      headers: own(),
      body,
    });
    expect(second.status).toBe(401);
  });

  it('refuses a link past its life, and a guess', async () => {
    const { url } = server.signInUrl({ name: 'alice', role: 'admin' });
    await world.advance(linkLifeMs);
    for (const secret of [new URL(url).hash.slice(9), 'guess', '', 7, null]) {
      const reply = await fetch(`${base}/admin/v1/session`, {
        method: 'POST',
        headers: own(),
        body: JSON.stringify({ secret }),
      });
      expect(reply.status).toBe(401);
    }
  });

  it('slows down whoever tries, and lets them again later', async () => {
    const statuses: number[] = [];
    for (let count = 0; count < 7; count += 1)
      statuses.push(
        (
          await fetch(`${base}/admin/v1/session`, {
            method: 'POST',
            headers: own(),
            body: '{"secret":"x"}',
          })
        ).status,
      );
    expect(statuses).toEqual([401, 401, 401, 401, 401, 429, 429]);
    await world.advance(5_000);
    expect(
      (
        await fetch(`${base}/admin/v1/session`, {
          method: 'POST',
          headers: own(),
          body: '{"secret":"x"}',
        })
      ).status,
    ).toBe(401);
  });

  it('ends a session after its idle time, its life, and on signing out', async () => {
    const get = async (cookie: string): Promise<number> =>
      (await fetch(`${base}/admin/v1/session`, { headers: { cookie } })).status;
    const idle = await signIn();
    expect(await get(idle)).toBe(200);
    await world.advance(sessionIdleMs);
    expect(await get(idle)).toBe(401);

    const used = await signIn();
    for (let spent = 0; spent < sessionLifeMs - 1_800_000; spent += 1_800_000) {
      await world.advance(1_800_000);
      expect(await get(used)).toBe(200);
    }
    await world.advance(1_800_000);
    expect(await get(used)).toBe(401);

    const out = await signIn();
    const { 'content-type': _none, ...headers } = own();
    expect(
      (
        await fetch(`${base}/admin/v1/session`, {
          method: 'DELETE',
          headers: { ...headers, cookie: out },
        })
      ).status,
    ).toBe(204);
    expect(await get(out)).toBe(401);
  }, 60_000);
});

describe('guards', () => {
  it('answers to its own names only', async () => {
    const { port } = new URL(base);
    const ask = (host: string) =>
      server.app.inject({ method: 'GET', url: '/healthz', headers: { host } });
    expect((await ask(`127.0.0.1:${port}`)).statusCode).toBe(200);
    expect((await ask(`localhost:${port}`)).statusCode).toBe(200);
    for (const host of [`evil.example:${port}`, '127.0.0.1', `127.0.0.1.evil.example:${port}`, ''])
      expect((await ask(host)).statusCode).toBe(421);
  });

  it('shows nothing without a credential', async () => {
    for (const path of [
      '/admin/v1/overview',
      '/admin/v1/history',
      '/admin/v1/events',
      '/admin/v1/audit',
      '/admin/v1/session',
      '/admin/v1/orders',
    ])
      expect([path, (await fetch(`${base}${path}`)).status]).toEqual([path, 401]);
    expect((await act(own(), pause)).status).toBe(401);
    expect((await act({ ...own(), authorization: 'Bearer wrong' }, pause)).status).toBe(401);
    expect(done).toEqual([]);
  });

  it('takes no change by cookie that another site may have asked for', async () => {
    const cookie = await signIn();
    const { origin: _origin, ...noOrigin } = own();
    const { 'sluice-console': _header, ...noHeader } = own();
    for (const headers of [
      noOrigin,
      noHeader,
      { ...own(), origin: 'http://evil.example' },
      { ...own(), origin: 'null' },
    ])
      expect((await act({ ...headers, cookie }, pause)).status).toBe(403);
    expect(done).toEqual([]);
    // Control: our own page may.
    expect((await act({ ...own(), cookie }, pause)).status).toBe(200);
    expect(done).toHaveLength(1);
  });

  it('holds roles apart', async () => {
    const restock = { ...pause, action: 'restock', sku_id: 's', delta: 5 };
    const viewer = await signIn('viewer');
    expect((await act({ ...own(), cookie: viewer }, pause)).status).toBe(403);
    const operator = await signIn('operator');
    expect((await act({ ...own(), cookie: operator }, pause)).status).toBe(200);
    expect((await act({ ...own(), cookie: operator }, restock)).status).toBe(403);
    expect((await act({ ...own(), authorization: `Bearer ${token}` }, restock)).status).toBe(200);
  });

  it('refuses what is not offered, and wrong arguments, with what is allowed', async () => {
    const cookie = await signIn();
    const cases: [object, string][] = [
      [{ ...pause, action: 'close' }, 'offered here: pause, restock, stop'],
      [{ ...pause, action: 'explode' }, 'allowed: pause, resume'],
      [{ ...pause, activity_id: 'a b' }, 'activity_id'],
      [{ ...pause, action: 'restock', sku_id: 's', delta: 0.5 }, 'delta: found 0.5'],
      [{ ...pause, reason: 'x' }, 'reason'],
      [{ ...pause, reason: undefined }, 'reason'],
      [{ ...pause, action_id: '' }, 'action_id'],
    ];
    for (const [body, word] of cases) {
      const reply = await act({ ...own(), cookie }, body);
      expect([reply.status, ((await reply.json()) as { detail: string }).detail]).toEqual([
        400,
        expect.stringContaining(word),
      ]);
    }
    expect(done).toEqual([]);
    expect(rows.filter((row) => row.what.startsWith('pause'))).toEqual([]);
  });

  it('limits all callers together', async () => {
    const statuses = await Promise.all(
      Array.from(
        { length: 400 },
        async () =>
          (
            await server.app.inject({
              method: 'GET',
              url: '/healthz',
              headers: { host: new URL(base).host },
            })
          ).statusCode,
      ),
    );
    expect(statuses.filter((status) => status === 200)).toHaveLength(300);
    expect(statuses.filter((status) => status === 429)).toHaveLength(100);
  });
});

describe('audit', () => {
  it('has a row before and a row after, with the reason', async () => {
    const cookie = await signIn('operator');
    await act({ ...own(), cookie }, pause);
    expect(rows.map(({ who, what, why, subject }) => [who, what, why, subject]).slice(1)).toEqual([
      ['alice', 'pause:asked', 'rehearsal', 'a'],
      ['alice', 'pause:done', 'rehearsal', 'a'],
    ]);
  });

  it('says unknown where the outcome is unknown, and refused where it was refused', async () => {
    const headers = { ...own(), authorization: `Bearer ${token}` };
    answer = async () => Promise.reject(new OutcomeUnknownError('silent'));
    expect((await act(headers, pause)).status).toBe(503);
    expect(rows.at(-1)?.what).toBe('pause:unknown');
    answer = async () => ({ kind: 'refused', detail: 'paused already' });
    expect((await act(headers, pause)).status).toBe(409);
    expect(rows.at(-1)?.what).toBe('pause:refused');
  });

  it('covers commands, which need a reason when they change something', async () => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
    const run = (body: string) =>
      fetch(`${base}/admin/v1/commands/reconcile`, { method: 'POST', headers, body });
    expect((await run('{}')).status).toBe(400);
    const reply = await run('{"reason":"nightly"}');
    expect(await reply.json()).toEqual({ findings: [] });
    expect(rows.map((row) => row.what)).toEqual(['reconcile:asked', 'reconcile:done']);
    expect(
      (await fetch(`${base}/admin/v1/commands/nothing`, { method: 'POST', headers, body: '{}' }))
        .status,
    ).toBe(404);
  });
});

describe('live', () => {
  it('streams an overview a second with the history’s new point', async () => {
    const cookie = await signIn();
    const abort = new AbortController();
    const reply = await fetch(`${base}/admin/v1/events`, {
      headers: { cookie },
      signal: abort.signal,
    });
    const reader = reply.body!.getReader();
    let text = '';
    await world.advance(1_000);
    await world.advance(1_000);
    while (text.split('event: overview').length < 3)
      text += new TextDecoder().decode((await reader.read()).value);
    const data = JSON.parse(/data: (.*)\n/.exec(text)![1]!);
    expect(data.overview.stock[0]).toMatchObject({ sku_id: 's', total: 100 });
    expect(data.point.arrivals_per_second).toBe(100);
    expect(data.overview.limited_share).toBeCloseTo(0.02);
    abort.abort();
    const history = (await (
      await fetch(`${base}/admin/v1/history`, { headers: { cookie } })
    ).json()) as { points: unknown[] };
    expect(history.points).toHaveLength(2);
  });

  it('cuts a stream whose session has ended', async () => {
    const cookie = await signIn();
    const reply = await fetch(`${base}/admin/v1/events`, { headers: { cookie } });
    const { 'content-type': _none, ...headers } = own();
    await fetch(`${base}/admin/v1/session`, { method: 'DELETE', headers: { ...headers, cookie } });
    await world.advance(1_000);
    await expect(reply.text()).rejects.toThrow();
  });

  it('gives metrics to loopback only, and not to what a proxy forwards', async () => {
    expect(await (await fetch(`${base}/metrics`)).text()).toBe('up 1\n');
    expect(
      (await fetch(`${base}/metrics`, { headers: { 'x-forwarded-for': '203.0.113.7' } })).status,
    ).toBe(401);
    expect(isLoopback('203.0.113.7', {})).toBe(false);
    expect(isLoopback('::ffff:127.0.0.1', {})).toBe(true);
    expect(isLoopback('127.0.0.1.evil', {})).toBe(false);
  });
});

describe('history', () => {
  it('is bounded, and survives a restart and a clock that goes back', () => {
    const history = new History();
    for (let second = 0; second < historyPoints + 50; second += 1)
      history.add(overviewAt(1_000 * second, second));
    expect(history.points).toHaveLength(historyPoints);
    expect(history.add(overviewAt(0, 1))).toBeUndefined();
    expect(history.add(overviewAt(1_000, 0))?.arrivalsPerSecond).toBe(0);
    expect(history.add(overviewAt(2_000, 3))?.arrivalsPerSecond).toBe(300);
  });

  it('tells a bounded number of reasons apart', () => {
    const history = new History();
    history.add(overviewAt(0, 0));
    const refusals = Array.from({ length: 60 }, (_, at) => ({
      stage: 's',
      reason: `r${at}`,
      count: 10,
    }));
    const point = history.add({ ...overviewAt(1_000, 0), refusals });
    expect(history.reasons).toHaveLength(historyReasonsMax);
    expect(point?.reasons.reduce((sum, rate) => sum + rate, 0)).toBe(600);
    expect(history.reasons.at(-1)).toBe('other');
  });

  it('keeps what is not known as a gap, never as a zero', () => {
    const history = new History();
    history.add(overviewAt(0, 0));
    const point = history.add({ ...overviewAt(1_000, 1), stock: [], queue: null });
    expect(point).toMatchObject({ stock: null, queueDepth: null, queueAgeMs: null });
  });

  it('tells the share of 429s, and nothing while nothing came', () => {
    expect(limitedShare([], 60)).toBeNull();
  });
});

describe('exports', () => {
  it('writes cells that no spreadsheet runs', () => {
    expect(csvLine(['a', 7, undefined, 'x,"y"', '=1+1', '-2', '@x', 'two\nlines'])).toBe(
      'a,7,,"x,""y""",' + "'=1+1,'-2,'@x" + ',"two\nlines"\r\n',
    );
  });

  it('streams every page once, and is in the audit', async () => {
    const headers = { authorization: `Bearer ${token}` };
    const reply = await fetch(`${base}/admin/v1/exports/orders.csv`, { headers });
    expect(reply.headers.get('content-type')).toContain('text/csv');
    const lines = (await reply.text()).trim().split('\r\n');
    expect(lines).toHaveLength(1 + 450);
    expect(new Set(lines).size).toBe(451);
    expect(lines[1]).toContain("'=cmd");
    expect(rows.at(-1)).toMatchObject({ what: 'export', subject: 'orders', who: 'command line' });
    expect((await fetch(`${base}/admin/v1/exports/orders.csv`)).status).toBe(401);
    const viewer = await signIn('viewer');
    expect(
      (await fetch(`${base}/admin/v1/exports/orders.csv`, { headers: { cookie: viewer } })).status,
    ).toBe(403);
    expect((await fetch(`${base}/admin/v1/exports/users.csv`, { headers })).status).toBe(404);
  });
});

describe('the audit of a draw', () => {
  it('is a file for whoever may look, and none before the draw', async () => {
    const headers = { cookie: await signIn('viewer') };
    const reply = await fetch(`${base}/admin/v1/draws/concert/audit`, { headers });
    expect(reply.headers.get('content-disposition')).toContain('draw-concert.jsonl');
    expect(await reply.text()).toBe('["p","A"]\n["end",1,"00"]\n');
    const early = await fetch(`${base}/admin/v1/draws/early/audit`, { headers });
    expect([early.status, await early.text()]).toEqual([
      409,
      expect.stringContaining('has not been drawn'),
    ]);
    expect((await fetch(`${base}/admin/v1/draws/none/audit`, { headers })).status).toBe(404);
    expect((await fetch(`${base}/admin/v1/draws/concert/audit`)).status).toBe(401);
  });
});

describe('wire', () => {
  it('turns names and instants', () => {
    expect(
      toWire({
        takenAtMs: 0,
        p99Ms: 5,
        sinceMs: 0,
        a: [{ bC: null }],
        payBeforeMs: 0,
        gone: undefined,
      }),
    ).toEqual({
      taken_at: '1970-01-01T00:00:00.000Z',
      p99_ms: 5,
      since: '1970-01-01T00:00:00.000Z',
      a: [{ b_c: null }],
      pay_before: '1970-01-01T00:00:00.000Z',
    });
  });
});

describe('the admin credential', () => {
  it('is made once, is private, and a broken one is told', () => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-admin-'));
    try {
      const first = ensureAdminToken(folder, new SeededRandom('1'));
      const path = join(folder, 'admin-token');
      expect(statSync(path).mode & 0o777).toBe(0o600);
      expect(ensureAdminToken(folder, new SeededRandom('2'))).toBe(first);
      expect(readFileSync(path, 'utf8').trim()).toBe(first);
      writeFileSync(path, 'short', { mode: 0o644 });
      expect(() => ensureAdminToken(folder, new SeededRandom('3'))).toThrow(/found 5 characters/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
