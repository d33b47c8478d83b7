/**
 * An operator's branding, as data: a few words and colours that become CSS custom properties. It can
 * change how the pages look and not whether they can be read: a colour whose text would fall below
 * the contrast of WCAG 2.2 AA is refused with the ratio that was found.
 */
export interface Theme {
  /** Name in the header, the title and the footer. */
  readonly name: string;
  /** Up to three characters in the mark; the built-in mark where empty. */
  readonly logoText: string;
  /** `#rrggbb`: buttons, links, the mark; on light and on dark ground. */
  readonly accent: string;
  readonly accentDark: string;
  /** Corner radius, px, 0 to 28. */
  readonly radiusPx: number;
  readonly typeface: 'sans' | 'serif';
}

export const defaultTheme: Theme = {
  name: 'Sluice',
  logoText: '',
  accent: '#0b5c73',
  accentDark: '#7fd4e4',
  radiusPx: 18,
  typeface: 'sans',
};

/** Grounds that the accents stand on; the same as in web/storefront/style.css. */
export const lightGround = '#ffffff';
export const darkGround = '#12222b';

/** WCAG 2.2 AA for text. */
const contrastMin = 4.5;

const hexColour = /^#[0-9a-f]{6}$/i;

function luminance(colour: string): number {
  const channel = (at: number): number => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
}

/** Contrast ratio of two `#rrggbb` colours, 1 to 21 (WCAG 2.2, relative luminance). */
export function contrast(first: string, second: string): number {
  const [light, dark] = [luminance(first), luminance(second)].sort((a, b) => b - a);
  return ((light ?? 0) + 0.05) / ((dark ?? 0) + 0.05);
}

/** Black or white, whichever reads better on the colour. At least one always reaches 4.5. */
export function inkOn(colour: string): string {
  return contrast(colour, '#ffffff') >= contrast(colour, '#06141b') ? '#ffffff' : '#06141b';
}

/**
 * Reads a theme file's content. Throws RangeError that lists every fault with what was found and what
 * is allowed. Unknown members are faults.
 */
export function parseTheme(source: unknown): Theme {
  const faults: string[] = [];
  if (typeof source !== 'object' || source === null || Array.isArray(source))
    throw new RangeError(`theme: found ${JSON.stringify(source)}, allowed is an object`);
  const found: Record<string, unknown> = { ...source };
  const take = <Value>(
    name: string,
    fallback: Value,
    allowed: string,
    holds: (value: unknown) => value is Value,
  ): Value => {
    const value = found[name];
    delete found[name];
    if (value === undefined) return fallback;
    if (holds(value)) return value;
    faults.push(`theme.${name}: found ${JSON.stringify(value)}, allowed: ${allowed}`);
    return fallback;
  };
  const isText =
    (max: number, min = 0) =>
    (value: unknown): value is string =>
      typeof value === 'string' &&
      Array.from(value).length >= min &&
      Array.from(value).length <= max;
  const isColour =
    (ground: string) =>
    (value: unknown): value is string =>
      typeof value === 'string' && hexColour.test(value) && contrast(value, ground) >= contrastMin;
  const theme: Theme = {
    name: take('name', defaultTheme.name, '1 to 40 characters', isText(40, 1)),
    logoText: take('logo_text', defaultTheme.logoText, 'up to 3 characters', isText(3)),
    accent: take(
      'accent',
      defaultTheme.accent,
      `#rrggbb with a contrast of at least ${contrastMin} on ${lightGround}`,
      isColour(lightGround),
    ),
    accentDark: take(
      'accent_dark',
      defaultTheme.accentDark,
      `#rrggbb with a contrast of at least ${contrastMin} on ${darkGround}`,
      isColour(darkGround),
    ),
    radiusPx: take(
      'radius_px',
      defaultTheme.radiusPx,
      'an integer from 0 to 28',
      (value): value is number =>
        typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 28,
    ),
    typeface: take(
      'typeface',
      defaultTheme.typeface,
      'sans, serif',
      (value): value is Theme['typeface'] => value === 'sans' || value === 'serif',
    ),
  };
  for (const name of Object.keys(found))
    faults.push(
      `theme.${name}: unknown, allowed: name, logo_text, accent, accent_dark, radius_px, typeface`,
    );
  if (faults.length > 0) throw new RangeError(faults.join('\n'));
  return theme;
}

/** The theme as a style sheet of its own. Every value has a closed form: nothing can break out. */
export function themeCss(theme: Theme): string {
  const colours = (accent: string): string => `--accent:${accent};--on-accent:${inkOn(accent)}`;
  const face =
    theme.typeface === 'serif'
      ? 'ui-serif,"Iowan Old Style","Palatino Linotype",Georgia,"Songti SC","Noto Serif CJK SC",SimSun,serif'
      : 'var(--sans)';
  return `:root{${colours(theme.accent)};--radius:${theme.radiusPx}px;--display:${face}}@media(prefers-color-scheme:dark){:root{${colours(theme.accentDark)}}}`;
}
