import { afterEach, describe, expect, test } from 'vitest';
import { createHash } from 'node:crypto';
import { leadingZeroBits } from '../../src/core/pass/challenge.ts';
import { type Client, createClient } from '../../src/sdk/index.ts';
import { openRuledShop, type RuledShopOptions, submitTo } from '../support/ruled-shop.ts';
import { newRing, type Shop } from '../support/shop.ts';

/** What a caller is told beside yes and no: where the limits stand, a ticket, a challenge. */
const open: Shop[] = [];
afterEach(async () => {
  for (const shop of open.splice(0)) {
    await shop.close();
    expect(shop.ledger.residual()).toBe(0);
  }
});

async function shopUnder(rules: object, options: RuledShopOptions = {}): Promise<Shop> {
  const shop = await openRuledShop(rules, options);
  open.push(shop);
  return shop;
}

const join = (at: Shop, name: string, headers: Record<string, string> = {}): Promise<Response> => {
  const { authorization = '' } = at.buyer(name).headers;
  return fetch(`${at.url}/v1/activities/act/entries`, {
    method: 'POST',
    headers: { authorization, ...headers },
  });
};

const standing = (said: Response): [string | null, string | null] => [
  said.headers.get('ratelimit-policy'),
  said.headers.get('ratelimit'),
];

/** As the core's own solver, with the platform's hash: sooner found. */
function solved({ token, bits }: { readonly token: string; readonly bits: number }): string {
  for (let tried = 0; ; tried += 1) {
    const answer = `${token}~${tried}`;
    if (leadingZeroBits(createHash('sha256').update(answer).digest()) >= bits) return answer;
  }
}

/** A client in the shop's virtual time: waiting moves it. */
function clientOf(at: Shop, waits: number[]): Client {
  return createClient({
    baseUrl: at.url,
    userToken: () => at.buyer('ann').userToken,
    env: {
      fetch: async (url, init) => {
        const reply = await fetch(url, init);
        return {
          status: reply.status,
          header: (name) => reply.headers.get(name),
          json: () => reply.json() as Promise<unknown>,
        };
      },
      after: (delayMs, run) => {
        // Its patience with an answer never ends here.
        if (delayMs >= 10_000) return () => undefined;
        waits.push(delayMs);
        void at.world.advance(delayMs).then(run);
        return () => undefined;
      },
      random: () => 0,
      nowMs: () => at.world.wallMs(),
      token: () => 'id',
      hidden: () => false,
      onVisibility: () => () => undefined,
    },
  });
}

describe('RateLimit on answers that were let through', () => {
  const mine = { id: 'mine', key: ['user'], limit: { rate: '1/2s', burst: 3 } };

  test('counts down exactly, recovers exactly, and a refusal goes on from there', async () => {
    const at = await shopUnder([{ ...mine, match: { route: 'join' } }]);
    const policy = '"mine";q=3;w=6';
    expect(standing(await join(at, 'ann'))).toEqual([policy, '"mine";r=2;t=2']);
    expect(standing(await join(at, 'ann'))).toEqual([policy, '"mine";r=1;t=4']);
    // 1,900 ms of the next token's 2,000 have passed.
    await at.world.advance(1_900);
    expect(standing(await join(at, 'ann'))).toEqual([policy, '"mine";r=0;t=5']);
    const refused = await join(at, 'ann');
    expect(refused.status).toBe(429);
    expect(standing(refused)).toEqual([policy, '"mine";r=0;t=1']);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(standing(await join(at, 'bob'))).toEqual([policy, '"mine";r=2;t=2']);
  });

  test('names every limit that was charged, in the order in which they were asked', async () => {
    const at = await shopUnder([
      { id: 'person', match: { route: 'submit' }, key: ['user'], limit: { rate: '1/s', burst: 2 } },
      { id: 'from', match: { route: 'submit' }, key: ['ip'], limit: { rate: '9/s', burst: 9 } },
      { id: 'ghost', match: { route: 'submit' }, limit: { rate: '1/h', burst: 1 }, mode: 'shadow' },
      {
        id: 'sale',
        match: { route: 'submit' },
        key: ['activity'],
        scope: 'exact',
        limit: { rate: '10/s', burst: 20 },
      },
    ]);
    const said = await submitTo(at, 'ann');
    expect(said.status).toBe(202);
    expect(standing(said)).toEqual([
      '"from";q=9;w=1, "person";q=2;w=2, "sale";q=20;w=2',
      '"from";r=8;t=1, "person";r=1;t=1, "sale";r=19;t=1',
    ]);
  });

  test('says of an exact window what the store knows, and leaves out what it does not', async () => {
    const limit = { algorithm: 'sliding_window', limit: 2, window: '10s' };
    const at = await shopUnder([
      { id: 'w', match: { route: 'join' }, key: ['user'], scope: 'exact', limit },
    ]);
    expect(standing(await join(at, 'ann'))).toEqual(['"w";q=2;w=10', '"w";r=1']);
    expect(standing(await join(at, 'ann'))).toEqual(['"w";q=2;w=10', '"w";r=0']);
    expect((await join(at, 'ann')).status).toBe(429);
  });

  test('stands on answers that are refused by something else, and on no answer that others share', async () => {
    const at = await shopUnder([{ ...mine, match: { route: ['status', 'standing', 'facts'] } }]);
    const { authorization = '' } = at.buyer('ann').headers;
    const ask = (path: string): Promise<Response> =>
      fetch(at.url + path, { headers: { authorization } });
    const unknown = await ask('/v1/activities/act/entries/me');
    expect(unknown.status).toBe(404);
    expect(standing(unknown)[1]).toBe('"mine";r=2;t=2');
    const status = await ask('/v1/requests/nothing?activity_id=act&sku_id=sku');
    expect(standing(status)[1]).toBe('"mine";r=1;t=4');
    const shared = await fetch(`${at.url}/v1/activities`);
    expect(shared.headers.get('cache-control')).toContain('public');
    expect(standing(shared)).toEqual([null, null]);
  });
});

