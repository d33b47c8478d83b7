import type { Priority } from '../core/overload/priority.ts';
import type { IncomingMessage, ServerResponse } from 'node:http';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { bodyMaxBytes, idPattern } from '../core/bounds.ts';
import { type FixedRefusal, type Refusal, refuse } from '../core/decision.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { IdentityResult } from '../pipeline/identity.ts';
import { limitRefusals } from '../pipeline/limit-refusal.ts';
import { bodyTooLarge, refuseHead } from '../pipeline/stages/01-receive.ts';
import { foreignOrigin, noUserToken, refusalOfIdentity } from '../pipeline/stages/06-identify.ts';
import { jsonHeaders } from './answer.ts';
import { readRawBody } from './body.ts';
import type { LimitedCall } from '../pipeline/limited-request.ts';
import { degradedBy, delayMsOf } from '../pipeline/limits.ts';
import type { Timers } from '../ports/clock.ts';
import type { GatewayContext } from './context.ts';
import { routeDeadlineMs, within } from './deadline.ts';
import type { PageFallback } from './deps.ts';
import { Credentials } from './credentials.ts';
import { refusalOfFramework } from './framework-errors.ts';
import { requestHead } from './head.ts';
import { allowedMethods } from './allowed-methods.ts';
import { limitedCall, standingLimits } from './limited.ts';
import type { Call, RouteReply, RouteSpec } from './route.ts';
import { serveStream } from './stream.ts';
import { invalidBody } from './submission.ts';
import { checkerOf, parseJson, quote } from './validate.ts';

/**
 * Everything that a crowd does not repeat by the million: routed by Fastify, with the pages beside it.
 * A route's own handler sees checked values only. The order is the same as in the submit path:
 * head, shed, instance, source, then the body, the person, the work.
 */

const sourceLimits = limitRefusals('source', 'too many requests; come back when told');
const personLimits = limitRefusals(
  'person',
  'too many requests from this user; come back when told',
);
const budgetLimits = limitRefusals('budget', 'the budget of this is used for the moment');

const shed: FixedRefusal = {
  decision: 'reject',
  stage: 'shed',
  code: 'SYSTEM_OVERLOADED',
  scope: 'system',
  reason: 'admission_budget',
  detail: 'the admission budget of this moment is used',
};

/** Characters of one part of a path; ids are shorter. */
const paramMaxLength = 128;
const wellFormed = 'a well-formed URL path, percent signs followed by two hex digits';
/** What the router refuses before any route is known. */
const allowedUrls: Readonly<Record<string, string>> = {
  FST_ERR_MAX_PARAM_LENGTH: `path segments of at most ${paramMaxLength} characters`,
};

const noSuchRoute: FixedRefusal = {
  decision: 'reject',
  stage: 'receive',
  code: 'NOT_FOUND',
  reason: 'route',
  detail: 'nothing is served under this path',
};

const wrongMethod: FixedRefusal = {
  ...noSuchRoute,
  code: 'METHOD_NOT_ALLOWED',
  reason: 'method',
  detail: 'this path does not take this method',
};

const partAway: FixedRefusal = {
  decision: 'reject',
  stage: 'reserve',
  code: 'DEPENDENCY_UNAVAILABLE',
  scope: 'system',
  reason: 'store_unavailable',
  detail: 'a needed part did not answer; nothing was done; ask again',
};

const partUnknown: FixedRefusal = {
  ...partAway,
  reason: 'outcome_unknown',
  detail: 'a needed part did not answer in time; ask how things stand before trying again',
};

const ourFault: FixedRefusal = {
  ...partAway,
  reason: 'internal_error',
  detail: 'something went wrong here; ask how things stand before trying again',
};

const bodyAborted: FixedRefusal = {
  decision: 'reject',
  stage: 'receive',
  code: 'REQUEST_TIMEOUT',
  reason: 'body_aborted',
  detail: 'the connection ended before the body was complete',
};

/** What the ledger is told of a request of this lane, once its answer is out. */
interface Exit {
  readonly stage: string;
  readonly decision: 'handle' | 'reject' | 'fail';
  readonly reason: string;
}

export interface FastifyLane {
  /** Serves any request that the hot lane left. */
  handle(request: IncomingMessage, response: ServerResponse): void;
  close(): Promise<void>;
}

