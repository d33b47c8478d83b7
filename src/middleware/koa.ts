import { type ExpressRequest, plainOf } from './express.ts';
import { RateLimiter, type RateLimitInfo } from './limiter.ts';
import type { RateLimitOptions } from './options.ts';

/**
 * Rate limits for Koa.
 *
 *     import { rateLimit } from 'sluice/koa';
 *     app.use(rateLimit({ limit: 100, window: '15m' }));
 *
 * What is left of the limit stands in `context.state.rateLimit`.
 */
export interface KoaContext {
  readonly req: ExpressRequest;
  readonly res: { once(event: 'close', run: () => void): unknown };
  status: number;
  body: unknown;
  readonly state: Record<string, unknown>;
  set(name: string, value: string): void;
}

export interface KoaMiddleware<Context> {
  (context: Context, next: () => Promise<unknown>): Promise<void>;
  close(): void;
}

/** @throws RateLimitOptionError for options that cannot work. */
export function rateLimit<Context extends KoaContext = KoaContext>(
  options: RateLimitOptions<Context, Context> = {},
): KoaMiddleware<Context> {
  const limiter = new RateLimiter(options);
  const middleware = async (context: Context, next: () => Promise<unknown>): Promise<void> => {
    const verdict = await limiter.check(context, plainOf(context.req));
    if (verdict === undefined) {
      await next();
      return;
    }
    for (const [name, value] of verdict.headers) context.set(name, value);
    if (verdict.admitted) {
      if (verdict.info !== undefined) context.state['rateLimit'] = verdict.info;
      // Koa ends the response after the middleware, whatever it did: only then is it over.
      context.res.once('close', () => verdict.finished(context.status));
      if (verdict.delayMs > 0) await limiter.sleep(verdict.delayMs);
      await next();
      return;
    }
    context.status = verdict.status;
    if (options.handler !== undefined) {
      await options.handler(context, context, verdict.info);
      return;
    }
    context.body = verdict.body;
    context.set('Content-Type', verdict.contentType);
  };
  return Object.assign(middleware, { close: () => limiter.close() });
}

export type { RateLimitInfo, RateLimitOptions };
export { RateLimitOptionError } from './options.ts';
