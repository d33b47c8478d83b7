import type { HeaderList } from '../core/limit/headers.ts';
import { RateLimiter, type RateLimitInfo } from './limiter.ts';
import type { RateLimitOptions } from './options.ts';

/**
 * Rate limits for Hono on Node.
 *
 *     import { rateLimit } from 'sluice/hono';
 *     app.use(rateLimit({ limit: 100, window: '15m' }));
 *
 * The address is the connection's, which Hono's Node adapter hands over as `context.env.incoming`. On
 * a platform without it, say with `key` whom a request is counted for; otherwise all are counted
 * together. What is left of the limit is `context.get('rateLimit')`.
 */
export interface HonoContext {
  readonly req: {
    readonly method: string;
    readonly path: string;
    header(name: string): string | undefined;
  };
  readonly env: unknown;
  readonly res: { readonly status: number };
  header(name: string, value: string): void;
  set(name: string, value: unknown): void;
  body(body: string, status: number): globalThis.Response;
}

export interface HonoMiddleware<Context> {
  (context: Context, next: () => Promise<void>): Promise<globalThis.Response | undefined>;
  close(): void;
}

/** @throws RateLimitOptionError for options that cannot work. */
export function rateLimit<Context extends HonoContext = HonoContext>(
  options: RateLimitOptions<Context, Context> = {},
): HonoMiddleware<Context> {
  const limiter = new RateLimiter(options);
  const middleware = async (
    context: Context,
    next: () => Promise<void>,
  ): Promise<globalThis.Response | undefined> => {
    const { req } = context;
    const verdict = await limiter.check(context, {
      method: req.method,
      path: req.path,
      peer: peerOf(context.env),
      header: (name) => req.header(name),
    });
    if (verdict === undefined) {
      await next();
      return undefined;
    }
    if (verdict.admitted) {
      if (verdict.info !== undefined) context.set('rateLimit', verdict.info);
      if (verdict.delayMs > 0) await limiter.sleep(verdict.delayMs);
      let status = 500;
      try {
        await next();
        ({ status } = context.res);
      } finally {
        verdict.finished(status);
      }
      // After the handler: it may have answered with a response of its own, without these.
      for (const [name, value] of verdict.headers) context.header(name, value);
      return undefined;
    }
    for (const [name, value] of verdict.headers) context.header(name, value);
    if (options.handler !== undefined) {
      const answered: unknown = await options.handler(context, context, verdict.info);
      if (answered instanceof globalThis.Response) return withHeaders(answered, verdict.headers);
    }
    context.header('Content-Type', verdict.contentType);
    return context.body(verdict.body, verdict.status);
  };
  return Object.assign(middleware, { close: () => limiter.close() });
}

/** A response of the application's own does not know the headers that were set on the context. */
function withHeaders(answer: globalThis.Response, headers: HeaderList): globalThis.Response {
  const all = new Headers(answer.headers);
  for (const [name, value] of headers) all.set(name, value);
  const { status, statusText } = answer;
  return new globalThis.Response(answer.body, { status, statusText, headers: all });
}

function peerOf(env: unknown): string | undefined {
  const { incoming } = Object(env) as { incoming?: { socket?: { remoteAddress?: unknown } } };
  const address = incoming?.socket?.remoteAddress;
  return typeof address === 'string' ? address : undefined;
}

export type { RateLimitInfo, RateLimitOptions };
export { RateLimitOptionError } from './options.ts';