export async function fastifyLane(
  context: GatewayContext,
  routes: readonly RouteSpec[],
  document: object,
): Promise<FastifyLane> {
  const app = fastify({
    logger: false,
    bodyLimit: bodyMaxBytes,
    requestIdHeader: false,
    exposeHeadRoutes: true,
    routerOptions: { maxParamLength: paramMaxLength, ignoreTrailingSlash: false },
    frameworkErrors: (error, request, reply) => {
      // A URL that cannot be decoded, before any route is known.
      const refusal = invalidBody(
        [
          {
            path: 'url',
            found: quote(request.raw.url),
            allowed: allowedUrls[error.code] ?? wellFormed,
          },
        ],
        'receive',
      );
      answerReply(context, reply, refusal);
    },
  });
  const exits = new WeakMap<IncomingMessage, Exit>();
  const methods = allowedMethods(routes);
  let pages: PageFallback | undefined;

  app.setNotFoundHandler((request, reply) => {
    const allowed = methods(request.url);
    const page = allowed === undefined ? pages?.notFound(request, reply) : undefined;
    if (page !== undefined) {
      exits.set(request.raw, { stage: 'page', decision: 'reject', reason: noSuchRoute.reason });
      return page;
    }
    const refusal =
      allowed === undefined
        ? refuse(noSuchRoute)
        : refuse(wrongMethod, undefined, [['Allow', allowed]]);
    exits.set(request.raw, { stage: 'receive', decision: 'reject', reason: refusal.reason });
    answerReply(context, reply, refusal);
    return reply;
  });
  app.setErrorHandler((error, request, reply) => {
    const refusal = refusalOfError(context, 'page', error);
    exits.set(request.raw, exitOf('page', refusal));
    answerReply(context, reply, refusal);
  });

  void app.register(async (scope) => {
    // Bodies are read by the lane itself, once limits have agreed.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null, undefined));
    for (const route of routes) {
      if (route.handle !== undefined) addRoute(scope, context, route, exits);
    }
    scope.get('/openapi.json', (request, reply) => {
      exits.set(request.raw, { stage: 'openapi', decision: 'handle', reason: 'document' });
      reply.hijack();
      context.exchanges.write(request.raw, reply.raw, context.renderer.json(200, document));
    });
  });
  void app.register(async (scope) => {
    scope.addHook('onRequest', async (request, reply) => {
      const limited = limitedCall(context, request.raw, 'page');
      const by = await limitPage(context, limited);
      reply.raw.once('close', () => context.deps.limits.end(limited));
      if (by === undefined) return;
      exits.set(request.raw, { stage: 'page', decision: 'reject', reason: by.reason });
      answerReply(context, reply, by);
    });
    pages = context.deps.pages?.(scope, context);
  });
  await app.ready();

  return {
    handle(request, response) {
      const { exchanges, deps } = context;
      exchanges.begin(request, response);
      deps.ledger.arrived();
      response.once('close', () => {
        const exit = exits.get(request) ?? {
          stage: 'page',
          decision: response.statusCode >= 500 ? 'fail' : 'handle',
          reason: `http_${response.statusCode}`,
        };
        deps.ledger.left(exit.stage, exit.decision, exit.reason);
        exchanges.end(request);
      });
      app.routing(request, response);
    },
    close: () => app.close(),
  };
}

function addRoute(
  scope: FastifyInstance,
  context: GatewayContext,
  route: RouteSpec,
  exits: WeakMap<IncomingMessage, Exit>,
): void {
  const serve = routeServer(context, route);
  scope.route({
    method: route.method,
    url: route.path.replaceAll(/\{(\w+)\}/g, ':$1'),
    handler: async (request, reply) => {
      reply.hijack();
      const limited = limitedCall(context, request.raw, route.limits);
      const said = await serve(request, limited);
      exits.set(request.raw, exitOf(route.operationId, said));
      write(context, reply, said, limited);
    },
  });
}

