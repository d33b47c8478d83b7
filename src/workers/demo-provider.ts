/**
 * The built-in provider: pays nothing, but behaves like one that does. Intents are decided after a
 * delay, callbacks are signed, may be lost, doubled, late or wrong, and queries tell the truth.
 *
 * It keeps no state. An intent id carries, signed, everything that decides its outcome, so that a
 * query after a restart of the whole program answers as before. Only callbacks under way are lost
 * with the process, as they are with a real provider now and then; queries make up for them.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { PaymentEvent } from '../core/orders/model.ts';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import { OutcomeUnknownError } from '../ports/errors.ts';
import type {
  CallbackVerdict,
  IntentReply,
  IntentRequest,
  PaymentProvider,
  ProviderStatus,
  QueryRequest,
  RefundReply,
  RefundRequest,
} from '../ports/payment-provider.ts';
import { SteadyWall } from './steady-wall.ts';

/** How a demo payment goes; the `method` of a pay request. */
export const demoMethods = {
  /** Confirmed after the delay. The default. */
  card: { outcome: 'confirmed', delays: 1, callbacks: 1 },
  declined: { outcome: 'failed', delays: 1, callbacks: 1 },
  /** Confirmed, but ten times as late: past a deadline, if that is near. */
  slow: { outcome: 'confirmed', delays: 10, callbacks: 1 },
  /** Confirmed, and nobody tells us. */
  silent: { outcome: 'confirmed', delays: 1, callbacks: 0 },
  /** Confirmed, told twice. */
  twice: { outcome: 'confirmed', delays: 1, callbacks: 2 },
  /** Confirmed for one minor unit less than was asked. */
  short: { outcome: 'confirmed', delays: 1, callbacks: 1 },
  /** The intent is made, and its answer is lost on the way. */
  timeout: { outcome: 'confirmed', delays: 1, callbacks: 1 },
} as const satisfies Record<
  string,
  { outcome: 'confirmed' | 'failed'; delays: number; callbacks: number }
>;

export type DemoMethod = keyof typeof demoMethods;

export function isDemoMethod(word: string): word is DemoMethod {
  return Object.hasOwn(demoMethods, word);
}

export interface DemoProviderOptions {
  /** Signs intents and callbacks. At least 16 bytes. */
  readonly secret: string;
  readonly clock: Clock;
  readonly timers: Timers;
  /** From intent to outcome, ms. Default 800. */
  readonly delayMs?: number;
  /** Brings a callback to us: over HTTP, or straight into the payment service. */
  readonly deliver: (body: Uint8Array, headers: Readonly<Record<string, string>>) => Promise<void>;
  readonly onError?: (error: unknown) => void;
}

/** A callback older or newer than this by our clock is refused: a replayed capture. */
export const callbackToleranceMs = 5 * 60_000;

/** Callbacks under way at once; past it they are lost, and queries find out. */
const callbacksMax = 50_000;
const deliveriesMax = 5;
const signatureHeader = 'demo-signature';

interface Intent {
  readonly key: string;
  readonly orderId: string;
  readonly amountMinor: number;
  readonly currency: string;
  readonly method: DemoMethod;
  readonly dueMs: number;
}

export class DemoProvider implements PaymentProvider {
  readonly name = 'demo';
  readonly #options: DemoProviderOptions;
  readonly #delayMs: number;
  readonly #wall: SteadyWall;
  readonly #underWay = new Set<TimerHandle>();
  /** Intent ids by key, so that a repeated key answers the same intent; oldest forgotten first. */
  readonly #byKey = new Map<string, string>();

  constructor(options: DemoProviderOptions) {
    if (Buffer.byteLength(options.secret) < 16) {
      throw new RangeError(
        `the demo provider's secret has ${Buffer.byteLength(options.secret)} bytes, allowed: 16 or more`,
      );
    }
    this.#options = options;
    this.#wall = new SteadyWall(options.clock);
    this.#delayMs = options.delayMs ?? 800;
  }

