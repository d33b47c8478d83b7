import { type HeaderList, rateLimitHeaders } from '../core/limit/headers.ts';
import type { LimitSpec } from '../core/limit/algorithm.ts';
import { milli } from '../core/limit/rate.ts';
import type { RuleStanding } from '../core/rules/sink.ts';
import type { LimitRefusal } from './limits.ts';

/** Different waits whose headers are kept per rule; hints are told in whole seconds. */
const keptMax = 128;

/**
 * `RateLimit` and `RateLimit-Policy` of one rule that refuses: nothing left, and back in so
 * many seconds. A flood gets the same few of them a million times, so they are kept.
 */
export function refusedHeaders(
  ruleId: string,
  limit: LimitSpec,
): (retryAfterMs: number) => NonNullable<LimitRefusal['headers']> {
  const kept = new Map<number, NonNullable<LimitRefusal['headers']>>();
  return (retryAfterMs) => {
    const seconds = Math.ceil(retryAfterMs / 1000);
    let headers = kept.get(seconds);
    if (headers === undefined) {
      const fullUs = seconds * 1_000_000;
      headers = rateLimitHeaders('draft-10', [
        { name: ruleId, limit, leftMilli: 0, fullUs, retryAfterMs },
      ]);
      if (kept.size < keptMax) kept.set(seconds, headers);
    }
    return headers;
  };
}

/** The same of a request that was let through: every limit that counted it, as it stands now. */
export function admittedHeaders(standings: readonly RuleStanding[]): HeaderList {
  if (standings.length === 0) return [];
  return rateLimitHeaders(
    'draft-10',
    standings.map(({ rule, limit, leftMilli, waitUs, fullUs }) => ({
      name: rule.id,
      limit,
      // One that had no room, and let the request past, has nothing left.
      leftMilli: waitUs > 0 ? Math.min(leftMilli, milli - 1) : leftMilli,
      fullUs,
    })),
  );
}