describe('challenge', () => {
  const rule = {
    id: 'work',
    match: { route: 'join' },
    key: ['user'],
    limit: { rate: '1/30d', burst: 1 },
    on_limit: 'challenge',
  };
  interface Asked {
    challenge: { token: string; bits: number; reason: string; kind: string };
  }
  const solve = async (said: Response): Promise<Record<string, string>> => {
    const { challenge } = (await said.json()) as Asked;
    return { 'sluice-challenge': solved(challenge) };
  };

  test('past the limit each request costs one answer, once, for the one who was asked', async () => {
    const at = await shopUnder([rule]);
    expect((await join(at, 'ann')).status).toBe(201);
    const asked = await join(at, 'ann');
    expect(asked.status).toBe(403);
    expect(asked.headers.get('sluice-limited')).toBe('user');
    expect(await asked.clone().json()).toMatchObject({
      code: 'CHALLENGE_REQUIRED',
      next_action: 'CHALLENGE',
      rule_id: 'work',
      answer_header: 'Sluice-Challenge',
      challenge: { kind: 'proof_of_work', reason: 'none' },
    });
    const answer = await solve(asked);
    expect((await join(at, 'ann', answer)).status).toBe(200);
    const again = await join(at, 'ann', answer);
    expect([again.status, ((await again.json()) as Asked).challenge.reason]).toEqual([403, 'used']);
    expect((await join(at, 'bob')).status).toBe(201);
    const stolen = await join(at, 'bob', await solve(await join(at, 'ann')));
    expect([stolen.status, ((await stolen.json()) as Asked).challenge.reason]).toEqual([
      403,
      'user',
    ]);
    const lazy = await join(at, 'ann', { 'sluice-challenge': `${'x'.repeat(50)}~1` });
    expect(lazy.status).toBe(403);
  });

  test('lets nobody past another rule, and is not used up by that', async () => {
    const at = await shopUnder([
      rule,
      { id: 'hard', match: { route: 'join' }, key: ['user'], limit: { rate: '1/10s', burst: 2 } },
    ]);
    await join(at, 'ann');
    const asked = await join(at, 'ann');
    const answer = await solve(asked);
    expect((await join(at, 'ann', answer)).status).toBe(200);
    const next = await solve(await join(at, 'ann'));
    const refused = await join(at, 'ann', next);
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({ rule_id: 'hard' });
    await at.world.advance(10_000);
    expect((await join(at, 'ann', next)).status).toBe(200);
  });
});

test('the client answers the challenge of a limit by itself, each time it is asked', async () => {
  const at = await shopUnder([
    {
      id: 'work',
      match: { route: 'join' },
      limit: { rate: '1/30d', burst: 1 },
      on_limit: 'challenge',
    },
  ]);
  const client = clientOf(at, []);
  expect(await client.join('act')).toMatchObject({ ok: true, status: 201 });
  expect(await client.join('act')).toMatchObject({ ok: true, status: 200 });
  expect(await client.join('act')).toMatchObject({ ok: true, status: 200 });
  expect(client.counts.requests).toBe(5);
});

