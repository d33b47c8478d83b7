import type { Standing } from '../../../wire/standing.ts';
import { gate } from '../art.ts';
import type { PageActivity } from '../deps.ts';
import { formatMoney } from '../format.ts';
import { type Html, type HtmlValue, attr, html } from '../html.ts';
import { type View, countdown, renderPage } from '../layout.ts';
import { orderCard } from './activity.ts';

/** The page that a waiting person looks at: one heading for each state, figures in fixed places. */
export function roomPage(view: View, sale: PageActivity, standing: Standing): string {
  const { activity } = sale;
  const waits = standing.state === 'waiting' || standing.state === 'sold_out';
  const turn = standing.state === 'admitted' || standing.state === 'claimed';
  return renderPage(view, {
    kind: `room ${standing.state}`,
    title: headings(view, standing)[0],
    step: turn ? 2 : 1,
    ...(waits || standing.state === 'admitted'
      ? {
          refreshMs: standing.next_poll_after_ms,
          watch: `/v1/activities/${activity.activityId}/entries/me`,
        }
      : {}),
    content: html`<article class="place">
<section ${attr('class', turn ? 'card turn' : 'card')} ${attr('data-state', standing.state)} ${attr('data-drawn', String(standing.position !== null))}>
${gate(turn)}
<p class="over"><a href="/a/${activity.activityId}">${activity.name}</a></p>
<h1>${headings(view, standing)[0]}</h1>
<p class="lede">${headings(view, standing)[1]}</p>
${waits && sale.halted === true && html`<p class="notice" id="halted">${view.words.haltedText}</p>`}
${stateBody(view, sale, standing)}
</section>
${waits && html`<div class="below">${orderCard(view, sale)}${leaveForm(view, activity.activityId)}</div>`}
</article>`,
  });
}

/** After a press that came too late: what happened, and the way back into the line. */
export function turnOverPage(view: View, sale: PageActivity): string {
  const w = view.words;
  return renderPage(view, {
    kind: 'room missed',
    title: w.missedHeading,
    step: 1,
    content: html`<article class="place"><section class="card" data-state="missed">
<p class="over"><a href="/a/${sale.activity.activityId}">${sale.activity.name}</a></p>
<h1>${w.missedHeading}</h1>
<p class="lede">${w.turnOverText}</p>
${rejoinForm(view, sale)}
</section></article>`,
  });
}

function rejoinForm(view: View, sale: PageActivity): HtmlValue {
  if (sale.phase === 'closed') return null;
  return html`<form method="post" action="/a/${sale.activity.activityId}/join"><p class="actions"><button class="button" type="submit">${view.words.rejoin}</button></p></form>`;
}

function headings(view: View, standing: Standing): readonly [string, string] {
  const w = view.words;
  switch (standing.state) {
    case 'waiting':
      return standing.position === null
        ? [w.lobbyHeading, w.lobbyText]
        : [w.waitingHeading, w.waitingText];
    case 'admitted':
      return [w.turnHeading, w.turnText];
    case 'claimed':
      return [w.claimedHeading, w.claimedText];
    case 'left':
      return [w.leftHeading, w.leftText];
    case 'missed':
      return [w.missedHeading, w.missedText];
    case 'not_drawn':
      return [w.notDrawnHeading, w.notDrawnText];
    case 'sold_out':
      return [w.soldOutHeading, w.soldOutText];
    case 'closed':
      return [w.closedHeading, w.closedText];
  }
}

function stateBody(view: View, sale: PageActivity, standing: Standing): HtmlValue {
  const w = view.words;
  const { activity } = sale;
  const base = `/a/${activity.activityId}`;
  switch (standing.state) {
    case 'waiting':
    case 'sold_out':
      return figures(view, sale, standing);
    case 'admitted':
      return html`${
        standing.claim_before !== null &&
        html`<p class="big"><span class="label">${w.turnLeft}</span>${countdown(view, Date.parse(standing.claim_before), true)}</p>`
      }${claimForm(view, sale, w.claim)}`;
    case 'claimed':
      return claimForm(view, sale, w.continue);
    case 'left':
    case 'missed':
      return rejoinForm(view, sale);
    case 'not_drawn':
    case 'closed':
      return html`<p class="actions"><a class="button quiet" href="${base}">${w.back}</a></p>`;
  }
}

function figures(view: View, sale: PageActivity, standing: Standing): Html {
  const w = view.words;
  const live = view.live;
  const fine = html`<p class="fine" id="link" data-live="${live.live}" data-lost="${live.reconnecting}">${w.keepOpen}</p>`;
  if (standing.position === null) {
    return html`<p class="big"><span class="label">${w.drawIn}</span>${countdown(view, sale.activity.opensAtMs, true)}</p>
<dl class="figures"><div><dt>${w.chanceDrawLabel}</dt><dd>${live.noPlaceYet}</dd></div><div><dt>${w.placeLabelPlain}</dt><dd>${w.placeAfterDraw}</dd></div></dl>
${fine}`;
  }
  return html`<div class="big"><span class="label">${w.placeLabel}</span><output id="place" class="figure">${live.place(standing.position)}</output></div>
<svg class="lane" viewBox="0 0 320 14" preserveAspectRatio="none" aria-hidden="true" focusable="false"><path class="bed" d="M4 7H316"/><path class="gone" id="lane" pathLength="100" d="M4 7H316"/></svg>
<dl class="figures">
<div><dt>${w.aheadLabel}</dt><dd id="ahead">${live.ahead(standing.ahead)}</dd></div>
<div><dt>${w.waitLabel}</dt><dd id="wait">${live.wait(standing.eta)}</dd></div>
<div><dt>${w.chanceLabel}</dt><dd id="chance" ${attr('class', standing.sell_through)}>${live.chance[standing.sell_through]}</dd></div>
</dl>
<p class="fine" id="held">${live.held(standing.eta?.held_ratio ?? null)}</p>
${fine}`;
}

function claimForm(view: View, sale: PageActivity, label: string): Html {
  const w = view.words;
  const { activity } = sale;
  const [only, ...others] = activity.skus;
  const choice =
    others.length === 0
      ? html`<input type="hidden" name="sku" value="${only?.skuId}">`
      : html`<fieldset class="choice"><legend>${w.claimChoose}</legend>${activity.skus.map(
          (sku, index) =>
            html`<label class="sku"><input type="radio" name="sku" value="${sku.skuId}" required ${attr('checked', index === 0)}><span class="what"><strong>${sku.name}</strong></span><span class="much"><span class="price">${formatMoney(view.language, sku.price.amountMinor, sku.price.currency)}</span></span></label>`,
        )}</fieldset>`;
  return html`<form method="post" action="/a/${activity.activityId}/claim">${choice}<p class="actions"><button class="button large" type="submit">${label}</button></p></form>`;
}

function leaveForm(view: View, activityId: string): Html {
  const w = view.words;
  return html`<details class="leave"><summary>${w.leave}</summary><form method="post" action="/a/${activityId}/leave"><p>${w.leaveSure}</p><p class="actions"><button class="button danger" type="submit">${w.leaveConfirm}</button></p></form></details>`;
}
