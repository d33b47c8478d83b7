import { plainOf } from './express.ts';
import type { ExpressRequest } from './express.ts';
import { RateLimiter, type RateLimitInfo } from './limiter.ts';
import type { RateLimitOptions } from './options.ts';

/**
 * Rate limits for Fastify, as a plugin.
 *
 *     import { rateLimit } from 'sluice/fastify';
 *     await app.register(rateLimit, { limit: 100, window: '1m' });
 *
 * It applies to every route of the instance it is registered on and below, in `onRequest`: before the
 * body is read. A route sets its own in `config: { rateLimit: { … } }`, or `false` for none. What is
 * left of the limit stands in `request.rateLimit`.
 */
export interface FastifyRequestLike {
  readonly raw: ExpressRequest;
  readonly routeOptions: { readonly config?: unknown };
}

export interface FastifyReplyLike {
  readonly statusCode: number;
  readonly raw: { once(event: 'close', run: () => void): unknown };
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  type(contentType: string): unknown;
  send(body: string): unknown;
}

export interface FastifyInstanceLike<Request, Reply> {
  addHook(name: 'onRequest', hook: (request: Request, reply: Reply) => Promise<unknown>): unknown;
  addHook(name: 'onClose', hook: () => Promise<void>): unknown;
  decorateRequest(name: string, value: unknown): unknown;
  hasRequestDecorator(name: string): boolean;
}

export type FastifyRateLimitOptions<
  Request extends FastifyRequestLike = FastifyRequestLike,
  Reply extends FastifyReplyLike = FastifyReplyLike,
> = RateLimitOptions<Request, Reply> & {
  /** Fastify's own; the limit looks at whole paths and has no use for it. */
  readonly prefix?: string;
};

async function plugin<Request extends FastifyRequestLike, Reply extends FastifyReplyLike>(
  app: FastifyInstanceLike<Request, Reply>,
  given: FastifyRateLimitOptions<Request, Reply>,
): Promise<void> {
  const { prefix: _prefix, ...options } = given;
  const general = { options, limiter: new RateLimiter(options) };
  /** Limits of routes, by the object in their configuration: made once, when first met. */
  const ofRoutes = new WeakMap<object, typeof general>();
  const all = [general.limiter];

  const limitOf = (request: Request): typeof general | undefined => {
    const { rateLimit: own } = Object(request.routeOptions.config) as { rateLimit?: unknown };
    if (own === false) return undefined;
    if (typeof own !== 'object' || own === null) return general;
    const known = ofRoutes.get(own);
    if (known !== undefined) return known;
    const merged = { ...own } as RateLimitOptions<Request, Reply>;
    const made = { options: merged, limiter: new RateLimiter(merged) };
    ofRoutes.set(own, made);
    all.push(made.limiter);
    return made;
  };

  if (!app.hasRequestDecorator('rateLimit')) app.decorateRequest('rateLimit', null);
  app.addHook('onRequest', async (request, reply) => {
    const found = limitOf(request);
    const verdict = await found?.limiter.check(request, plainOf(request.raw));
    if (found === undefined || verdict === undefined) return undefined;
    for (const [name, value] of verdict.headers) reply.header(name, value);
    if (verdict.admitted) {
      if (verdict.info !== undefined) Object.assign(request, { rateLimit: verdict.info });
      reply.raw.once('close', () => verdict.finished(reply.statusCode));
      if (verdict.delayMs > 0) await found.limiter.sleep(verdict.delayMs);
      return undefined;
    }
    reply.code(verdict.status);
    if (found.options.handler !== undefined) {
      return found.options.handler(request, reply, verdict.info);
    }
    reply.type(verdict.contentType);
    return reply.send(verdict.body);
  });
  app.addHook('onClose', async () => {
    for (const limiter of all) limiter.close();
  });
}

/**
 * The plugin. It is not encapsulated: registered on an instance, it limits that instance's routes.
 * @throws RateLimitOptionError at registration, for options that cannot work.
 */
export const rateLimit = Object.assign(plugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'sluice/fastify',
});

export type { RateLimitInfo, RateLimitOptions };
export { RateLimitOptionError } from './options.ts';
