import type { LimitSpec } from './algorithm.ts';
import { retryAfterSeconds, waitMaxMs } from './hint.ts';
import { milli } from './rate.ts';
import { neverUs } from './token-bucket.ts';

/**
 * How a limit stands, in response headers. The fields of the IETF draft "RateLimit header fields for
 * HTTP" have changed shape from one revision to the next, so the serializer is named by its revision,
 * and a deployment that has clients of an older one can go on speaking it:
 *
 *     draft-10   RateLimit-Policy: "submit";q=3;w=6        RateLimit: "submit";r=2;t=2
 *     draft-7    RateLimit-Policy: 3;w=6                   RateLimit: limit=3, remaining=2, reset=2
 *     draft-6    RateLimit-Limit: 3, RateLimit-Remaining: 2, RateLimit-Reset: 2, RateLimit-Policy
 *     legacy     X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset (seconds from now)
 *
 * Draft 10 lists every limit that was asked; the older ones can name only one: the one with the least
 * left of what it allows.
 */
export const headerVersions = ['draft-10', 'draft-7', 'draft-6', 'legacy'] as const;
export type HeaderVersion = (typeof headerVersions)[number];

export interface LimitStanding {
  readonly name: string;
  readonly limit: LimitSpec;
  readonly leftMilli: number;
  /** Until everything is left again; absent where that is not known. */
  readonly fullUs?: number | undefined;
  /** For a limit that refuses: what `Retry-After` says, ms. */
  readonly retryAfterMs?: number;
}

export type HeaderList = readonly (readonly [name: string, value: string])[];

/** Header fields of the limits that were asked, in their order; none when there were none. */
export function rateLimitHeaders(
  version: HeaderVersion,
  standings: readonly LimitStanding[],
): HeaderList {
  if (version === 'draft-10') return draft10(standings);
  const tightest = tightestOf(standings);
  if (tightest === undefined) return [];
  const [quota, window] = [quotaOf(tightest.limit), windowSeconds(tightest.limit)];
  const [left, reset] = [remainingOf(tightest), resetSeconds(tightest)];
  const policy: HeaderList =
    window === undefined ? [] : [['RateLimit-Policy', `${quota};w=${window}`]];
  switch (version) {
    case 'draft-7':
      return [...policy, ['RateLimit', `limit=${quota}, remaining=${left}, reset=${reset}`]];
    case 'draft-6':
      return [
        ...policy,
        ['RateLimit-Limit', `${quota}`],
        ['RateLimit-Remaining', `${left}`],
        ['RateLimit-Reset', `${reset}`],
      ];
    case 'legacy':
      return [
        ['X-RateLimit-Limit', `${quota}`],
        ['X-RateLimit-Remaining', `${left}`],
        ['X-RateLimit-Reset', `${reset}`],
      ];
  }
}

/** `Retry-After`: whole seconds, rounded up, never 0. */
export function retryAfterHeader(retryAfterMs: number): HeaderList {
  return [['Retry-After', `${retryAfterSeconds(retryAfterMs)}`]];
}

function draft10(standings: readonly LimitStanding[]): HeaderList {
  if (standings.length === 0) return [];
  let policies = '';
  let states = '';
  for (const standing of standings) {
    const { name, policy } = fixedOf(standing);
    const reset = knowsReset(standing) ? `;t=${resetSeconds(standing)}` : '';
    const between = policies === '' ? '' : ', ';
    policies += between + policy;
    states += `${between}${name};r=${remainingOf(standing)}${reset}`;
  }
  return [
    ['RateLimit-Policy', policies],
    ['RateLimit', states],
  ];
}

interface Fixed {
  readonly of: string;
  readonly name: string;
  readonly policy: string;
}

/** What does not change from one answer to the next, by its limit: said with every answer. */
const fixed = new WeakMap<LimitSpec, Fixed>();

function fixedOf({ name: of, limit }: LimitStanding): Fixed {
  const known = fixed.get(limit);
  if (known?.of === of) return known;
  const name = text(of);
  const window = windowSeconds(limit);
  const unit = limit.algorithm === 'concurrency' ? ';qu="concurrent-requests"' : '';
  const policy = `${name};q=${quotaOf(limit)}${unit}${window === undefined ? '' : `;w=${window}`}`;
  const made = { of, name, policy };
  fixed.set(limit, made);
  return made;
}

/** The one with the least left of what it allows; a limit that refuses before any other. */
function tightestOf(standings: readonly LimitStanding[]): LimitStanding | undefined {
  let tightest: LimitStanding | undefined;
  let least = Infinity;
  for (const standing of standings) {
    const quota = quotaOf(standing.limit);
    const share =
      standing.retryAfterMs !== undefined ? -1 : quota === 0 ? 0 : remainingOf(standing) / quota;
    if (share < least) [least, tightest] = [share, standing];
  }
  return tightest;
}

/** Whole requests: what is allowed in one go. */
function quotaOf(limit: LimitSpec): number {
  if ('limitMilli' in limit) return Math.floor(limit.limitMilli / milli);
  if ('burstMilli' in limit) return Math.floor(limit.burstMilli / milli);
  return 1 + Math.floor((limit.maxWaitUs * limit.rate.tokensMilli) / limit.rate.periodUs / milli);
}

/** Seconds, rounded up, in which the quota comes back; absent where it has nothing to do with time. */
function windowSeconds(limit: LimitSpec): number | undefined {
  if (limit.algorithm === 'concurrency') return undefined;
  if ('windowUs' in limit) return Math.max(1, Math.ceil(limit.windowUs / 1e6));
  if (limit.rate.tokensMilli === 0) return undefined;
  const quotaMilli = 'burstMilli' in limit ? limit.burstMilli : quotaOf(limit) * milli;
  const seconds = (quotaMilli * limit.rate.periodUs) / limit.rate.tokensMilli / 1e6;
  return Math.max(1, Math.ceil(seconds));
}

function remainingOf({ leftMilli }: LimitStanding): number {
  return Math.max(0, Math.floor(leftMilli / milli));
}

/** The longest that a used limit takes to be whole again, µs; 0 where time has nothing to do with it. */
export function wholeAgainUs(limit: LimitSpec): number {
  return (windowSeconds(limit) ?? 0) * 1e6;
}

const knowsReset = ({ fullUs, retryAfterMs }: LimitStanding): boolean =>
  fullUs !== undefined || retryAfterMs !== undefined;

/**
 * Seconds until the quota is whole again, and never before `Retry-After`. Where it is not known, the
 * older fields, which cannot leave it out, get the longest that it can be.
 */
function resetSeconds({ limit, fullUs, retryAfterMs }: LimitStanding): number {
  const full =
    fullUs === undefined
      ? (windowSeconds(limit) ?? 1)
      : fullUs >= neverUs
        ? waitMaxMs / 1000
        : Math.ceil(fullUs / 1e6);
  const least = retryAfterMs === undefined ? 0 : retryAfterSeconds(retryAfterMs);
  return Math.min(999_999_999_999_999, Math.max(full, least));
}

/** A structured-field string: printable ASCII; anything else, which no rule id has, is left out. */
function text(value: string): string {
  return `"${value.replace(/[^\x20-\x7e]/g, '').replace(/["\\]/g, '\\$&')}"`;
}
