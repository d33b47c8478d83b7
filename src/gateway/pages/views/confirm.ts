import type { Sku } from '../../../core/activity.ts';
import { gate } from '../art.ts';
import type { PageActivity } from '../deps.ts';
import { formatMoney } from '../format.ts';
import { attr, html } from '../html.ts';
import { type View, countdown, renderPage } from '../layout.ts';

export interface ConfirmFacts {
  readonly sku: Sku;
  readonly requestId: string;
  readonly maxQuantity: number;
  readonly passExpiresAtMs: number;
}

/** The last page before a submit. The pass itself stays on the server. */
export function confirmPage(view: View, sale: PageActivity, facts: ConfirmFacts): string {
  const w = view.words;
  const { activity } = sale;
  const { sku } = facts;
  const price = (quantity: number): string =>
    formatMoney(view.language, sku.price.amountMinor * quantity, sku.price.currency);
  const most = Math.max(1, facts.maxQuantity);
  const amounts = Array.from({ length: Math.min(most, 20) }, (_, index) => index + 1);
  return renderPage(view, {
    kind: 'confirm',
    title: w.confirmTitle,
    step: 2,
    content: html`<section class="card turn">${gate(true)}<p class="over">${activity.name}</p><h1>${w.confirmHeading}</h1><p class="lede">${w.confirmText}</p>
<p class="big"><span class="label">${w.passLeft}</span>${countdown(view, facts.passExpiresAtMs, true)}</p>
<form method="post" action="/a/${activity.activityId}/submit" data-once>
<input type="hidden" name="sku" value="${sku.skuId}"><input type="hidden" name="request_id" value="${facts.requestId}">
<div class="sku"><span class="what"><strong>${sku.name}</strong><small>${w.perPerson(sku.maxPerPerson)}</small></span><span class="much"><span class="price">${price(1)}</span></span></div>
${
  most === 1
    ? html`<input type="hidden" name="quantity" value="1">`
    : html`<p class="field"><label for="quantity">${w.quantity}</label><select id="quantity" name="quantity">${amounts.map((amount) => html`<option value="${amount}" ${attr('selected', amount === 1)}>${amount} · ${price(amount)}</option>`)}</select></p>`
}
<p class="actions"><button class="button large" type="submit">${w.confirm}</button></p>
<p class="fine">${w.confirmFine}</p></form></section>`,
  });
}
