import { LimitParameterError } from '../limit/token-bucket.ts';
import { milli, parseDurationUs, parseRate, type Rate, RateSyntaxError } from '../limit/rate.ts';
import { PatternError, textPattern, type TextPattern } from './pattern.ts';

/** One thing wrong with a rule, or worth knowing: where, what was found, what is allowed. */
export interface RuleProblem {
  readonly path: readonly (string | number)[];
  readonly found: string;
  readonly allowed: string;
}

export type Path = readonly (string | number)[];

/** Problems beyond this many are not collected: a file of noise must not fill the memory. */
const problemsMax = 1_000;

/**
 * Reads a tree of plain values (from YAML or JSON) and collects everything that is wrong, instead of
 * stopping at the first. Every method answers `undefined` where it reported a problem or found nothing.
 */
export class Reader {
  readonly problems: RuleProblem[] = [];

  report(path: Path, found: string, allowed: string): undefined {
    if (this.problems.length < problemsMax) this.problems.push({ path, found, allowed });
    return undefined;
  }

  /** The mapping at `path`; unknown keys are problems, with the nearest known one as a hint. */
  mapping(value: unknown, path: Path, known: readonly string[]): Mapping | undefined {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      return this.report(path, quote(value), `a mapping of ${known.join(', ')}`);
    }
    const entries = new Map<string, unknown>(Object.entries(value));
    for (const key of entries.keys()) {
      if (known.includes(key)) continue;
      const meant = nearest(key, known);
      const hint = meant === undefined ? '' : `${meant}? Known here: `;
      this.report([...path, key], `unknown key ${quote(key)}`, `${hint}${known.join(', ')}`);
    }
    return new Mapping(this, entries, path);
  }

  list(value: unknown, path: Path, max: number): readonly unknown[] | undefined {
    if (!Array.isArray(value)) return this.report(path, quote(value), `a list of at most ${max}`);
    if (value.length > max) {
      this.report(path, `a list of ${value.length}`, `a list of at most ${max}`);
    }
    return value.slice(0, max);
  }

  text(value: unknown, path: Path, pattern: RegExp, allowed: string): string | undefined {
    if (typeof value === 'string' && pattern.test(value)) return value;
    return this.report(path, quote(value), allowed);
  }

  oneOf<Word extends string>(value: unknown, path: Path, words: readonly Word[]): Word | undefined {
    const found = words.find((word) => word === value);
    if (found !== undefined) return found;
    const meant = typeof value === 'string' ? nearest(value, words) : undefined;
    const hint = meant === undefined ? '' : `${meant}? `;
    return this.report(path, quote(value), `${hint}one of ${words.join(', ')}`);
  }

  /** A whole number from `min` to `max`. */
  whole(value: unknown, path: Path, min: number, max: number): number | undefined {
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) {
      return value;
    }
    return this.report(path, quote(value), `a whole number from ${min} to ${max}`);
  }

  /** A number with at most three decimals, as thousandths. */
  thousandths(value: unknown, path: Path, min: number, max: number): number | undefined {
    const amount = typeof value === 'number' ? Math.round(value * milli) : Number.NaN;
    const exact = typeof value === 'number' && Math.abs(amount - value * milli) < 1e-6;
    if (exact && amount >= min * milli && amount <= max * milli) return amount;
    const allowed = `a number from ${min} to ${max} with at most three decimals`;
    return this.report(path, quote(value), allowed);
  }

  /** `20%` or 0.2, as thousandths. */
  share(value: unknown, path: Path, max = 1): number | undefined {
    const percent =
      typeof value === 'string' ? /^(\d{1,3}(?:\.\d)?)%$/.exec(value)?.[1] : undefined;
    const share = percent === undefined ? value : Number(percent) / 100;
    if (typeof share === 'number' && share >= 0 && share <= max) return Math.round(share * milli);
    return this.report(path, quote(value), `a share such as 20% or 0.2, at most ${max * 100}%`);
  }

  rate(value: unknown, path: Path): Rate | undefined {
    return this.#parsed(value, path, 'a rate such as 5/s, 0.5/s or 100/10s', parseRate);
  }

  /** In microseconds. */
  duration(value: unknown, path: Path, minUs: number, maxUs: number): number | undefined {
    const allowed = 'a time such as 250ms, 10s or 30d';
    const us = this.#parsed(value, path, allowed, parseDurationUs);
    if (us === undefined || (us >= minUs && us <= maxUs)) return us;
    const range = `${minUs / 1000} ms to ${maxUs / 1000} ms`;
    return this.report(path, quote(value), `${allowed}, from ${range}`);
  }

  pattern(value: unknown, path: Path): TextPattern | undefined {
    const allowed = 'an exact text, a prefix*, or a /regular expression/';
    const text = typeof value === 'number' ? String(value) : value;
    return this.#parsed(text, path, allowed, textPattern);
  }

  /** An instant, RFC 3339 with its offset; ms since the epoch. */
  instant(value: unknown, path: Path): number | undefined {
    const allowed = 'an instant with its offset, such as 2027-05-01T20:00:00+08:00';
    const shape = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)$/;
    const ms = typeof value === 'string' && shape.test(value) ? Date.parse(value) : Number.NaN;
    return Number.isNaN(ms) ? this.report(path, quote(value), allowed) : ms;
  }

  /** Runs `build`, and reports what it throws about parameters at `path`. */
  guard<Value>(path: Path, build: () => Value): Value | undefined {
    try {
      return build();
    } catch (error) {
      if (!(error instanceof LimitParameterError) && !(error instanceof RangeError)) throw error;
      const [found = error.message, allowed = 'parameters that fit each other'] =
        error.message.split('; allowed is ');
      return this.report(path, found.replace(/^found /, ''), allowed);
    }
  }

  #parsed<Value>(
    value: unknown,
    path: Path,
    allowed: string,
    parse: (text: string) => Value,
  ): Value | undefined {
    if (typeof value !== 'string') return this.report(path, quote(value), allowed);
    try {
      return parse(value);
    } catch (error) {
      if (!(error instanceof RateSyntaxError) && !(error instanceof PatternError)) throw error;
      const [found = error.message, more = allowed] = error.message.split('; allowed is ');
      return this.report(path, found.replace(/^found /, ''), more.replace(/^a number/, 'a number'));
    }
  }
}

