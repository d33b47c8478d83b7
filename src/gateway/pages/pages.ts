import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { PageFallback } from '../deps.ts';
import { formMaxBytes, notFoundPage, parseForm } from './answers.ts';
import type { PagesDeps } from './deps.ts';
import { wantsJson } from './language.ts';
import { messagePage } from './layout.ts';
import { originAllowed } from './origin.ts';
import { registerOrderRoutes } from './order-routes.ts';
import { asId, pageHeaders, readPageRequest } from './request-context.ts';
import { registerRoomRoutes } from './room-routes.ts';
import { registerSubmitRoutes } from './submit-routes.ts';

/**
 * Storefront and waiting room, as plain HTML that works without script.
 *
 * Each change is a form's POST, checked for its origin, followed by a redirect, so that reload and
 * back never repeat it; and each change is one that may be repeated anyway: joining is idempotent per
 * person, taking a pass gives the same pass, a submit carries the request id that was made from the
 * pass. So whatever is lost on the way, the buyer presses the button again, and nothing doubles.
 *
 *     /  →  /a/{activity}  →  join  →  /a/{activity}/room  (asks again by itself)
 *        →  claim  →  /a/{activity}/confirm  →  submit  →  /a/{activity}/requests/{id}  (asks again)
 *        →  /orders/{order}  →  pay | cancel
 */
export function registerPages(app: FastifyInstance, deps: PagesDeps): PageFallback {
  void app.register(async (scope) => {
    scope.addContentTypeParser(
      'application/x-www-form-urlencoded',
      { parseAs: 'string', bodyLimit: formMaxBytes },
      (_request, body, done) => done(null, parseForm(String(body))),
    );
    scope.addHook('preHandler', async (request, reply) => {
      if (request.method !== 'POST') return undefined;
      const page = readPageRequest(deps, request, reply);
      const headers = request.headers;
      const allowed = originAllowed(
        {
          host: headers.host,
          origin: headers.origin,
          secFetchSite: oneHeader(headers['sec-fetch-site']),
          referer: headers.referer,
        },
        page.secure,
      );
      if (allowed) return undefined;
      return page.page(
        403,
        messagePage(page.view, page.view.words.originTitle, page.view.words.originText),
      );
    });
    scope.setErrorHandler((error, request, reply) => showError(deps, error, request, reply));
    scope.get('/assets/:file', (request, reply) => sendAsset(deps, request, reply));
    registerRoomRoutes(scope, deps);
    registerSubmitRoutes(scope, deps);
    registerOrderRoutes(scope, deps);
  });
  return {
    notFound(request, reply) {
      const { accept } = request.headers;
      const browser = accept?.includes('text/html') === true && !wantsJson(accept);
      if (!browser || request.url.startsWith('/v1/')) return undefined;
      return notFoundPage(readPageRequest(deps, request, reply));
    },
  };
}

function oneHeader(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}

function sendAsset(deps: PagesDeps, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const asset = deps.assets.byPath(request.url.split('?', 1)[0] ?? '');
  pageHeaders(reply);
  if (asset === undefined) {
    return reply.code(404).header('content-type', 'text/plain; charset=utf-8').send('Not found\n');
  }
  void reply.headers({
    'cache-control': 'public, max-age=31536000, immutable',
    'content-type': asset.type,
    vary: 'Accept-Encoding',
  });
  const accepted = String(request.headers['accept-encoding'] ?? '');
  if (/\bbr\b(?!\s*;\s*q=0(?:\.0*)?(?:,|$))/.test(accepted))
    return reply.header('content-encoding', 'br').send(asset.brotli);
  if (/\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:,|$))/.test(accepted))
    return reply.header('content-encoding', 'gzip').send(asset.gzip);
  return reply.send(asset.plain);
}

/**
 * Errors as pages. A part that does not answer is no fault of the buyer's: the page asks again, at
 * the place where the truth will be seen. Everything unexpected goes on to the server's log.
 */
function showError(
  deps: PagesDeps,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const page = readPageRequest(deps, request, reply);
  const w = page.view.words;
  if (error instanceof UnavailableError || error instanceof OutcomeUnknownError) {
    const back = request.method === 'GET' ? page.view.path : whereTruthIs(request);
    return page.page(
      503,
      messagePage(page.view, w.unavailableTitle, w.unavailableText, {
        link: back,
        label: w.tryAgain,
        refreshMs: 4_000,
        refreshPath: back,
      }),
    );
  }
  const status =
    typeof error === 'object' && error !== null && 'statusCode' in error
      ? Number(error.statusCode)
      : 500;
  if (status >= 400 && status < 500)
    return page.page(status, messagePage(page.view, w.badFormTitle, w.badFormText));
  request.log.error({ err: error }, 'page failed');
  return page.page(500, messagePage(page.view, w.errorTitle, w.errorText));
}

/** After a change of unknown fate: the page that tells how things stand. */
function whereTruthIs(request: FastifyRequest): string {
  const parameters = request.params as Readonly<Record<string, unknown>>;
  const orderId = asId(parameters.orderId);
  if (orderId !== undefined) return `/orders/${orderId}`;
  const activityId = asId(parameters.activityId);
  return activityId === undefined ? '/' : `/a/${activityId}/room`;
}
