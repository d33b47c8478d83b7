import { formatCountdown, formatInstant } from '../../src/gateway/pages/format.ts';
import { liveWords } from '../../src/gateway/pages/live-words.ts';
import { systemEnvironment } from '../../src/sdk/system.ts';
import { type Watch, watchStanding } from '../../src/sdk/watch.ts';
import { solveWork } from '../../src/sdk/work.ts';
import type { Standing } from '../../src/wire/standing.ts';

/**
 * What the pages gain by script: clocks that run, a place that moves, no reload. The server has
 * written everything already; this only rewrites the parts that change, in boxes whose size is
 * fixed, and fetches the page again when its state is another one.
 */
const language = document.documentElement.lang.startsWith('zh') ? 'zh' : 'en';
const words = liveWords[language];
const browser = systemEnvironment();
const calm = matchMedia('(prefers-reduced-motion: reduce)');

let main = document.querySelector('main') as HTMLElement;
/** The server's clock less the browser's, ms: a phone's clock may be wrong by minutes. */
let clockOffsetMs = 0;
let watch: Watch | undefined;
let refreshTimer: ReturnType<typeof setTimeout> | undefined;
let refreshDue = 0;
let failures = 0;
/** The buyer has begun to fill in a form: nothing is swapped under their fingers. */
let touched = false;
/** The title without a place in front of it. */
let plainTitle = document.title;
let lastSaid = '';
let lastSaidMs = 0;

const byId = (id: string): HTMLElement | null => document.getElementById(id);
const serverNow = (): number => Date.now() + clockOffsetMs;

/** At most one message in ten seconds, but for those that matter at once. */
function say(text: string, urgent = false): void {
  const now = Date.now();
  if (text === lastSaid || (!urgent && now - lastSaidMs < 10_000)) return;
  lastSaid = text;
  lastSaidMs = now;
  const box = byId('say');
  if (box !== null) box.textContent = text;
}

function setText(id: string, text: string): void {
  const box = byId(id);
  if (box !== null && box.textContent !== text) box.textContent = text;
}

function runClocks(): void {
  for (const clock of main.querySelectorAll<HTMLElement>('[data-until]')) {
    const left = Number(clock.dataset.until) - serverNow();
    const text = formatCountdown(language, left);
    if (clock.textContent !== text) clock.textContent = text;
    if (left <= 0 && clock.hasAttribute('data-reload')) {
      clock.removeAttribute('data-reload');
      refreshAfter(300 + Math.random() * 1_200);
    }
  }
}

function writeLocalTimes(): void {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const box of main.querySelectorAll<HTMLElement>('[data-local]')) {
    const at = Number(box.dataset.local);
    const here = formatInstant(language, undefined, at);
    const same =
      zone === box.dataset.zone || here === formatInstant(language, box.dataset.zone, at);
    box.textContent = same ? words.sameTime : words.yourTime(here);
  }
}

/** How far the buyer has come since this tab first saw a place, drawn as a line. */
function drawLane(position: number): void {
  const lane = byId('lane');
  if (lane === null) return;
  const key = `lane ${location.pathname}`;
  const first = Math.max(position, Number(sessionStorage.getItem(key) ?? 0));
  sessionStorage.setItem(key, String(first));
  const done = first <= 1 ? 100 : (100 * (first - position)) / (first - 1);
  lane.style.strokeDasharray = `${done.toFixed(2)} 200`;
}

