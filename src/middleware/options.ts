import { addressPrefix, canonicalAddress } from '../core/limit/address.ts';
import type { HeaderVersion } from '../core/limit/headers.ts';
import { headerVersions } from '../core/limit/headers.ts';
import type { RequestFacts } from '../core/rules/facts.ts';
import type { RuleSet } from '../core/rules/model.ts';
import { readRules } from '../core/rules/read.ts';
import { nearest } from '../core/rules/reader.ts';
import type { SharedLimits } from '../core/rules/shared.ts';
import { systemWorld, type LibraryWorld } from './system.ts';

/**
 * What an application says when it asks for a limit. Three ways, from the short to the whole:
 *
 *     rateLimit({ limit: 100, window: '15m' })              so many per window, per address
 *     rateLimit({ rate: '5/s', burst: 20, key: byUser })    a token bucket, per whatever `key` says
 *     rateLimit({ rules: [ … ] })                           the rules of a deployment, as in its file
 *
 * The names that people know from `express-rate-limit` and `@fastify/rate-limit` are taken as well:
 * `max`, `windowMs`, `timeWindow`, `keyGenerator`, `standardHeaders`, `legacyHeaders`, `ipv6Subnet`,
 * `identifier`. One thing said under two names is an error, and so is an option that does not exist.
 */
export interface RateLimitOptions<Request, Response = unknown> {
  /** Requests per window. Alias `max`. */
  readonly limit?: number;
  readonly max?: number;
  /** `15m`, or milliseconds; 60 s when absent. Aliases `windowMs`, `timeWindow`. */
  readonly window?: string | number;
  readonly windowMs?: number;
  readonly timeWindow?: string | number;
  /** How windows count: `sliding_window` when absent; `fixed_window`; `sliding_log` for a limit of at most 1,000. */
  readonly algorithm?: 'sliding_window' | 'fixed_window' | 'sliding_log';
  /** `5/s`: a token bucket in place of a window. */
  readonly rate?: string;
  /** Tokens the bucket holds; one second of the rate when absent. */
  readonly burst?: number;
  /** Rules as in a deployment's file, in place of all of the above. */
  readonly rules?: unknown;

  /**
   * Whom a request is counted for; the client's address (IPv4) or its /56 (IPv6) when absent. What
   * answers `undefined` is counted together with all others that do. Alias `keyGenerator`.
   */
  readonly key?: (request: Request) => string | undefined;
  readonly keyGenerator?: (request: Request) => string | undefined;
  /** Bits of an IPv6 address that make one client, 32 … 128; 56 when absent. Alias `ipv6Subnet`. */
  readonly ipv6Prefix?: number;
  readonly ipv6Subnet?: number;
  /** Facts that rules ask for: user, device, activity, sku, pass, claim, risk, quantity, … */
  readonly facts?: (request: Request) => Partial<Omit<RequestFacts, 'address' | 'header'>>;
  /** What one request costs; 1 when absent. Not with `rules`, which say it themselves. */
  readonly cost?: number;
  /** Requests that are not counted. */
  readonly skip?: (request: Request) => boolean | Promise<boolean>;
  /** Give the charge back where the response was a success, or a failure (status 400 and above). */
  readonly skipSuccessfulRequests?: boolean;
  readonly skipFailedRequests?: boolean;

  /** Ranges whose `X-Forwarded-For` is believed, and through how many hops; nobody's when absent. */
  readonly trustedProxies?: readonly string[];
  readonly hops?: number;

  /** Revision of the RateLimit fields: `draft-10` when absent; several; or false for none. */
  readonly headers?: HeaderVersion | readonly HeaderVersion[] | false;
  /** `true` is draft-6, as in express-rate-limit. */
  readonly standardHeaders?: boolean | 'draft-6' | 'draft-7' | 'draft-8' | 'draft-10';
  readonly legacyHeaders?: boolean;
  /** Name of the limit in headers and problems; `default` when absent. Alias `identifier`. */
  readonly name?: string;
  readonly identifier?: string;
  /** Status of a refusal; 429 when absent. */
  readonly statusCode?: number;
  /** Body of a refusal in place of the problem document: a text, or a value sent as JSON. */
  readonly message?: unknown;
  /** Called for each refusal; it does not answer the request. */
  readonly onRefused?: (request: Request, refusal: RefusalInfo) => void;
  /** Answers a refused request in place of the middleware; headers are set already. */
  readonly handler?: (request: Request, response: Response, refusal: RefusalInfo) => unknown;

