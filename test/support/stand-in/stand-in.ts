import { createHash, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * A shop that keeps the public contract in a few maps, and can be told to break it. Rush is tested
 * against it: an honest one must get exit code 0, and each misbehaviour must be caught.
 */
export type Misbehaviour =
  | 'oversell'
  | 'second_unit'
  | 'second_reservation'
  | 'shared_nonce'
  | 'forged_pass'
  | 'silent_queue'
  | 'lost_win'
  | 'epoch_back'
  | 'ledger_leak'
  | 'stock_leak'
  | 'over_admit';

export interface StandInOptions {
  readonly stock: number;
  readonly misbehaviour?: Misbehaviour | undefined;
  readonly opensInMs?: number;
  readonly paymentDeadlineMs?: number;
  readonly maxPerPerson?: number;
  readonly admissionsPerSecond?: number;
  readonly activityId?: string;
  readonly skuId?: string;
  /** Every answer of the shop to a person waits this long. */
  readonly delayMs?: number;
  /** For so long after its start every join is refused as too much. */
  readonly busyForMs?: number;
}

interface Entry {
  readonly user: string;
  state: 'waiting' | 'admitted' | 'sold_out';
  claimBefore: string;
  attempt: number;
}

interface Reservation {
  readonly id: string;
  readonly requestId: string;
  readonly user: string;
  readonly nonce: string;
  readonly fingerprint: string;
  readonly silent: boolean;
  state: 'QUEUED' | 'ORDERED' | 'PAID' | 'EXPIRED' | 'CANCELLED';
  orderId: string | null;
  payBeforeMs: number;
}

const claimWindowMs = 10_000;
const adminToken = 'operator-of-the-stand-in';

export class StandIn {
  readonly #server: Server;
  readonly #admin: Server;
  readonly #options: StandInOptions;
  readonly #opensAtMs: number;
  readonly #startedMs = Date.now();
  readonly #users = new Map<string, string>();
  readonly #entries = new Map<string, Entry>();
  readonly #passes = new Map<string, { user: string; nonce: string; expiresMs: number }>();
  readonly #byRequest = new Map<string, Reservation>();
  readonly #byNonce = new Map<string, Reservation>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #available: number;
  #epoch = 0;
  #arrivals = 0;
  #released = 0;

  constructor(options: StandInOptions) {
    this.#options = options;
    this.#available = options.stock;
    this.#opensAtMs = Date.now() + (options.opensInMs ?? 500);
    this.#server = createServer((request, response) => this.#serve(request, response));
    this.#admin = createServer((request, response) => this.#operate(request, response));
    this.#every(100, () => this.#wave());
  }

  /** Listens on free ports of the loopback. */
  async listen(): Promise<{ shop: string; operator: string; adminToken: string }> {
    const shop = await listening(this.#server);
    const operator = await listening(this.#admin);
    return { shop, operator, adminToken };
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    for (const server of [this.#server, this.#admin]) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  get #live(): Reservation[] {
    return [...this.#byRequest.values()].filter(({ state }) =>
      ['QUEUED', 'ORDERED', 'PAID'].includes(state),
    );
  }

  #is(misbehaviour: Misbehaviour): boolean {
    return this.#options.misbehaviour === misbehaviour;
  }

  #every(ms: number, run: () => void): void {
    const timer = setInterval(run, ms);
    this.#timers.add(timer);
  }

  #after(ms: number, run: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      run();
    }, ms);
    this.#timers.add(timer);
  }

  /** Ten times a second: releases a tenth of a second's worth, in order of arrival. */
  #wave(): void {
    const now = Date.now();
    if (now < this.#opensAtMs) return;
    const perSecond = this.#options.admissionsPerSecond ?? 500;
    let quota = Math.floor(perSecond / 10) * (this.#is('over_admit') ? 20 : 1);
    const claimBefore = new Date(now + claimWindowMs).toISOString();
    for (const entry of this.#entries.values()) {
      if (this.#available <= 0) {
        if (entry.state === 'waiting') entry.state = 'sold_out';
      } else if (entry.state === 'sold_out') entry.state = 'waiting';
      if (entry.state !== 'waiting' || quota <= 0) continue;
      quota -= 1;
      this.#released += 1;
      entry.state = 'admitted';
      entry.claimBefore = claimBefore;
    }
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    this.#arrivals += 1;
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (chunk: string) => {
      body += chunk;
    });
    request.on('end', () => {
      const answer = (): void => {
        try {
          this.#route(request, response, body === '' ? {} : (JSON.parse(body) as Fields));
        } catch (error) {
          problem(response, 400, 'INVALID_ARGUMENT', 'STOP', { detail: String(error) });
        }
      };
      if (this.#options.delayMs === undefined) answer();
      else this.#after(this.#options.delayMs, answer);
    });
  }

  #route(request: IncomingMessage, response: ServerResponse, body: Fields): void {
    const url = new URL(request.url ?? '/', 'http://stand-in');
    const method = request.method ?? 'GET';
    const [, version, what, id, ...rest] = url.pathname.split('/');
    if (version !== 'v1') return problem(response, 404, 'NOT_FOUND', 'STOP');
    if (what === 'activities' && id === undefined) {
      return json(response, 200, { activities: [this.#activity()], server_time: nowText() });
    }
    if (what === 'activities' && rest.at(-1) === 'availability')
      return this.#availability(response);
    if (what === 'session' && method === 'POST') {
      const user = `u_${randomBytes(9).toString('base64url')}`;
      const token = `user.${randomBytes(24).toString('base64url')}`;
      this.#users.set(token, user);
      return json(response, 200, { user_id: user, token, expires_at: nowText(3_600_000) });
    }
    const user = this.#users.get((request.headers.authorization ?? '').replace('Bearer ', ''));
    if (user === undefined && what !== 'seckill') {
      return problem(response, 401, 'UNAUTHENTICATED', 'SIGN_IN');
    }
    if (what === 'activities' && rest[0] === 'entries') {
      return this.#entry(method, rest[1], user ?? '', response);
    }
    if (what === 'activities' && rest[0] === 'passes') return this.#pass(user ?? '', response);
    if (what === 'seckill' && rest[0] === 'submit' && method === 'POST') {
      const pass = String(request.headers['sluice-pass'] ?? '');
      return this.#submit(user, pass, body, response);
    }
    if (what === 'requests') return this.#status(user ?? '', id ?? '', response);
    if (what === 'orders') return this.#order(method, user ?? '', id ?? '', rest[0], response);
    return problem(response, 404, 'NOT_FOUND', 'STOP');
  }

  #activity(): Fields {
    const { activityId = 'stand-in', skuId = 'ticket', maxPerPerson = 1 } = this.#options;
    return {
      activity_id: activityId,
      name: 'Stand-in',
      revision: 1,
      phase: Date.now() < this.#opensAtMs ? 'lobby' : 'open',
      lobby_opens_at: nowText(-60_000),
      opens_at: new Date(this.#opensAtMs).toISOString(),
      closes_at: nowText(3_600_000),
      time_zone: 'UTC',
      room: { mode: 'fifo', commitment: null },
      skus: [{ sku_id: skuId, name: 'T', max_per_person: maxPerPerson, availability: 'low' }],
      server_time: nowText(),
    };
  }

  #availability(response: ServerResponse): void {
    const epoch = this.#is('epoch_back')
      ? 1_000_000 - (Math.floor(Date.now() / 10) % 1_000_000)
      : this.#epoch;
    const availability = this.#available > 0 ? 'low' : 'sold_out';
    json(response, 200, { availability, stock_epoch: epoch, server_time: nowText() });
  }

  #standing(entry: Entry): Fields {
    return {
      state: entry.state,
      cohort: 'lobby',
      position: null,
      ahead: null,
      eta: null,
      sell_through: 'likely',
      claim_before: entry.state === 'admitted' ? entry.claimBefore : null,
      order_rule: 'fifo',
      next_poll_after_ms: 150,
      server_time: nowText(),
    };
  }

  #entry(method: string, me: string | undefined, user: string, response: ServerResponse): void {
    let entry = this.#entries.get(user);
    if (method === 'DELETE') {
      this.#entries.delete(user);
      response.writeHead(204).end();
      return;
    }
    if (me === 'me' && entry === undefined) return problem(response, 404, 'NOT_FOUND', 'STOP');
    if (me !== 'me' && Date.now() < this.#startedMs + (this.#options.busyForMs ?? 0)) {
      return problem(response, 503, 'SYSTEM_OVERLOADED', 'RETRY_LATER', { retry_after_ms: 400 });
    }
    const created = entry === undefined;
    if (entry === undefined) {
      entry = { user, state: 'waiting', claimBefore: '', attempt: 1 };
      this.#entries.set(user, entry);
    }
    const standing = this.#standing(entry);
    if (me === 'me') return json(response, 200, standing);
    json(response, created ? 201 : 200, {
      ...standing,
      entry_id: `e_${user}`,
      entry_token: `entry.${user}`,
    });
  }

  #pass(user: string, response: ServerResponse): void {
    const entry = this.#entries.get(user);
    if (entry?.state !== 'admitted') {
      const standing = entry === undefined ? {} : { standing: this.#standing(entry) };
      return problem(response, 403, 'NOT_ADMITTED', 'RETRY_LATER', standing);
    }
    const nonce = this.#is('second_unit')
      ? `n_${randomBytes(6).toString('base64url')}`
      : `n_${user}_${entry.attempt}`;
    const pass = `pass.${randomBytes(24).toString('base64url')}`;
    this.#passes.set(pass, { user, nonce, expiresMs: Date.now() + 10_000 });
    json(response, 200, {
      pass,
      path_id: 'abcdef0123456789',
      submit_path: '/v1/seckill/abcdef0123456789/submit',
      nonce,
      not_before: nowText(),
      expires_at: nowText(10_000),
      max_quantity: this.#options.maxPerPerson ?? 1,
    });
  }

  #submit(
    user: string | undefined,
    passText: string,
    body: Fields,
    response: ServerResponse,
  ): void {
    const pass = this.#passes.get(passText);
    const requestId = String(body['request_id']);
    const known = this.#byRequest.get(`${user}/${requestId}`);
    if (user === undefined) return problem(response, 401, 'UNAUTHENTICATED', 'SIGN_IN');
    if ((pass === undefined || pass.user !== user) && !this.#is('forged_pass')) {
      return problem(response, 403, 'TOKEN_INVALID', 'STOP');
    }
    const nonce = pass?.nonce ?? randomBytes(6).toString('hex');
    const fingerprint = createHash('sha256')
      .update(`${user}/${Number(body['quantity'])}`)
      .digest('hex');
    if (known !== undefined && this.#is('lost_win') && this.#available <= 0) {
      return json(
        response,
        200,
        this.#outcome(requestId, undefined, 'SOLD_OUT', 'SECKILL_SOLD_OUT'),
      );
    }
    if (known !== undefined && !this.#is('second_reservation')) {
      if (known.fingerprint !== fingerprint) {
        return problem(response, 400, 'REQUEST_ID_CONFLICT', 'STOP');
      }
      return json(response, 200, this.#outcome(requestId, known, known.state, 'REQUEST_REPLAYED'));
    }
    const bound = this.#byNonce.get(nonce);
    if (bound !== undefined && bound.requestId !== requestId && !this.#is('shared_nonce')) {
      return problem(response, 403, 'REPLAY_REJECTED', 'STOP');
    }
    const quantity = Number(body['quantity']);
    const free = ['second_unit', 'second_reservation', 'shared_nonce'].some((kind) =>
      this.#is(kind as Misbehaviour),
    );
    const own = this.#live.filter((reservation) => reservation.user === user).length;
    if (own + quantity > (this.#options.maxPerPerson ?? 1) && !free) {
      return problem(response, 409, 'ALREADY_PURCHASED', 'POLL');
    }
    if (this.#available < quantity && !this.#is('oversell')) {
      return json(
        response,
        200,
        this.#outcome(requestId, undefined, 'SOLD_OUT', 'SECKILL_SOLD_OUT'),
      );
    }
    const made = this.#reserve(user, requestId, nonce, fingerprint);
    json(response, 202, this.#outcome(requestId, made, 'QUEUED', 'SECKILL_QUEUED'));
  }

  #reserve(user: string, requestId: string, nonce: string, fingerprint: string): Reservation {
    this.#available -= 1;
    if (this.#available === 0) this.#epoch += 1;
    const made: Reservation = {
      id: `rsv_${randomBytes(8).toString('base64url')}`,
      requestId,
      user,
      nonce,
      fingerprint,
      silent: this.#is('silent_queue') && this.#byRequest.size % 5 === 0,
      state: 'QUEUED',
      orderId: null,
      payBeforeMs: 0,
    };
    this.#byRequest.set(`${user}/${requestId}`, made);
    this.#byNonce.set(nonce, made);
    if (!made.silent) this.#after(20 + Math.random() * 60, () => this.#makeOrder(made));
    return made;
  }

  #makeOrder(reservation: Reservation): void {
    const deadlineMs = this.#options.paymentDeadlineMs ?? 1_500;
    reservation.state = 'ORDERED';
    reservation.orderId = `ord_${randomBytes(8).toString('base64url')}`;
    reservation.payBeforeMs = Date.now() + deadlineMs;
    this.#after(deadlineMs, () => {
      if (reservation.state === 'ORDERED') this.#giveBack(reservation, 'EXPIRED');
    });
  }

  #giveBack(reservation: Reservation, state: 'EXPIRED' | 'CANCELLED'): void {
    reservation.state = state;
    if (this.#available === 0) this.#epoch += 1;
    this.#available += 1;
    const entry = this.#entries.get(reservation.user);
    if (entry !== undefined) entry.attempt += 1;
  }

  #status(user: string, requestId: string, response: ServerResponse): void {
    const known = this.#byRequest.get(`${user}/${requestId}`);
    if (known === undefined) return problem(response, 404, 'NOT_FOUND', 'STOP');
    json(response, 200, this.#outcome(requestId, known, known.state, codeOf(known.state)));
  }

  #order(
    method: string,
    user: string,
    orderId: string,
    verb: string | undefined,
    response: ServerResponse,
  ): void {
    const order = [...this.#byRequest.values()].find((each) => each.orderId === orderId);
    if (order === undefined || order.user !== user) {
      return problem(response, 404, 'NOT_FOUND', 'STOP');
    }
    if (verb === 'pay' || method === 'DELETE') {
      if (order.state !== 'ORDERED') return problem(response, 409, 'ORDER_STATE', 'POLL');
      if (verb === 'pay') order.state = 'PAID';
      else this.#giveBack(order, 'CANCELLED');
    }
    json(response, 200, { order_id: orderId, state: order.state, server_time: nowText() });
  }

  #outcome(
    requestId: string,
    reservation: Reservation | undefined,
    state: string,
    code: string,
  ): Fields {
    const payBefore = reservation?.payBeforeMs;
    return {
      request_id: requestId,
      activity_id: this.#options.activityId ?? 'stand-in',
      sku_id: this.#options.skuId ?? 'ticket',
      state,
      code,
      message: '',
      reservation_id: reservation?.id ?? null,
      order_id: reservation?.orderId ?? null,
      pay_before: payBefore ? new Date(payBefore).toISOString() : null,
      quantity: 1,
      retryable: false,
      next_action: 'POLL',
      next_poll_after_ms: 60,
      server_time: nowText(),
    };
  }

  #row(reservation: Reservation): Fields {
    return {
      order_id: reservation.orderId,
      sku_id: this.#options.skuId ?? 'ticket',
      person_id: reservation.user,
      quantity: 1,
      state: reservation.state === 'ORDERED' ? 'PENDING_PAYMENT' : reservation.state,
    };
  }

  #operate(request: IncomingMessage, response: ServerResponse): void {
    request.resume();
    if (request.headers.authorization !== `Bearer ${adminToken}`) {
      return problem(response, 401, 'UNAUTHENTICATED', 'SIGN_IN');
    }
    const path = (request.url ?? '').split('?', 1)[0];
    const count = (state: string): number =>
      [...this.#byRequest.values()].filter((each) => each.state === state).length;
    if (path === '/admin/v1/stock') {
      const { activityId = 'stand-in', skuId = 'ticket', stock } = this.#options;
      return json(response, 200, {
        skus: [
          {
            activity_id: activityId,
            sku_id: skuId,
            total: stock,
            paid: count('PAID'),
            pending: count('ORDERED'),
            held: count('QUEUED'),
            available: this.#available - (this.#is('stock_leak') ? 1 : 0),
          },
        ],
      });
    }
    if (path === '/admin/v1/ledger') {
      return json(response, 200, {
        residual: this.#is('ledger_leak') ? 3 : 0,
        arrivals: this.#arrivals,
        released: this.#released,
      });
    }
    if (path === '/admin/v1/orders') {
      const orders = [...this.#byRequest.values()].filter(({ orderId }) => orderId !== null);
      return json(response, 200, { orders: orders.map((each) => this.#row(each)), next: null });
    }
    if (path === '/admin/v1/commands/reconcile') return json(response, 200, { findings: [] });
    return problem(response, 404, 'NOT_FOUND', 'STOP');
  }
}

type Fields = Record<string, unknown>;

function codeOf(state: string): string {
  return state === 'QUEUED' ? 'SECKILL_QUEUED' : 'REQUEST_REPLAYED';
}

function nowText(plusMs = 0): string {
  return new Date(Date.now() + plusMs).toISOString();
}

function json(response: ServerResponse, status: number, body: Fields): void {
  const text = JSON.stringify(body);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    'cache-control': 'no-store',
  });
  response.end(text);
}

function problem(
  response: ServerResponse,
  status: number,
  code: string,
  nextAction: string,
  extra: Fields = {},
): void {
  json(response, status, { status, code, next_action: nextAction, retryable: false, ...extra });
}

async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
