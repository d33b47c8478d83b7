import { createHash, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../../ports/clock.ts';
import type { Random } from '../../ports/random.ts';
import { type Role, roles } from './source.ts';

/**
 * Who may use the operator's page.
 *
 * There is no password, default or other. A process makes one sign-in link at its start: its secret
 * works once, for minutes, and stands in the address's fragment, which no browser ever sends to a
 * server, log or referrer; the page posts it and gets a session cookie. More links are made with the
 * admin credential (a file that only its owner reads), each for a name and a role, so that the audit
 * says who did what. Only digests are kept here: what this process holds cannot be used to sign in.
 *
 * Everything is bounded: links outstanding, sessions, tries per second.
 */
export interface Principal {
  /** As it stands in the audit. */
  readonly name: string;
  readonly role: Role;
}

export interface SignInLink {
  readonly secret: string;
  readonly expiresAtMs: number;
}

/** Life of a sign-in link, ms. */
export const linkLifeMs = 10 * 60_000;
/** A session ends this long after its last use, and this long after its start at the latest, ms. */
export const sessionIdleMs = 60 * 60_000;
export const sessionLifeMs = 12 * 60 * 60_000;
/** Links outstanding, and sessions at a time. */
export const linksMax = 16;
export const sessionsMax = 256;

interface Link extends Principal {
  readonly expiresAtMs: number;
}

interface Session extends Principal {
  readonly startedAtMs: number;
  usedAtMs: number;
}

const digest = (secret: string): string => createHash('sha256').update(secret).digest('hex');

/** Bytes of a secret that are looked at: longer ones are nobody's. */
const secretMax = 256;

export class Access {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #tokenDigest: Buffer;
  readonly #links = new Map<string, Link>();
  readonly #sessions = new Map<string, Session>();

  constructor(clock: Clock, random: Random, adminToken: string) {
    this.#clock = clock;
    this.#random = random;
    this.#tokenDigest = Buffer.from(digest(adminToken), 'hex');
  }

  /** The oldest link goes when there are too many. */
  makeLink(principal: Principal): SignInLink {
    const now = this.#clock.wallMs();
    for (const [key, link] of this.#links) if (link.expiresAtMs <= now) this.#links.delete(key);
    while (this.#links.size >= linksMax) this.#dropOldest(this.#links);
    const secret = this.#secret();
    const expiresAtMs = now + linkLifeMs;
    this.#links.set(digest(secret), { ...principal, expiresAtMs });
    return { secret, expiresAtMs };
  }

  /** Uses a link up. Answers the session's secret, or undefined. */
  signIn(secret: string): { readonly session: string; readonly principal: Principal } | undefined {
    if (secret.length > secretMax) return undefined;
    const now = this.#clock.wallMs();
    const key = digest(secret);
    const link = this.#links.get(key);
    this.#links.delete(key);
    if (link === undefined || link.expiresAtMs <= now) return undefined;
    while (this.#sessions.size >= sessionsMax) this.#dropOldest(this.#sessions);
    const session = this.#secret();
    const principal = { name: link.name, role: link.role };
    this.#sessions.set(digest(session), { ...principal, startedAtMs: now, usedAtMs: now });
    return { session, principal };
  }

  /** Who this session is; `touch` keeps it alive. */
  bySession(secret: string | undefined, touch: boolean): Principal | undefined {
    if (secret === undefined || secret.length > secretMax) return undefined;
    const now = this.#clock.wallMs();
    const key = digest(secret);
    const session = this.#sessions.get(key);
    if (session === undefined) return undefined;
    if (now - session.usedAtMs >= sessionIdleMs || now - session.startedAtMs >= sessionLifeMs) {
      this.#sessions.delete(key);
      return undefined;
    }
    if (touch) session.usedAtMs = Math.max(session.usedAtMs, now);
    return { name: session.name, role: session.role };
  }

  signOut(secret: string): void {
    if (secret.length <= secretMax) this.#sessions.delete(digest(secret));
  }

  /** The credential of the data folder: for the command line. Compared in constant time. */
  byBearer(token: string | undefined): Principal | undefined {
    if (token === undefined || token.length > secretMax) return undefined;
    return timingSafeEqual(Buffer.from(digest(token), 'hex'), this.#tokenDigest)
      ? { name: 'command line', role: 'admin' }
      : undefined;
  }

  #secret(): string {
    return Buffer.from(this.#random.bytes(32)).toString('base64url');
  }

  #dropOldest(map: Map<string, unknown>): void {
    const [oldest] = map.keys();
    if (oldest !== undefined) map.delete(oldest);
  }
}

export function allows(role: Role, needed: Role): boolean {
  return roles.indexOf(role) >= roles.indexOf(needed);
}

/** A bucket for tries: `burst` at once, then one each `everyMs`. Monotonic time. */
export class Tries {
  readonly #clock: Clock;
  readonly #burst: number;
  readonly #everyUs: number;
  /** When the bucket would be full again, µs. */
  #fullUs = 0;

  constructor(clock: Clock, burst: number, everyMs: number) {
    this.#clock = clock;
    this.#burst = burst;
    this.#everyUs = everyMs * 1000;
  }

  /** Takes one; else says how long to wait, ms. */
  take(): number | undefined {
    const now = this.#clock.monoUs();
    const full = Math.max(this.#fullUs, now) + this.#everyUs;
    const excess = full - now - this.#burst * this.#everyUs;
    if (excess > 0) return Math.ceil(excess / 1000);
    this.#fullUs = full;
    return undefined;
  }
}
