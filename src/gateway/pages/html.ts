/**
 * HTML by tagged template, escaped where it stands.
 *
 * The danger of string templates is the one interpolation that somebody forgot to escape. Here
 * nothing can be forgotten: whatever is interpolated is escaped, unless it is already an `Html`, and
 * an `Html` comes only from this tag, from `attr`, or from `trusted` (constants of our own source).
 *
 * Escaping alone is right in two places only: between tags, and inside a double-quoted attribute.
 * Anywhere else (`<a href=${x}>`, `<script>${x}</script>`, a tag's name) it would be a false promise,
 * so the literal parts of every template are read once by a small scanner, and a template that
 * interpolates in such a place throws the first time it is used: a mistake of ours that the first
 * test of the page finds, never a hole that an attacker finds.
 */

/** Markup that may be written as it is. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): string {
    return this.text;
  }
}

/** What a template accepts; `false`, `null` and `undefined` write nothing. */
export type HtmlValue =
  | string
  | number
  | Html
  | Attribute
  | readonly HtmlValue[]
  | false
  | null
  | undefined;

/** An attribute that is there or not; may stand only inside a tag. */
export class Attribute {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
  '`': '&#96;',
};

/** Safe between tags and inside a quoted attribute. O(length). */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"'`]/g, (character) => escapes[character] ?? '');
}

/** Marks a constant of our own source as markup. Never give it anything that came from outside. */
export function trusted(text: string): Html {
  return new Html(text);
}

const attributeName = /^[a-z][a-z0-9-]*$/;

/**
 * `name`, or `name="value"`, or nothing when `value` is `false` or `undefined`. Names are ours, and
 * an event handler or a style is refused: the content policy would not run it anyway.
 */
export function attr(name: string, value: string | number | boolean | undefined): Attribute {
  if (!attributeName.test(name) || name.startsWith('on') || name === 'style')
    throw new TypeError(
      `attribute "${name}": allowed are plain lower-case names, no on…, no style`,
    );
  if (value === false || value === undefined) return new Attribute('');
  if (value === true) return new Attribute(name);
  return new Attribute(`${name}="${escapeHtml(String(value))}"`);
}

type Place = 'text' | 'tag' | 'quoted';

/** Where each interpolation of a template stands, or a TypeError that shows the place. */
function placesOf(strings: readonly string[]): readonly Place[] {
  const places: Place[] = [];
  let state: 'text' | 'tag' | 'quoted' | 'raw' | 'comment' = 'text';
  let rawName = '';
  strings.forEach((part, index) => {
    for (let at = 0; at < part.length; at += 1) {
      const rest = part.slice(at, at + 12).toLowerCase();
      if (state === 'text') {
        if (rest.startsWith('<!--')) state = 'comment';
        else if (part[at] === '<') {
          state = 'tag';
          rawName = /^<(script|style|textarea|title)\b/.exec(rest)?.[1] ?? '';
          if (rawName === 'title' || rawName === 'textarea') rawName = '';
        }
      } else if (state === 'comment') {
        if (rest.startsWith('-->')) state = 'text';
      } else if (state === 'quoted') {
        if (part[at] === '"') state = 'tag';
      } else if (state === 'tag') {
        if (part[at] === '"') state = 'quoted';
        else if (part[at] === '>') state = rawName === '' ? 'text' : 'raw';
      } else if (rest.startsWith(`</${rawName}`)) {
        rawName = '';
        state = 'tag';
      }
    }
    if (index === strings.length - 1) return;
    const before = part.slice(-24);
    if (state === 'raw' || state === 'comment')
      throw new TypeError(`a template interpolates inside a script, style or comment: …${before}`);
    if (state === 'tag' && !/\s$/.test(part))
      throw new TypeError(`a template interpolates in an unquoted place of a tag: …${before}`);
    places.push(state);
  });
  return places;
}

const known = new WeakMap<readonly string[], readonly Place[]>();

function write(value: HtmlValue, place: Place): string {
  if (value === false || value === null || value === undefined) return '';
  if (value instanceof Attribute) {
    if (place !== 'tag') throw new TypeError('an attribute may stand only inside a tag');
    return value.text;
  }
  if (place === 'tag')
    throw new TypeError('inside a tag only attr(…) may be interpolated, or nothing');
  if (value instanceof Html) {
    if (place === 'quoted') throw new TypeError('markup may not stand inside an attribute');
    return value.text;
  }
  if (typeof value === 'string') return escapeHtml(value);
  if (typeof value === 'number') return String(value);
  return value.map((one) => write(one, place)).join('');
}

/** The tag. Throws TypeError for a template that interpolates where escaping would not be enough. */
export function html(strings: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  let places = known.get(strings);
  if (places === undefined) {
    places = placesOf(strings);
    known.set(strings, places);
  }
  let out = strings[0] ?? '';
  for (let index = 0; index < values.length; index += 1) {
    out += write(values[index], places[index] ?? 'text') + (strings[index + 1] ?? '');
  }
  return new Html(out);
}
