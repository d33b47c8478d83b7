import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RedisServer, startRedis } from '../../test/support/servers/redis.ts';
import { type PlainRequest, RateLimiter } from '../middleware/limiter.ts';
import type { RateLimitOptions } from '../middleware/options.ts';
import { openRedisLimits, type RedisLimits } from './redis-limits.ts';

let server: RedisServer;
const opened: RedisLimits[] = [];
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  await Promise.all(opened.map((shared) => shared.close()));
  await server.stop();
});

const request: PlainRequest = {
  method: 'GET',
  path: '/',
  peer: '192.0.2.7',
  header: () => undefined,
};

/** Two processes, as far as the library can tell. */
async function two(options: RateLimitOptions<PlainRequest>) {
  const limiters: RateLimiter<PlainRequest>[] = [];
  for (let n = 0; n < 2; n += 1) {
    const shared = await openRedisLimits({ urls: [server.url], timeoutMs: 300 });
    opened.push(shared);
    limiters.push(new RateLimiter({ ...options, shared }));
  }
  const ask = (n: number) => limiters[n]?.check(request, request);
  return { ask, limiters };
}

test('two processes share one limit, exactly, through one call each', async () => {
  const { ask } = await two({ limit: 5, window: '1h', algorithm: 'sliding_log', name: 'shared' });
  const verdicts = await Promise.all(Array.from({ length: 20 }, async (_, n) => await ask(n % 2)));
  expect(verdicts.filter((verdict) => verdict?.admitted === true)).toHaveLength(5);
  const refused = verdicts.find((verdict) => verdict?.admitted === false);
  expect(refused).toMatchObject({ status: 429, info: { ruleId: 'shared', scope: 'source' } });
});

test('a leased budget is spent without asking, after the first moment', async () => {
  const rules = [{ id: 'leased', scope: 'lease', limit: { rate: '5000/s', burst: 5000 } }];
  const { ask } = await two({ rules });
  for (let tries = 0; tries < 200; tries += 1) {
    const verdict = await ask(0);
    if (verdict?.admitted === true) break;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  // Decided at once: no promise, no call.
  expect(ask(0)).toMatchObject({ admitted: true });
});

test('the store away: closed answers 503 and says so, open lets through', async () => {
  const closed = await two({ limit: 5, name: 'closed' });
  const open = await two({ limit: 1, name: 'open', fail: 'open' });
  server.pause();
  try {
    const refused = await closed.ask(0);
    expect(refused).toMatchObject({ admitted: false, status: 503, info: { reason: 'store_away' } });
    expect(refused?.headers.map(([name]) => name)).not.toContain('Sluice-Limited');
    expect(await open.ask(0)).toMatchObject({ admitted: true });
  } finally {
    server.resume();
  }
});
