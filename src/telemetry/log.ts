import { pino } from 'pino';
import type { DestinationStream } from 'pino';
import type { Clock } from '../ports/clock.ts';

/**
 * A log that cannot leak and cannot sink the ship.
 *
 * Leaking: lists of what to hide forget something. Here it is the other way round. A line is built
 * from a closed list of fields, each of which takes only values of its own shape: a word, an id, a
 * number. What is not on the list, or not of the shape, is not written. Free text exists once
 * (`detail`, for faults), and is cleaned of everything that looks like a secret or an address before.
 *
 * Sinking: a flood refused 50,000 times a second must not become 50,000 lines. Refusals are capped per
 * reason and second, and the next line of that reason says how many were suppressed; successes are
 * sampled. Mode changes, overload answers, limiter errors and faults are kept, within two caps of their
 * own that no healthy day reaches: one per kind, so that what is said again with every request (a stock
 * that is being rebuilt) cannot push out what is said once (who leads now), and one for all together.
 */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

/** Everything that a line may say. Times in ms. */
export interface LogFields {
  readonly request_id?: string;
  readonly activity_id?: string;
  readonly sku_id?: string;
  /** Keyed hash of the user id, hex; never the id. */
  readonly user_id_hash?: string;
  readonly pass_key_id?: string;
  readonly activity_version?: number;
  readonly stage?: string;
  readonly decision?: string;
  readonly reason?: string;
  readonly rule_id?: string;
  readonly rule_version?: number;
  readonly fail_policy?: string;
  readonly cost?: number;
  readonly retry_after_ms?: number;
  readonly latency_ms?: number;
  readonly mode?: string;
  readonly trace_id?: string;
  /** How many like this were not written. */
  readonly suppressed?: number;
  /** A fault's kind and code. */
  readonly error?: string;
  readonly error_code?: string;
  /** Free text of ours; cleaned. */
  readonly detail?: string;
}

/** One field's values: what does not fit is left out. */
type Shape = (value: unknown) => string | number | undefined;

const matching =
  (pattern: RegExp): Shape =>
  (value) =>
    typeof value === 'string' && pattern.test(value) ? value : undefined;
const word = matching(/^[A-Za-z][A-Za-z0-9_-]{0,63}$/);
const id = matching(/^[A-Za-z0-9_-]{1,64}$/);
const hex = matching(/^[0-9a-f]{8,64}$/);
const amount: Shape = (value) =>
  typeof value === 'number' && Number.isFinite(value) ? value : undefined;

const shapes: Readonly<Record<keyof LogFields, Shape>> = {
  request_id: id,
  activity_id: id,
  sku_id: id,
  user_id_hash: hex,
  pass_key_id: id,
  activity_version: amount,
  stage: word,
  decision: word,
  reason: word,
  rule_id: id,
  rule_version: amount,
  fail_policy: word,
  cost: amount,
  retry_after_ms: amount,
  latency_ms: amount,
  mode: word,
  trace_id: matching(/^[0-9a-f]{32}$/),
  suppressed: amount,
  error: word,
  error_code: word,
  detail: (value) => (typeof value === 'string' ? cleaned(value) : undefined),
};

/** Characters of free text in one line. */
const detailMax = 500;

