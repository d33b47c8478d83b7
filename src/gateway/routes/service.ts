import { type FixedRefusal, refuse } from '../../core/decision.ts';
import { EmptyBody, HealthBody, ReadyBody, SessionBody } from '../../wire/schemas.ts';
import { isFromHere } from '../context.ts';
import { foreignOrigin } from '../../pipeline/stages/06-identify.ts';
import { jsonHeaders } from '../answer.ts';
import { writeCookie } from '../pages/cookies.ts';
import type { Call, RouteReply, RouteSpec } from '../route.ts';

/** Probes, and the demo's way to be somebody. */

const noSessions: FixedRefusal = {
  decision: 'reject',
  stage: 'identify',
  code: 'NOT_FOUND',
  reason: 'no_demo_identity',
  detail: 'this deployment hands out no demo users',
};

const notFromHere: FixedRefusal = {
  ...noSessions,
  reason: 'demo_loopback_only',
  detail:
    'demo users are handed out on this machine only (identity.demo_anywhere: true allows all)',
};

export const serviceRoutes: readonly RouteSpec[] = [
  {
    method: 'GET',
    path: '/healthz',
    operationId: 'health',
    summary: 'Alive: the process answers',
    limits: 'facts',
    priority: undefined,
    auth: 'none',
    answers: { 200: HealthBody },
    handle: () => ({ status: 200, body: { status: 'alive' } }),
  },
  {
    method: 'GET',
    path: '/readyz',
    operationId: 'ready',
    summary: 'Ready to sell, or why not',
    limits: 'facts',
    priority: undefined,
    auth: 'none',
    answers: { 200: ReadyBody, 503: ReadyBody },
    handle: (call) => {
      const { ready, reasons } = call.context.deps.readiness();
      const serverTime = call.context.renderer.serverTime(call.nowMs);
      return { status: ready ? 200 : 503, body: { ready, reasons, server_time: serverTime } };
    },
  },
  {
    method: 'POST',
    path: '/v1/session',
    operationId: 'openSession',
    summary: 'A demo user, where the configuration hands them out',
    limits: 'session',
    priority: 2,
    body: EmptyBody,
    bodyOptional: true,
    auth: 'none',
    answers: { 200: SessionBody },
    handle: session,
  },
];

function session(call: Call): RouteReply {
  const { deps } = call.context;
  const { headers } = call.request;
  // Another site must not be able to sign a browser in as somebody of its choice.
  if (headers.origin !== undefined && !call.credentials.originIsOurs) return refuse(foreignOrigin);
  if (deps.sessions === undefined) return refuse(noSessions);
  const { headers: sent, socket } = call.request;
  const sender = { remoteAddress: socket.remoteAddress, headers: sent };
  const loopback = isFromHere(sender, deps.settings.proxies);
  const issued = deps.sessions.issue({ address: call.address, loopback });
  if (issued === undefined) return refuse(notFromHere);
  const lifeSeconds = Math.floor((issued.expiresAtMs - call.nowMs) / 1000);
  return {
    status: 200,
    body: {
      user_id: issued.userId,
      token: issued.token,
      expires_at: new Date(issued.expiresAtMs).toISOString(),
    },
    headers: jsonHeaders,
    cookies: [writeCookie('sluice-user', issued.token, call.credentials.secure, lifeSeconds)],
  };
}
