import { ApiError, type Me, type Overview, type Point, call } from './api.ts';
import { makeFormats } from './cards.ts';
import { h, setText } from './dom.ts';
import { type NowView, nowView } from './now.ts';
import { auditView, ordersView } from './records.ts';
import { type ConsoleLanguage, type Words, words as allWords } from './words.ts';

/**
 * The operator's page: signs in with the secret of the address's fragment, follows the events, draws.
 * All state that matters is the server's; a reload shows the same.
 */
const app = document.getElementById('app') as HTMLElement;
const tabs = ['now', 'orders', 'audit'] as const;
type Tab = (typeof tabs)[number];

let language: ConsoleLanguage = pickLanguage();
let words: Words = allWords[language];
let tab: Tab = 'now';
let me: Me | undefined;
let now: NowView | undefined;
let events: EventSource | undefined;
let lastMode = '';
let retry: ReturnType<typeof setTimeout> | undefined;
let showLink: (alive: boolean) => void = () => undefined;
let showMode: (mode: string) => void = () => undefined;
let last: { overview: Overview; reasons: readonly string[] } | undefined;

function pickLanguage(): ConsoleLanguage {
  const stored = localStorage.getItem('sluice-language') ?? navigator.language;
  return stored.startsWith('zh') ? 'zh' : 'en';
}

const live = h('p', { class: 'unseen', role: 'status', 'aria-live': 'polite' });
document.body.append(live);
function say(text: string): void {
  setText(live, text);
}

function applyTheme(): void {
  document.documentElement.dataset.theme = localStorage.getItem('sluice-theme') ?? 'auto';
}

/** The secret leaves the address at once: no history entry, bookmark or screenshot keeps it. */
function takeSecret(): string | undefined {
  const secret = /^#sign-in=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1];
  if (secret !== undefined) history.replaceState(null, '', location.pathname);
  return secret;
}

async function start(): Promise<void> {
  applyTheme();
  const secret = takeSecret();
  let problem = '';
  if (secret !== undefined) {
    try {
      await call('POST', '/session', { secret });
    } catch (error) {
      problem = error instanceof ApiError && error.status === 401 ? words.signInBad : String(error);
    }
  }
  try {
    me = await call<Me>('GET', '/session');
    render();
  } catch (error) {
    if (!(error instanceof ApiError)) problem = words.lost;
    signInPage(problem);
  }
}

function signInPage(problem: string): void {
  close();
  document.documentElement.lang = words.tag;
  document.title = `${words.signInTitle} · Sluice`;
  app.replaceChildren(
    h('header', { class: 'top' }, brand(), languageButton()),
    h(
      'main',
      { id: 'main', class: 'signin' },
      h(
        'section',
        { class: 'card' },
        h('h1', {}, words.signInTitle),
        problem !== '' && h('p', { class: 'bad', role: 'alert' }, problem),
        h('p', {}, words.signInText),
        h('p', {}, h('code', {}, words.signInCommand)),
      ),
    ),
  );
}

function brand(): HTMLElement {
  return h('p', { class: 'brand' }, h('span', { class: 'logo', 'aria-hidden': 'true' }), 'Sluice');
}

function languageButton(): HTMLElement {
  const other: ConsoleLanguage = language === 'en' ? 'zh' : 'en';
  return h(
    'button',
    {
      type: 'button',
      class: 'quiet',
      lang: allWords[other].tag,
      title: words.languageHint,
      click: () => {
        language = other;
        words = allWords[language];
        localStorage.setItem('sluice-language', language);
        if (me === undefined) signInPage('');
        else render();
      },
    },
    words.language,
  );
}

function themeSelect(): HTMLElement {
  const chosen = localStorage.getItem('sluice-theme') ?? 'auto';
  const select = h(
    'select',
    {
      'aria-label': words.theme,
      class: 'quiet',
      change: () => {
        localStorage.setItem('sluice-theme', select.value);
        applyTheme();
        render();
      },
    },
    ...Object.entries(words.themes).map(([value, name]) =>
      h('option', { value, selected: value === chosen }, name),
    ),
  );
  return select;
}

