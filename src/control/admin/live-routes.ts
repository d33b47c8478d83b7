import type { FastifyInstance } from 'fastify';
import { isLoopback } from './hosts.ts';
import { problem } from './problem.ts';
import { type AdminContext, readSessionCookie } from './context.ts';
import { toWire } from './wire.ts';

/** What an operator watches, and what Prometheus scrapes. */
export function registerLiveRoutes(app: FastifyInstance, context: AdminContext): void {
  const { deps, feed, access } = context;

  app.get('/healthz', (_request, reply) => reply.send({ alive: true }));

  app.get('/admin/v1/overview', (request, reply) => {
    if (context.admit(request, reply, 'viewer') === undefined) return reply;
    const overview = feed.current();
    if (overview === undefined)
      return problem(reply, 503, 'DEPENDENCY_UNAVAILABLE', 'Nothing has been measured yet.');
    return reply.send(overview);
  });

  app.get('/admin/v1/history', (request, reply) => {
    if (context.admit(request, reply, 'viewer') === undefined) return reply;
    return reply.send({ reasons: feed.history.reasons, points: toWire(feed.history.points) });
  });

  app.get('/admin/v1/events', (request, reply) => {
    const who = context.admit(request, reply, 'viewer');
    if (who === undefined) return reply;
    const cookie = readSessionCookie(request.headers.cookie, deps.settings.secure === true);
    void reply.hijack();
    reply.raw.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    const added = feed.add(
      reply.raw,
      // An open stream ends with its session, and does not keep it alive.
      () => who.byBearer || access.bySession(cookie, false) !== undefined,
    );
    if (!added) reply.raw.end('event: full\ndata: {}\n\n');
    return reply;
  });

  app.get('/metrics', async (request, reply) => {
    if (
      !isLoopback(request.socket.remoteAddress, request.headers) &&
      context.admit(request, reply, 'viewer') === undefined
    )
      return reply;
    if (deps.metrics === undefined) return problem(reply, 404, 'NOT_FOUND', 'No metrics here.');
    const { contentType, body } = await deps.metrics();
    return reply.header('content-type', contentType).send(body);
  });
}
