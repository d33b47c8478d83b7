import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { idPattern } from '../../core/bounds.ts';
import type { Person } from '../../pipeline/door.ts';
import { type CookieName, readCookie, writeCookie } from './cookies.ts';
import type { PageConnection, PagesDeps } from './deps.ts';
import { type Language, asLanguage, chooseLanguage, languageTag } from './language.ts';
import { type View, makeView } from './layout.ts';

/** What one page request says of itself, read once. */
export interface PageRequest {
  readonly deps: PagesDeps;
  readonly connection: PageConnection;
  readonly secure: boolean;
  readonly language: Language;
  readonly nowMs: number;
  readonly view: View;
  cookie(name: CookieName): string | undefined;
  setCookie(name: CookieName, value: string, maxAgeSeconds: number): void;
  /** Sends a page, never cacheable. */
  page(status: number, body: string): FastifyReply;
  json(status: number, body: unknown): FastifyReply;
  /** A path of ours as others reach it. */
  absolute(path: string): string;
  /** After a change: the browser goes on by a GET. */
  goTo(path: string): FastifyReply;
  /** The signed-in person, if the user cookie verifies. */
  person(): Promise<SignedIn | undefined>;
}

export interface SignedIn {
  readonly person: Person;
  readonly userToken: string;
}

const yearSeconds = 365 * 24 * 3600;

/**
 * Scripts, styles and pictures come from us alone, forms go to us alone, nobody frames us. No
 * `unsafe-…`: the pages have no inline script and no inline style.
 */
export const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

export function pageHeaders(reply: FastifyReply): void {
  void reply.headers({
    'content-security-policy': contentSecurityPolicy,
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'same-origin',
    'cross-origin-opener-policy': 'same-origin',
    'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=()',
    'cache-control': 'no-store',
    vary: 'Accept, Accept-Language, Cookie',
  });
}

export function one(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  return Array.isArray(value) && typeof value[0] === 'string' ? value[0] : undefined;
}

/** A parameter that must be an id of ours; anything else is as good as absent. */
export function asId(value: unknown): string | undefined {
  const text = one(value);
  return text !== undefined && idPattern.test(text) ? text : undefined;
}

/** One request id for each pass: made from its nonce, so that no reload makes a second intention. */
export function requestIdOf(nonce: string): string {
  return `req_${createHash('sha256').update(nonce).digest('base64url')}`;
}

export function readPageRequest(
  deps: PagesDeps,
  request: FastifyRequest,
  reply: FastifyReply,
): PageRequest {
  const connection: PageConnection = {
    remoteAddress: request.socket.remoteAddress ?? '',
    headers: request.headers,
  };
  const secure = deps.isSecure(connection);
  const cookie = (name: CookieName): string | undefined =>
    readCookie(request.headers.cookie, name, secure);
  const setCookie = (name: CookieName, value: string, maxAgeSeconds: number): void => {
    void reply.header('set-cookie', writeCookie(name, value, secure, maxAgeSeconds));
  };
  const query = request.query as Readonly<Record<string, unknown>>;
  const asked = asLanguage(one(query.lang)?.slice(0, 16));
  const language = chooseLanguage(asked, cookie('sluice-lang'), request.headers['accept-language']);
  if (asked !== undefined) setCookie('sluice-lang', asked, yearSeconds);
  const nowMs = deps.clock.wallMs();
  const view = makeView(
    {
      theme: deps.theme,
      assets: deps.assets,
      nowMs,
      path: pathOf(request),
      latestRequest: latestPath(cookie('sluice-request')),
      rehearsal: isRehearsal(deps, (request.params as { activityId?: unknown }).activityId),
    },
    language,
  );
  pageHeaders(reply);
  void reply.header('content-language', languageTag[language]);
  return {
    deps,
    connection,
    secure,
    language,
    nowMs,
    view,
    cookie,
    setCookie,
    page: (status, body) =>
      reply.code(status).header('content-type', 'text/html; charset=utf-8').send(body),
    json: (status, body) =>
      reply
        .code(status)
        .header('content-type', 'application/json; charset=utf-8')
        .send(JSON.stringify(body)),
    absolute: (path) =>
      `${secure ? 'https' : 'http'}://${one(connection.headers['host']) ?? 'localhost'}${path}`,
    goTo: (path) => reply.code(303).header('location', path).send(),
    person: async () => {
      const userToken = cookie('sluice-user');
      if (userToken === undefined) return undefined;
      const person = await deps.identify(userToken, connection);
      return person === undefined ? undefined : { person, userToken };
    },
  };
}

function isRehearsal(deps: PagesDeps, activityId: unknown): boolean {
  const id = asId(activityId);
  return id !== undefined && deps.activity(id)?.activity.rehearsalOf !== undefined;
}

/** Bytes of a path that is written back into a page. */
const pathMax = 512;

/** The path and its known query members: what a language link and a refresh lead back to. */
function pathOf(request: FastifyRequest): string {
  const path = request.url.split('?', 1)[0] ?? '/';
  if (
    request.method !== 'GET' ||
    path.length > pathMax ||
    !path.startsWith('/') ||
    path.startsWith('//')
  )
    return '/';
  const sku = asId((request.query as Readonly<Record<string, unknown>>).sku);
  return sku === undefined ? path : `${path}?sku=${sku}`;
}

/** `activity/sku/request` as the cookie keeps it, to the page that shows it. */
export function latestPath(value: string | undefined): string | undefined {
  const [activityId, skuId, requestId, ...more] = value?.split('/') ?? [];
  if (more.length > 0) return undefined;
  const parts = [activityId, skuId, requestId].map(asId);
  if (parts.includes(undefined)) return undefined;
  return `/a/${parts[0]}/requests/${parts[2]}?sku=${parts[1]}`;
}