function close(): void {
  events?.close();
  events = undefined;
  clearTimeout(retry);
  now?.destroy();
  now = undefined;
}

function render(): void {
  if (me === undefined) return;
  close();
  document.documentElement.lang = words.tag;
  document.title = `${words[tab]} · Sluice`;
  const formats = makeFormats(words.tag);
  const link = h('span', { class: 'link' }, words.live);
  const mode = h('span', { class: 'chip' });
  showLink = (alive) => {
    link.className = alive ? 'link' : 'link lost';
    setText(link, alive ? words.live : words.lost);
    if (!alive) say(words.lost);
  };
  showMode = (name) => {
    mode.className = `chip ${name.toLowerCase()}`;
    setText(mode, words.modes[name] ?? name);
    if (lastMode !== '' && lastMode !== name)
      say(`${words.modeTitle}: ${words.modes[name] ?? name}`);
    lastMode = name;
  };
  const nav = h(
    'nav',
    { 'aria-label': words.sections },
    ...tabs.map((name) =>
      h(
        'button',
        {
          type: 'button',
          'aria-current': name === tab && 'page',
          click: () => {
            tab = name;
            render();
            document.getElementById('main')?.focus();
          },
        },
        words[name],
      ),
    ),
  );
  const main = h('main', { id: 'main', tabindex: -1 }, h('h1', { class: 'unseen' }, words[tab]));
  app.replaceChildren(
    h('a', { class: 'skip', href: '#main' }, words.skip),
    h(
      'header',
      { class: 'top' },
      brand(),
      nav,
      h('div', { class: 'tools' }, mode, link, themeSelect(), languageButton(), signOutButton()),
    ),
    main,
  );
  if (tab === 'orders') main.append(ordersView(words, formats, me, say));
  else if (tab === 'audit') main.append(auditView(words, formats, me));
  else {
    now = nowView(words, formats, me, say);
    main.append(now.element);
    void restore(now);
  }
  follow();
}

function signOutButton(): HTMLElement {
  return h(
    'button',
    {
      type: 'button',
      class: 'quiet',
      click: () => {
        void call('DELETE', '/session').finally(() => {
          me = undefined;
          signInPage('');
        });
      },
    },
    words.signOut,
  );
}

async function restore(view: NowView): Promise<void> {
  try {
    const [past, overview] = await Promise.all([
      call<{ points: Point[]; reasons: string[] }>('GET', '/history'),
      call<Overview>('GET', '/overview'),
    ]);
    view.restore(past.points, past.reasons);
    view.show(overview, null, past.reasons);
    showMode(overview.mode.mode);
  } catch {
    // The events that follow bring the same, a second later.
    if (last !== undefined) view.show(last.overview, null, last.reasons);
  }
}

function follow(): void {
  events = new EventSource('/admin/v1/events');
  events.addEventListener('overview', (event) => {
    const data = JSON.parse(String((event as MessageEvent).data)) as {
      overview: Overview;
      point: Point | null;
      reasons: readonly string[];
    };
    last = data;
    showLink(true);
    showMode(data.overview.mode.mode);
    now?.show(data.overview, data.point, data.reasons);
  });
  events.addEventListener('error', () => {
    showLink(false);
    if (events?.readyState !== EventSource.CLOSED) return;
    // Refused, not merely broken: the session may be over.
    clearTimeout(retry);
    retry = setTimeout(() => void again(), 2_000 + Math.random() * 2_000);
  });
}

async function again(): Promise<void> {
  try {
    me = await call<Me>('GET', '/session');
    render();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      me = undefined;
      signInPage('');
    } else retry = setTimeout(() => void again(), 2_000 + Math.random() * 4_000);
  }
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => render());
addEventListener('hashchange', () => void start());
void start();
