import type { Dice } from './dice.ts';
import { question } from './dice.ts';

/** When people come, in an open model: fixed beforehand, whatever the server does. */
export type ArrivalShape = 'constant' | 'ramp' | 'spike';

export interface Arrivals {
  /** Instant of each person's arrival, ms from the start; ascending by person. */
  readonly atMs: Float64Array;
  /** Household of each person: an index below `households`. */
  readonly household: Uint32Array;
  readonly households: number;
  /** Addresses by household when the arrivals come from a log; else empty. */
  readonly addresses: readonly string[];
  /** Agents by person, as indices into `agents`; from a log only. */
  readonly agentOf: Uint32Array;
  readonly agents: readonly string[];
}

/** How many live behind one address: 1 to 5, two and a half on average. */
const householdSizes = [1, 1, 2, 2, 2, 3, 3, 4, 5] as const;

/**
 * Arrivals of a shape over `overMs`.
 * - constant: evenly spread, as independent people would be (uniform order statistics);
 * - ramp: the rate grows from zero in proportion to time;
 * - spike: a tenth come evenly, nine tenths in the last fifth of the time.
 */
export function shapedArrivals(
  shape: ArrivalShape,
  people: number,
  overMs: number,
  dice: Dice,
): Arrivals {
  const atMs = new Float64Array(people);
  for (let person = 0; person < people; person += 1) {
    const u = dice.roll(person, question.arrival);
    if (shape === 'constant') atMs[person] = u * overMs;
    else if (shape === 'ramp') atMs[person] = Math.sqrt(u) * overMs;
    else atMs[person] = (u < 0.1 ? u * 10 : 0.8 + ((u - 0.1) / 0.9) * 0.2) * overMs;
  }
  atMs.sort();
  const household = new Uint32Array(people);
  let households = 0;
  let left = 0;
  for (let person = 0; person < people; person += 1) {
    if (left === 0) {
      left = householdSizes[dice.below(households, question.household, householdSizes.length)] ?? 1;
      households += 1;
    }
    household[person] = households - 1;
    left -= 1;
  }
  // Members of a household stand beside each other in the numbering, and so arrive together; shuffle
  // so that they arrive apart, as people do.
  for (let person = people - 1; person > 0; person -= 1) {
    const other = dice.below(person, question.household + 500, person + 1);
    const kept = household[person] ?? 0;
    household[person] = household[other] ?? 0;
    household[other] = kept;
  }
  return {
    atMs,
    household,
    households,
    addresses: [],
    agentOf: new Uint32Array(0),
    agents: [],
  };
}

export interface LogLine {
  readonly address: string;
  readonly atMs: number;
  readonly agent: string;
}

const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const commonLine =
  /^(\S+) \S+ .*?\[(\d{2})\/([A-Z][a-z]{2})\/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})\]/;

/** One line in common or combined log format; undefined when it is neither. */
export function parseLogLine(line: string): LogLine | undefined {
  const match = commonLine.exec(line);
  if (match === null) return undefined;
  const [, address = '', day, monthName = '', year, hour, minute, second, sign, zoneH, zoneM] =
    match;
  const month = months.indexOf(monthName);
  if (month < 0) return undefined;
  const offsetMin = (sign === '-' ? -1 : 1) * (Number(zoneH) * 60 + Number(zoneM));
  const atMs =
    Date.UTC(Number(year), month, Number(day), Number(hour), Number(minute), Number(second)) -
    offsetMin * 60_000;
  // Combined format ends with "referer" "agent"; the agent is the last quoted field.
  const end = line.lastIndexOf('"');
  const begin = end > 0 ? line.lastIndexOf('"', end - 1) : -1;
  const quotes = line.split('"').length - 1;
  const agent = quotes >= 6 && begin >= 0 ? line.slice(begin + 1, end) : '';
  return { address, atMs, agent: agent === '-' ? '' : agent };
}

/** The log has no line that could be an arrival, or too many that are not. */
export class BadLogError extends Error {
  override readonly name = 'BadLogError';
}

/**
 * Arrivals of a real access log, squeezed into `overMs`: each line is one arrival at its scaled
 * instant, each distinct address one household, its agent the person's. People are dealt to arrivals
 * in order of time and cycled where there are fewer lines. With more lines than people, the first
 * lines in order of time are used, and it is their span that is squeezed.
 *
 * Lines that are not log lines are counted in `skipped`; BadLogError when more than a tenth are.
 */
export function logArrivals(
  text: string,
  people: number,
  overMs: number,
): Arrivals & { readonly lines: number; readonly skipped: number } {
  const lines: LogLine[] = [];
  let skipped = 0;
  for (const raw of text.split('\n')) {
    if (raw.trim() === '') continue;
    const line = parseLogLine(raw);
    if (line === undefined) skipped += 1;
    else lines.push(line);
  }
  if (lines.length === 0 || skipped > lines.length / 9) {
    throw new BadLogError(
      `found ${lines.length} lines in common or combined log format and ${skipped} in none; ` +
        'at least nine in ten must be, such as ' +
        '203.0.113.5 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 512 "-" "Agent"',
    );
  }
  lines.sort((a, b) => a.atMs - b.atMs);
  const used = lines.slice(0, Math.min(lines.length, people));
  const firstMs = used[0]?.atMs ?? 0;
  const spanMs = Math.max(1, (used[used.length - 1]?.atMs ?? 0) - firstMs);

  // Person p is dealt line p mod L; persons are then numbered by instant, so that the schedule is
  // ascending. Equal instants keep the order of dealing.
  const dealt = Array.from({ length: people }, (_, person) => person % used.length);
  dealt.sort((a, b) => a - b);
  const atMs = new Float64Array(people);
  const household = new Uint32Array(people);
  const agentOf = new Uint32Array(people);
  const addressIndex = new Map<string, number>();
  const agentIndex = new Map<string, number>();
  dealt.forEach((lineAt, person) => {
    const line = used[lineAt];
    if (line === undefined) return;
    atMs[person] = ((line.atMs - firstMs) / spanMs) * overMs;
    household[person] = indexOf(addressIndex, line.address);
    agentOf[person] = indexOf(agentIndex, line.agent);
  });
  return {
    atMs,
    household,
    households: addressIndex.size,
    addresses: [...addressIndex.keys()],
    agentOf,
    agents: [...agentIndex.keys()],
    lines: lines.length,
    skipped,
  };
}

function indexOf(table: Map<string, number>, key: string): number {
  const known = table.get(key);
  if (known !== undefined) return known;
  table.set(key, table.size);
  return table.size - 1;
}

/**
 * A household's address where no log names one: IPv4 in 100.64.0.0/10 (what carriers share among
 * phones) for three in four, an IPv6 /56 of its own in 2001:db8::/32 for the rest. Neighbouring
 * households are scattered over the range, so that a limit on a prefix meets strangers, not a street.
 */
export function householdAddress(household: number, variant: number): string {
  const scattered = Math.imul(household + Math.imul(variant, 7919), 2654435761) >>> 0;
  if (household % 4 === 3) {
    const high = (scattered >>> 16) & 0xffff;
    const low = (scattered & 0xff) << 8;
    return `2001:db8:${high.toString(16)}:${low.toString(16)}::${(household & 0xffff).toString(16)}`;
  }
  // Odd multiplier modulo 2^22: a bijection, so distinct households have distinct addresses.
  const host = scattered & 0x3fffff;
  return `100.${64 + (host >>> 16)}.${(host >>> 8) & 0xff}.${host & 0xff}`;
}
