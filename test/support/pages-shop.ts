import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type FastifyInstance, fastify } from 'fastify';
import { leadingZeroBits } from '../../src/core/pass/challenge.ts';
import type { Activity, Phase } from '../../src/core/activity.ts';
import { type Assets, loadAssets } from '../../src/gateway/pages/assets.ts';
import { readCookie } from '../../src/gateway/pages/cookies.ts';
import type { PageOutcome, PagesDeps } from '../../src/gateway/pages/deps.ts';
import { registerPages } from '../../src/gateway/pages/pages.ts';
import { defaultTheme } from '../../src/gateway/pages/theme.ts';
import type { ChallengeDemand, JoinResult, Person } from '../../src/pipeline/door.ts';
import type { Clock } from '../../src/ports/clock.ts';
import type { Order } from '../../src/ports/order-store.ts';
import type { Standing } from '../../src/wire/standing.ts';

/** The pages' bundles as the build leaves them; needs dist/web (the system tests build it first). */
export function builtAssets(): Assets {
  return loadAssets(join(import.meta.dirname, '../../dist/web/storefront'), defaultTheme);
}

/** Bundles that are as good as any for tests that look at HTML only. */
export function plainAssets(): Assets {
  const none = (path: string) => ({
    path,
    type: 'text/plain',
    plain: Buffer.from('x'),
    gzip: Buffer.from('x'),
    brotli: Buffer.from('x'),
  });
  const script = none('/assets/main-0.js');
  return {
    script,
    style: none('/assets/style-0.css'),
    theme: none('/assets/theme-0.css'),
    icon: none('/assets/icon-0.svg'),
    byPath: (path) => (path === script.path ? script : undefined),
  };
}

/**
 * A shop small enough to hold in one's head, with the pages on top: one sale, one buyer's standing
 * that the test moves by hand, orders in a map.
 */
export class PagesShop {
  readonly app: FastifyInstance;
  readonly orders = new Map<string, Order>();
  readonly outcomes = new Map<string, PageOutcome>();
  readonly calls: string[] = [];
  phase: Phase = 'lobby';
  standing: Partial<Standing> = {};
  entries = new Set<string>();
  /** What the next submit answers; `QUEUED` until told otherwise. */
  submitAnswer: Partial<PageOutcome> | Error | undefined;
  /** Demanded before a place; the answers that came are kept. */
  demand: ChallengeDemand | undefined;
  readonly answers: (string | undefined)[] = [];
  /** The provider confirms later: paying leaves the order as it is. */
  paysLater = false;
  /** How many status asks an order stays queued. */
  queuedAsks = 1;
  /** Nobody is let in at the moment. */
  halted = false;
  /** The room has no state to act upon. */
  stateless = false;
  activity: Activity;
  #people = 0;
  readonly #clock: Clock;

  constructor(clock: Clock, assets: Assets, activity: Partial<Activity> = {}) {
    this.#clock = clock;
    const now = clock.wallMs();
    this.activity = {
      activityId: 'night-tide',
      name: 'Night Tide — Live at the Harbour',
      revision: 1,
      activityVersion: 1,
      lobbyOpensAtMs: now - 60_000,
      opensAtMs: now + 27_000,
      closesAtMs: now + 3 * 3_600_000,
      timeZone: 'Asia/Shanghai',
      skus: [
        {
          skuId: 'floor',
          name: 'Standing, floor',
          price: { amountMinor: 68_000, currency: 'CNY' },
          stock: 500,
          maxPerPerson: 2,
        },
        {
          skuId: 'balcony',
          name: 'Seated, balcony',
          price: { amountMinor: 98_000, currency: 'CNY' },
          stock: 120,
          maxPerPerson: 1,
        },
      ],
      room: {
        mode: 'draw',
        passLifeMs: 30_000,
        claimWindowMs: 60_000,
        maxAdmissionsPerSecond: 100,
        maxActive: 1_000,
      },
      paymentDeadlineMs: 15 * 60_000,
      ...activity,
    } as Activity;
    this.app = fastify();
    const pages = registerPages(this.app, this.deps(assets));
    this.app.setNotFoundHandler(
      (request, reply) =>
        pages.notFound(request, reply) ?? reply.code(404).send({ code: 'NOT_FOUND' }),
    );
    this.#api();
  }

