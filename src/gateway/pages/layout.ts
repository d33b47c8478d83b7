import type { Assets } from './assets.ts';
import { mark, tick } from './art.ts';
import { formatCountdown, formatInstant } from './format.ts';
import { type Html, type HtmlValue, attr, html } from './html.ts';
import { type Language, languageTag } from './language.ts';
import { type LiveWords, liveWords } from './live-words.ts';
import type { Theme } from './theme.ts';
import { type Words, words } from './words.ts';

/** What every view needs to know of the request it answers. */
export interface View {
  readonly language: Language;
  readonly words: Words;
  readonly live: LiveWords;
  readonly theme: Theme;
  readonly assets: Assets;
  readonly nowMs: number;
  /** Path and query of a GET that shows this page again, without `lang`. */
  readonly path: string;
  /** Where the buyer's latest request stands, if a cookie remembers one. */
  readonly latestRequest: string | undefined;
  /** What is shown belongs to a copy of a sale, for a rehearsal. */
  readonly rehearsal: boolean;
}

export function makeView(
  base: Pick<View, 'theme' | 'assets' | 'nowMs' | 'path' | 'latestRequest' | 'rehearsal'>,
  language: Language,
): View {
  return { ...base, language, words: words[language], live: liveWords[language] };
}

export interface Page {
  readonly title: string;
  readonly content: HtmlValue;
  /** Name of the view, for styles and the script. */
  readonly kind: string;
  /** Ask again by itself after so long; at least a second. */
  readonly refreshMs?: number;
  /** Where to ask again, when not at `view.path`. */
  readonly refreshPath?: string;
  /** The script follows this standing instead of fetching the page again. */
  readonly watch?: string;
  /** Which of the five steps the buyer is at, from 0. */
  readonly step?: number;
}

/** Slowest and fastest that a page without script reloads, s. */
const refreshSlowest = 60;
const refreshFastest = 1;

export function renderPage(view: View, page: Page): string {
  const w = view.words;
  const seconds =
    page.refreshMs === undefined
      ? undefined
      : Math.min(refreshSlowest, Math.max(refreshFastest, Math.ceil(page.refreshMs / 1000)));
  const again = page.refreshPath ?? view.path;
  const head = html`<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${page.title} · ${view.theme.name}</title>
<meta name="color-scheme" content="light dark">
<link rel="icon" href="${view.assets.icon.path}" type="image/svg+xml">
<link rel="stylesheet" href="${view.assets.style.path}">
<link rel="stylesheet" href="${view.assets.theme.path}">
<script type="module" src="${view.assets.script.path}"></script>
${seconds !== undefined && html`<noscript><meta http-equiv="refresh" content="${seconds};url=${again}"></noscript>`}`;
  const body = html`<a class="skip" href="#main">${w.skip}</a>
<header class="top"><a class="brand" href="/">${mark(view.theme.logoText)}<span>${view.theme.name}</span></a>${languageSwitch(view)}</header>
${view.rehearsal && html`<p class="rehearsal" role="note"><strong>${w.rehearsal}</strong> ${w.rehearsalText}</p>`}
<main id="main" tabindex="-1" class="${page.kind}" ${attr('data-now', view.nowMs)} ${attr('data-refresh', page.refreshMs)} ${attr('data-again', page.refreshMs === undefined ? undefined : again)} ${attr('data-watch', page.watch)}>
${page.step !== undefined && steps(view, page.step)}
${page.content}
</main>
<footer class="foot">${
    view.latestRequest !== undefined &&
    html`<p>${w.yourRequest}: <a href="${view.latestRequest}">${w.yourRequestLink}</a></p>`
  }<p>${w.footerPromise}</p></footer>
<p class="unseen" role="status" aria-live="polite" id="say"></p>`;
  return `<!doctype html>
<html lang="${languageTag[view.language]}"><head>${head.text}</head>
<body>${body.text}</body></html>
`;
}

function languageSwitch(view: View): Html {
  const link = (language: Language, name: string): Html => {
    const joint = view.path.includes('?') ? '&' : '?';
    const here = language === view.language;
    return html`<a href="${view.path}${joint}lang=${language}" ${attr('lang', languageTag[language])} ${attr('hreflang', languageTag[language])} ${attr('aria-current', here && 'true')}>${name}</a>`;
  };
  return html`<nav class="languages" aria-label="${view.words.languageLabel}">${link('en', 'English')}${link('zh', '中文')}</nav>`;
}

function steps(view: View, at: number): Html {
  const w = view.words;
  const items = w.steps.map((name, index) => {
    const done = index < at;
    return html`<li ${attr('class', done ? 'done' : undefined)} ${attr('aria-current', index === at && 'step')}><span class="dot">${done ? tick : index + 1}</span><span class="name">${name}${done && html`<span class="unseen"> (${w.stepDone})</span>`}</span></li>`;
  });
  return html`<ol class="steps" aria-label="${w.stepsLabel}">${items}</ol>`;
}

/** A clock that counts down to an instant; the script keeps it going. */
export function countdown(view: View, atMs: number, reload = false): Html {
  return html`<time class="clock" role="timer" datetime="${new Date(atMs).toISOString()}" ${attr('data-until', atMs)} ${attr('data-reload', reload)}>${formatCountdown(view.language, atMs - view.nowMs)}</time>`;
}

/**
 * An instant in the event's zone, and below it in the buyer's: the server cannot know that one, so it
 * writes UTC, which the script replaces in place.
 */
export function instant(view: View, zone: string, atMs: number): Html {
  const iso = new Date(atMs).toISOString();
  return html`<time datetime="${iso}">${formatInstant(view.language, zone, atMs)}</time><small class="local" ${attr('data-local', atMs)} ${attr('data-zone', zone)}>${view.words.inUtc(formatInstant(view.language, 'UTC', atMs))}</small>`;
}

/** A page that says one thing and where to go from there. */
export function messagePage(
  view: View,
  heading: string,
  text: string,
  more: { readonly link?: string; readonly label?: string } & Partial<Page> = {},
): string {
  return renderPage(view, {
    kind: 'message',
    title: heading,
    content: html`<section class="card calm"><h1>${heading}</h1><p>${text}</p><p class="actions"><a class="button quiet" href="${more.link ?? '/'}">${more.label ?? view.words.home}</a></p></section>`,
    ...(more.refreshMs === undefined ? {} : { refreshMs: more.refreshMs }),
    ...(more.refreshPath === undefined ? {} : { refreshPath: more.refreshPath }),
  });
}