/** One route from raw request to reply; never rejects. */
function routeServer(
  context: GatewayContext,
  route: RouteSpec,
): (request: FastifyRequest, limited: LimitedCall) => Promise<RouteReply> {
  const { deps } = context;
  const checkParams = route.params === undefined ? undefined : checkerOf(route.params);
  const checkBody =
    route.body === undefined || route.rawBody === true ? undefined : checkerOf(route.body);

  return async (fastifyRequest, limited) => {
    const request = fastifyRequest.raw;
    const nowUs = deps.clock.monoUs();
    const nowMs = deps.clock.wallMs();
    const { address } = limited;
    const { settings } = deps;
    const credentials = new Credentials(request, settings.proxies, settings.secure ?? false);
    const changes = route.method !== 'GET';
    try {
      const refused = refuseEarly(context, route, request, limited);
      if (refused !== undefined) return refused;
      const params = checkParams?.(fastifyRequest.params);
      if (params?.ok === false) {
        return invalidBody(
          params.errors.map((error) => ({ ...error, path: `path:${error.path.slice(1)}` })),
          'receive',
        );
      }
      const person = await whoAsks(context, route, credentials, nowMs);
      if (person !== undefined && 'decision' in person) return person;
      if (changes && route.auth !== 'none' && credentials.fromForeignOrigin) {
        return refuse(foreignOrigin);
      }
      learn(limited, person, credentials, fastifyRequest.params);
      // Who comes by entry token has no name here; the room knows them, and sets their pace.
      const asked = route.priority !== undefined;
      const nameless = route.auth === 'user_or_entry' && person === undefined;
      const early = asked && !nameless ? deps.limits.person(limited) : undefined;
      if (early !== undefined) return personLimits(early);
      const body = await readBody(route, request);
      if ('decision' in body) return body;
      limited.sku ??= skuIn(body.value);
      const late = asked ? await deps.limits.budget(limited) : undefined;
      if (late !== undefined) return budgetLimits(late);
      const delayMs = delayMsOf(limited);
      if (delayMs > 0) await pause(deps.timers, delayMs);
      const checked = checkBody?.(body.value);
      if (checked?.ok === false) return invalidBody(checked.errors, 'receive');
      const call: Call = {
        context,
        request,
        credentials,
        nowMs,
        nowUs,
        address,
        degradedBy: degradedBy(limited),
        params: (fastifyRequest.params ?? {}) as Readonly<Record<string, string>>,
        body: body.value,
        bodyText: body.text,
        rawBody: body.bytes,
        ...(person === undefined ? {} : { person }),
      };
      const reply = Promise.resolve(route.handle?.(call) ?? refuse(noSuchRoute));
      // Made for every call, so it takes no place in the line of those who come back.
      const silent = refuse(partUnknown, context.spread.busyMs());
      return await within(deps.timers, routeDeadlineMs, reply, silent);
    } catch (error) {
      return refusalOfError(context, route.operationId, error, route.priority);
    } finally {
      deps.limits.end(limited);
    }
  };
}

/** Pages are looked at before anybody is known; what they do when sent is limited as its API route. */
async function limitPage(
  context: GatewayContext,
  limited: LimitedCall,
): Promise<Refusal | undefined> {
  const { limits, timers } = context.deps;
  const early = limits.instance(limited) ?? limits.source(limited);
  if (early !== undefined) return sourceLimits(early);
  const late = limits.person(limited) ?? (await limits.budget(limited));
  if (late !== undefined) return budgetLimits(late);
  const delayMs = delayMsOf(limited);
  if (delayMs > 0) await pause(timers, delayMs);
  return undefined;
}

/** What the lane has learnt, for rules of the later stages. */
function learn(
  limited: LimitedCall,
  person: AskingPerson | undefined,
  credentials: Credentials,
  params: unknown,
): void {
  limited.user = person?.userId;
  limited.claims = person?.claim;
  limited.device = credentials.deviceHash;
  const { activity_id: activity, sku_id: sku } = Object(params) as Record<string, unknown>;
  if (typeof activity === 'string') limited.activity = activity;
  if (typeof sku === 'string') limited.sku = sku;
}

/** The SKU that a body names; whether it exists is not the limits' business. */
function skuIn(body: unknown): string | undefined {
  const { sku_id: sku } = Object(body) as Record<string, unknown>;
  return typeof sku === 'string' && idPattern.test(sku) ? sku : undefined;
}

function pause(timers: Timers, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    timers.after(delayMs, resolve);
  });
}

function refuseEarly(
  context: GatewayContext,
  route: RouteSpec,
  request: IncomingMessage,
  limited: LimitedCall,
): Refusal | undefined {
  const { health, limits } = context.deps;
  const head = refuseHeadOf(route, request);
  if (head !== undefined || route.priority === undefined) return head;
  if (!health.admit(route.priority, limited.address)) {
    return refuse(shed, comeBackMs(context, route.priority));
  }
  const by = limits.instance(limited) ?? limits.source(limited);
  return by === undefined ? undefined : sourceLimits(by);
}

function refuseHeadOf(route: RouteSpec, request: IncomingMessage): Refusal | undefined {
  const head = requestHead(request);
  const hasBody = head.contentLength !== undefined || isChunked(request);
  if (route.body === undefined || route.rawBody === true || !hasBody || head.contentLength === 0) {
    // Nothing to parse: only what holds for every request.
    return refuseHead(
      { ...head, contentType: 'application/json', contentEncoding: undefined },
      undefined,
    );
  }
  return refuseHead(head, undefined);
}

function isChunked(request: IncomingMessage): boolean {
  return request.headers['transfer-encoding'] !== undefined;
}

