import { createHash } from 'node:crypto';
import {
  answerMark,
  challengeBitsMax,
  signChallenge,
  verifyChallenge,
} from '../core/pass/challenge.ts';
import type { KeyRing } from '../core/pass/key-ring.ts';
import { openToken, sealToken } from '../core/pass/token.ts';
import { encodeKey } from '../core/limit/key.ts';
import type { Risk, Rule } from '../core/rules/model.ts';
import type { Later, Vouchers } from '../core/rules/sink.ts';
import { newId, type Random } from '../ports/random.ts';
import type { LimitedRequest } from './limits.ts';

/**
 * What a caller gets past a limit instead of a plain no, and brings back with the same request.
 *
 * **A place ahead** (`accept_later`). The rule paces its callers. Whoever comes too early takes the next
 * free place at once, charged like any other, and gets a ticket that says when it is. Nobody keeps the
 * request but the caller, so nothing that was promised dies with a process, and nothing is held open:
 * at its time the same request with the ticket passes that rule for certain. The ticket names the
 * counters it was taken under, so it is worth nothing to another caller; it is used once. Instances
 * share keys but no memory, so on any other instance the request is charged there too and only spared
 * the wait: a ticket shown to each of them in turn gains nothing that the limits there do not allow.
 *
 * **A challenge** (`challenge`). Past the limit each request costs a proof of work, bound to the counter
 * and the route. An answer lets one request past that rule, uncharged, and no other rule: what all of
 * them together may ask is for another rule to say. An answer could be shown once to each instance.
 *
 *     request ──▶ 202 ACCEPTED_LATER { ticket, not_before }      ──▶ the same + Sluice-Ticket
 *     request ──▶ 403 CHALLENGE_REQUIRED { challenge: { token } } ──▶ the same + Sluice-Challenge
 */
export interface LimitDeskOptions {
  /** Of type `challenge`. */
  readonly ring: KeyRing;
  readonly issuer: string;
  readonly random: Random;
}

export const ticketHeader = 'Sluice-Ticket';
export const challengeHeader = 'Sluice-Challenge';

/** After its time a place may still be used for so long, ms: a slow network, twice over. */
const ticketGraceMs = 30_000;
/** Time to answer a challenge, ms. */
const challengeLifeMs = 120_000;
/** Zero bits asked for: from hardly anything to some seconds of a phone. */
const bitsByRisk: Readonly<Record<Risk, number>> = { trusted: 10, low: 13, medium: 16, high: 19 };
/** Counters that one ticket names. */
const placesMax = 8;
/** Used ones remembered until they would have expired anyway. Past it, nothing counts as unused. */
const usedMax = 200_000;

interface Ticket {
  readonly id: string;
  readonly text: string;
  readonly here: boolean;
  readonly places: readonly string[];
  readonly notBeforeMs: number;
  readonly expiresAtMs: number;
}

export class LimitDesk {
  readonly #o: LimitDeskOptions;
  readonly #instance: string;
  /** Id → who holds it and until when it matters, oldest first. */
  readonly #used = new Map<string, { readonly by: object; readonly untilMs: number }>();

  constructor(options: LimitDeskOptions) {
    this.#o = options;
    this.#instance = newId(options.random, 'd');
  }

  /** What this request brings along; read when a rule asks. */
  vouchersOf(request: LimitedRequest, nowMs: () => number): RequestVouchers {
    return new RequestVouchers(this, request, nowMs);
  }

  /** The ticket for places just taken, and for those that this request had paid before. */
  ticket(
    later: Later,
    before: readonly string[],
    route: string,
    nowMs: number,
  ): { readonly text: string; readonly notBeforeMs: number; readonly expiresAtMs: number } {
    const { ring, issuer, random } = this.#o;
    const notBeforeMs = nowMs + Math.ceil(later.delayUs / 1000);
    const expiresAtMs = Math.ceil((notBeforeMs + ticketGraceMs) / 1000) * 1000;
    const taken = later.places.map(({ rule, parts }) => counterName(rule, parts));
    const text = sealToken(ring, {
      iss: issuer,
      use: 'place',
      rt: route,
      in: this.#instance,
      pl: [...before, ...taken].slice(0, placesMax),
      nbf_ms: notBeforeMs,
      exp: expiresAtMs / 1000,
      jti: newId(random, 'p'),
    });
    return { text, notBeforeMs, expiresAtMs };
  }

  /** A new challenge for this counter, as a member of the problem. */
  challenge(
    rule: Rule,
    parts: readonly string[],
    request: LimitedRequest,
    reason: string,
    nowMs: number,
  ): Readonly<Record<string, unknown>> {
    const { ring, issuer, random } = this.#o;
    const bits = bitsOf(request.risk);
    const expiresAtMs = nowMs + challengeLifeMs;
    const token = signChallenge(ring, {
      issuer,
      activityId: placeOf(rule, request.route),
      userId: counterName(rule, parts),
      bits,
      challengeId: newId(random, 'ch'),
      issuedAtMs: nowMs,
      expiresAtMs,
    });
    const expires = new Date(expiresAtMs).toISOString();
    return { kind: 'proof_of_work', token, bits, url: null, expires_at: expires, reason };
  }

