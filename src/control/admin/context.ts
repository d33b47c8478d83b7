import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Access, Principal, Tries } from './access.ts';
import type { AdminDeps } from './deps.ts';
import type { LiveFeed } from './live-feed.ts';
import type { Role } from './source.ts';

/** What the route files need of the server. */
export interface AdminContext {
  readonly deps: AdminDeps;
  readonly access: Access;
  readonly signInTries: Tries;
  readonly feed: LiveFeed;
  signInUrl(principal: Principal): { readonly url: string; readonly expiresAtMs: number };
  /** Who asks, or undefined after having answered 401 or 403. */
  admit(request: FastifyRequest, reply: FastifyReply, needed: Role): Admitted | undefined;
}

export interface Admitted {
  readonly principal: Principal;
  /** By the credential of the data folder, not by a session. */
  readonly byBearer: boolean;
}

export const sessionCookie = 'sluice-admin';
/** Sent by our own page with every change; another site cannot send it without our consent. */
export const consoleHeader = 'sluice-console';

export function sessionCookieName(secure: boolean): string {
  return secure ? `__Secure-${sessionCookie}` : sessionCookie;
}

export function readSessionCookie(header: string | undefined, secure: boolean): string | undefined {
  const wanted = `${sessionCookieName(secure)}=`;
  for (const part of (header ?? '').slice(0, 8_192).split(';')) {
    const pair = part.trim();
    if (pair.startsWith(wanted)) return pair.slice(wanted.length);
  }
  return undefined;
}
