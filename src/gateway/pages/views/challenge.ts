import type { ChallengeDemand } from '../../../pipeline/door.ts';
import type { PageActivity } from '../deps.ts';
import { type Html, attr, html } from '../html.ts';
import { type View, renderPage } from '../layout.ts';

export interface ChallengeView {
  readonly demand: ChallengeDemand;
  readonly skuIds: readonly string[];
  /** An answer was sent and not taken: it was too old, or used. */
  readonly again: boolean;
  /** Address of ours that a provider sends people back to. */
  readonly returnTo: string;
}

/**
 * What stands between a person and the room. A proof of work is found by the page's script, which
 * sends the form by itself and takes away what is said to others; without script, or
 * where it did not load, the page says what may be done instead, and takes an answer
 * that was found elsewhere. Where somebody else vouches, the page leads there.
 */
export function challengePage(view: View, sale: PageActivity, challenge: ChallengeView): string {
  const w = view.words;
  const { demand, again } = challenge;
  const [heading, text] =
    demand.kind === 'callback'
      ? [w.vouchHeading, w.vouchText]
      : [w.workHeading, again ? w.workAgainText : w.workText];
  return renderPage(view, {
    kind: 'challenge',
    title: heading,
    step: 0,
    content: html`<section class="card calm">
<p class="over"><a href="/a/${sale.activity.activityId}">${sale.activity.name}</a></p>
<h1>${heading}</h1>
<p class="lede">${text}</p>
${demand.kind === 'callback' ? vouchLink(view, challenge) : workForm(view, sale, challenge)}
</section>`,
  });
}

function workForm(view: View, sale: PageActivity, { demand, skuIds, again }: ChallengeView): Html {
  const w = view.words;
  const { token, bits, expiresAtMs } = demand;
  return html`<form method="post" action="/a/${sale.activity.activityId}/join" id="work" data-token="${token}" data-bits="${bits}" data-expires="${expiresAtMs}" ${attr('data-again', again)}>
${chosen(skuIds)}
<div class="work" hidden><progress id="work-done" max="100" value="0" aria-label="${w.workProgress}"></progress><p class="fine" id="work-left">${w.workStarting}</p></div>
<div class="unscripted"><p>${w.workNoScript}</p>
<details><summary>${w.workByHand}</summary><p>${w.workByHandText(bits)}</p><p><code class="token">${token}</code></p></details>
<p><label class="field"><span>${w.workAnswer}</span><input name="challenge" autocomplete="off" spellcheck="false" maxlength="1024"></label></p>
<p class="actions"><button class="button" type="submit">${w.workSend}</button></p></div>
</form>
<p class="fine">${w.workPrivacy}</p>`;
}

function vouchLink(view: View, { demand, skuIds, returnTo }: ChallengeView): Html {
  const w = view.words;
  const back = new URL(returnTo);
  const [only, ...others] = skuIds;
  // More than one choice is made again by joining for all: an address is no place for a list.
  if (only !== undefined && others.length === 0) back.searchParams.set('sku', only);
  const there = new URL(demand.url ?? returnTo);
  there.searchParams.set('challenge', demand.token);
  there.searchParams.set('return_to', back.href);
  return html`<p class="actions"><a class="button large" href="${there.href}" rel="noreferrer">${w.vouchGo(there.host)}</a></p>
<p class="fine">${w.vouchFine}</p>`;
}

/** Somebody vouched: one more press makes the place, so that no link from elsewhere does. */
export function vouchedPage(
  view: View,
  sale: PageActivity,
  answer: string,
  skuIds: readonly string[],
): string {
  const w = view.words;
  return renderPage(view, {
    kind: 'challenge',
    title: w.vouchedHeading,
    step: 0,
    content: html`<section class="card calm">
<p class="over"><a href="/a/${sale.activity.activityId}">${sale.activity.name}</a></p>
<h1>${w.vouchedHeading}</h1>
<p class="lede">${w.vouchedText}</p>
<form method="post" action="/a/${sale.activity.activityId}/join">${chosen(skuIds)}<input type="hidden" name="challenge" value="${answer}"><p class="actions"><button class="button large" type="submit">${w.joinLine}</button></p></form>
</section>`,
  });
}

function chosen(skuIds: readonly string[]): readonly Html[] {
  return skuIds.map((skuId) => html`<input type="hidden" name="sku" value="${skuId}">`);
}
