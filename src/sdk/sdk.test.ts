import { beforeEach, describe, expect, it } from 'vitest';
import { Phone, standing } from '../../test/support/phone.ts';
import { SeededRandom } from '../../test/support/world.ts';
import { type Client, createClient } from './client.ts';
import { debounce, throttle } from './pace.ts';
import { Reads } from './reads.ts';
import { RetryBucket, retryDefaults, retryDelayMs } from './retry.ts';
import type { Submission } from './submission.ts';
import { watchStanding } from './watch.ts';

const pass = { status: 200, body: { pass: 'p', submit_path: '/v1/seckill/x/submit' } };
const outcome = (state: string, nextAction: string, more: object = {}) => ({
  status: state === 'QUEUED' ? 202 : 200,
  body: {
    request_id: 'r',
    state,
    code: `C_${state}`,
    next_action: nextAction,
    order_id: null,
    ...more,
  },
});

let phone: Phone;
let client: Client;
beforeEach(() => {
  phone = new Phone();
  client = createClient({ env: phone.env() });
});

const wish = { activityId: 'a', skuId: 's', quantity: 1 };

/** Lets virtual time pass until the submission comes to rest. */
async function settle(submission: Submission) {
  const done = submission.submit();
  let rest = false;
  void done.then(() => {
    rest = true;
  });
  for (let step = 0; step < 400 && !rest; step += 1) await phone.world.advance(500);
  return done;
}

const idsSent = (): Set<unknown> =>
  new Set(phone.requests('/submit').map(({ init }) => JSON.parse(init.body!).request_id));

describe('submission', () => {
  it('goes from queued to an order, asking at the server’s pace', async () => {
    let asked = 0;
    phone.script = ({ path }) => {
      if (path.includes('/passes')) return pass;
      if (path.includes('/submit')) return outcome('QUEUED', 'POLL', { next_poll_after_ms: 700 });
      asked += 1;
      return asked < 3
        ? outcome('QUEUED', 'POLL', { next_poll_after_ms: 700 })
        : outcome('ORDERED', 'PAY', { order_id: 'o' });
    };
    const submission = client.submission(wish);
    expect(submission.state.state).toBe('IDLE');
    expect(await settle(submission)).toMatchObject({
      state: 'SUCCEEDED',
      outcome: { order_id: 'o' },
    });
    const times = phone.requests('/v1/requests').map(({ atMs }) => atMs);
    for (let at = 1; at < times.length; at += 1)
      expect(times[at]! - times[at - 1]!).toBeGreaterThanOrEqual(700);
    expect(phone.requests('/submit')[0]!.init.headers).toMatchObject({ 'sluice-pass': 'p' });
  });

  it('joins a second press to the first', async () => {
    phone.script = ({ path }) => (path.includes('/passes') ? pass : outcome('ORDERED', 'PAY'));
    const submission = client.submission(wish);
    const [first, second] = await Promise.all([submission.submit(), submission.submit()]);
    expect(first).toBe(second);
    expect(phone.requests('/submit')).toHaveLength(1);
    expect(client.counts).toMatchObject({ intents: 2, suppressed: 1 });
  });

  it('asks for the same id when the answer is lost, and never makes a second one', async () => {
    phone.script = ({ path }) => {
      if (path.includes('/passes')) return pass;
      if (path.includes('/submit')) return 'lost';
      return phone.requests('/v1/requests').length < 3 ? 'lost' : outcome('ORDERED', 'PAY');
    };
    const result = await settle(client.submission(wish));
    expect(result.state).toBe('SUCCEEDED');
    expect(phone.requests('/submit')).toHaveLength(1);
    for (const { path } of phone.requests('/v1/requests'))
      expect(path).toContain(`/${String([...idsSent()][0])}?`);
  });

  it('sends the same id again once the server is sure that it holds nothing', async () => {
    phone.script = ({ path }) => {
      if (path.includes('/passes')) return pass;
      if (path.includes('/submit'))
        return phone.requests('/submit').length === 1 ? 'lost' : outcome('ORDERED', 'PAY');
      return { status: 404, body: { code: 'NOT_FOUND', next_action: 'STOP' } };
    };
    expect((await settle(client.submission(wish))).state).toBe('SUCCEEDED');
    expect(phone.requests('/submit')).toHaveLength(2);
    expect(idsSent().size).toBe(1);
  });

  it('stays UNKNOWN when patience ends, and goes on with the same id after a reload', async () => {
    phone.script = ({ path }) => (path.includes('/passes') ? pass : 'lost');
    const submission = client.submission(wish);
    const first = await settle(submission);
    expect(first.state).toBe('UNKNOWN');
    expect(submission.forget()).toBe(false);
    const id = [...idsSent()][0];

    const reloaded = createClient({ env: phone.env() }).submission(wish);
    expect(reloaded.state).toMatchObject({ state: 'UNKNOWN', requestId: id });
    phone.script = ({ path }) =>
      path.includes(`/v1/requests/${String(id)}`) ? outcome('PAID', 'STOP') : 'lost';
    expect(await settle(reloaded)).toMatchObject({ state: 'SUCCEEDED', requestId: id });
    expect(idsSent().size).toBe(1);
  });

  it('finds out about an earlier wish before it sends another', async () => {
    phone.script = ({ path }) => (path.includes('/passes') ? pass : 'lost');
    await settle(client.submission(wish));
    const [first] = idsSent();
    phone.script = ({ path }) => {
      if (path.includes('/passes')) return pass;
      if (path.includes('/submit')) return outcome('ORDERED', 'PAY');
      return { status: 404, body: { code: 'NOT_FOUND', next_action: 'STOP' } };
    };
    const other = createClient({ env: phone.env() }).submission({ ...wish, quantity: 2 });
    const result = await settle(other);
    expect(result.state).toBe('SUCCEEDED');
    expect(phone.requests(`/v1/requests/${String(first)}`).length).toBeGreaterThan(1);
    expect(idsSent().size).toBe(2);
  });

  it('never comes back before the hint, spreads, and ends', async () => {
    phone.script = ({ path }) =>
      path.includes('/passes')
        ? pass
        : {
            status: 429,
            body: { code: 'RATE_LIMITED', next_action: 'RETRY_LATER', retry_after_ms: 3_000 },
          };
    const result = await settle(client.submission(wish));
    expect(result).toMatchObject({
      state: 'FAILED',
      code: 'RATE_LIMITED',
      nextAction: 'RETRY_LATER',
    });
    const times = phone.requests('/submit').map(({ atMs }) => atMs);
    expect(times.length).toBeGreaterThan(1);
    expect(times.length).toBeLessThanOrEqual(retryDefaults.maxAttempts);
    for (let at = 1; at < times.length; at += 1)
      expect(times[at]! - times[at - 1]!).toBeGreaterThanOrEqual(3_000);
    expect(idsSent().size).toBe(1);
  });

  it.each([
    ['TOKEN_EXPIRED', 403, 'REJOIN'],
    ['ALREADY_PURCHASED', 409, 'STOP'],
    ['UNAUTHENTICATED', 401, 'SIGN_IN'],
  ] as const)('does not retry %s', async (code, status, nextAction) => {
    phone.script = ({ path }) =>
      path.includes('/passes') ? pass : { status, body: { code, next_action: nextAction } };
    expect(await settle(client.submission(wish))).toMatchObject({
      state: 'FAILED',
      code,
      nextAction,
    });
    expect(phone.requests('/submit')).toHaveLength(1);
    expect(phone.kept.size).toBe(0);
  });

  it('takes sold out as an end, and a new press as a new wish', async () => {
    phone.script = ({ path }) => (path.includes('/passes') ? pass : outcome('SOLD_OUT', 'STOP'));
    const submission = client.submission(wish);
    expect((await settle(submission)).state).toBe('FAILED');
    await settle(submission);
    expect(idsSent().size).toBe(2);
  });

  it('lets go of an answer that hangs', async () => {
    phone.script = ({ path }) => {
      if (path.includes('/passes')) return pass;
      if (path.includes('/submit')) return 'hang';
      return outcome('ORDERED', 'PAY');
    };
    expect((await settle(client.submission(wish))).state).toBe('SUCCEEDED');
  });
});

