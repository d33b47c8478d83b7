import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Sku } from '../../core/activity.ts';
import type { PassResult } from '../../pipeline/door.ts';
import { OutcomeUnknownError } from '../../ports/errors.ts';
import { codes } from '../../wire/codes.ts';
import type { PageActivity, PageOutcome, PageRefusal, PagesDeps } from './deps.ts';
import { type Form, notFoundPage, refusedPage } from './answers.ts';
import { type PageRequest, asId, readPageRequest, requestIdOf } from './request-context.ts';
import { badForm, findSale } from './room-routes.ts';
import { confirmPage } from './views/confirm.ts';
import { isPending, requestPage } from './views/request.ts';
import { turnOverPage } from './views/room.ts';

interface WithActivity {
  readonly activityId: string;
}

interface WithRequest extends WithActivity {
  readonly requestId: string;
}

/** Taking the pass, confirming, submitting, and asking what became of it. */
export function registerSubmitRoutes(app: FastifyInstance, deps: PagesDeps): void {
  app.post<{ Params: WithActivity; Body: Form | undefined }>(
    '/a/:activityId/claim',
    async (request, reply) => {
      const page = readPageRequest(deps, request, reply);
      const sale = findSale(deps, request.params.activityId);
      if (sale === undefined) return notFoundPage(page);
      const { activityId } = sale.activity;
      const sku = findSku(sale, request.body?.sku?.[0]);
      if (sku === undefined) return badForm(page, `/a/${activityId}/room`);
      const who = await page.person();
      if (who === undefined) return page.goTo(`/a/${activityId}`);
      const result = await deps.takePass(activityId, who.person, sku.skuId, page.connection);
      if (result.kind !== 'pass') return withoutPass(page, sale, result);
      page.setCookie('sluice-claim', `${activityId}/${sku.skuId}`, claimSeconds);
      return page.goTo(`/a/${activityId}/confirm`);
    },
  );

  app.get<{ Params: WithActivity }>('/a/:activityId/confirm', async (request, reply) => {
    const page = readPageRequest(deps, request, reply);
    const sale = findSale(deps, request.params.activityId);
    if (sale === undefined) return notFoundPage(page);
    const { activityId } = sale.activity;
    // Only a claim made by a POST of ours leaves this cookie: a link from elsewhere starts no pass.
    const [claimedActivity, claimedSku] = page.cookie('sluice-claim')?.split('/') ?? [];
    const sku = findSku(sale, claimedSku);
    const who = await page.person();
    if (claimedActivity !== activityId || sku === undefined || who === undefined)
      return page.goTo(`/a/${activityId}/room`);
    const result = await deps.takePass(activityId, who.person, sku.skuId, page.connection);
    if (result.kind !== 'pass') return withoutPass(page, sale, result);
    return page.page(
      200,
      confirmPage(page.view, sale, {
        sku,
        requestId: requestIdOf(result.nonce),
        maxQuantity: Math.min(result.maxQuantity, sku.maxPerPerson),
        passExpiresAtMs: result.expiresAtMs,
      }),
    );
  });

  app.post<{ Params: WithActivity; Body: Form | undefined }>(
    '/a/:activityId/submit',
    async (request, reply) => {
      const page = readPageRequest(deps, request, reply);
      const sale = findSale(deps, request.params.activityId);
      if (sale === undefined) return notFoundPage(page);
      const { activityId } = sale.activity;
      const form = request.body;
      const sku = findSku(sale, form?.sku?.[0]);
      const requestId = asId(form?.request_id?.[0]);
      const quantity = asQuantity(form?.quantity?.[0]);
      const ticket = form?.ticket?.[0];
      if (sku === undefined || requestId === undefined || quantity === undefined)
        return badForm(page, `/a/${activityId}/room`);
      const who = await page.person();
      if (who === undefined) return page.goTo(`/a/${activityId}`);
      const path = requestPath(activityId, requestId, sku.skuId);
      const follow = (): FastifyReply => {
        page.setCookie('sluice-request', `${activityId}/${sku.skuId}/${requestId}`, requestSeconds);
        return page.goTo(path);
      };
      const result = await deps.takePass(activityId, who.person, sku.skuId, page.connection);
      if (result.kind !== 'pass') {
        // The pass may be over because this very request used it: then its outcome is the answer.
        const earlier = await deps.requestStatus(who.person, activityId, sku.skuId, requestId);
        if (earlier !== undefined) return follow();
        return withoutPass(page, sale, result);
      }
      let outcome: PageOutcome;
      try {
        outcome = await deps.submit(
          {
            userToken: who.userToken,
            pass: result.pass,
            pathId: result.pathId,
            requestId,
            activityId,
            skuId: sku.skuId,
            quantity,
            ...(ticket === undefined ? {} : { ticket }),
          },
          page.connection,
        );
      } catch (error) {
        // It may have reserved. The status page asks for the same request until it is known.
        if (error instanceof OutcomeUnknownError) return follow();
        throw error;
      }
      if (outcome.orderId !== null || isPending(outcome)) return follow();
      return page.page(codes[outcome.code].http, requestPage(page.view, sale, sku.skuId, outcome));
    },
  );

  app.get<{ Params: WithRequest; Querystring: { sku?: unknown } }>(
    '/a/:activityId/requests/:requestId',
    async (request, reply) => {
      const page = readPageRequest(deps, request, reply);
      const sale = findSale(deps, request.params.activityId);
      const requestId = asId(request.params.requestId);
      const skuId = asId(request.query.sku);
      if (sale === undefined || requestId === undefined || skuId === undefined)
        return notFoundPage(page);
      const who = await page.person();
      if (who === undefined) return notFoundPage(page);
      const outcome = await deps.requestStatus(
        who.person,
        sale.activity.activityId,
        skuId,
        requestId,
      );
      if (outcome === undefined) return notFoundPage(page);
      if (outcome.orderId !== null) return page.goTo(`/orders/${outcome.orderId}`);
      return page.page(200, requestPage(page.view, sale, skuId, outcome));
    },
  );
}

/** The claim marker outlives any pass, s: the pass itself decides. */
const claimSeconds = 3600;
const requestSeconds = 7 * 24 * 3600;

function findSku(sale: PageActivity, skuId: string | undefined): Sku | undefined {
  return sale.activity.skus.find((sku) => sku.skuId === skuId);
}

function requestPath(activityId: string, requestId: string, skuId: string): string {
  return `/a/${activityId}/requests/${requestId}?sku=${skuId}`;
}

function asQuantity(text: string | undefined): number | undefined {
  return text !== undefined && /^[1-9][0-9]{0,3}$/.test(text) ? Number(text) : undefined;
}

/** No pass: back to where the standing says why. */
function withoutPass(
  page: PageRequest,
  sale: PageActivity,
  result: Exclude<PassResult, { kind: 'pass' }> | PageRefusal,
): FastifyReply {
  const { activityId } = sale.activity;
  switch (result.kind) {
    case 'not_admitted':
      // The standing may say for a moment longer that there is a pass, or for good where it was used.
      return result.missed
        ? page.page(200, turnOverPage(page.view, sale))
        : page.goTo(`/a/${activityId}/room`);
    case 'unknown_entry':
      return page.goTo(`/a/${activityId}/room`);
    case 'not_open':
      return page.goTo(`/a/${activityId}`);
    case 'unknown_activity':
    case 'unknown_sku':
      return notFoundPage(page);
    case 'refused':
      return refusedPage(page, result, `/a/${activityId}/room`);
  }
}
