import { type Language, languageTag } from './language.ts';

/** How money, instants and spans read. Shared by server and browser; no clock in here. */

const moneyFormats = new Map<string, Intl.NumberFormat>();
const instantFormats = new Map<string, Intl.DateTimeFormat>();
const countFormats: Partial<Record<Language, Intl.NumberFormat>> = {};

/** Formats made are few (languages × currencies or zones of the configuration), yet bounded. */
const formatsMax = 256;

function remember<Format>(cache: Map<string, Format>, key: string, make: () => Format): Format {
  let format = cache.get(key);
  if (format === undefined) {
    if (cache.size >= formatsMax) cache.clear();
    format = make();
    cache.set(key, format);
  }
  return format;
}

/** `amountMinor` is in minor units of an ISO 4217 currency; how many digits, `Intl` knows. */
export function formatMoney(language: Language, amountMinor: number, currency: string): string {
  const format = remember(
    moneyFormats,
    `${language} ${currency}`,
    () =>
      new Intl.NumberFormat(languageTag[language], {
        style: 'currency',
        currency,
        currencyDisplay: 'narrowSymbol',
      }),
  );
  return format.format(amountMinor / 10 ** (format.resolvedOptions().maximumFractionDigits ?? 2));
}

export function formatCount(language: Language, count: number): string {
  countFormats[language] ??= new Intl.NumberFormat(languageTag[language]);
  return countFormats[language].format(count);
}

/** Day, time and offset in a zone: `Sat 14 Mar, 20:00 GMT+8`. `zone` undefined is the browser's own. */
export function formatInstant(language: Language, zone: string | undefined, atMs: number): string {
  const make = (options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat =>
    remember(
      instantFormats,
      `${language} ${zone ?? ''} ${Object.keys(options).join()}`,
      () =>
        new Intl.DateTimeFormat(language === 'en' ? 'en-GB' : 'zh-CN', {
          ...options,
          ...(zone === undefined ? {} : { timeZone: zone }),
        }),
    );
  const day = make({ weekday: 'short', month: 'short', day: 'numeric' }).format(atMs);
  const time = make({ hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
  const offset = make({ timeZoneName: 'shortOffset' })
    .formatToParts(atMs)
    .find((part) => part.type === 'timeZoneName')?.value;
  return `${day}${language === 'en' ? ', ' : ' '}${time.format(atMs)} ${offset ?? ''}`.trimEnd();
}

/** A clock face counting down: `0:07`, `12:30`, `3:00:00`, and days in words. Never below zero. */
export function formatCountdown(language: Language, leftMs: number): string {
  const total = Math.max(0, Math.ceil(leftMs / 1000));
  const days = Math.floor(total / 86_400);
  const hours = Math.floor((total % 86_400) / 3600);
  const minutes = Math.floor((total % 3600) / 60);
  const two = (value: number): string => String(value).padStart(2, '0');
  const seconds = two(total % 60);
  if (days > 0)
    return `${days}${language === 'zh' ? ' 天 ' : 'd '}${hours}:${two(minutes)}:${seconds}`;
  return hours > 0 ? `${hours}:${two(minutes)}:${seconds}` : `${minutes}:${seconds}`;
}

/** A rough span in words, as one would say it: `under a minute`, `up to 3 min`, `2–5 min`, `1–2 h`. */
export function formatSpan(language: Language, lowMs: number, highMs: number): string {
  const zh = language === 'zh';
  if (highMs < 60_000) return zh ? '不到 1 分钟' : 'under a minute';
  const hours = highMs >= 2 * 3_600_000;
  const unit = hours ? 3_600_000 : 60_000;
  const low = Math.floor(lowMs / unit);
  const high = Math.max(low, Math.ceil(highMs / unit));
  // From nothing on: what is said is the other end.
  if (low === 0 && high > 0) {
    return zh ? `最多 ${high} ${hours ? '小时' : '分钟'}` : `up to ${high} ${hours ? 'h' : 'min'}`;
  }
  const range = low === high ? `${high}` : `${low}–${high}`;
  if (zh) return `${range} ${hours ? '小时' : '分钟'}`;
  return `${range} ${hours ? 'h' : 'min'}`;
}
