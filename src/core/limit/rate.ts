/**
 * Rates as people write them (`5/s`, `0.5/s`, `100/10s`, `1/30d`) and as the arithmetic needs them:
 * two integers, thousandths of a token per so many microseconds. No float ever stands for a rate.
 */

/** So many thousandths of a token in so many microseconds. 0 tokens: nothing ever comes back. */
export interface Rate {
  /** 0 … 10^12 (a thousand million tokens). */
  readonly tokensMilli: number;
  /** 1 … 366 days. */
  readonly periodUs: number;
}

/** What was written is not a rate; `message` quotes it and says what is allowed. */
export class RateSyntaxError extends RangeError {
  override readonly name = 'RateSyntaxError';
}

/** Thousandths of a token in one token. */
export const milli = 1000;
/** Tokens that one rate may hand out per period. */
export const rateMaxTokens = 1_000_000_000;
/** A period longer than a year is a ban, and a ban is written as one. */
export const periodMaxUs = 366 * 86_400_000_000;

const unitUs: ReadonlyMap<string, number> = new Map([
  ['us', 1],
  ['ms', 1_000],
  ['s', 1_000_000],
  ['m', 60_000_000],
  ['h', 3_600_000_000],
  ['d', 86_400_000_000],
]);

const ratePattern = /^(\d{1,10})(?:\.(\d{1,3}))?\/(\d{1,14}(?:\.\d{1,6})?)?(us|ms|s|m|h|d)$/;
const durationPattern = /^(\d{1,14})(?:\.(\d{1,6}))?(us|ms|s|m|h|d)$/;
const allowedRate =
  'a number with at most three decimals, "/", and a period such as s, 10s, 1m, 1h or 30d (examples: 5/s, 0.5/s, 100/10s, 1/30d, 0/s)';
const allowedDuration = 'a number and a unit of us, ms, s, m, h or d (examples: 250ms, 10s, 30d)';

/**
 * Reads a duration such as `250ms`, `0.5s` or `30d` into microseconds, exactly.
 * @throws RateSyntaxError when it is not one, is no whole number of microseconds, or passes 366 days.
 */
export function parseDurationUs(text: string): number {
  return durationUs(text, text);
}

/** `quoted` is what the person wrote, of which `text` may be a part. */
function durationUs(text: string, quoted: string): number {
  const match = durationPattern.exec(text);
  const unit = match === null ? undefined : unitUs.get(match[3] ?? '');
  if (match === null || unit === undefined) {
    throw new RateSyntaxError(`found "${clip(quoted)}"; allowed is ${allowedDuration}`);
  }
  const decimals = match[2] ?? '';
  // Integers only: 0.1 has no exact float, 1/10 of an hour is an exact count of microseconds.
  const us = Number(match[1]) * unit + (Number(`0${decimals}`) * unit) / 10 ** decimals.length;
  if (us > periodMaxUs) {
    throw new RateSyntaxError(`found "${quoted}"; allowed is a time of at most 366d`);
  }
  if (!Number.isInteger(us)) {
    throw new RateSyntaxError(`found "${quoted}"; allowed is a whole number of microseconds`);
  }
  return us;
}

/** Reads `N/PERIOD`. @throws RateSyntaxError saying what was found and what is allowed. */
export function parseRate(text: string): Rate {
  const match = ratePattern.exec(text);
  if (match === null) {
    throw new RateSyntaxError(`found "${clip(text)}"; allowed is ${allowedRate}`);
  }
  const tokensMilli = Number(match[1]) * milli + Number((match[2] ?? '').padEnd(3, '0'));
  const periodUs = durationUs(`${match[3] ?? '1'}${match[4] ?? ''}`, text);
  if (periodUs < 1) {
    throw new RateSyntaxError(`found "${text}"; allowed is a period of 1us to 366d`);
  }
  if (tokensMilli > rateMaxTokens * milli) {
    throw new RateSyntaxError(`found "${text}"; allowed is at most ${rateMaxTokens} per period`);
  }
  return { tokensMilli, periodUs };
}

/** The shortest writing that `parseRate` reads back as the same rate. */
export function formatRate(rate: Rate): string {
  const { count, unit } = largestUnit(rate.periodUs);
  return `${formatMilli(rate.tokensMilli)}/${count === 1 ? '' : count}${unit}`;
}

/** The shortest writing that `parseDurationUs` reads back as the same duration. */
export function formatDuration(us: number): string {
  const { count, unit } = largestUnit(us);
  return `${count}${unit}`;
}

/** Thousandths as a decimal number: 1500 is `1.5`. */
export function formatMilli(amountMilli: number): string {
  const whole = Math.floor(amountMilli / milli);
  const rest = amountMilli % milli;
  return rest === 0 ? `${whole}` : `${whole}.${String(rest).padStart(3, '0').replace(/0+$/, '')}`;
}

/** Rates are equal when they hand out the same in the same time, however they are written. */
export function sameRate(a: Rate, b: Rate): boolean {
  return BigInt(a.tokensMilli) * BigInt(b.periodUs) === BigInt(b.tokensMilli) * BigInt(a.periodUs);
}

/** Tokens per second as a float: for display, headers and capacity sums, never for a decision. */
export function perSecond(rate: Rate): number {
  return (rate.tokensMilli * 1_000) / rate.periodUs;
}

function largestUnit(us: number): { count: number; unit: string } {
  let best = { count: us, unit: 'us' };
  for (const [unit, size] of unitUs) {
    if (us >= size && us % size === 0) best = { count: us / size, unit };
  }
  return best;
}

function clip(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 60)}…`;
}
