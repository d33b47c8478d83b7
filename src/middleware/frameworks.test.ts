import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import express from 'express';
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import { Hono } from 'hono';
import Koa from 'koa';
import { afterEach, describe, expect, test } from 'vitest';
import { rateLimit as forExpress } from './express.ts';
import { rateLimit as forFastify } from './fastify.ts';
import { rateLimit as forHono } from './hono.ts';
import { rateLimit as forHttp } from './http.ts';
import { rateLimit as forKoa } from './koa.ts';
import { RateLimitOptionError, type RateLimitOptions } from './options.ts';

/** A shop of three routes, behind one framework: `/` answers what is left, `/fail` fails, `/slow` waits. */
interface Running {
  readonly url: string;
  /** Lets the requests that wait in `/slow` go. */
  release(): void;
  stop(): Promise<void>;
}

type Options = Omit<
  RateLimitOptions<never>,
  'key' | 'keyGenerator' | 'facts' | 'skip' | 'onRefused' | 'handler'
>;
type Start = (options: Options, handled?: string) => Promise<Running>;

async function listening(server: Server): Promise<{ url: string; stop(): Promise<void> }> {
  if (!server.listening)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

function gate(): { wait: Promise<void>; release: () => void } {
  let release = (): void => undefined;
  const wait = new Promise<void>((resolve) => {
    release = resolve;
  });
  return { wait, release };
}

const answerBy = (handled: string | undefined) =>
  handled === undefined
    ? {}
    : {
        handler: (_request: unknown, response: ServerResponse) => {
          response.end(handled);
        },
      };

const frameworks: Readonly<Record<string, Start>> = {
  async express(options, handled) {
    const { wait, release } = gate();
    const app = express();
    const limiter = forExpress<express.Request, express.Response>({
      ...options,
      ...answerBy(handled),
    });
    app.use(limiter);
    app.get('/', (request, response) => {
      const { rateLimit } = request as unknown as { rateLimit?: { remaining: number } };
      response.json({ remaining: rateLimit?.remaining });
    });
    app.get('/fail', (_request, response) => {
      response.status(500).send('no');
    });
    app.get('/slow', async (_request, response) => {
      await wait;
      response.send('slow');
    });
    return { ...(await listening(createServer(app))), release };
  },
  async fastify(options, handled) {
    const { wait, release } = gate();
    const app = fastify();
    await app.register(forFastify<FastifyRequest, FastifyReply>, {
      ...options,
      ...(handled === undefined
        ? {}
        : { handler: (_request: FastifyRequest, reply: FastifyReply) => reply.send(handled) }),
    });
    app.get('/', async (request) => {
      const { rateLimit } = request as unknown as { rateLimit: { remaining: number } | null };
      return { remaining: rateLimit?.remaining };
    });
    app.get('/fail', async (_request, reply) => reply.code(500).send('no'));
    app.get('/slow', async () => {
      await wait;
      return 'slow';
    });
    await app.listen({ port: 0, host: '127.0.0.1' });
    const { url } = await listening(app.server);
    return { url, release, stop: () => app.close() };
  },
  async hono(options, handled) {
    const { wait, release } = gate();
    const app = new Hono<{ Variables: { rateLimit?: { remaining: number } } }>();
    app.use(
      forHono({
        ...options,
        ...(handled === undefined ? {} : { handler: () => new Response(handled, { status: 429 }) }),
      }) as never,
    );
    app.get('/', (context) => context.json({ remaining: context.get('rateLimit')?.remaining }));
    app.get('/fail', (context) => context.text('no', 500));
    app.get('/slow', async (context) => {
      await wait;
      return context.text('slow');
    });
    const server = await new Promise<Server>((resolve) => {
      const made = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, () =>
        resolve(made as Server),
      );
    });
    return { ...(await listening(server)), release };
  },
  async koa(options, handled) {
    const { wait, release } = gate();
    const app = new Koa();
    app.silent = true;
    app.use(
      forKoa<Koa.Context>({
        ...options,
        ...(handled === undefined
          ? {}
          : {
              handler: (context: Koa.Context) => {
                context.body = handled;
              },
            }),
      }),
    );
    app.use(async (context) => {
      if (context.path === '/fail') {
        context.status = 500;
        context.body = 'no';
      } else if (context.path === '/slow') {
        await wait;
        context.body = 'slow';
      } else {
        const { rateLimit } = context.state as { rateLimit?: { remaining: number } };
        context.body = { remaining: rateLimit?.remaining };
      }
    });
    const callback = app.callback();
    const server = createServer((request, response) => {
      void callback(request, response);
    });
    return { ...(await listening(server)), release };
  },
  async http(options, handled) {
    const { wait, release } = gate();
    const limited = forHttp({ ...options, ...answerBy(handled) });
    const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      if (!(await limited(request, response))) return;
      if (request.url === '/slow') await wait;
      response.statusCode = request.url === '/fail' ? 500 : 200;
      const { rateLimit } = request as IncomingMessage & { rateLimit?: { remaining: number } };
      response.end(JSON.stringify({ remaining: rateLimit?.remaining }));
    };
    const server = createServer((request, response) => {
      void answer(request, response);
    });
    return { ...(await listening(server)), release };
  },
};

let running: Running | undefined;
afterEach(async () => {
  running?.release();
  await running?.stop();
  running = undefined;
});

