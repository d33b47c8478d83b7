import type { FastifyInstance, FastifyReply } from 'fastify';
import { linkLifeMs, sessionLifeMs } from './access.ts';
import { problem } from './problem.ts';
import {
  type AdminContext,
  consoleHeader,
  readSessionCookie,
  sessionCookieName,
} from './context.ts';
import { type Role, roles } from './source.ts';

const namePattern = /^[\p{L}\p{N}][\p{L}\p{N} ._@-]{0,39}$/u;

/** Signing in and out, and links for others. */
export function registerSessionRoutes(app: FastifyInstance, context: AdminContext): void {
  const { deps, access } = context;
  const secure = deps.settings.secure === true;

  const setCookie = (reply: FastifyReply, value: string, seconds: number): void => {
    // The path keeps the cookie away from whatever else runs under this host's name on other ports.
    void reply.header(
      'set-cookie',
      `${sessionCookieName(secure)}=${value}; Path=/admin/v1; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure ? '; Secure' : ''}`,
    );
  };

  app.post<{ Body: { secret?: unknown } | null }>('/admin/v1/session', async (request, reply) => {
    if (request.headers[consoleHeader] !== '1')
      return problem(reply, 403, 'FORBIDDEN_ORIGIN', `The header ${consoleHeader}: 1 is missing.`);
    const waitMs = context.signInTries.take();
    if (waitMs !== undefined) {
      void reply.header('retry-after', Math.ceil(waitMs / 1000));
      return problem(reply, 429, 'RATE_LIMITED', 'Too many tries to sign in.');
    }
    const secret = request.body?.secret;
    const signedIn = typeof secret === 'string' ? access.signIn(secret) : undefined;
    if (signedIn === undefined) {
      deps.log.warn('admin_sign_in_refused', {});
      return problem(reply, 401, 'UNAUTHENTICATED', 'This link is used up, too old or not ours.');
    }
    await deps.audit.append({
      at: deps.clock.wallMs(),
      who: signedIn.principal.name,
      what: 'sign_in',
      why: 'one-time link',
      subject: 'console',
      detail: { role: signedIn.principal.role },
    });
    setCookie(reply, signedIn.session, Math.floor(sessionLifeMs / 1000));
    return reply.code(200).send(signedIn.principal);
  });

  app.get('/admin/v1/session', (request, reply) => {
    const who = context.admit(request, reply, 'viewer');
    if (who === undefined) return reply;
    return reply.send({ ...who.principal, offered: deps.actions?.offered ?? [] });
  });

  app.delete('/admin/v1/session', (request, reply) => {
    if (context.admit(request, reply, 'viewer') === undefined) return reply;
    const secret = readSessionCookie(request.headers.cookie, secure);
    if (secret !== undefined) access.signOut(secret);
    setCookie(reply, '', 0);
    return reply.code(204).send();
  });

  app.post<{ Body: { name?: unknown; role?: unknown } | null }>(
    '/admin/v1/sign-in-links',
    async (request, reply) => {
      const who = context.admit(request, reply, 'admin');
      if (who === undefined) return reply;
      const name = request.body?.name ?? 'operator';
      const role = request.body?.role ?? 'operator';
      if (typeof name !== 'string' || !namePattern.test(name))
        return problem(
          reply,
          400,
          'INVALID_ARGUMENT',
          `name: found ${JSON.stringify(name)}, allowed: 1 to 40 letters, digits, space . _ @ -`,
        );
      if (!roles.includes(role as Role))
        return problem(
          reply,
          400,
          'INVALID_ARGUMENT',
          `role: found ${JSON.stringify(role)}, allowed: ${roles.join(', ')}`,
        );
      await deps.audit.append({
        at: deps.clock.wallMs(),
        who: who.principal.name,
        what: 'sign_in_link',
        why: `for ${name}`,
        subject: 'console',
        detail: { role },
      });
      const link = context.signInUrl({ name, role: role as Role });
      return reply.code(201).send({
        url: link.url,
        expires_at: new Date(link.expiresAtMs).toISOString(),
        life_ms: linkLifeMs,
      });
    },
  );
}
