import { parseDurationMs } from '../../config/values.ts';
import { scenarioNames, scenarios } from './scenarios.ts';
import type { Scenario, ScenarioName } from './scenarios.ts';

/** What was asked for, checked. */
export interface RushOptions {
  /** The base URL of a running server, or undefined: start one in another process. */
  readonly target: string | undefined;
  readonly activity: string | undefined;
  readonly scenarioName: ScenarioName;
  readonly scenario: Scenario;
  readonly people: number;
  readonly overMs: number;
  /** Units of the embedded sale. */
  readonly stock: number;
  readonly scale: number;
  readonly seed: number;
  readonly arrivalsFile: string | undefined;
  readonly reportFile: string | undefined;
  readonly json: boolean;
  /** Where the target's admin API is, and the credential for it; both or neither. */
  readonly adminUrl: string | undefined;
  readonly adminToken: string | undefined;
}

/** As they come from a command line: camelCase names, values still text. */
export type RawOptions = Readonly<Record<string, unknown>>;

export type ParsedOptions =
  | { readonly ok: true; readonly options: RushOptions }
  | { readonly ok: false; readonly errors: readonly string[] };

/** Flags of the command in the form that help texts and parsers want; `value` undefined is a switch. */
export const rushFlags: readonly {
  readonly flag: string;
  readonly value?: string;
  readonly about: string;
}[] = [
  { flag: '--embedded', about: 'start a server of its own in another process and sell there' },
  { flag: '--target', value: 'URL', about: 'base URL of a running server, or: cluster' },
  { flag: '--activity', value: 'ID', about: 'the sale to rush; needed where there are several' },
  { flag: '--people', value: 'N', about: 'people and bots together, 1 to 5,000,000' },
  { flag: '--over', value: 'DURATION', about: 'time over which they arrive, such as 10s' },
  { flag: '--stock', value: 'N', about: 'units on sale (with --embedded)' },
  { flag: '--bots', value: 'P', about: 'share of bots, such as 20% or 0.2' },
  { flag: '--duplicates', value: 'P', about: 'share of people who submit twice or more' },
  {
    flag: '--timeouts',
    value: 'P',
    about: 'share of people who give up on an answer and ask again',
  },
  {
    flag: '--arrivals',
    value: 'LOG',
    about: 'take arrivals, addresses, agents from an access log',
  },
  { flag: '--scenario', value: 'NAME', about: scenarioNames.join(', ') },
  { flag: '--scale', value: 'F', about: 'multiply people and stock, such as 0.02' },
  { flag: '--seed', value: 'N', about: 'the same seed makes the same people (default 1)' },
  { flag: '--report', value: 'FILE', about: 'write the report as JSON, and as HTML beside it' },
  { flag: '--json', about: 'print the report as JSON on standard output, nothing else' },
];

const peopleMax = 5_000_000;
const overMaxMs = 24 * 3_600_000;
const stockMax = 10_000_000;

/** Checks everything and tells all errors at once. */
export function parseRushOptions(raw: RawOptions): ParsedOptions {
  const errors: string[] = [];
  const known = new Set([...rushFlags.map(({ flag }) => flag.slice(2)), 'adminUrl', 'adminToken']);
  for (const [name, value] of Object.entries(raw)) {
    if (value !== undefined && !known.has(name)) {
      errors.push(`--${name}: no such option; allowed: ${rushFlags.map((f) => f.flag).join(' ')}`);
    }
  }

  const embedded = raw['embedded'] === true;
  const target = textOf(raw['target']);
  if (embedded === (target !== undefined)) {
    errors.push(`give one of --embedded and --target URL; found ${embedded ? 'both' : 'neither'}`);
  }
  if (target !== undefined && !isHttpUrl(target)) {
    errors.push(`--target: found "${target}"; must be a URL such as http://127.0.0.1:8080`);
  }

  const named = textOf(raw['scenario']) ?? 'even';
  const scenarioName = scenarioNames.find((name) => name === named);
  if (scenarioName === undefined) {
    errors.push(`--scenario: found "${named}"; allowed: ${scenarioNames.join(', ')}`);
  }
  const scenario: Scenario = scenarios[scenarioName ?? 'even'];

  const whole = (name: string, low: number, high: number): number | undefined => {
    const text = textOf(raw[name]);
    if (text === undefined) return undefined;
    const value = Number(text.replaceAll('_', ''));
    if (Number.isInteger(value) && value >= low && value <= high) return value;
    errors.push(`--${name}: found "${text}"; must be a whole number from ${low} to ${high}`);
    return undefined;
  };
  const share = (name: string): number | undefined => {
    const text = textOf(raw[name]);
    if (text === undefined) return undefined;
    const value = text.endsWith('%') ? Number(text.slice(0, -1)) / 100 : Number(text);
    if (text.trim() !== '' && value >= 0 && value <= 1) return value;
    errors.push(`--${name}: found "${text}"; must be a share such as 20% or 0.2, at most 100%`);
    return undefined;
  };

  const scaleText = textOf(raw['scale']) ?? '1';
  const scale = Number(scaleText);
  if (!(scale > 0 && scale <= 1000)) {
    errors.push(`--scale: found "${scaleText}"; must be above 0 and at most 1000`);
  }
  const overText = textOf(raw['over']);
  const overMs = overText === undefined ? scenario.overMs : parseDurationMs(overText);
  if (overMs === undefined || overMs < 100 || overMs > overMaxMs) {
    errors.push(`--over: found "${overText}"; must be a duration from 100ms to 24h, such as 10s`);
  }
  const stockGiven = whole('stock', 0, stockMax);
  if (stockGiven !== undefined && target !== undefined) {
    errors.push('--stock: only with --embedded; a target has its own stock');
  }
  const peopleGiven = whole('people', 1, peopleMax);
  const people = Math.max(1, Math.round((peopleGiven ?? scenario.people) * scale));
  if (people > peopleMax) {
    errors.push(`--people times --scale: found ${people}; at most ${peopleMax}`);
  }
  const adminUrl = textOf(raw['adminUrl']);
  if (adminUrl !== undefined && !isHttpUrl(adminUrl)) {
    errors.push(`admin URL: found "${adminUrl}"; must be a URL such as http://127.0.0.1:9090`);
  }

  const options: RushOptions = {
    target: target?.replace(/\/+$/, ''),
    activity: textOf(raw['activity']),
    scenarioName: scenarioName ?? 'even',
    scenario: {
      ...scenario,
      bots: share('bots') ?? scenario.bots,
      duplicates: share('duplicates') ?? scenario.duplicates,
      timeouts: share('timeouts') ?? scenario.timeouts,
    },
    people,
    overMs: overMs ?? scenario.overMs,
    stock: Math.round((stockGiven ?? scenario.stock) * scale),
    scale,
    seed: whole('seed', 0, 2 ** 32 - 1) ?? 1,
    arrivalsFile: textOf(raw['arrivals']),
    reportFile: textOf(raw['report']),
    json: raw['json'] === true,
    adminUrl: adminUrl?.replace(/\/+$/, ''),
    adminToken: textOf(raw['adminToken']),
  };
  return errors.length > 0 ? { ok: false, errors } : { ok: true, options };
}

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  return typeof value === 'number' ? String(value) : undefined;
}

function isHttpUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol } = new URL(text);
  return protocol === 'http:' || protocol === 'https:';
}
