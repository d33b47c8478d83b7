import type { PageActivity, PageOutcome } from '../deps.ts';
import { gate } from '../art.ts';
import { type Html, type HtmlValue, attr, html } from '../html.ts';
import { type View, countdown, renderPage } from '../layout.ts';
import type { Words } from '../words.ts';

/** Whether the same request is still on its way and worth asking about again. */
export function isPending(outcome: PageOutcome): boolean {
  return (
    outcome.state === 'QUEUED' || (outcome.state === 'UNKNOWN' && outcome.nextAction === 'POLL')
  );
}

/** What became of a submit, in plain words; the page asks again while it is pending. */
export function requestPage(
  view: View,
  sale: PageActivity,
  skuId: string,
  outcome: PageOutcome,
): string {
  const w = view.words;
  const [heading, text] = explain(w, outcome);
  const pending = isPending(outcome);
  const path = `/a/${sale.activity.activityId}/requests/${outcome.requestId}?sku=${skuId}`;
  return renderPage(view, {
    kind: `request ${outcome.state.toLowerCase()}`,
    title: heading,
    step: 3,
    ...(pending ? { refreshMs: Math.max(500, outcome.nextPollAfterMs), refreshPath: path } : {}),
    content: html`<section ${attr('class', pending ? 'card turn' : 'card calm')}>${pending && gate(true)}<p class="over"><a href="/a/${sale.activity.activityId}">${sale.activity.name}</a></p><h1>${heading}</h1><p class="lede">${text}</p>
${waitLine(view, outcome)}
${next(view, sale, skuId, outcome)}
<p class="fine">${w.requestId} <code>${outcome.requestId}</code></p></section>`,
  });
}

function explain(w: Words, outcome: PageOutcome): readonly [string, string] {
  switch (outcome.code) {
    case 'ALREADY_PURCHASED':
      return [w.alreadyHeading, w.alreadyText];
    case 'RATE_LIMITED':
    case 'ACCEPTED_LATER':
    case 'CHALLENGE_REQUIRED':
    case 'SYSTEM_OVERLOADED':
      return [w.busyHeading, w.busyText];
    case 'TOKEN_EXPIRED':
    case 'NOT_ADMITTED':
      return [w.passExpiredHeading, w.passExpiredText];
    case 'RESERVATION_LOST':
      return [w.lostHeading, w.lostText];
    case 'NOT_OPEN':
      return [w.notOpenHeading, w.notOpenText];
    default:
  }
  switch (outcome.state) {
    case 'QUEUED':
    case 'ORDERED':
    case 'PAID':
      return [w.queuedHeading, w.queuedText];
    case 'UNKNOWN':
      return [w.unknownHeading, w.unknownText];
    case 'SOLD_OUT':
      return [w.soldOutOutcomeHeading, w.soldOutOutcomeText];
    case 'EXPIRED':
      return [w.expiredHeading, w.expiredText];
    case 'CANCELLED':
      return [w.cancelledHeading, w.cancelledText];
    case 'REFUNDED':
      return [w.refundedHeading, w.refundedText];
    case 'REJECTED':
      return [w.rejectedHeading, w.rejectedText];
  }
}

function waitLine(view: View, outcome: PageOutcome): HtmlValue {
  if (outcome.nextAction !== 'RETRY_LATER' || outcome.retryAfterMs === undefined) return null;
  return html`<p class="big"><span class="label">${view.words.tryAgainIn}</span>${countdown(view, view.nowMs + outcome.retryAfterMs)}</p>`;
}

function next(view: View, sale: PageActivity, skuId: string, outcome: PageOutcome): Html | null {
  const w = view.words;
  const base = `/a/${sale.activity.activityId}`;
  const { ticket } = outcome;
  const orders = outcome.liveOrderIds ?? [];
  if (orders.length > 0)
    return html`<ul class="links">${orders.slice(0, 20).map((id) => html`<li><a class="button quiet" href="/orders/${id}">${w.alreadyOrder}</a></li>`)}</ul>`;
  if (isPending(outcome)) return null;
  if (outcome.nextAction === 'RETRY_LATER')
    return html`<form method="post" action="${base}/submit" data-once><input type="hidden" name="sku" value="${skuId}"><input type="hidden" name="request_id" value="${outcome.requestId}"><input type="hidden" name="quantity" value="${outcome.quantity}">${ticket !== undefined && html`<input type="hidden" name="ticket" value="${ticket}">`}<p class="actions"><button class="button" type="submit">${w.tryAgain}</button></p></form>`;
  const room = outcome.nextAction === 'REJOIN';
  return html`<p class="actions"><a class="button quiet" href="${base}${room && '/room'}">${room ? w.roomTitle : w.back}</a></p>`;
}
