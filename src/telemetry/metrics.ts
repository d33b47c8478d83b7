import type { Latency } from './latency.ts';

/**
 * Metrics that cost nothing until somebody asks.
 *
 * A metric library counts at the call site and hashes its labels on every request. Here the hot path
 * adds to plain numbers that exist anyway (the ledger, the slots, the stores' marks), and each metric
 * is registered together with the function that reads them at the moment of a scrape. So a metric
 * without a source cannot be registered, and a registered one is fed. What remains is to write the
 * text format, which is small.
 *
 * Labels are bounded twice: a value must be a short word (an id of ours, a token, an address in its
 * usual writings is refused by its look, though the true guard is that nobody passes one), and a
 * metric has at most `seriesMax` series, beyond which all further ones are summed as `other`.
 *
 * Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4).
 */
export class Metrics {
  readonly #sources: Source[] = [];
  readonly #names = new Set<string>();

  /** A total that only grows. `read` is called at each scrape and tells every series. */
  counter(info: Described, read: (tell: Tell) => void): void {
    this.#add({ ...info, type: 'counter' }, () => readSeries(info, read));
  }

  /** A value that goes both ways. What is not told in a scrape is absent from it: no data is not zero. */
  gauge(info: Described, read: (tell: Tell) => void): void {
    this.#add({ ...info, type: 'gauge' }, () => readSeries(info, read));
  }

  /** Durations in seconds, with bounds at powers of two of microseconds, where counts are exact. */
  histogram(info: Omit<Described, 'labels'>, latency: Latency): void {
    const full: MetricInfo = { ...info, labels: [], type: 'histogram' };
    this.#add(full, () => histogramLines(info.name, latency));
  }

  /** A histogram over counts that are kept elsewhere; the last count is of what is past all bounds. */
  counted(
    info: Omit<Described, 'labels'>,
    bounds: readonly number[],
    read: () => { readonly counts: readonly number[]; readonly sumS: number } | undefined,
  ): void {
    const full: MetricInfo = { ...info, labels: [], type: 'histogram' };
    this.#add(full, () => countedLines(info.name, bounds, read()));
  }

  /** Everything that can be scraped, in the order of registration: what docs/METRICS.md must list. */
  catalogue(): readonly MetricInfo[] {
    return this.#sources.map(({ info }) => info);
  }

  /** The whole scrape. O(series). */
  text(): string {
    return this.#sources
      .map(({ info, lines }) => {
        const help = info.help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
        const head = `# HELP ${info.name} ${help}\n# TYPE ${info.name} ${info.type}\n`;
        return head + lines().join('');
      })
      .join('');
  }

  #add(info: MetricInfo, lines: () => readonly string[]): void {
    if (!/^sluice_[a-z0-9_]{1,80}$/.test(info.name))
      throw new Error(`found metric name "${info.name}"; allowed: sluice_ and a-z 0-9 _`);
    if (this.#names.has(info.name)) throw new Error(`metric ${info.name} is registered twice`);
    this.#names.add(info.name);
    this.#sources.push({ info, lines });
  }
}

/** For the `Content-Type` of a scrape. */
export const metricsContentType = 'text/plain; version=0.0.4; charset=utf-8';

export interface Described {
  /** `sluice_…` */
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
}

export interface MetricInfo extends Described {
  readonly type: 'counter' | 'gauge' | 'histogram';
}

/** One series: its value, and the values of the labels in their order. */
export type Tell = (value: number, ...labels: readonly string[]) => void;

interface Source {
  readonly info: MetricInfo;
  readonly lines: () => readonly string[];
}

/** Series of one metric: stages times decisions times reasons stay below; an attack would not. */
export const seriesMax = 1_000;

const wordPattern = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;
/** What we make at random: a prefix and 22 characters of base64url. */
const randomIdPattern = /^[a-z]{2,4}_[A-Za-z0-9_-]{16,}$/;

/** A label's value, or `other` for what cannot be a word from a closed set. */
export function labelValue(text: string): string {
  return wordPattern.test(text) && !randomIdPattern.test(text) ? text : 'other';
}

function readSeries(info: Described, read: (tell: Tell) => void): readonly string[] {
  const all = new Map<string, number>();
  read((value, ...given) => {
    if (given.length !== info.labels.length)
      throw new Error(`${info.name}: ${given.length} labels given, ${info.labels.length} declared`);
    const own = labelText(info.labels, given.map(labelValue));
    const full = all.size >= seriesMax - 1 && !all.has(own);
    const key = full
      ? labelText(
          info.labels,
          info.labels.map(() => 'other'),
        )
      : own;
    all.set(key, (all.get(key) ?? 0) + value);
  });
  return [...all].map(([labels, value]) => `${info.name}${labels} ${numberText(value)}\n`);
}

/** Values are words by now: nothing in them needs escaping. */
function labelText(names: readonly string[], values: readonly string[]): string {
  if (names.length === 0) return '';
  return `{${names.map((name, at) => `${name}="${values[at] ?? 'other'}"`).join(',')}}`;
}

function numberText(value: number): string {
  if (value === Infinity) return '+Inf';
  return value === -Infinity ? '-Inf' : String(value);
}

/** Bounds from 256 µs to 67 s: below is noise, above is a timeout. */
const boundPowers = Array.from({ length: 19 }, (_, at) => at + 8);

function histogramLines(name: string, latency: Latency): readonly string[] {
  const bucket = (le: string, count: number): string => `${name}_bucket{le="${le}"} ${count}\n`;
  return [
    ...boundPowers.map((power) => bucket(String(2 ** power / 1e6), latency.countBelow(2 ** power))),
    bucket('+Inf', latency.count),
    `${name}_sum ${latency.sumUs / 1e6}\n`,
    `${name}_count ${latency.count}\n`,
  ];
}

function countedLines(
  name: string,
  bounds: readonly number[],
  counted: { readonly counts: readonly number[]; readonly sumS: number } | undefined,
): readonly string[] {
  if (counted === undefined) return [];
  let below = 0;
  const lines = bounds.map((bound, at) => {
    below += counted.counts[at] ?? 0;
    return `${name}_bucket{le="${bound}"} ${below}\n`;
  });
  const all = below + (counted.counts[bounds.length] ?? 0);
  return [
    ...lines,
    `${name}_bucket{le="+Inf"} ${all}\n`,
    `${name}_sum ${counted.sumS}\n`,
    `${name}_count ${all}\n`,
  ];
}