  /** Keys remembered at a time; strangers beyond share one stricter bucket. */
  readonly maxKeys?: number;
  /** Counts in a store that many processes share (`sluice/redis`). */
  readonly shared?: SharedLimits;
  /** What happens when that store is away: `closed` refuses, `open` lets through. `closed` when absent. */
  readonly fail?: 'closed' | 'open';

  /** Clock, chance and timer; the process's own when absent. For tests. */
  readonly world?: LibraryWorld;
}

export interface RefusalInfo {
  readonly ruleId: string;
  /** Whose limit it was. */
  readonly scope: string;
  readonly reason: string;
  readonly retryAfterMs: number;
}

/** Whom the simple form counts: an address, or whatever the application says. */
export interface SimpleKey<Request> {
  readonly kind: 'ip' | 'user';
  of(request: Request, address: string): string | undefined;
}

export interface Settings<Request> {
  readonly set: RuleSet;
  /** The simple form: one rule, counted by this key. */
  readonly keyOf: SimpleKey<Request> | undefined;
  readonly versions: readonly HeaderVersion[];
  readonly world: LibraryWorld;
}

/** Every option that exists; a test holds it against the interface. */
export const optionNames: readonly (keyof RateLimitOptions<unknown>)[] = [
  'limit',
  'max',
  'window',
  'windowMs',
  'timeWindow',
  'algorithm',
  'rate',
  'burst',
  'rules',
  'key',
  'keyGenerator',
  'ipv6Prefix',
  'ipv6Subnet',
  'facts',
  'cost',
  'skip',
  'skipSuccessfulRequests',
  'skipFailedRequests',
  'trustedProxies',
  'hops',
  'headers',
  'standardHeaders',
  'legacyHeaders',
  'name',
  'identifier',
  'statusCode',
  'message',
  'onRefused',
  'handler',
  'maxKeys',
  'shared',
  'fail',
  'world',
];

/** What was asked for cannot be: the message says what was found and what is allowed. */
export class RateLimitOptionError extends TypeError {
  override readonly name = 'RateLimitOptionError';
}

/** @throws RateLimitOptionError with everything that is wrong. */
export function settle<Request, Response>(
  options: RateLimitOptions<Request, Response>,
): Settings<Request> {
  for (const name of Object.keys(options)) {
    if ((optionNames as readonly string[]).includes(name)) continue;
    const meant = nearest(name, optionNames);
    throw new RateLimitOptionError(
      `found option "${name}"; allowed is ${meant === undefined ? '' : `${meant}? `}one of ${optionNames.join(', ')}`,
    );
  }
  const simple = options.rules === undefined;
  const clash = [
    'limit',
    'max',
    'window',
    'windowMs',
    'timeWindow',
    'algorithm',
    'rate',
    'burst',
    'cost',
    'key',
    'keyGenerator',
    'maxKeys',
    'ipv6Prefix',
    'ipv6Subnet',
    'fail',
  ] as const;
  const beside = clash.find((name) => !simple && options[name] !== undefined);
  if (beside !== undefined) {
    throw new RateLimitOptionError(`found ${beside} beside rules; allowed is one of the two`);
  }
  const written = simple ? [simpleRule(options)] : options.rules;
  const { set, problems } = readRules(written);
  const unsupported = simple ? [] : unfitForLibrary(set);
  const wrong = [
    ...problems.map(
      ({ path, found, allowed }) => `${path.join('.')}: found ${found}; allowed is ${allowed}`,
    ),
    ...unsupported,
  ];
  if (wrong.length > 0) throw new RateLimitOptionError(wrong.join('\n'));
  return {
    set,
    keyOf: simple ? keyFunction(options) : undefined,
    versions: versionsOf(options),
    world: options.world ?? systemWorld,
  };
}

