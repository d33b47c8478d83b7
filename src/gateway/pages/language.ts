/** Which of the two languages a page speaks: the address says, else the cookie, else the browser. */
export type Language = 'en' | 'zh';

export const languages: readonly Language[] = ['en', 'zh'];

/** BCP 47, for `lang`, `Intl` and `Content-Language`. */
export const languageTag: Readonly<Record<Language, string>> = { en: 'en', zh: 'zh-CN' };

export function asLanguage(text: string | undefined): Language | undefined {
  const primary = text?.trim().toLowerCase().split('-', 1)[0];
  return primary === 'en' || primary === 'zh' ? primary : undefined;
}

/** Highest quality value first, the browser's order among equals; `*` means English. O(length). */
export function fromAcceptLanguage(header: string | undefined): Language | undefined {
  if (header === undefined) return undefined;
  let best: Language | undefined;
  let bestQuality = 0;
  for (const part of header.slice(0, 512).split(',')) {
    const [range = '', ...parameters] = part.split(';');
    const language = range.trim() === '*' ? 'en' : asLanguage(range);
    if (language === undefined) continue;
    const stated = parameters.map((one) => /^\s*q=([01](?:\.\d{0,3})?)\s*$/.exec(one)?.[1]);
    const quality = Number(stated.find((one) => one !== undefined) ?? '1');
    if (quality > bestQuality) {
      best = language;
      bestQuality = quality;
    }
  }
  return best;
}

export function chooseLanguage(
  query: string | undefined,
  cookie: string | undefined,
  acceptLanguage: string | undefined,
): Language {
  return asLanguage(query) ?? asLanguage(cookie) ?? fromAcceptLanguage(acceptLanguage) ?? 'en';
}

/**
 * Does the caller want JSON? True when `application/json` (or a `+json` type) is acceptable in any
 * position and `text/html` is not preferred over it. A browser never lists JSON, a script often does.
 */
export function wantsJson(accept: string | undefined): boolean {
  if (accept === undefined) return false;
  let json = 0;
  let page = 0;
  for (const part of accept.slice(0, 1024).split(',')) {
    const [range = '', ...parameters] = part.split(';');
    const stated = parameters.map((one) => /^\s*q=([01](?:\.\d{0,3})?)\s*$/.exec(one)?.[1]);
    const quality = Number(stated.find((one) => one !== undefined) ?? '1');
    const type = range.trim().toLowerCase();
    if (type === 'application/json' || /^application\/[a-z.-]+\+json$/.test(type))
      json = Math.max(json, quality);
    if (type === 'text/html') page = Math.max(page, quality);
  }
  return json > 0 && json >= page;
}