  async createIntent(request: IntentRequest): Promise<IntentReply> {
    const { idempotencyKey: key, orderId, amountMinor, currency } = request;
    const method =
      request.method !== undefined && isDemoMethod(request.method) ? request.method : 'card';
    let intentId = this.#byKey.get(key);
    if (intentId === undefined) {
      const dueMs = this.#wall.nowMs() + this.#delayMs * demoMethods[method].delays;
      const intent: Intent = { key, orderId, amountMinor, currency, method, dueMs };
      intentId = this.#encode(intent);
      this.#remember(key, intentId);
      for (let n = 0; n < demoMethods[method].callbacks; n += 1) {
        this.#callBackLater(intent, intentId, this.#delayMs * demoMethods[method].delays);
      }
      if (method === 'timeout') {
        throw new OutcomeUnknownError(`the demo provider's answer to ${key} was lost`);
      }
    }
    return { intentId, state: 'processing' };
  }

  verifyCallback(
    rawBody: Uint8Array,
    headers: Readonly<Record<string, string | undefined>>,
    nowMs: number,
  ): CallbackVerdict {
    const signature = /^t=(\d{1,15}),v1=([0-9a-f]{64})$/.exec(headers[signatureHeader] ?? '');
    const [, stamp, given] = signature ?? [];
    if (stamp === undefined || given === undefined) {
      return { kind: 'bad_signature', detail: `no ${signatureHeader} header of the form t=…,v1=…` };
    }
    if (!timingSafeEqual(Buffer.from(given, 'hex'), this.#sign(stamp, rawBody))) {
      return { kind: 'bad_signature', detail: 'signature does not match the body' };
    }
    if (Math.abs(nowMs - Number(stamp)) > callbackToleranceMs) {
      return {
        kind: 'bad_signature',
        detail: `signed at ${stamp}, which is more than ${callbackToleranceMs} ms from now`,
      };
    }
    const event = parseEvent(rawBody);
    return typeof event === 'string'
      ? { kind: 'bad_body', detail: event }
      : { kind: 'event', event };
  }

  async query(request: QueryRequest): Promise<ProviderStatus> {
    const intentId = request.intentId || this.#byKey.get(request.idempotencyKey);
    const intent = intentId === undefined ? undefined : this.#decode(intentId);
    if (intentId === undefined || intent === undefined) return { kind: 'unknown_intent' };
    const decided = this.#wall.nowMs() >= intent.dueMs;
    return {
      kind: 'known',
      intentId,
      state: decided ? demoMethods[intent.method].outcome : 'processing',
      amountMinor: paidAmount(intent),
      currency: intent.currency,
    };
  }

  async refund(request: RefundRequest): Promise<RefundReply> {
    return this.#decode(request.intentId) === undefined
      ? { state: 'refused', detail: `no such intent: ${request.intentId.slice(0, 40)}` }
      : { state: 'refunded' };
  }

  /** Drops the callbacks under way. */
  close(): void {
    for (const timer of this.#underWay) timer.cancel();
    this.#underWay.clear();
  }

  /** A signed callback, as a provider would send it. */
  signedCallback(event: Omit<PaymentEvent, 'provider'>): {
    body: Uint8Array;
    headers: Record<string, string>;
  } {
    const body = Buffer.from(
      JSON.stringify({
        event_id: event.eventId,
        intent_id: event.intentId,
        order_id: event.orderId,
        outcome: event.outcome,
        amount_minor: event.amountMinor,
        currency: event.currency,
      }),
    );
    const stamp = String(this.#wall.nowMs());
    return {
      body,
      headers: { [signatureHeader]: `t=${stamp},v1=${this.#sign(stamp, body).toString('hex')}` },
    };
  }

  #callBackLater(intent: Intent, intentId: string, delayMs: number, delivery = 1): void {
    if (this.#underWay.size >= callbacksMax) return;
    const timer = this.#options.timers.after(delayMs, () => {
      this.#underWay.delete(timer);
      const { body, headers } = this.signedCallback({
        eventId: `evt_${intentId.slice(-24)}`,
        intentId,
        orderId: intent.orderId,
        outcome: demoMethods[intent.method].outcome,
        amountMinor: paidAmount(intent),
        currency: intent.currency,
      });
      this.#options.deliver(body, headers).catch((error: unknown) => {
        this.#options.onError?.(error);
        if (delivery < deliveriesMax) {
          this.#callBackLater(intent, intentId, this.#delayMs * 2 ** delivery, delivery + 1);
        }
      });
    });
    this.#underWay.add(timer);
  }

  #remember(key: string, intentId: string): void {
    this.#byKey.set(key, intentId);
    if (this.#byKey.size <= callbacksMax) return;
    for (const oldest of this.#byKey.keys()) {
      this.#byKey.delete(oldest);
      return;
    }
  }

  #encode(intent: Intent): string {
    const { key, orderId, amountMinor, currency, method, dueMs } = intent;
    const facts = Buffer.from(
      JSON.stringify([key, orderId, amountMinor, currency, method, dueMs]),
    ).toString('base64url');
    return `int_${facts}.${this.#mac(`intent ${facts}`).toString('base64url').slice(0, 24)}`;
  }

  #decode(intentId: string): Intent | undefined {
    const match = /^int_([A-Za-z0-9_-]{1,600})\.([A-Za-z0-9_-]{24})$/.exec(intentId);
    const [, facts, mac] = match ?? [];
    if (facts === undefined || mac === undefined) return undefined;
    const expected = this.#mac(`intent ${facts}`).toString('base64url').slice(0, 24);
    if (!timingSafeEqual(Buffer.from(mac), Buffer.from(expected))) return undefined;
    const [key, orderId, amountMinor, currency, method, dueMs] = JSON.parse(
      Buffer.from(facts, 'base64url').toString(),
    ) as [string, string, number, string, DemoMethod, number];
    return { key, orderId, amountMinor, currency, method, dueMs };
  }

  #sign(stamp: string, body: Uint8Array): Buffer {
    return createHmac('sha256', this.#options.secret).update(`${stamp}.`).update(body).digest();
  }

  #mac(text: string): Buffer {
    return createHmac('sha256', this.#options.secret).update(text).digest();
  }
}