  now(): number {
    return this.#clock.wallMs();
  }

  fullStanding(): Standing {
    return {
      state: 'waiting',
      cohort: 'lobby',
      position: null,
      ahead: null,
      eta: null,
      sell_through: 'uncertain',
      claim_before: null,
      order_rule: 'draw',
      next_poll_after_ms: 400,
      ...this.standing,
      server_time: new Date(this.now()).toISOString(),
    };
  }

  deps(assets: Assets): PagesDeps {
    const view = () => ({
      activity: this.activity,
      phase: this.phase,
      availability: (skuId: string) => (skuId === 'floor' ? ('plenty' as const) : ('low' as const)),
      commitment: 'b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c',
      checkpoint: '7-2-0f3b',
      ...(this.halted ? { halted: true } : {}),
    });
    const standing = () => ({
      kind: 'standing' as const,
      standing: this.fullStanding(),
      entryId: 'ent_1',
    });
    return {
      clock: this.#clock,
      theme: defaultTheme,
      assets,
      isSecure: () => false,
      activities: () => [view()],
      activity: (id) => (id === this.activity.activityId ? view() : undefined),
      identify: async (token) => this.#person(token),
      session: async () => {
        this.#people += 1;
        const userToken = `user-${this.#people}`;
        const person = { userId: userToken, personId: userToken };
        return { kind: 'session', userToken, person, expiresAtMs: this.now() + 3_600_000 };
      },
      join: async (_id, person, skuIds, _connection, answer): Promise<JoinResult> => {
        this.calls.push(`join ${person.userId} ${skuIds.join('+')}`);
        if (this.stateless) return { kind: 'held' };
        const { demand } = this;
        if (demand !== undefined && !this.entries.has(person.userId)) {
          this.answers.push(answer);
          if (answer === undefined || !this.#holds(demand, answer))
            return { kind: 'challenge', reason: answer === undefined ? 'none' : 'work', demand };
        }
        const created = !this.entries.has(person.userId);
        this.entries.add(person.userId);
        return {
          kind: 'joined',
          created,
          entryId: 'ent_1',
          entryToken: `entry.${person.userId}`,
          standing: this.fullStanding(),
        };
      },
      standingByToken: (_id, token) =>
        this.entries.has(token.slice('entry.'.length))
          ? standing()
          : { kind: 'bad_token', reason: 'signature' },
      standingByPerson: async (_id, person) =>
        this.entries.has(person.userId) ? standing() : { kind: 'unknown_entry' },
      leave: async (_id, person) => {
        this.calls.push(`leave ${person.userId}`);
        return this.entries.delete(person.userId);
      },
      takePass: async (_id, person, skuId) => {
        this.calls.push(`pass ${person.userId} ${skuId}`);
        const state = this.fullStanding().state;
        if (state !== 'admitted' && state !== 'claimed')
          return {
            kind: 'not_admitted',
            standing: this.fullStanding(),
            missed: state === 'missed',
            why: state === 'missed' ? 'turn_over' : 'not_your_turn',
          };
        this.standing = { ...this.standing, state: 'claimed' };
        return {
          kind: 'pass',
          pass: 'secret-pass',
          pathId: 'path',
          nonce: `nonce-${person.userId}-${skuId}`,
          notBeforeMs: this.now(),
          expiresAtMs: this.now() + 30_000,
          maxQuantity: 2,
        };
      },
      submit: async (request) => {
        this.calls.push(`submit ${request.requestId} ${request.skuId} ${request.quantity}`);
        if (this.submitAnswer instanceof Error) throw this.submitAnswer;
        const outcome: PageOutcome = {
          requestId: request.requestId,
          state: 'QUEUED',
          code: 'SECKILL_QUEUED',
          nextAction: 'POLL',
          quantity: request.quantity,
          orderId: null,
          payBeforeMs: null,
          nextPollAfterMs: 500,
          ...this.submitAnswer,
        };
        if (outcome.state === 'QUEUED') {
          this.outcomes.set(request.requestId, outcome);
          this.orders.set(`ord_${request.requestId.slice(4, 20)}`, {
            ...this.#order(request.userToken, request.skuId, request.quantity),
            orderId: `ord_${request.requestId.slice(4, 20)}`,
            requestId: request.requestId,
          });
        }
        return outcome;
      },
      requestStatus: async (_person, _activity, _sku, requestId) => {
        const outcome = this.outcomes.get(requestId);
        if (outcome === undefined) return undefined;
        this.queuedAsks -= 1;
        if (this.queuedAsks >= 0) return outcome;
        return {
          ...outcome,
          state: 'ORDERED',
          nextAction: 'PAY',
          orderId: `ord_${requestId.slice(4, 20)}`,
        };
      },
      order: async (person, orderId) => {
        const order = this.orders.get(orderId);
        return order?.userId === person.userId ? order : undefined;
      },
      demoPayments: true,
      pay: async (_person, orderId) => {
        const order = this.orders.get(orderId);
        return this.paysLater && order !== undefined
          ? { kind: 'done', order }
          : this.move(orderId, 'PAID');
      },
      cancel: async (_person, orderId) => this.move(orderId, 'CANCELLED'),
    };
  }

  #holds({ kind, token, bits }: ChallengeDemand, answer: string): boolean {
    if (kind === 'callback') return answer === `${token}~vouched`;
    const hash = createHash('sha256').update(answer).digest();
    return answer.startsWith(`${token}~`) && leadingZeroBits(hash) >= bits;
  }

