import type { PageActivity } from '../deps.ts';
import { poster } from '../art.ts';
import { formatMoney } from '../format.ts';
import { type Html, attr, html } from '../html.ts';
import { type View, countdown, instant, renderPage } from '../layout.ts';

/** Everything on sale, one ticket each. */
export function homePage(view: View, activities: readonly PageActivity[]): string {
  const w = view.words;
  const list =
    activities.length === 0
      ? html`<section class="card calm"><h2>${w.homeEmpty}</h2><p>${w.homeEmptyMore}</p></section>`
      : html`<ul class="tickets">${activities.map((one) => html`<li>${ticket(view, one)}</li>`)}</ul>`;
  return renderPage(view, {
    kind: 'home',
    title: w.homeTitle,
    content: html`<header class="lead"><h1>${w.homeTitle}</h1><p>${w.homeLead}</p></header>${list}`,
  });
}

function ticket(view: View, sale: PageActivity): Html {
  const { activity } = sale;
  const cheapest = [...activity.skus].sort((a, b) => a.price.amountMinor - b.price.amountMinor)[0];
  return html`<a class="ticket" href="/a/${activity.activityId}"><span class="art">${poster(activity.activityId)}</span><span class="stub"><span class="row">${phaseChip(view, sale)}${phaseClock(view, sale)}</span><strong class="name">${activity.name}</strong><span class="when">${instant(view, activity.timeZone, activity.opensAtMs)}</span>${cheapest !== undefined && html`<span class="price">${formatMoney(view.language, cheapest.price.amountMinor, cheapest.price.currency)}${activity.skus.length > 1 && '+'}</span>`}</span></a>`;
}

export function phaseChip(view: View, sale: PageActivity): Html {
  return html`<span ${attr('class', `chip ${sale.phase}`)}>${view.words.phase[sale.phase]}</span>`;
}

/** The clock that matters in this phase. */
export function phaseClock(view: View, sale: PageActivity, reload = false): Html {
  const w = view.words;
  const { activity } = sale;
  const line = (label: string, atMs: number): Html =>
    html`<span class="until">${label} ${countdown(view, atMs, reload)}</span>`;
  if (sale.phase === 'scheduled') return line(w.lobbyOpensIn, activity.lobbyOpensAtMs);
  if (sale.phase === 'lobby') return line(w.opensIn, activity.opensAtMs);
  if (sale.phase === 'closed') return html`<span class="until">${w.ended}</span>`;
  return line(w.closesIn, activity.closesAtMs);
}
