import { type PlainRequest, RateLimiter, type RateLimitInfo, type Verdict } from './limiter.ts';
import type { RateLimitOptions } from './options.ts';

/**
 * Rate limits for Express (4 and 5), and anything that speaks its `(request, response, next)`.
 *
 *     import { rateLimit } from 'sluice/express';
 *     app.use(rateLimit({ limit: 100, window: '15m' }));
 *
 * The client's address is the connection's, unless `trustedProxies` says whose `X-Forwarded-For` is
 * believed; Express's own `trust proxy` is not consulted, because it believes by default more than it
 * should. What is left of the limit stands in `request.rateLimit`.
 */
export interface ExpressRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly originalUrl?: string | undefined;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly socket: { readonly remoteAddress?: string | undefined };
}

export interface ExpressResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
  once(event: 'close', run: () => void): unknown;
}

export interface ExpressMiddleware<Request, Response> {
  (request: Request, response: Response, next: (error?: unknown) => void): void;
  /** Stops the timer that forgets idle keys; it never keeps a process alive. */
  close(): void;
}

/** @throws RateLimitOptionError for options that cannot work. */
export function rateLimit<
  Request extends ExpressRequest = ExpressRequest,
  Response extends ExpressResponse = ExpressResponse,
>(options: RateLimitOptions<Request, Response> = {}): ExpressMiddleware<Request, Response> {
  const limiter = new RateLimiter(options);
  const middleware = (
    request: Request,
    response: Response,
    next: (error?: unknown) => void,
  ): void => {
    const go = (verdict: Verdict | undefined): void =>
      apply(limiter, options, request, response, next, verdict);
    try {
      const verdict = limiter.check(request, plainOf(request));
      if (verdict instanceof Promise) void later(verdict, go, next);
      else go(verdict);
    } catch (error) {
      next(error);
    }
  };
  return Object.assign(middleware, { close: () => limiter.close() });
}

function apply<Request extends ExpressRequest, Response extends ExpressResponse>(
  limiter: RateLimiter<Request, Response>,
  options: RateLimitOptions<Request, Response>,
  request: Request,
  response: Response,
  next: (error?: unknown) => void,
  verdict: Verdict | undefined,
): void {
  if (verdict === undefined) {
    next();
    return;
  }
  for (const [name, value] of verdict.headers) response.setHeader(name, value);
  if (!verdict.admitted) {
    response.statusCode = verdict.status;
    if (options.handler !== undefined) {
      options.handler(request, response, verdict.info);
      return;
    }
    response.setHeader('Content-Type', verdict.contentType);
    response.end(verdict.body);
    return;
  }
  if (verdict.info !== undefined) Object.assign(request, { rateLimit: verdict.info });
  response.once('close', () => verdict.finished(response.statusCode));
  if (verdict.delayMs === 0) next();
  else void later(limiter.sleep(verdict.delayMs), () => next(), next);
}

/** Goes on with what comes later. What `go` throws is its own: it is not reported a second time. */
async function later<Value>(
  promise: Promise<Value>,
  go: (value: Value) => void,
  fail: (error: unknown) => void,
): Promise<void> {
  let value: Value;
  try {
    value = await promise;
  } catch (error) {
    fail(error);
    return;
  }
  go(value);
}

export function plainOf(request: ExpressRequest): PlainRequest {
  const target = request.originalUrl ?? request.url ?? '/';
  const query = target.indexOf('?');
  return {
    method: request.method ?? 'GET',
    path: query < 0 ? target : target.slice(0, query),
    peer: request.socket.remoteAddress,
    header(name) {
      const value = request.headers[name];
      return typeof value === 'string' ? value : value?.join(', ');
    },
  };
}

export type { RateLimitInfo, RateLimitOptions };
export { RateLimitOptionError } from './options.ts';