  /** @internal */
  readTicket(text: string, route: string, nowMs: number): Ticket | undefined {
    const opened = openToken(this.#o.ring, text, nowMs);
    if (!opened.ok) return undefined;
    const { iss, use, rt, in: instance, pl, nbf_ms: notBeforeMs, exp, jti } = opened.claims;
    if (iss !== this.#o.issuer || use !== 'place' || rt !== route) return undefined;
    if (typeof notBeforeMs !== 'number' || typeof exp !== 'number' || typeof jti !== 'string') {
      return undefined;
    }
    if (!Array.isArray(pl) || nowMs >= exp * 1000) return undefined;
    const places = pl.filter((name): name is string => typeof name === 'string');
    const here = instance === this.#instance;
    return { id: jti, text, here, places, notBeforeMs, expiresAtMs: exp * 1000 };
  }

  /** @internal Why an answer does not let anybody past; undefined when it does. */
  readAnswer(
    answer: string,
    rule: Rule,
    parts: readonly string[],
    request: LimitedRequest,
    nowMs: number,
  ): { readonly id: string; readonly untilMs: number } | { readonly why: string } {
    const { ring, issuer } = this.#o;
    const expected = {
      issuer,
      activityId: placeOf(rule, request.route),
      userId: counterName(rule, parts),
    };
    const verdict = verifyChallenge(ring, answer, expected, nowMs);
    if (verdict.kind === 'refused') return { why: verdict.reason };
    const { bits, challengeId, expiresAtMs } = verdict.claims;
    if (bits < bitsOf(request.risk)) return { why: 'work' };
    // The clock of whoever signed it may be ahead of ours by as much as a pass allows.
    return { id: challengeId, untilMs: expiresAtMs + ticketGraceMs };
  }

  /** @internal Takes it for this request, unless another one has it. */
  hold(id: string, untilMs: number, by: object, nowMs: number): boolean {
    const holder = this.#used.get(id);
    if (holder !== undefined) return holder.by === by;
    for (const [old, { untilMs: until }] of this.#used) {
      if (until > nowMs) break;
      this.#used.delete(old);
    }
    if (this.#used.size >= usedMax) return false;
    this.#used.set(id, { by, untilMs });
    return true;
  }

  /** @internal */
  letGo(id: string): void {
    this.#used.delete(id);
  }
}

/** Tickets and answers of one request. What a stage that refuses had taken is free again. */
export class RequestVouchers implements Vouchers {
  readonly #desk: LimitDesk;
  readonly #request: LimitedRequest;
  readonly #nowMs: () => number;
  #ticket: Ticket | undefined | null = null;
  #held: string[] = [];
  #paid: string[] = [];
  #why = 'none';

  constructor(desk: LimitDesk, request: LimitedRequest, nowMs: () => number) {
    this.#desk = desk;
    this.#request = request;
    this.#nowMs = nowMs;
  }

  /** Counters whose place this request has used. */
  get paid(): readonly string[] {
    return this.#paid;
  }

  /** The ticket that came along, when it is a true one. */
  get ticket(): Ticket | undefined {
    if (this.#ticket === null) {
      const text = this.#request.header(ticketHeader.toLowerCase());
      this.#ticket =
        text === undefined
          ? undefined
          : this.#desk.readTicket(text, this.#request.route, this.#nowMs());
    }
    return this.#ticket;
  }

  /** Why the last answer did not count: `none` when there was none. */
  get whyNot(): string {
    return this.#why;
  }

  place(rule: Rule, parts: readonly string[]): ReturnType<Vouchers['place']> {
    const { ticket } = this;
    const name = ticket === undefined ? '' : counterName(rule, parts);
    if (ticket?.places.includes(name) !== true) return undefined;
    const nowMs = this.#nowMs();
    if (nowMs < ticket.notBeforeMs) return (ticket.notBeforeMs - nowMs) * 1000;
    if (!ticket.here) return 'waited';
    if (!this.#take(ticket.id, ticket.expiresAtMs, nowMs)) return undefined;
    if (!this.#paid.includes(name)) this.#paid.push(name);
    return 'paid';
  }

  answered(rule: Rule, parts: readonly string[]): boolean {
    const text = this.#request.header(challengeHeader.toLowerCase());
    if (text === undefined || !text.includes(answerMark)) return false;
    const nowMs = this.#nowMs();
    const read = this.#desk.readAnswer(text, rule, parts, this.#request, nowMs);
    this.#why = 'why' in read ? read.why : 'used';
    return 'id' in read && this.#take(read.id, read.untilMs, nowMs);
  }

  /** A stage has been decided: what it used stays used only if it let the request through. */
  settle(admitted: boolean): void {
    if (!admitted) {
      for (const id of this.#held) this.#desk.letGo(id);
      this.#paid = [];
    }
    this.#held = [];
  }

  #take(id: string, untilMs: number, nowMs: number): boolean {
    if (!this.#desk.hold(id, untilMs, this, nowMs)) return false;
    if (!this.#held.includes(id)) this.#held.push(id);
    return true;
  }
}

function bitsOf(risk: Risk): number {
  return Math.min(challengeBitsMax, bitsByRisk[risk]);
}

/** One counter, as tickets and challenges name it: nothing of the caller can be read from it. */
function counterName(rule: Rule, parts: readonly string[]): string {
  return createHash('sha256')
    .update(encodeKey([rule.id, ...parts]))
    .digest('base64url')
    .slice(0, 22);
}

function placeOf(rule: Rule, route: string): string {
  return `limit ${rule.id} ${route}`;
}
