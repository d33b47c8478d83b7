import type { Sku } from '../../../core/activity.ts';
import { poster } from '../art.ts';
import type { PageActivity } from '../deps.ts';
import { formatMoney } from '../format.ts';
import { type Html, attr, html } from '../html.ts';
import { type View, instant, renderPage } from '../layout.ts';
import { phaseChip, phaseClock } from './home.ts';

export interface ActivityFacts {
  /** The buyer holds an entry of this activity. */
  readonly joined: boolean;
  /** Set where people sign in elsewhere and this one has not: where to, if known. */
  readonly signIn?: { readonly url?: string };
}

/** One sale: what, when, how the order is made, and the way in. */
export function activityPage(view: View, sale: PageActivity, facts: ActivityFacts): string {
  const w = view.words;
  const { activity } = sale;
  return renderPage(view, {
    kind: 'activity',
    title: activity.name,
    step: 0,
    ...(sale.phase === 'closed' ? {} : { refreshMs: 30_000 }),
    content: html`<article class="sale">
<div class="hero">${poster(activity.activityId)}<div class="over"><p class="row">${phaseChip(view, sale)}${phaseClock(view, sale, true)}</p><h1>${activity.name}</h1></div></div>
<div class="columns">
<div class="main">${wayIn(view, sale, facts)}</div>
<div class="side">
<section class="card"><h2>${w.timesTitle}</h2><dl class="times">
<div><dt>${w.lobbyOpens}</dt><dd>${instant(view, activity.timeZone, activity.lobbyOpensAtMs)}</dd></div>
<div><dt>${w.saleOpens}</dt><dd>${instant(view, activity.timeZone, activity.opensAtMs)}</dd></div>
<div><dt>${w.saleCloses}</dt><dd>${instant(view, activity.timeZone, activity.closesAtMs)}</dd></div>
</dl></section>
${orderCard(view, sale)}
</div></div></article>`,
  });
}

function wayIn(view: View, sale: PageActivity, facts: ActivityFacts): Html {
  const w = view.words;
  const { activity } = sale;
  const many = activity.skus.length > 1;
  // Boxes to tick only where there is a button that sends them.
  const joins =
    !facts.joined &&
    facts.signIn === undefined &&
    sale.phase !== 'closed' &&
    sale.phase !== 'scheduled';
  const body = html`<h2 id="what">${w.skusTitle}</h2>
<ul class="skus" aria-labelledby="what">${activity.skus.map((sku) => html`<li>${skuRow(view, sale, sku, many && joins)}</li>`)}</ul>
<p class="fine">${w.availabilityNote}</p>`;
  if (facts.joined && sale.phase !== 'closed')
    return html`<section class="card">${body}<p class="actions"><a class="button" href="/a/${activity.activityId}/room">${w.joinPlace}</a></p></section>`;
  if (sale.phase === 'closed' || sale.phase === 'scheduled')
    return html`<section class="card">${body}<p class="notice">${sale.phase === 'closed' ? w.joinClosed : w.joinNotYet}</p></section>`;
  if (facts.signIn !== undefined)
    return html`<section class="card">${body}<p class="notice">${w.signInText}</p>${facts.signIn.url !== undefined && html`<p class="actions"><a class="button" href="${facts.signIn.url}">${w.signIn}</a></p>`}</section>`;
  return html`<form class="card" method="post" action="/a/${activity.activityId}/join">${body}
${sale.phase === 'sold_out' && html`<p class="notice">${w.joinSoldOut}</p>`}
<p class="actions"><button class="button" type="submit">${sale.phase === 'lobby' ? w.joinLobby : w.joinLine}</button></p>
<p class="fine">${w.onePlace}</p></form>`;
}

function skuRow(view: View, sale: PageActivity, sku: Sku, choose: boolean): Html {
  const w = view.words;
  const availability = sale.availability(sku.skuId);
  const price = formatMoney(view.language, sku.price.amountMinor, sku.price.currency);
  const about = html`<span class="what"><strong>${sku.name}</strong>${availability !== undefined && html`<small ${attr('class', `stock ${availability}`)}>${w.availability[availability]}</small>`}<small>${w.perPerson(sku.maxPerPerson)}</small></span><span class="much"><span class="price">${price}</span></span>`;
  return choose
    ? html`<label class="sku"><input type="checkbox" name="sku" value="${sku.skuId}" checked>${about}</label>`
    : html`<div class="sku">${about}</div>`;
}

/** How the order is made, and how to check it. */
export function orderCard(view: View, sale: PageActivity): Html {
  const w = view.words;
  const rule = w.orderRule[sale.activity.room.mode];
  return html`<section class="card"><h2>${w.orderTitle}</h2><p>${rule}</p>${
    sale.commitment !== null &&
    html`<details><summary>${w.commitmentTitle}</summary><p>${w.commitmentText}</p><p><code class="digest">${sale.commitment}</code></p><p>${sale.beacon === undefined ? w.commitmentNoBeacon : w.commitmentBeacon(sale.beacon)}</p>${sale.checkpoint !== undefined && html`<p>${w.checkpointText}</p><p><code class="digest">${sale.checkpoint}</code></p>`}</details>`
  }</section>`;
}