/** Headers that are secret to their end, however many words that is. */
const secretHeader = /\b((?:set-)?cookie2?|(?:proxy-)?authorization)\b["'\]]*\s*[:=][^]*/gi;
/** A value given to a name that speaks of a secret, as in `x-api-key: …`, `access_token = …`, JSON. */
const secretValue =
  /((?:token|secret|passw|passphrase|pwd|api[_-]?key|private[_-]?key|(?<![a-z])sig(?:nature)?(?![a-z])|credential)[\w-]{0,32})["'\]]*\s*[:=]+>?\s*(?:(?:bearer|basic|digest)\s+)?(?:"[^"]*"?|'[^']*'?|\S+)/gi;

/** The beginning of a long text, without the word that the cut went through: half a secret is none. */
function uncut(text: string): string {
  return text.length <= detailMax ? text : text.slice(0, detailMax).replace(/\S{1,499}$/, '[cut]');
}

/**
 * Takes out of free text whatever might be a secret or a person: signed tokens, long random-looking
 * strings, addresses, mail addresses, URLs with credentials, and whatever follows names such as
 * `token`. Words and numbers of ours survive; when in doubt, they do not.
 */
export function cleaned(text: string): string {
  return uncut(text)
    .replaceAll(/[^\u0020-\u007E\u00A0-\uFFFF]/g, ' ')
    .replaceAll(/\S*@\S*/g, '[hidden]')
    .replaceAll(secretHeader, '$1 [hidden]')
    .replaceAll(secretValue, '$1 [hidden]')
    .replaceAll(/\b(bearer|token|secret|password|authorization|cookie)\b\S?\s*\S+/gi, '$1 [hidden]')
    .replaceAll(/(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}/g, '[address]')
    .replaceAll(/(?<![\w:])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,}/gi, '[address]')
    .replaceAll(/[A-Za-z0-9_+/=.~-]{20,}/g, (run) => (looksRandom(run) ? '[hidden]' : run));
}

/** Words joined by dots, slashes and dashes, with small numbers, are names and paths; all else hides. */
function looksRandom(run: string): boolean {
  return !run.split(/[/._+=~-]/).every((part) => /^(?:[A-Z]?[a-z]*|\d{1,4})$/.test(part));
}

export interface LogOptions {
  readonly level: LogLevel;
  readonly clock: Clock;
  /** Where lines go; a stream of its own for tests. */
  readonly destination: DestinationStream;
  /** One success in so many is written; 0 for none. */
  readonly successSample?: number;
}

/** Lines per reason and second. */
export const refusalsPerSecond = 10;
/** Reasons that are counted apart; more share one count. */
const reasonsMax = 128;
/** Lines per second that are "always kept", all kinds together. */
export const keptPerSecond = 200;
/** Of them, lines of one kind: the same event for the same reason. */
export const keptPerKind = 20;

const levels: Readonly<Record<LogLevel, number>> = { error: 50, warn: 40, info: 30, debug: 20 };

interface Tally {
  second: number;
  written: number;
  suppressed: number;
}

/** The log of one process. Synchronous and cheap; buffering is the destination's. */
export class EventLog {
  readonly #pino: ReturnType<typeof pino>;
  readonly #clock: Clock;
  readonly #least: number;
  readonly #successSample: number;
  readonly #tallies = new Map<string, Tally>();
  readonly #kept: Tally = { second: -1, written: 0, suppressed: 0 };
  /** By kind. */
  readonly #keptTallies = new Map<string, Tally>();
  #successes = 0;

  constructor(options: LogOptions) {
    this.#clock = options.clock;
    this.#least = levels[options.level];
    this.#successSample = options.successSample ?? 100;
    this.#pino = pino(
      {
        level: options.level,
        base: null,
        messageKey: 'event',
        formatters: { level: (label) => ({ level: label }) },
        timestamp: () => `,"time":"${new Date(this.#clock.wallMs()).toISOString()}"`,
      },
      options.destination,
    );
  }

  /** A refusal: at most `refusalsPerSecond` lines per reason and second, the rest counted. */
  refusal(fields: LogFields): void {
    if (this.#least > levels.info) return;
    const reason = fields.reason ?? 'unknown';
    const tally = tallyOf(this.#tallies, reason);
    const suppressed = admitLine(tally, refusalsPerSecond, this.#second());
    if (suppressed === undefined) return;
    this.#write('info', 'refused', suppressed > 0 ? { ...fields, suppressed } : fields);
  }

  /** Something went well: one in `successSample` is written. */
  success(event: string, fields: LogFields): void {
    this.#successes += 1;
    if (this.#successSample === 0 || this.#successes % this.#successSample !== 0) return;
    this.#write('info', event, fields);
  }

  /** Start, stop, and other rare facts. */
  info(event: string, fields: LogFields = {}): void {
    this.#write('info', event, fields);
  }

  /** Kept, up to the caps: mode changes, overload answers, limiter errors, version splits. */
  warn(event: string, fields: LogFields = {}): void {
    this.#keep('warn', event, fields);
  }

  /** A fault of ours, with what was thrown. */
  error(event: string, error?: unknown, fields: LogFields = {}): void {
    this.#keep('error', event, { ...fields, ...faultFields(error) });
  }

  /** Tells what is still unsaid of suppressed lines; called each second, and at the end. */
  flush(): void {
    const second = this.#second();
    for (const [reason, tally] of this.#tallies) {
      if (tally.suppressed > 0 && tally.second !== second)
        this.#write('info', 'refused', { reason, suppressed: takeSuppressed(tally) });
    }
    for (const [kind, tally] of this.#keptTallies) {
      if (tally.suppressed > 0 && tally.second !== second)
        this.#write('warn', 'suppressed', { reason: kind, suppressed: takeSuppressed(tally) });
    }
    if (this.#kept.suppressed > 0 && this.#kept.second !== second)
      this.#write('warn', 'suppressed', { suppressed: takeSuppressed(this.#kept) });
  }

  #keep(level: LogLevel, event: string, fields: LogFields): void {
    const kind = `${event}-${fields.reason ?? fields.error ?? ''}`.replace(/-$/, '');
    const tally = tallyOf(this.#keptTallies, kind);
    const second = this.#second();
    const ofKind = admitLine(tally, keptPerKind, second);
    if (ofKind === undefined) return;
    const ofAll = admitLine(this.#kept, keptPerSecond, second);
    if (ofAll === undefined) {
      // What this line would have told of its kind is still to be told.
      tally.suppressed += ofKind;
      return;
    }
    const suppressed = ofKind + ofAll;
    this.#write(level, event, suppressed > 0 ? { ...fields, suppressed } : fields);
  }

  #write(level: LogLevel, event: string, fields: LogFields): void {
    if (levels[level] < this.#least) return;
    this.#pino[level](shaped(fields), word(event) === undefined ? 'event' : event);
  }

  #second(): number {
    return Math.floor(this.#clock.monoUs() / 1_000_000);
  }
}

/** The tally of a reason; once there are many, one that the rest share. */
function tallyOf(tallies: Map<string, Tally>, reason: string): Tally {
  const known = tallies.get(reason);
  if (known !== undefined) return known;
  const key = tallies.size < reasonsMax - 1 ? reason : 'other';
  const shared = tallies.get(key) ?? { second: -1, written: 0, suppressed: 0 };
  tallies.set(key, shared);
  return shared;
}

/** Undefined: not this one. Otherwise how many before it were suppressed and are now told. */
function admitLine(tally: Tally, perSecond: number, second: number): number | undefined {
  if (tally.second !== second) {
    tally.second = second;
    tally.written = 0;
  }
  if (tally.written >= perSecond) {
    tally.suppressed += 1;
    return undefined;
  }
  tally.written += 1;
  return takeSuppressed(tally);
}

function takeSuppressed(tally: Tally): number {
  const { suppressed } = tally;
  tally.suppressed = 0;
  return suppressed;
}

/** Only listed fields, only values of their shape. */
function shaped(fields: LogFields): Record<string, string | number> {
  const line: Record<string, string | number> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (!Object.hasOwn(shapes, name)) continue;
    const fit = shapes[name as keyof LogFields](value);
    if (fit !== undefined) line[name] = fit;
  }
  return line;
}

function faultFields(error: unknown): LogFields {
  if (error === undefined) return {};
  if (!(error instanceof Error))
    return { error: 'thrown', ...(typeof error === 'string' ? { detail: error } : {}) };
  const code = 'code' in error ? { error_code: String(error.code) } : {};
  return { error: error.name, ...code, detail: error.message };
}