function simpleRule<Request, Response>(
  options: RateLimitOptions<Request, Response>,
): Record<string, unknown> {
  const limit = oneOf(options, ['limit', 'max']);
  const window = oneOf(options, ['window', 'windowMs', 'timeWindow']);
  const name = oneOf(options, ['name', 'identifier']) ?? 'default';
  const counted =
    options.rate === undefined
      ? {
          algorithm: options.algorithm ?? 'sliding_window',
          limit: limit ?? 100,
          window: durationText(window ?? 60_000),
        }
      : bucketOf(options, limit ?? window ?? options.algorithm);
  return {
    id: name,
    key: [options.key === undefined && options.keyGenerator === undefined ? 'ip' : 'user'],
    limit: counted,
    ...(options.cost === undefined ? {} : { cost: options.cost }),
    max_keys: options.maxKeys ?? (options.algorithm === 'sliding_log' ? 20_000 : 200_000),
    ...(options.shared === undefined ? {} : { scope: 'exact' }),
    fail: options.fail ?? 'closed',
  };
}

function bucketOf<Request, Response>(
  options: RateLimitOptions<Request, Response>,
  windowed: unknown,
): Record<string, unknown> {
  if (windowed !== undefined) {
    throw new RateLimitOptionError(
      'found rate beside limit, window or algorithm; allowed is rate with burst, or limit with window',
    );
  }
  const burst = options.burst === undefined ? {} : { burst: options.burst };
  return { algorithm: 'token_bucket', rate: options.rate, ...burst };
}

function durationText(window: unknown): unknown {
  return typeof window === 'number' ? `${window}ms` : window;
}

/** The value of an option that has several names; an error where two of them are given. */
function oneOf<Request, Response, Name extends keyof RateLimitOptions<Request, Response>>(
  options: RateLimitOptions<Request, Response>,
  names: readonly Name[],
): RateLimitOptions<Request, Response>[Name] | undefined {
  const given = names.filter((name) => options[name] !== undefined);
  if (given.length > 1) {
    throw new RateLimitOptionError(`found ${given.join(' and ')}; allowed is one of them`);
  }
  const [name] = given;
  return name === undefined ? undefined : options[name];
}

function keyFunction<Request, Response>(
  options: RateLimitOptions<Request, Response>,
): SimpleKey<Request> {
  const own = oneOf(options, ['key', 'keyGenerator']);
  if (own !== undefined) return { kind: 'user', of: (request) => own(request) };
  const bits = oneOf(options, ['ipv6Prefix', 'ipv6Subnet']) ?? 56;
  if (!Number.isInteger(bits) || bits < 32 || bits > 128) {
    throw new RateLimitOptionError(`ipv6Prefix: found ${bits}; allowed is 32 to 128`);
  }
  return {
    kind: 'ip',
    of(_request, address) {
      const canonical = canonicalAddress(address);
      if (canonical === undefined) return undefined;
      return canonical.includes(':') ? addressPrefix(canonical, 32, bits) : canonical;
    },
  };
}

function versionsOf<Request, Response>(
  options: RateLimitOptions<Request, Response>,
): readonly HeaderVersion[] {
  const { headers, standardHeaders, legacyHeaders } = options;
  const conventional = standardHeaders !== undefined || legacyHeaders !== undefined;
  if (headers !== undefined && conventional) {
    throw new RateLimitOptionError(
      'found headers beside standardHeaders or legacyHeaders; allowed is one of the two ways',
    );
  }
  if (headers === false) return [];
  if (headers !== undefined) {
    const list = typeof headers === 'string' ? [headers] : headers;
    const odd = list.find((version) => !headerVersions.includes(version));
    if (odd !== undefined) {
      throw new RateLimitOptionError(
        `headers: found "${odd}"; allowed is one of ${headerVersions.join(', ')}`,
      );
    }
    return list;
  }
  if (!conventional) return ['draft-10'];
  const named = {
    'draft-6': 'draft-6',
    'draft-7': 'draft-7',
    'draft-8': 'draft-10',
    'draft-10': 'draft-10',
  } as const;
  const standard: HeaderVersion | undefined =
    standardHeaders === true ? 'draft-6' : standardHeaders ? named[standardHeaders] : undefined;
  return [
    ...(standard === undefined ? [] : [standard]),
    ...(legacyHeaders === true ? (['legacy'] as const) : []),
  ];
}

/** Answers that need Sluice's own parts behind them, and leases, which need its timer. */
function unfitForLibrary(set: RuleSet): string[] {
  return set.rules.flatMap((rule, at) =>
    ['queue', 'accept_later'].includes(rule.onLimit)
      ? [
          `${at}.on_limit: found ${rule.onLimit}; allowed in a library is reject, delay, challenge, degrade`,
        ]
      : [],
  );
}
