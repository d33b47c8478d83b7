import type { Dossier, RequestTrace } from './dossier.ts';
import { isLater, isLive } from './dossier.ts';
import { Histogram } from './histogram.ts';
import type { CallKind } from './requests.ts';
import type { Told } from './scene.ts';
import type { Series } from './series.ts';

/** Breaches described in full; further ones of the same invariant are only counted. */
const describedMax = 5;

/** Answers "sold out" kept between two looks at stock. */
const soldOutsMax = 1_000;

/** The invariants that the crowd itself can see broken; the numbers are their ids. */
export type SeenInvariant = 1 | 2 | 3 | 4 | 5 | 6 | 8 | 12;

/**
 * What the crowd saw, from outside: nothing here asks the server for its own opinion.
 *
 * People do not compare notes; the witness does it for them. It remembers every reservation and
 * order that anybody was told of, whose it was and under which nonce, and calls out a breach the
 * moment two stories do not fit together.
 */
export class Witness {
  readonly admittedMs = new Histogram();
  readonly refusedMs = new Histogram();
  readonly pollMs = new Histogram();
  /** Answers by `kind status code`. */
  readonly answers = new Map<string, number>();
  /** Entries seen as released, by the end of their claim window: one wave each. */
  readonly waves = new Map<string, number>();
  readonly #breaches = new Map<SeenInvariant, { count: number; described: string[] }>();
  readonly #reservationOf = new Map<string, RequestTrace>();
  readonly #requestOfNonce = new Map<string, RequestTrace>();
  readonly #personOfOrder = new Map<string, number>();
  readonly #soldOuts: (readonly [number, number])[] = [];
  readonly #overLimit = new Set<number>();
  readonly #series: Series;
  readonly #maxPerPerson: (skuId: string) => number;
  /** Submits that nothing entitled, and how many of them were let in. */
  forged = 0;
  replays = 0;
  conflicts = 0;
  /** Retries of a request id that was known to have reserved. */
  retries = 0;
  queuedTold = 0;
  #paidUnits = 0;

  constructor(series: Series, maxPerPerson: (skuId: string) => number) {
    this.#series = series;
    this.#maxPerPerson = maxPerPerson;
  }

  get reservations(): number {
    return this.#reservationOf.size;
  }

  get orders(): number {
    return this.#personOfOrder.size;
  }

  /** Everybody's orders as they were last told, by order id. */
  static *toldOrders(dossiers: Iterable<Dossier>): Generator<[string, RequestTrace['state']]> {
    for (const { requests } of dossiers) {
      for (const { orderId, state } of requests) if (orderId !== undefined) yield [orderId, state];
    }
  }

  get paidUnits(): number {
    return this.#paidUnits;
  }

  breach(invariant: SeenInvariant, description: string): void {
    const known = this.#breaches.get(invariant) ?? { count: 0, described: [] };
    known.count += 1;
    if (known.described.length < describedMax) known.described.push(description);
    this.#breaches.set(invariant, known);
  }

  breaches(invariant: SeenInvariant): { readonly count: number; readonly described: string[] } {
    return this.#breaches.get(invariant) ?? { count: 0, described: [] };
  }

  get anyBreach(): boolean {
    return this.#breaches.size > 0;
  }

  answered(kind: CallKind, status: number, code: string): void {
    const key = `${kind} ${status}${code === '' ? '' : ` ${code}`}`;
    this.answers.set(key, (this.answers.get(key) ?? 0) + 1);
  }

  released(claimBefore: string): void {
    this.waves.set(claimBefore, (this.waves.get(claimBefore) ?? 0) + 1);
  }

  /**
   * An outcome was told about a request id. `sentMs` and `nowMs` bracket the moment at which it was
   * true at the server.
   */
  told(dossier: Dossier, request: RequestTrace, body: Told, sentMs: number, nowMs: number): void {
    const before = request.state;
    if (body.reservationId !== undefined && isLive(body.state)) {
      this.#reserved(request, body.reservationId, nowMs);
    }
    if (body.orderId !== undefined) this.#ordered(dossier, request, body.orderId, nowMs);
    if (body.state === 'UNKNOWN') {
      if (!isLive(before)) request.state = 'UNKNOWN';
      return;
    }
    request.uncertain = false;
    if (body.state === 'QUEUED' && !request.toldQueued) {
      request.toldQueued = true;
      this.queuedTold += 1;
    }
    // A question sent before the newest answer was read may have been answered before it, too: it
    // may only move the story on, never back.
    if (sentMs < request.asOfMs && !isLater(body.state, before)) return;
    request.state = body.state;
    request.asOfMs = nowMs;
    if (body.payBefore !== undefined) request.payBeforeMs = Date.parse(body.payBefore);
    if (isLive(body.state)) {
      if (Number.isNaN(request.liveFromMs)) request.liveFromMs = nowMs;
      request.liveToMs = Math.max(request.liveToMs || 0, sentMs);
      this.#compareLive(dossier);
    }
    if (body.state === 'PAID' && before !== 'PAID') {
      this.#paidUnits += request.quantity;
      this.#series.add('paid', nowMs);
    }
    if (before === 'PAID' && body.state !== 'PAID') {
      this.#paidUnits -= request.quantity;
      if (body.state !== 'REFUNDED') {
        this.breach(12, `request ${request.id} was PAID and later told ${body.state}`);
      }
    }
  }

