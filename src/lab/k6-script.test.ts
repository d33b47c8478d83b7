import { expect, test } from 'vitest';
import { exportK6Command } from './export-command.ts';

/**
 * The script as k6 would run it: its default function, once, against a shop of a few lines. k6 calls
 * are synchronous, so the shop is too.
 */
interface Answer {
  readonly status: number;
  readonly timings: { readonly duration: number };
  json(): unknown;
}

type Shop = (
  method: string,
  path: string,
  body: Record<string, unknown> | null,
) => [number, object];

interface Ran {
  readonly outcomes: readonly string[];
  readonly twoReservations: number;
  readonly checks: readonly boolean[];
  readonly slept: number;
  readonly options: { readonly scenarios: { readonly crowd: Record<string, unknown> } };
}

async function scriptOf(raw: Record<string, unknown>): Promise<string> {
  let out = '';
  let err = '';
  const code = exportK6Command(raw, {
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
  });
  expect(code, err).toBe(0);
  return Promise.resolve(out);
}

async function runOnce(script: string, shop: Shop): Promise<Ran> {
  const outcomes: string[] = [];
  const checks: boolean[] = [];
  let twoReservations = 0;
  let slept = 0;
  const request = (method: string, url: string, body: string | null): Answer => {
    const parsed = body === null ? null : (JSON.parse(body) as Record<string, unknown>);
    const [status, json] = shop(method, url.replace('http://127.0.0.1:8080', ''), parsed);
    return { status, timings: { duration: 1 }, json: () => json };
  };
  const shim = {
    http: {
      request,
      get: (url: string) => request('GET', url, null),
      post: (url: string, body: string) => request('POST', url, body),
    },
    check: (value: unknown, of: Record<string, (value: unknown) => boolean>) => {
      for (const holds of Object.values(of)) checks.push(holds(value));
    },
    sleep: (seconds: number) => {
      slept += seconds;
    },
    Trend: class {
      add(): void {}
    },
    Counter: class {
      readonly #name: string;
      constructor(name: string) {
        this.#name = name;
      }
      add(by: number, tags?: { outcome: string }): void {
        if (this.#name === 'sluice_outcomes' && tags !== undefined) outcomes.push(tags.outcome);
        else twoReservations += by;
      }
    },
  };
  Object.assign(globalThis, { k6shim: shim, __ENV: {}, __VU: 1, __ITER: 0 });
  const runnable = script
    .replaceAll(/^import .*$/gm, '')
    .replace(
      'const settings',
      'const { http, check, sleep, Counter, Trend } = k6shim;\nconst settings',
    );
  const url = `data:text/javascript,${encodeURIComponent(`${runnable}\n// ${Math.random()}`)}`;
  const module = (await import(/* @vite-ignore */ url)) as {
    options: Ran['options'];
    setup: () => unknown;
    default: (sale: unknown) => void;
  };
  module.default(module.setup());
  return { outcomes, twoReservations, checks, slept, options: module.options };
}

/** Admits at the third poll, queues, orders at the second question, takes the payment. */
function goodShop(change: Partial<Record<string, [number, object]>> = {}): Shop {
  const seen = new Map<string, number>();
  let paid = false;
  return (method, path, body) => {
    const key = `${method} ${path.split('?')[0]}`;
    const times = (seen.get(key) ?? 0) + 1;
    seen.set(key, times);
    const other = change[`${key} ${times}`] ?? change[key];
    if (other !== undefined) return other;
    if (key === 'GET /v1/activities') {
      return [200, { activities: [{ activity_id: 'a', skus: [{ sku_id: 's' }] }] }];
    }
    if (key === 'POST /v1/session') return [200, { token: 't' }];
    if (key === 'POST /v1/activities/a/entries')
      return [201, { state: 'waiting', entry_token: 'e' }];
    if (key === 'GET /v1/activities/a/entries/me') {
      return [200, { state: times < 3 ? 'waiting' : 'admitted', next_poll_after_ms: 250 }];
    }
    if (key === 'POST /v1/activities/a/passes') return [200, { pass: 'p', submit_path: '/go' }];
    if (key === 'POST /go') {
      expect(body).toMatchObject({ activity_id: 'a', sku_id: 's', quantity: 1 });
      return [times === 1 ? 202 : 200, { state: 'QUEUED', reservation_id: 'r1' }];
    }
    if (path.startsWith('/v1/requests/')) {
      const state = paid ? 'PAID' : times < 2 ? 'QUEUED' : 'ORDERED';
      return [200, { state, order_id: 'o', reservation_id: 'r1' }];
    }
    if (key === 'POST /v1/orders/o/pay') paid = true;
    return [200, {}];
  };
}

// With this seed the first person is patient, does not hope on, and pays.
const base = { people: '600', over: '6s', duplicates: '100%', seed: '1' };

test('a person of the script joins, waits, submits twice, and pays', async () => {
  const script = await scriptOf(base);
  const ran = await runOnce(script, goodShop());
  expect(ran).toMatchObject({ outcomes: ['paid'], twoReservations: 0, checks: [true] });
  expect(ran.slept).toBeGreaterThan(0.5);
});

test('a second reservation for one request id is counted', async () => {
  const shop = goodShop({ 'POST /go 2': [202, { state: 'QUEUED', reservation_id: 'r2' }] });
  expect((await runOnce(await scriptOf(base), shop)).twoReservations).toBe(1);
});

test('sold out, refused for a while, and never told an outcome', async () => {
  const gone = goodShop({
    'GET /v1/activities/a/entries/me': [200, { state: 'sold_out', next_poll_after_ms: 60_000 }],
  });
  expect((await runOnce(await scriptOf(base), gone)).outcomes).toEqual(['sold_out']);

  const busy = goodShop({ 'POST /v1/session 1': [503, { retry_after_ms: 7_000 }] });
  const after = await runOnce(await scriptOf(base), busy);
  expect(after.outcomes).toEqual(['paid']);
  expect(after.slept).toBeGreaterThan(7);

  const silent: Shop = (method, path, body) =>
    path.startsWith('/v1/requests/') ? [200, { state: 'QUEUED' }] : goodShop()(method, path, body);
  const mute = goodShop();
  const never = await runOnce(await scriptOf(base), (method, path, body) =>
    path.startsWith('/v1/requests/') ? silent(method, path, body) : mute(method, path, body),
  );
  expect(never.checks).toEqual([false]);
});

test('the schedule is the one that rush would keep', async () => {
  const { options } = await runOnce(await scriptOf({ ...base, scenario: 'spike' }), goodShop());
  const { stages, maxVUs } = options.scenarios.crowd as {
    stages: { duration: string; target: number }[];
    maxVUs: number;
  };
  expect(maxVUs).toBe(600);
  const held = stages.filter(({ duration }) => duration !== '0s');
  expect(held).toHaveLength(6);
  expect(held.reduce((sum, { target }) => sum + target, 0)).toBeGreaterThan(590);
  // Nine in ten come in the last fifth.
  expect(held[5]?.target).toBeGreaterThan(400);
});

test('what cannot be is told with exit code 2', () => {
  let err = '';
  const around = {
    out: () => undefined,
    err: (text: string) => {
      err += text;
    },
  };
  expect(exportK6Command({ people: '-1' }, around)).toBe(2);
  expect(exportK6Command({ arrivals: '/nope' }, around)).toBe(2);
  expect(exportK6Command({ output: '/nope/x.js' }, around)).toBe(2);
  expect(err).toMatch(/--people: found "-1"[\s\S]*--arrivals[\s\S]*--output/);
});