describe('retries', () => {
  it('stay near a tenth of all calls in an outage', () => {
    const bucket = new RetryBucket();
    let retried = 0;
    for (let call = 0; call < 10_000; call += 1) {
      if (call % 2 === 0) bucket.success();
      else if (bucket.take()) retried += 1;
    }
    expect(retried).toBeLessThanOrEqual(10 + 5_000 * 0.1);
    expect(retried).toBeGreaterThan(400);
  });

  it('are spread over the whole of their bound', () => {
    const env = { random: new SeededRandom('x').float.bind(new SeededRandom('x')), nowMs: () => 0 };
    const delays = Array.from({ length: 2_000 }, () => retryDelayMs(env, retryDefaults, 3, 0, 0)!);
    expect(Math.min(...delays)).toBeLessThan(50);
    expect(Math.max(...delays)).toBeGreaterThan(1_100);
    expect(Math.max(...delays)).toBeLessThanOrEqual(1_200);
  });
});

describe('reads', () => {
  it('share a flight, abort the older for the newer, and keep to the bound by priority', async () => {
    const reads = new Reads(1);
    const order: string[] = [];
    const run = (name: string) => async () => {
      order.push(name);
      await Promise.resolve();
      return name;
    };
    const all = [
      reads.get('a', 3, run('a')),
      reads.get('a', 3, run('a again')),
      reads.get('b', 3, run('b')),
      reads.get('c', 0, run('c')),
    ];
    expect(await Promise.all(all)).toEqual(['a', 'a', 'b', 'c']);
    expect(order).toEqual(['a', 'c', 'b']);
    expect(reads.merged).toBe(1);

    const older = reads.get(
      'd',
      1,
      (signal) =>
        new Promise((_, reject) =>
          signal.addEventListener('abort', () => reject(new Error('aborted'))),
        ),
    );
    const newer = reads.get('d', 1, run('d'), true);
    await expect(older).rejects.toThrow('aborted');
    expect(await newer).toBe('d');
  });
});

