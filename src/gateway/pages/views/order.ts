import type { Order } from '../../../ports/order-store.ts';
import { gate, poster, seal } from '../art.ts';
import type { PageActivity } from '../deps.ts';
import { formatMoney } from '../format.ts';
import { type Html, type HtmlValue, attr, html } from '../html.ts';
import { type View, countdown, instant, renderPage } from '../layout.ts';
import type { Words } from '../words.ts';

export interface OrderFacts {
  readonly demoPayments: boolean;
  /** The buyer has asked to pay moments ago. */
  readonly paying?: boolean;
  /** The last change was refused: which one. */
  readonly refused?: 'pay' | 'cancel';
}

/** How often an order that waits for its payment is looked at again, ms. */
const pendingRefreshMs = 15_000;
const payingRefreshMs = 1_000;

/** An order as a receipt, with what can still be done. */
export function orderPage(
  view: View,
  sale: PageActivity | undefined,
  order: Order,
  facts: OrderFacts,
): string {
  const w = view.words;
  const pending = order.state === 'PENDING_PAYMENT';
  const paid = order.state === 'PAID';
  const paying = pending && facts.paying === true;
  const [heading, text] = paying ? [w.payingHeading, w.payingText] : explain(w, order);
  const zone = sale?.activity.timeZone ?? 'UTC';
  const sku = sale?.activity.skus.find((one) => one.skuId === order.skuId);
  const row = (label: string, value: HtmlValue): Html =>
    html`<div><dt>${label}</dt><dd>${value}</dd></div>`;
  return renderPage(view, {
    kind: `order ${order.state.toLowerCase()}`,
    title: heading,
    step: paid ? 5 : pending ? 4 : 3,
    ...(pending ? { refreshMs: paying ? payingRefreshMs : pendingRefreshMs } : {}),
    content: html`<article class="columns order">
<section ${attr('class', paid ? 'card turn won' : pending ? 'card turn' : 'card calm')}>
${paying && gate(true)}${facts.refused !== undefined && html`<p class="notice" role="alert">${facts.refused === 'pay' ? w.payRefused : w.cancelRefused}</p>`}
${paid && seal}<h1>${heading}</h1><p class="lede">${text}</p>
${pending && html`<p class="big"><span class="label">${w.payLeft}</span>${countdown(view, order.payBeforeMs, true)}</p>`}
${pending && payForm(view, order, facts, paying)}
</section>
<section class="card receipt"><div class="strip">${poster(order.activityId)}</div><h2>${sale?.activity.name ?? w.orderPageTitle}</h2><dl>
${row(w.orderItem, sku?.name ?? order.skuId)}
${row(w.orderQuantity, order.quantity)}
${order.seats !== undefined && order.seats.length > 0 && row('#', order.seats.join(', '))}
${row(w.orderTotal, html`<span class="price">${formatMoney(view.language, order.amountMinor, order.currency)}</span>`)}
${row(w.orderState, w.orderStates[order.state])}
${row(w.orderMade, instant(view, zone, order.createdAtMs))}
${pending && row(w.payBefore, instant(view, zone, order.payBeforeMs))}
${order.paidAtMs !== undefined && row(w.orderPaid, instant(view, zone, order.paidAtMs))}
${row(w.orderNumber, html`<code>${order.orderId}</code>`)}
</dl>${pending && cancelForm(view, order)}</section></article>`,
  });
}

function explain(w: Words, order: Order): readonly [string, string] {
  switch (order.state) {
    case 'PENDING_PAYMENT':
      return [w.orderPendingHeading, w.orderPendingText];
    case 'PAID':
      return [w.paidHeading, w.paidText];
    case 'EXPIRED':
      return [w.orderExpiredHeading, w.orderExpiredText];
    case 'CANCELLED':
      return [w.orderCancelledHeading, w.orderCancelledText];
    case 'REFUNDED':
      return [w.orderRefundedHeading, w.orderRefundedText];
  }
}

function payForm(view: View, order: Order, facts: OrderFacts, paying: boolean): Html {
  const w = view.words;
  if (!facts.demoPayments) return html`<p class="notice">${w.payElsewhere}</p>`;
  const action = `/orders/${order.orderId}/pay`;
  if (paying)
    return html`<details class="leave"><summary>${w.payAgain}</summary><form method="post" action="${action}" data-once><p>${w.payAgainText}</p><p class="actions"><button class="button quiet" type="submit">${w.payAgain}</button></p></form></details>`;
  return html`<form method="post" action="${action}" data-once><p class="actions"><button class="button large" type="submit">${w.payDemo}</button></p><p class="fine">${w.payDemoFine}</p></form>`;
}

function cancelForm(view: View, order: Order): Html {
  const w = view.words;
  return html`<details class="leave"><summary>${w.cancel}</summary><form method="post" action="/orders/${order.orderId}/cancel" data-once><p>${w.cancelSure}</p><p class="actions"><button class="button danger" type="submit">${w.cancelConfirm}</button></p></form></details>`;
}
