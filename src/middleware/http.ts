import type { IncomingMessage, ServerResponse } from 'node:http';
import { plainOf } from './express.ts';
import { RateLimiter, type RateLimitInfo } from './limiter.ts';
import type { RateLimitOptions } from './options.ts';

/**
 * Rate limits for bare `node:http`.
 *
 *     import { rateLimit } from 'sluice/http';
 *     const limited = rateLimit({ rate: '5/s', burst: 20 });
 *     createServer(async (request, response) => {
 *       if (!(await limited(request, response))) return;
 *       response.end('hello');
 *     });
 */
export interface HttpLimiter {
  /** False where the request was refused, and has been answered. */
  (request: IncomingMessage, response: ServerResponse): Promise<boolean>;
  close(): void;
}

/** @throws RateLimitOptionError for options that cannot work. */
export function rateLimit(
  options: RateLimitOptions<IncomingMessage, ServerResponse> = {},
): HttpLimiter {
  const limiter = new RateLimiter(options);
  const limited = async (
    request: IncomingMessage & { rateLimit?: RateLimitInfo },
    response: ServerResponse,
  ): Promise<boolean> => {
    const verdict = await limiter.check(request, plainOf(request));
    if (verdict === undefined) return true;
    for (const [name, value] of verdict.headers) response.setHeader(name, value);
    if (verdict.admitted) {
      if (verdict.info !== undefined) request.rateLimit = verdict.info;
      response.once('close', () => verdict.finished(response.statusCode));
      if (verdict.delayMs > 0) await limiter.sleep(verdict.delayMs);
      return true;
    }
    response.statusCode = verdict.status;
    if (options.handler === undefined) {
      response.setHeader('Content-Type', verdict.contentType);
      response.end(verdict.body);
    } else {
      await options.handler(request, response, verdict.info);
    }
    return false;
  };
  return Object.assign(limited, { close: () => limiter.close() });
}

export type { RateLimitInfo, RateLimitOptions };
export { RateLimitOptionError } from './options.ts';