  #person(token: string): Person | undefined {
    return token.startsWith('user-') ? { userId: token, personId: token } : undefined;
  }

  #order(userId: string, skuId: string, quantity: number): Order {
    const sku = this.activity.skus.find((one) => one.skuId === skuId)!;
    return {
      orderId: '',
      reservationId: 'rsv_1',
      requestId: '',
      activityId: this.activity.activityId,
      skuId,
      userId,
      personId: userId,
      quantity,
      amountMinor: sku.price.amountMinor * quantity,
      currency: sku.price.currency,
      state: 'PENDING_PAYMENT',
      createdAtMs: this.now(),
      payBeforeMs: this.now() + 15 * 60_000,
    };
  }

  /** What a provider's callback, or the buyer, does to an order. */
  move(orderId: string, state: 'PAID' | 'CANCELLED') {
    const order = this.orders.get(orderId);
    if (order === undefined) return { kind: 'unknown' as const };
    this.calls.push(`${state} ${orderId}`);
    if (order.state !== 'PENDING_PAYMENT') return { kind: 'refused' as const, order };
    const moved: Order = {
      ...order,
      state,
      ...(state === 'PAID' ? { paidAtMs: this.now() } : {}),
    };
    this.orders.set(orderId, moved);
    return { kind: 'done' as const, order: moved };
  }

  /** The two API routes that the script calls. */
  #api(): void {
    const known = (cookie: string | undefined): boolean =>
      this.entries.has(readCookie(cookie, 'sluice-entry', false)?.slice('entry.'.length) ?? '');
    this.app.get('/v1/activities/:id/entries/me', (request, reply) =>
      known(request.headers.cookie)
        ? reply.send(this.fullStanding())
        : reply.code(404).send({ code: 'NOT_FOUND' }),
    );
    this.app.get('/v1/activities/:id/entries/me/events', (request, reply) => {
      if (!known(request.headers.cookie)) {
        void reply.code(404).send({});
        return;
      }
      reply.hijack();
      reply.raw.writeHead(200, { 'content-type': 'text/event-stream' });
      const send = (): void => {
        reply.raw.write(`event: standing\ndata: ${JSON.stringify(this.fullStanding())}\n\n`);
      };
      send();
      const timer = setInterval(send, 200);
      reply.raw.on('close', () => clearInterval(timer));
    });
  }
}