  /**
   * A request was told that it is sold out, or refused for good. A breach only when it was surely
   * alive: told so less than a second ago (no payment deadline is shorter), the question sent after
   * that was read, and not being cancelled.
   */
  denied(
    request: RequestTrace,
    state: 'SOLD_OUT' | 'REJECTED',
    sentMs: number,
    nowMs: number,
  ): void {
    if (isLive(request.state)) {
      // Sent before the good news was read: the two may have crossed.
      if (!(sentMs > request.liveFromMs)) return;
      const fresh = nowMs - request.asOfMs < 1_000 && !request.cancelAsked;
      if (state === 'SOLD_OUT' && fresh) {
        this.breach(12, `request ${request.id} was ${request.state} and then told SOLD_OUT`);
      }
      if (state === 'REJECTED') {
        this.breach(1, `request ${request.id} had reserved, and the durable side refused it`);
      }
    }
    if (state === 'SOLD_OUT' && this.#soldOuts.length < soldOutsMax) {
      this.#soldOuts.push([sentMs, nowMs]);
    }
    request.state = state;
    request.uncertain = false;
  }

  /**
   * Answers "sold out" that were read before `untilMs` and not taken yet, as [sent, read]: a look at
   * stock before and after, with one and the same open epoch, proves that they were wrong.
   */
  takeSoldOuts(untilMs: number): readonly (readonly [number, number])[] {
    const later = this.#soldOuts.findIndex(([, readMs]) => readMs >= untilMs);
    return this.#soldOuts.splice(0, later < 0 ? this.#soldOuts.length : later);
  }

  /** Answers "sold out" that nobody has taken yet. */
  get soldOutsWaiting(): number {
    return this.#soldOuts.length;
  }

  /** The store forgot this reservation and said so: what it reserves next is another one, rightly. */
  lost(request: RequestTrace): void {
    if (request.reservationId !== undefined) this.#reservationOf.delete(request.reservationId);
    this.#requestOfNonce.delete(request.nonce);
    request.reservationId = undefined;
    request.orderId = undefined;
    request.liveFromMs = Number.NaN;
    request.liveToMs = Number.NaN;
    request.state = 'REFUSED';
  }

  #reserved(request: RequestTrace, reservationId: string, nowMs: number): void {
    if (request.reservationId === reservationId) return;
    if (request.reservationId !== undefined) {
      const story = `request ${request.id} was told reservation ${request.reservationId} and then ${reservationId}`;
      this.breach(3, story);
      this.breach(4, story);
    }
    const owner = this.#reservationOf.get(reservationId);
    if (owner !== undefined && owner !== request) {
      this.breach(3, `reservation ${reservationId} was told to ${owner.id} and to ${request.id}`);
    }
    const nonce = request.nonceUnsure ? '' : request.nonce;
    const bound = nonce === '' ? undefined : this.#requestOfNonce.get(nonce);
    if (bound !== undefined && bound !== request) {
      this.breach(3, `nonce ${nonce} reserved for ${bound.id} and for ${request.id}`);
    }
    if (owner === undefined) this.#series.add('reserved', nowMs);
    request.reservationId = reservationId;
    this.#reservationOf.set(reservationId, request);
    if (nonce !== '') this.#requestOfNonce.set(nonce, request);
  }

  #ordered(dossier: Dossier, request: RequestTrace, orderId: string, nowMs: number): void {
    if (request.orderId === orderId) return;
    if (request.orderId !== undefined) {
      this.breach(3, `request ${request.id} was told order ${request.orderId} and then ${orderId}`);
    }
    const owner = this.#personOfOrder.get(orderId);
    if (owner !== undefined && owner !== dossier.person) {
      this.breach(2, `order ${orderId} was told to two people`);
    }
    if (owner === undefined) this.#series.add('ordered', nowMs);
    request.orderId = orderId;
    this.#personOfOrder.set(orderId, dossier.person);
  }

  /**
   * Two requests of one person that were alive at the same moment, beyond the limit. Both intervals
   * are certain: from an answer that said alive to the sending of a later question that was answered
   * alive. So a reservation that had quietly expired is never held against the server.
   */
  #compareLive(dossier: Dossier): void {
    if (dossier.requests.length < 2) return;
    const limit = this.#maxPerPerson(dossier.skuId);
    for (const one of dossier.requests) {
      if (Number.isNaN(one.liveFromMs)) continue;
      // All intervals that contain this one's start.
      let units = 0;
      const at = one.liveFromMs;
      const ids: string[] = [];
      for (const other of dossier.requests) {
        if (other.liveFromMs <= at && other.liveToMs >= at) {
          units += other.quantity;
          ids.push(other.id);
        }
      }
      if (units > limit && !this.#overLimit.has(dossier.person)) {
        this.#overLimit.add(dossier.person);
        this.breach(
          2,
          `one person held ${units} units at once, ${limit} allowed: ${ids.join(', ')}`,
        );
      }
    }
  }

  /** Does the person hold more than one request that looks alive? Then both deserve a question. */
  static suspicious(dossier: Dossier): boolean {
    let live = 0;
    for (const request of dossier.requests) if (isLive(request.state)) live += 1;
    return live > 1;
  }
}