/** One mapping being read: each key is asked for once, by the kind of value it holds. */
export class Mapping {
  readonly #reader: Reader;
  readonly #entries: ReadonlyMap<string, unknown>;
  readonly path: Path;

  constructor(reader: Reader, entries: ReadonlyMap<string, unknown>, path: Path) {
    this.#reader = reader;
    this.#entries = entries;
    this.path = path;
  }

  has(key: string): boolean {
    const value = this.#entries.get(key);
    return value !== undefined && value !== null;
  }

  at(key: string): Path {
    return [...this.path, key];
  }

  raw(key: string): unknown {
    return this.#entries.get(key);
  }

  /** Reads an optional key; `otherwise` stands for one that is absent, or that reported a problem. */
  optional<Value, Otherwise>(
    key: string,
    read: (value: unknown, path: Path) => Value | undefined,
    otherwise: Otherwise,
  ): Value | Otherwise {
    return this.has(key) ? (read(this.raw(key), this.at(key)) ?? otherwise) : otherwise;
  }

  /** Reads a key that must be there. */
  required<Value>(
    key: string,
    allowed: string,
    read: (value: unknown, path: Path) => Value | undefined,
  ): Value | undefined {
    if (!this.has(key)) return this.#reader.report(this.at(key), 'nothing', allowed);
    return read(this.raw(key), this.at(key));
  }
}

/** A value as it is quoted in a message: short, on one line. */
export function quote(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === 'object' && value !== null) return 'a mapping';
  const full: string | undefined = JSON.stringify(value);
  if (full === undefined) return 'nothing';
  return full.length > 80 ? `${full.slice(0, 76)}…"` : full;
}

/** The nearest of `known` to a mistyped word, when it is near enough to be meant. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  let best: string | undefined;
  let least = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < least) [least, best] = [distance, candidate];
  }
  return best;
}

/** Insertions, deletions and replacements between two words; long words are not compared. */
function editDistance(a: string, b: string): number {
  if (a.length > 64 || b.length > 64) return 64;
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, change));
    }
    row = next;
  }
  return row[b.length] ?? 64;
}