let shown = Number.NaN;
function moveTo(position: number): void {
  const from = shown;
  shown = position;
  if (calm.matches || !(from > position)) return setText('place', words.place(position));
  const start = performance.now();
  const step = (now: number): void => {
    if (shown !== position) return;
    const part = Math.min(1, (now - start) / 700);
    const eased = 1 - (1 - part) ** 3;
    setText('place', words.place(Math.round(from + (position - from) * eased)));
    if (part < 1) requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

function showStanding(standing: Standing): void {
  clockOffsetMs = Date.parse(standing.server_time) - Date.now();
  const section = main.querySelector<HTMLElement>('[data-state]');
  const drawn = String(standing.position !== null);
  if (section?.dataset.state !== standing.state || section.dataset.drawn !== drawn) {
    refreshAfter(Math.random() * 400);
    return;
  }
  if (standing.state !== 'waiting' && standing.state !== 'sold_out') return;
  setText('ahead', words.ahead(standing.ahead));
  setText('wait', words.wait(standing.eta));
  // Said by the page as it was loaded; a forecast is made only while people are let in.
  if (standing.eta !== null) document.getElementById('halted')?.remove();
  setText('held', words.held(standing.eta?.held_ratio ?? null));
  const chance = byId('chance');
  if (chance !== null) chance.className = standing.sell_through;
  setText('chance', words.chance[standing.sell_through]);
  if (standing.position === null) return;
  moveTo(standing.position);
  document.title = `${words.place(standing.position)} · ${plainTitle}`;
  drawLane(standing.position);
  say(words.sayPlace(standing.position, words.wait(standing.eta)));
}

function showLink(alive: boolean): void {
  const box = byId('link');
  if (box === null) return;
  box.classList.toggle('lost', !alive);
  const text = (alive ? box.dataset.live : box.dataset.lost) ?? '';
  if (box.textContent !== text) box.textContent = text;
  if (!alive) say(text);
}

/** The sooner of what is asked for wins: events that keep coming must not put it off for ever. */
function refreshAfter(delayMs: number): void {
  const due = performance.now() + delayMs;
  if (refreshTimer !== undefined && refreshDue <= due) return;
  clearTimeout(refreshTimer);
  refreshDue = due;
  refreshTimer = setTimeout(() => {
    refreshTimer = undefined;
    void refresh();
  }, delayMs);
}

/** Fetches the page again and swaps its content; a redirect is followed as a page of its own. */
async function refresh(): Promise<void> {
  const wanted = new URL(main.dataset.again ?? location.href, location.href);
  wanted.searchParams.delete('lang');
  if (wanted.pathname !== location.pathname) {
    // This page answered a form; where it stands is somewhere else.
    location.replace(wanted);
    return;
  }
  try {
    const reply = await fetch(wanted, { headers: { accept: 'text/html' }, cache: 'no-store' });
    const arrived = new URL(reply.url);
    if (reply.redirected && arrived.pathname !== wanted.pathname) {
      location.replace(arrived);
      return;
    }
    const next = new DOMParser().parseFromString(await reply.text(), 'text/html');
    const content = next.querySelector('main');
    if (content === null) throw new TypeError('no content in the answer');
    failures = 0;
    swap(next.title, content);
  } catch {
    // Offline, or the server is away: the page as it stands is still true; ask again, gently.
    failures += 1;
    refreshAfter(1_000 + Math.random() * Math.min(30_000, 1_000 * 2 ** failures));
  }
}

function swap(title: string, content: HTMLElement): void {
  if (touched) return begin();
  const heading = main.querySelector('h1')?.textContent;
  const hadFocus = main.contains(document.activeElement) && document.activeElement !== main;
  const open = main.querySelector('details[open]') !== null;
  const same = content.querySelector('h1')?.textContent === heading;
  if (same && open) return begin();
  document.title = title;
  plainTitle = title;
  main.replaceWith(content);
  main = content;
  shown = Number.NaN;
  if (!same) {
    if (hadFocus) main.focus();
    const now = main.querySelector('h1')?.textContent ?? words.sayChanged;
    const turn = main.matches('.admitted');
    say(turn ? `${words.sayTurn} ${now}` : now, true);
    if (turn) navigator.vibrate?.([120, 80, 120]);
    scrollTo({ top: 0, behavior: calm.matches ? 'auto' : 'smooth' });
  }
  begin();
}

/** Finds the answer that the page asks for, and sends the form with it. */
async function work(form: HTMLFormElement): Promise<void> {
  const { token = '', bits, expires, again } = form.dataset;
  form.querySelector('.unscripted')?.remove();
  form.querySelector('.work')?.removeAttribute('hidden');
  const field = document.createElement('input');
  field.type = 'hidden';
  field.name = 'challenge';
  const bar = byId('work-done') as HTMLProgressElement | null;
  // An answer that was refused a moment ago will be refused again if this goes on without a pause.
  if (again !== undefined) await new Promise((resolve) => setTimeout(resolve, 2_000));
  const limitMs = Number(expires) - serverNow() - 5_000;
  const answer = await solveWork(browser, token, Number(bits), {
    limitMs,
    onProgress: (share, remainingMs) => {
      if (bar !== null) bar.value = 100 * share;
      const left = words.workLeft(Math.ceil(remainingMs / 1000));
      setText('work-left', left);
      say(left);
    },
  });
  if (bar !== null) bar.value = 100;
  setText('work-left', words.workDone);
  say(words.workDone, true);
  // Without an answer in time the form asks for another challenge.
  field.value = answer ?? '';
  form.append(field);
  form.requestSubmit();
}

/** Starts what this content asks for. */
function begin(): void {
  watch?.stop();
  watch = undefined;
  clearTimeout(refreshTimer);
  refreshTimer = undefined;
  const now = Number(main.dataset.now);
  if (Number.isFinite(now) && !begun.has(main)) clockOffsetMs = now - Date.now();
  begun.add(main);
  writeLocalTimes();
  runClocks();
  const place = byId('place');
  const position = Number((place?.textContent ?? '').replace(/[^0-9]/g, ''));
  if (place !== null && position > 0) {
    shown = position;
    drawLane(position);
  }
  const asked = byId('work');
  if (asked instanceof HTMLFormElement) void work(asked);
  const url = main.dataset.watch;
  if (url !== undefined) {
    watch = watchStanding(browser, {
      url,
      onStanding: showStanding,
      onLink: showLink,
      onGone: () => refreshAfter(Math.random() * 1_000),
    });
    return;
  }
  const pace = Number(main.dataset.refresh);
  if (pace > 0) {
    const factor = document.hidden ? 4 : 1;
    refreshAfter(Math.max(400, pace) * factor * (1 + 0.2 * Math.random()));
  }
}

const begun = new WeakSet<HTMLElement>();

document.addEventListener('input', (event) => {
  if (main.contains(event.target as Node)) touched = true;
});

document.addEventListener('submit', (event) => {
  const form = event.target as HTMLFormElement;
  if (form.dataset.sent !== undefined) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = '';
  const button = form.querySelector('button');
  button?.setAttribute('aria-disabled', 'true');
  say(words.working, true);
});

// A page that comes back from the browser's memory may be old, and its form may be sent again.
addEventListener('pageshow', (event) => {
  if (!event.persisted) return;
  for (const form of document.querySelectorAll('form')) delete form.dataset.sent;
  for (const button of document.querySelectorAll('[aria-disabled]'))
    button.removeAttribute('aria-disabled');
  refreshAfter(Math.random() * 500);
});

document.addEventListener('visibilitychange', () => {
  if (!document.hidden && main.dataset.watch === undefined && main.dataset.refresh !== undefined)
    refreshAfter(Math.random() * 1_000);
});

setInterval(runClocks, 250);
begin();