type AskingPerson = Extract<IdentityResult, { kind: 'person' }>;

/** The verified person; undefined where the route does without. */
async function whoAsks(
  context: GatewayContext,
  route: RouteSpec,
  credentials: Credentials,
  nowMs: number,
): Promise<AskingPerson | Refusal | undefined> {
  if (route.auth === 'none') return undefined;
  const { userToken } = credentials;
  const optional = route.auth === 'user_or_entry' && credentials.entryToken !== undefined;
  if (userToken === undefined) return optional ? undefined : refuse(noUserToken);
  const found = await context.deps.identity.verify(userToken, nowMs);
  if (found.kind === 'person') return found;
  return optional ? undefined : refusalOfIdentity(found);
}

interface ReadBody {
  readonly value: unknown;
  readonly text: string;
  readonly bytes: Uint8Array;
}

async function readBody(route: RouteSpec, request: IncomingMessage): Promise<ReadBody | Refusal> {
  const nothing = { value: {}, text: '', bytes: new Uint8Array() };
  if (route.body === undefined) return nothing;
  const raw = await readRawBody(request);
  if (raw.kind === 'too_large') return bodyTooLarge;
  if (raw.kind === 'aborted') return refuse(bodyAborted);
  const { bytes } = raw;
  if (route.rawBody === true) return { value: undefined, text: '', bytes };
  if (bytes.length === 0 && route.bodyOptional === true) return nothing;
  const parsed = parseJson(bytes);
  return parsed.ok ? { ...parsed, bytes } : invalidBody([parsed.error], 'receive');
}

/**
 * A crowd that is sent away at once must not come back at once, and the larger it is the later. Those
 * who have something to lose by waiting are few, and stand in no line.
 */
function comeBackMs({ spread, returns }: GatewayContext, priority: Priority | undefined): number {
  return priority !== undefined && priority >= 2 ? returns.nextMs() : spread.busyMs();
}

/** Stores that did not answer are said so; anything else is a fault of ours, logged and said so. */
function refusalOfError(
  context: GatewayContext,
  where: string,
  error: unknown,
  priority?: Priority,
): Refusal {
  if (error instanceof UnavailableError) return refuse(partAway, comeBackMs(context, priority));
  if (error instanceof OutcomeUnknownError)
    return refuse(partUnknown, comeBackMs(context, priority));
  const framework = refusalOfFramework(error);
  if (framework !== undefined) return framework;
  context.deps.log.error('request_failed', {
    where,
    error: error instanceof Error ? (error.stack ?? error.message) : String(error),
  });
  return refuse(ourFault, 1_000);
}

function exitOf(stage: string, said: RouteReply): Exit {
  if (!('decision' in said)) {
    return {
      stage,
      decision: 'handle',
      reason: 'stream' in said ? 'stream' : `http_${said.status}`,
    };
  }
  const failed = said.code === 'DEPENDENCY_UNAVAILABLE';
  return { stage, decision: failed ? 'fail' : 'reject', reason: said.reason };
}

function write(
  context: GatewayContext,
  reply: FastifyReply,
  said: RouteReply,
  limited: LimitedCall,
): void {
  const { exchanges, renderer, deps } = context;
  const request = reply.request.raw;
  if ('decision' in said) {
    const answer = renderer.refusal(said, deps.clock.wallMs());
    exchanges.write(request, reply.raw, standingLimits(deps.limits, limited, said, answer));
    return;
  }
  if ('stream' in said) {
    const target = serveStream(reply.raw);
    if (request.method !== 'HEAD') return said.stream(target);
    target.start();
    return target.end();
  }
  const type = said.body === undefined ? [] : ['Content-Type', 'application/json'];
  const extra = said.headers ?? jsonHeaders.slice(2);
  const cookies = (said.cookies ?? []).flatMap((cookie) => ['Set-Cookie', cookie]);
  const headers = said.headers === jsonHeaders ? jsonHeaders : [...type, ...extra];
  const answer = {
    status: said.status,
    headers: [...headers, ...cookies],
    body: said.body === undefined ? '' : JSON.stringify(said.body),
  };
  // What anybody may keep and give to others says nothing of one caller.
  const kept = extra.some((value) => value.startsWith('public,'));
  exchanges.write(
    request,
    reply.raw,
    kept ? answer : standingLimits(deps.limits, limited, undefined, answer),
  );
}

function answerReply(context: GatewayContext, reply: FastifyReply, refusal: Refusal): void {
  reply.hijack();
  const { renderer, deps, exchanges } = context;
  exchanges.write(reply.request.raw, reply.raw, renderer.refusal(refusal, deps.clock.wallMs()));
}