describe.each(Object.entries(frameworks))('%s', (_name, start) => {
  const get = (path = '/', headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${running?.url}${path}`, { headers: { connection: 'close', ...headers } });

  test('admits so many, says what is left, then refuses with a problem and the time to come back', async () => {
    running = await start({ limit: 3, window: '1h' });
    const answers: Response[] = [];
    for (let n = 0; n < 5; n += 1) answers.push(await get());
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 429, 429]);
    expect(await answers[0]?.json()).toEqual({ remaining: 2 });
    expect(answers[2]?.headers.get('ratelimit')).toMatch(/^"default";r=0;t=\d+$/);
    expect(answers[2]?.headers.get('ratelimit-policy')).toBe('"default";q=3;w=3600');
    const refused = answers[3];
    expect(refused?.headers.get('content-type')).toContain('application/problem+json');
    expect(refused?.headers.get('sluice-limited')).toBe('source');
    const problem = (await refused?.json()) as { retry_after_ms: number; code: string };
    expect(problem.code).toBe('RATE_LIMITED');
    expect(Number(refused?.headers.get('retry-after'))).toBe(
      Math.ceil(problem.retry_after_ms / 1000),
    );
  });

  test('other paths, 404s and failures carry the fields too; failures can be left uncounted', async () => {
    running = await start({ limit: 2, window: '1h', skipFailedRequests: true });
    // A response is over for the client a moment before it is over for the server: asked again until
    // the charge of the one before has come back.
    const ask = async (path: string): Promise<Response> => {
      for (let tries = 0; ; tries += 1) {
        const answer = await get(path);
        if (answer.status !== 429 || tries > 200) return answer;
      }
    };
    for (let n = 0; n < 4; n += 1) {
      const failed = await ask('/fail');
      expect(failed.status).toBe(500);
      expect(failed.headers.get('ratelimit')).toContain('"default"');
    }
    expect((await ask('/?a=1')).status).toBe(200);
    expect((await ask('/?a=1')).status).toBe(200);
    expect((await get('/?a=1')).status).toBe(429);
  });

  test('a forwarded address is believed from a trusted proxy alone', async () => {
    running = await start({ limit: 1, window: '1h', trustedProxies: ['127.0.0.1'] });
    const from = async (address: string) => (await get('/', { 'x-forwarded-for': address })).status;
    expect([
      await from('198.51.100.1'),
      await from('198.51.100.2'),
      await from('198.51.100.1'),
    ]).toEqual([200, 200, 429]);
    await running.stop();
    running = await start({ limit: 1, window: '1h' });
    expect([await from('198.51.100.1'), await from('198.51.100.2')]).toEqual([200, 429]);
  });

  test('places of a concurrency rule come back when responses end', async () => {
    running = await start({
      rules: [{ id: 'places', limit: { algorithm: 'concurrency', limit: 1 } }],
    });
    const slow = get('/slow');
    let refused = 0;
    for (let tries = 0; tries < 100 && refused === 0; tries += 1) {
      if ((await get('/')).status === 429) refused += 1;
    }
    expect(refused).toBe(1);
    running.release();
    expect((await slow).status).toBe(200);
    let status = 429;
    for (let tries = 0; tries < 100 && status === 429; tries += 1) ({ status } = await get('/'));
    expect(status).toBe(200);
  });

  test('the application answers refusals itself where it wants to', async () => {
    running = await start({ limit: 1, window: '1h' }, 'come back later');
    await get();
    const refused = await get();
    expect([refused.status, await refused.text()]).toEqual([429, 'come back later']);
    expect(refused.headers.get('retry-after')).not.toBeNull();
  });

  test('pacing holds a request back until its turn', async () => {
    running = await start({
      rules: [
        {
          id: 'paced',
          match: { method: 'GET' },
          on_limit: 'delay',
          limit: { algorithm: 'leaky_bucket', rate: '20/s', max_wait: '0.1s' },
        },
      ],
    });
    const statuses = await Promise.all([1, 2, 3, 4, 5].map(async () => (await get()).status));
    expect(statuses.toSorted((a, b) => a - b).slice(0, 3)).toEqual([200, 200, 200]);
    expect(statuses.filter((status) => status === 429).length).toBeLessThanOrEqual(2);
  });

  test('options that cannot work are said at the start', async () => {
    await expect(start({ limit: -1 })).rejects.toThrow(RateLimitOptionError);
  });
});

test('fastify: a route has its own limit, or none', async () => {
  const app = fastify();
  await app.register(forFastify, { limit: 1, window: '1h' });
  app.get(
    '/own',
    { config: { rateLimit: { limit: 2, window: '1h', name: 'own' } } },
    async () => 'own',
  );
  app.get('/none', { config: { rateLimit: false } }, async () => 'none');
  app.get('/', async () => 'general');
  const statuses = async (url: string) => {
    const list: number[] = [];
    for (let n = 0; n < 3; n += 1) list.push((await app.inject({ url })).statusCode);
    return list;
  };
  expect(await statuses('/own')).toEqual([200, 200, 429]);
  expect(await statuses('/none')).toEqual([200, 200, 200]);
  expect(await statuses('/')).toEqual([200, 429, 429]);
  await app.close();
});

test('express: an error on the way goes to the error handler, once', async () => {
  const app = express();
  const errors: unknown[] = [];
  app.use(
    forExpress<express.Request, express.Response>({
      key: () => {
        throw new Error('the key is broken');
      },
    }),
  );
  app.use(
    (
      error: unknown,
      _request: express.Request,
      response: express.Response,
      _next: express.NextFunction,
    ) => {
      errors.push(error);
      response.status(500).end();
    },
  );
  running = { ...(await listening(createServer(app))), release: () => undefined };
  expect((await fetch(running.url)).status).toBe(500);
  expect(errors).toHaveLength(1);
});