describe('accept_later', () => {
  const paced = {
    id: 'paced',
    match: { route: 'join' },
    key: ['user'],
    limit: { algorithm: 'leaky_bucket', rate: '1/s', max_wait: '3s' },
    on_limit: 'accept_later',
  };
  interface Later {
    ticket: string;
    retry_after_ms: number;
    not_before: string;
  }
  const later = async (said: Response): Promise<Later> => (await said.json()) as Later;
  const bring = ({ ticket }: Later): Record<string, string> => ({ 'sluice-ticket': ticket });

  test('takes the next free place, and keeps it to the millisecond', async () => {
    const at = await shopUnder([paced]);
    expect((await join(at, 'ann')).status).toBe(201);
    const said = await join(at, 'ann');
    expect(said.status).toBe(202);
    expect(said.headers.get('sluice-limited')).toBe('user');
    const place = await later(said);
    expect(place).toMatchObject({
      code: 'ACCEPTED_LATER',
      next_action: 'RETRY_LATER',
      rule_id: 'paced',
      ticket_header: 'Sluice-Ticket',
      retry_after_ms: 1_000,
      not_before: new Date(at.world.wallMs() + 1_000).toISOString(),
    });
    await at.world.advance(999);
    // Too early is no offence, and takes no second place.
    const early = await join(at, 'ann', bring(place));
    expect(early.status).toBe(202);
    expect(await later(early)).toMatchObject({ ticket: place.ticket, retry_after_ms: 1 });
    await at.world.advance(1);
    expect((await join(at, 'ann', bring(place))).status).toBe(200);
    // One place, one request: now it is the next place that is given.
    const next = await join(at, 'ann', bring(place));
    expect(next.status).toBe(202);
    expect((await later(next)).retry_after_ms).toBe(1_000);
  });

  test('places lie one behind the other up to max_wait, and then it is a no', async () => {
    const at = await shopUnder([paced]);
    await join(at, 'ann');
    const waits: number[] = [];
    for (let n = 0; n < 3; n += 1) waits.push((await later(await join(at, 'ann'))).retry_after_ms);
    expect(waits).toEqual([1_000, 2_000, 3_000]);
    const refused = await join(at, 'ann');
    expect(refused.status).toBe(429);
    expect(await later(refused)).toMatchObject({ code: 'RATE_LIMITED', retry_after_ms: 1_000 });
    expect((await join(at, 'bob')).status).toBe(201);
  });

  test('a ticket is worth nothing to others, on other routes, changed, or after its time', async () => {
    const at = await shopUnder([{ ...paced, match: { route: ['join', 'pass'] } }]);
    await join(at, 'ann');
    await join(at, 'bob');
    const place = await later(await join(at, 'ann'));
    await at.world.advance(1_000);
    await join(at, 'bob');
    expect((await join(at, 'bob', bring(place))).status).toBe(202);
    const changed = { 'sluice-ticket': `${place.ticket.slice(0, -2)}xx` };
    expect((await later(await join(at, 'ann', changed))).retry_after_ms).toBe(1_000);
    await at.world.advance(60_000);
    await join(at, 'ann');
    expect((await join(at, 'ann', bring(place))).status).toBe(202);
  });

  test('on another instance it is charged there, and only the wait is spared', async () => {
    const ring = newRing('challenge');
    const [here, there] = [
      await shopUnder([paced], { ring, seed: 'a' }),
      await shopUnder([paced], { ring, seed: 'b' }),
    ];
    await join(here, 'ann');
    const place = await later(await join(here, 'ann'));
    await there.world.advance(1_000);
    const ask = (): Promise<Response> => join(there, 'ann', bring(place));
    await join(there, 'ann');
    const passed: number[] = [];
    for (let n = 0; n < 6; n += 1) passed.push((await ask()).status);
    // Three places lie within max_wait there; each use of the ticket takes one of them.
    expect(passed).toEqual([200, 200, 200, 429, 429, 429]);
  });

  test('a submit comes back with its ticket and reserves once', async () => {
    const at = await shopUnder([{ ...paced, match: { route: 'submit' }, key: ['activity'] }]);
    expect((await submitTo(at, 'ann')).status).toBe(202);
    const place = await later(await submitTo(at, 'bob'));
    expect((await at.store.mark({ activityId: 'act', skuId: 'sku' }))?.available).toBe(9);
    await at.world.advance(place.retry_after_ms);
    const said = await submitTo(at, 'bob', 'bob', bring(place));
    expect(await said.json()).toMatchObject({ code: 'SECKILL_QUEUED' });
    expect((await at.store.mark({ activityId: 'act', skuId: 'sku' }))?.available).toBe(8);
  });

  test('rules of several stages are each waited for once, and the client does it by itself', async () => {
    const at = await shopUnder([
      { ...paced, id: 'all', key: [] },
      { ...paced, id: 'each', limit: { ...paced.limit, rate: '1/2s' } },
    ]);
    const waits: number[] = [];
    const client = clientOf(at, waits);
    expect(await client.join('act')).toMatchObject({ ok: true, status: 201 });
    expect(await client.join('act')).toMatchObject({ ok: true, status: 200 });
    expect(waits).toEqual([1_000, 1_000]);
  });
});