function paidAmount(intent: Intent): number {
  return intent.method === 'short' ? intent.amountMinor - 1 : intent.amountMinor;
}

/** The event, or what is wrong with the body. Signed does not mean well formed. */
function parseEvent(rawBody: Uint8Array): PaymentEvent | string {
  let body: unknown;
  try {
    body = JSON.parse(Buffer.from(rawBody).toString('utf8'));
  } catch {
    return 'body is not JSON';
  }
  if (typeof body !== 'object' || body === null) return 'body is not an object';
  const fields = body as Record<string, unknown>;
  const text = (name: string): string | undefined => {
    const value = fields[name];
    return typeof value === 'string' && value.length > 0 && value.length <= 1_000
      ? value
      : undefined;
  };
  const eventId = text('event_id');
  const intentId = text('intent_id');
  const orderId = text('order_id');
  const currency = text('currency');
  const outcome = text('outcome');
  const amountMinor = fields['amount_minor'];
  if (eventId === undefined || intentId === undefined || orderId === undefined) {
    return 'event_id, intent_id and order_id must be texts of 1 to 1000 characters';
  }
  if (outcome !== 'confirmed' && outcome !== 'failed' && outcome !== 'refunded') {
    return `outcome is ${JSON.stringify(fields['outcome'])}; allowed: confirmed, failed, refunded`;
  }
  if (currency === undefined || !Number.isSafeInteger(amountMinor)) {
    return 'amount_minor must be a whole number and currency a text';
  }
  return {
    provider: 'demo',
    eventId,
    intentId,
    orderId,
    outcome,
    amountMinor: amountMinor as number,
    currency,
  };
}
