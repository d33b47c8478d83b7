import type { AlgorithmName, LimitSpec } from '../limit/algorithm.ts';
import { algorithmNames } from '../limit/algorithm.ts';
import { createAlgorithm } from '../limit/algorithms/create.ts';
import type { OverflowLimit } from '../limit/keyed-limiter.ts';
import { milli, periodMaxUs, type Rate, rateMaxTokens } from '../limit/rate.ts';
import type { Mapping, Path, Reader } from './reader.ts';
import { quote } from './reader.ts';

const parametersOf: Readonly<Record<AlgorithmName, readonly string[]>> = {
  token_bucket: ['rate', 'burst', 'initial_share'],
  fixed_window: ['limit', 'window'],
  sliding_window: ['limit', 'window'],
  sliding_log: ['limit', 'window'],
  leaky_bucket: ['rate', 'max_wait'],
  warm_up: ['rate', 'burst', 'warm_up', 'cold_share'],
  concurrency: ['limit'],
};

const burstMax = 1_000_000_000;

/**
 * Reads the parameters of a limit. Other keys of the same mapping that belong to its owner are named
 * in `also` (an override carries its `value` beside them).
 */
export function readLimit(
  reader: Reader,
  value: unknown,
  path: Path,
  also: readonly string[] = [],
): LimitSpec | undefined {
  const name = algorithmOf(reader, value, path);
  if (name === undefined) return undefined;
  const map = reader.mapping(value, path, ['algorithm', ...parametersOf[name], ...also]);
  const spec = map === undefined ? undefined : readParameters(reader, map, name);
  if (spec === undefined) return undefined;
  // Parameters that are fine each for themselves may not fit each other.
  const fits = reader.guard(path, () => createAlgorithm(spec));
  return fits === undefined ? undefined : spec;
}

function algorithmOf(reader: Reader, value: unknown, path: Path): AlgorithmName | undefined {
  const given =
    typeof value === 'object' && value !== null && 'algorithm' in value
      ? value.algorithm
      : 'token_bucket';
  return reader.oneOf(given, [...path, 'algorithm'], algorithmNames);
}

function readParameters(reader: Reader, map: Mapping, name: AlgorithmName): LimitSpec | undefined {
  const rate = (): Rate | undefined =>
    map.required('rate', 'a rate such as 5/s, 0.5/s or 100/10s', (v, p) => reader.rate(v, p));
  const limit = (): number | undefined =>
    map.required('limit', 'a number of 0 or more', (v, p) =>
      reader.thousandths(v, p, 0, rateMaxTokens),
    );
  const window = (): number | undefined =>
    map.required('window', 'a time such as 1s, 10m or 30d', (v, p) =>
      reader.duration(v, p, 1, periodMaxUs),
    );
  switch (name) {
    case 'token_bucket': {
      const given = rate();
      if (given === undefined) return undefined;
      const burstMilli = readBurst(reader, map, given);
      const share = map.optional('initial_share', (v, p) => reader.share(v, p), undefined);
      const initial = share === undefined ? {} : { initialShareMilli: share };
      return burstMilli === undefined
        ? undefined
        : { algorithm: name, rate: given, burstMilli, ...initial };
    }
    case 'fixed_window':
    case 'sliding_window':
    case 'sliding_log': {
      const [limitMilli, windowUs] = [limit(), window()];
      if (limitMilli === undefined || windowUs === undefined) return undefined;
      return { algorithm: name, limitMilli, windowUs };
    }
    case 'leaky_bucket': {
      const given = rate();
      const maxWaitUs = map.optional('max_wait', (v, p) => reader.duration(v, p, 0, 60_000_000), 0);
      return given === undefined ? undefined : { algorithm: name, rate: given, maxWaitUs };
    }
    case 'warm_up': {
      const given = rate();
      const warmUpUs = map.required('warm_up', 'a time such as 30s', (v, p) =>
        reader.duration(v, p, 1_000, 86_400_000_000),
      );
      const coldShare = map.optional('cold_share', (v, p) => readFraction(reader, v, p), undefined);
      if (given === undefined || warmUpUs === undefined) return undefined;
      const burstMilli = readBurst(reader, map, given);
      const cold = coldShare === undefined ? {} : { coldShare };
      return burstMilli === undefined
        ? undefined
        : { algorithm: name, rate: given, burstMilli, warmUpUs, ...cold };
    }
    case 'concurrency': {
      const limitMilli = limit();
      return limitMilli === undefined ? undefined : { algorithm: name, limitMilli };
    }
  }
}

/** The burst, or one second's worth of the rate, at least one. */
function readBurst(reader: Reader, map: Mapping, rate: Rate): number | undefined {
  if (!map.has('burst')) {
    return Math.max(milli, Math.ceil((rate.tokensMilli * 1e6) / rate.periodUs / milli) * milli);
  }
  return reader.thousandths(map.raw('burst'), map.at('burst'), 0, burstMax);
}

function readFraction(
  reader: Reader,
  value: unknown,
  path: Path,
): { of: number; parts: number } | undefined {
  const match = typeof value === 'string' ? /^(\d{1,3})\/(\d{1,3})$/.exec(value) : null;
  if (match !== null) return { of: Number(match[1]), parts: Number(match[2]) };
  const share = typeof value === 'number' ? reader.share(value, path) : undefined;
  if (share !== undefined) return { of: share, parts: milli };
  return reader.report(path, quote(value), 'a fraction such as 1/3 or 0.25');
}

/** What unknown keys share once the table is full. */
export function readOverflow(
  reader: Reader,
  value: unknown,
  path: Path,
): OverflowLimit | undefined {
  const map = reader.mapping(value, path, ['rate', 'burst']);
  const rate = map?.required('rate', 'a rate such as 100/s', (v, p) => reader.rate(v, p));
  if (map === undefined || rate === undefined) return undefined;
  const burstMilli = readBurst(reader, map, rate);
  if (burstMilli === undefined) return undefined;
  const spec: LimitSpec = { algorithm: 'token_bucket', rate, burstMilli };
  const fits = reader.guard(path, () => createAlgorithm(spec));
  return fits === undefined ? undefined : { rate, burstMilli };
}

/** Largest cost that a limit can ever take. */
export function capacityOf(limit: LimitSpec): number {
  return createAlgorithm(limit).capacityMilli;
}

/**
 * The overflow of a rule that names none: what the rule gives a hundred keys, and never more than a
 * tenth of the burst that a full table could ask for.
 */
export function defaultOverflow(limit: LimitSpec, maxKeys: number): OverflowLimit {
  const keys = Math.max(1, Math.min(100, Math.floor(maxKeys / 10)));
  const perKey = steadyRate(limit);
  const capacity = capacityOf(limit);
  const times = (amount: number): number => Math.min(amount * keys, rateMaxTokens * milli);
  return {
    rate: { tokensMilli: times(perKey.tokensMilli), periodUs: perKey.periodUs },
    // At least one key's worth, or costs that fit the rule could never fit here.
    burstMilli: Math.max(capacity, times(Math.min(capacity, 10 * milli))),
  };
}

/** The rate that a limit comes to in the long run. */
export function steadyRate(limit: LimitSpec): Rate {
  if ('rate' in limit) return limit.rate;
  if ('windowUs' in limit) return { tokensMilli: limit.limitMilli, periodUs: limit.windowUs };
  return { tokensMilli: limit.limitMilli, periodUs: 1_000_000 };
}
