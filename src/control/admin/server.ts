import { type FastifyInstance, type FastifyRequest, fastify } from 'fastify';
import { Access, type Principal, Tries, allows } from './access.ts';
import { registerActionRoutes } from './action-routes.ts';
import { registerConsolePage } from './console-page.ts';
import { type AdminContext, consoleHeader, readSessionCookie } from './context.ts';
import type { AdminDeps } from './deps.ts';
import { registerExportRoutes } from './export-routes.ts';
import { allowedHosts } from './hosts.ts';
import { LiveFeed } from './live-feed.ts';
import { registerAccountRoutes } from './account-routes.ts';
import { registerLiveRoutes } from './live-routes.ts';
import { registerOrderRoutes } from './order-routes.ts';
import { problem } from './problem.ts';
import { registerSessionRoutes } from './session-routes.ts';

/**
 * The operator's door, apart from the buyers': its own port, bound to loopback unless configured.
 *
 * Order of the checks, each request: Host (a foreign name is DNS rebinding) → rate → who (session
 * cookie, or the credential of the data folder as a bearer) → for a change by cookie: our own Origin
 * and our own header, so that no other site can make a browser do it → role. What changes something
 * needs a reason and leaves two audit rows: asked before, and what came of it after; a process that
 * dies in between leaves the first, which says that the outcome is to be looked up.
 */
export interface AdminServer {
  /** The feed behind the page; a process may tick it by hand to fill its history. */
  readonly feed: LiveFeed;
  readonly app: FastifyInstance;
  /** Binds and answers where: `http://127.0.0.1:9090`. */
  start(): Promise<{ readonly url: string }>;
  /** A fresh one-time link to sign in, secret in the fragment. Only after `start`. */
  signInUrl(principal: Principal): { readonly url: string; readonly expiresAtMs: number };
  close(): Promise<void>;
}

/** Bytes of a request body. */
const bodyMaxBytes = 64 * 1024;
/** Requests of all callers together: a burst, then one each … ms. The page needs one a second. */
const requestBurst = 300;
const requestEveryMs = 5;
/** Tries to sign in: a burst, then one each … ms. */
const signInBurst = 5;
const signInEveryMs = 5_000;
const connectionsMax = 256;

export function createAdminServer(deps: AdminDeps): AdminServer {
  const app = fastify({ bodyLimit: bodyMaxBytes, requestTimeout: 30_000, trustProxy: false });
  app.server.maxConnections = connectionsMax;
  const access = new Access(deps.clock, deps.random, deps.adminToken);
  const feed = new LiveFeed(deps);
  const requests = new Tries(deps.clock, requestBurst, requestEveryMs);
  let hosts: ReadonlySet<string> = new Set();
  let origin = '';

  const context: AdminContext = {
    deps,
    access,
    feed,
    signInTries: new Tries(deps.clock, signInBurst, signInEveryMs),
    signInUrl: (principal) => {
      const link = access.makeLink(principal);
      return { url: `${origin}/#sign-in=${link.secret}`, expiresAtMs: link.expiresAtMs };
    },
    admit: (request, reply, needed) => {
      const bearer = /^Bearer ([\x21-\x7e]+)$/.exec(request.headers.authorization ?? '')?.[1];
      const cookie = readSessionCookie(request.headers.cookie, deps.settings.secure === true);
      const byBearer = access.byBearer(bearer);
      // The stream that stays open is no sign of a person; a request is.
      const principal = byBearer ?? access.bySession(cookie, true);
      if (principal === undefined) {
        void problem(reply, 401, 'UNAUTHENTICATED', 'Sign in first.');
        return undefined;
      }
      if (byBearer === undefined && request.method !== 'GET' && !fromOurPage(request)) {
        void problem(reply, 403, 'FORBIDDEN_ORIGIN', 'This change was asked for by another site.');
        return undefined;
      }
      if (!allows(principal.role, needed)) {
        void problem(
          reply,
          403,
          'FORBIDDEN',
          `Your role is ${principal.role}; this needs ${needed}.`,
        );
        return undefined;
      }
      return { principal, byBearer: byBearer !== undefined };
    },
  };

  const fromOurPage = (request: FastifyRequest): boolean => {
    const scheme = deps.settings.secure === true ? 'https' : 'http';
    const own = `${scheme}://${String(request.headers.host).toLowerCase()}`;
    return request.headers.origin === own && request.headers[consoleHeader] === '1';
  };

  app.addHook('onRequest', async (request, reply) => {
    void reply.headers({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
    });
    if (!hosts.has((request.headers.host ?? '').toLowerCase()))
      return problem(
        reply,
        421,
        'WRONG_HOST',
        `Found Host "${request.headers.host ?? ''}"; allowed: ${[...hosts].join(', ')}.`,
      );
    const waitMs = requests.take();
    if (waitMs === undefined) return undefined;
    void reply.header('retry-after', Math.max(1, Math.ceil(waitMs / 1000)));
    return problem(reply, 429, 'RATE_LIMITED', 'Too many requests to the admin port.');
  });
  app.setNotFoundHandler((_request, reply) => problem(reply, 404, 'NOT_FOUND', 'No such thing.'));
  app.setErrorHandler((error, request, reply) => {
    const status =
      error instanceof Error && 'statusCode' in error ? Number(error.statusCode) : undefined;
    if (status !== undefined && status >= 400 && status < 500)
      return problem(reply, status, 'INVALID_ARGUMENT', (error as Error).message);
    deps.log.error('admin_request_failed', {
      route: request.routeOptions.url ?? 'none',
      error: error instanceof Error ? error.message : String(error),
    });
    const name = error instanceof Error ? error.name : '';
    if (name === 'UnavailableError' || name === 'OutcomeUnknownError')
      return problem(
        reply,
        503,
        'DEPENDENCY_UNAVAILABLE',
        name === 'UnavailableError'
          ? 'A needed part did not answer; nothing was done.'
          : 'A needed part did not answer; it may have been done. Repeat with the same action id.',
      );
    return problem(reply, 500, 'INTERNAL', 'Something broke; the log says what.');
  });

  registerSessionRoutes(app, context);
  registerLiveRoutes(app, context);
  registerAccountRoutes(app, context);
  registerActionRoutes(app, context);
  registerOrderRoutes(app, context);
  registerExportRoutes(app, context);
  registerConsolePage(app, deps);

  return {
    app,
    feed,
    start: async () => {
      const { host, port, allowedHosts: configured = [] } = deps.settings;
      await app.listen({ host, port });
      const address = app.server.address();
      const bound = typeof address === 'object' && address !== null ? address.port : port;
      hosts = allowedHosts(host, bound, configured);
      const shown = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
      const scheme =
        deps.settings.secure === true && configured[0] !== undefined ? 'https' : 'http';
      origin =
        scheme === 'https'
          ? `https://${configured[0]}`
          : `http://${shown.includes(':') ? `[${shown}]` : shown}:${bound}`;
      feed.start();
      return { url: origin };
    },
    signInUrl: (principal) => context.signInUrl(principal),
    close: async () => {
      feed.close();
      app.server.closeAllConnections();
      await app.close();
    },
  };
}