describe('pace', () => {
  it('debounces to the last call and throttles to the first', async () => {
    const got: number[] = [];
    const late = debounce(phone.env(), 100, (value: number) => got.push(value));
    for (const value of [1, 2, 3]) late(value);
    await phone.world.advance(99);
    expect(got).toEqual([]);
    await phone.world.advance(1);
    expect(got).toEqual([3]);
    const early = throttle(phone.env(), 100, (value: number) => got.push(value));
    expect([early(7), early(8)]).toEqual([true, false]);
    phone.world.jumpWall(-5_000);
    expect(early(9)).toBe(true);
    expect(got).toEqual([3, 7, 9]);
  });
});

describe('watching', () => {
  const follow = () => {
    const states: string[] = [];
    const links: boolean[] = [];
    let gone = 0;
    const watch = watchStanding(phone.env(), {
      url: '/me',
      onStanding: (one) => states.push(one.state),
      onLink: (alive) => links.push(alive),
      onGone: () => {
        gone += 1;
      },
    });
    return { states, links, watch, gone: () => gone };
  };
  const gaps = (): number[] =>
    phone.seen.slice(1).map(({ atMs }, at) => atMs - phone.seen[at]!.atMs);

  it('polls at the server’s pace with jitter, and stops at a final state', async () => {
    phone.script = () => ({
      status: 200,
      body: standing({ state: phone.seen.length < 6 ? 'waiting' : 'closed' }),
    });
    const { states } = follow();
    await phone.world.advance(60_000);
    expect(states).toHaveLength(6);
    for (const gap of gaps()) {
      expect(gap).toBeGreaterThanOrEqual(2_000);
      expect(gap).toBeLessThanOrEqual(2_401);
    }
    expect(new Set(gaps()).size).toBeGreaterThan(1);
  });

  it('obeys a refusal’s hint and backs off', async () => {
    phone.script = () =>
      phone.seen.length < 3
        ? { status: 429, body: { retry_after_ms: 5_000 } }
        : { status: 200, body: standing() };
    const { links, watch } = follow();
    await phone.world.advance(30_000);
    expect(gaps()[0]).toBeGreaterThanOrEqual(5_000);
    expect(links[0]).toBe(false);
    expect(links.at(-1)).toBe(true);
    watch.stop();
    const count = phone.seen.length;
    await phone.world.advance(60_000);
    expect(phone.seen).toHaveLength(count);
  });

  it('ends when the place is gone', async () => {
    phone.script = () => ({ status: 404, body: {} });
    const { gone } = follow();
    await phone.world.advance(60_000);
    expect(gone()).toBe(1);
    expect(phone.seen).toHaveLength(1);
  });

  it('streams where it can, polls when the stream is refused, and tries the stream again later', async () => {
    phone.streams = [];
    phone.script = () => ({ status: 200, body: standing({ next_poll_after_ms: 1_000 }) });
    const { states, watch } = follow();
    phone.streams[0]!.send(standing());
    expect(states).toEqual(['waiting']);
    expect(phone.seen).toHaveLength(0);
    phone.streams[0]!.fail(true);
    await phone.world.advance(40_000);
    expect(phone.seen).toHaveLength(20);
    expect(phone.streams).toHaveLength(2);
    watch.stop();
    expect(phone.streams[1]!.open).toBe(false);
  });

  it('gives a stream up that keeps breaking', async () => {
    phone.streams = [];
    phone.script = () => ({ status: 200, body: standing() });
    follow();
    for (let error = 0; error < 3; error += 1) phone.streams[0]!.fail(false);
    expect(phone.streams[0]!.open).toBe(false);
    await phone.world.advance(5_000);
    expect(phone.seen.length).toBeGreaterThan(0);
  });

  it('asks rarely while hidden, and comes back spread out, not at once', async () => {
    phone.streams = [];
    phone.script = () => ({ status: 200, body: standing() });
    follow();
    phone.show(false);
    expect(phone.streams[0]!.open).toBe(false);
    await phone.world.advance(120_000);
    const hidden = phone.seen.length;
    expect(hidden).toBeGreaterThan(2);
    for (const gap of gaps()) expect(gap).toBeGreaterThanOrEqual(15_000);
    phone.show(true);
    expect(phone.seen).toHaveLength(hidden);
    await phone.world.advance(1_500);
    expect(phone.seen).toHaveLength(hidden + 1);
    await phone.world.advance(5_000);
    expect(phone.streams.at(-1)!.open).toBe(true);
  });

  it('takes a broken event for none', () => {
    phone.streams = [];
    const { states } = follow();
    phone.streams[0]!.send([] as unknown as object);
    phone.streams[0]!.send({ state: 5 });
    expect(states).toEqual([]);
  });
});
