import type { NextAction, OutcomeState } from '../wire/codes.ts';
import type { Answer, Transport } from './transport.ts';
import { type RetryLimits, retryDefaults, retryDelayMs } from './retry.ts';

/**
 * One wish to buy, from the first press to a known end.
 *
 *     IDLE ──▶ SUBMITTING ──▶ SUCCEEDED (an order exists)
 *                 │  ▲  └───▶ FAILED    (surely nothing was bought; says what may be done next)
 *                 ▼  │
 *               UNKNOWN       (it may have reserved: the same id is asked, never a new one made)
 *
 * One request id serves one wish: it is written down before the first byte is sent, survives reloads,
 * and is reused by every retry, so that no lost answer, double click or second tab buys twice. Only
 * `forget` lets go of it, and refuses while the outcome is not known.
 */
export type SubmissionState =
  | { readonly state: 'IDLE' }
  | { readonly state: 'SUBMITTING'; readonly requestId: string; readonly outcome?: Outcome }
  | { readonly state: 'UNKNOWN'; readonly requestId: string; readonly sinceMs: number }
  | { readonly state: 'SUCCEEDED'; readonly requestId: string; readonly outcome: Outcome }
  | {
      readonly state: 'FAILED';
      readonly requestId: string;
      readonly code: string;
      readonly nextAction: NextAction;
      /** Not worth pressing again before, ms from now. */
      readonly retryAfterMs?: number;
      readonly outcome?: Outcome;
    };

/** The outcome as the wire has it. */
export interface Outcome {
  readonly request_id: string;
  readonly state: OutcomeState;
  readonly code: string;
  readonly order_id: string | null;
  readonly pay_before: string | null;
  readonly next_action: NextAction;
  readonly next_poll_after_ms?: number | null;
}

export interface Wish {
  readonly activityId: string;
  readonly skuId: string;
  readonly quantity: number;
  readonly seats?: readonly string[];
}

const bought: readonly OutcomeState[] = ['ORDERED', 'PAID'];
const over: readonly OutcomeState[] = ['SOLD_OUT', 'REJECTED', 'EXPIRED', 'CANCELLED', 'REFUNDED'];
const pollDefaultMs = 800;

export class Submission {
  readonly #transport: Transport;
  readonly #wish: Wish;
  readonly #limits: RetryLimits;
  readonly #key: string;
  #memory: { readonly requestId: string; readonly content: string } | undefined;
  readonly #listeners = new Set<(state: SubmissionState) => void>();
  #state: SubmissionState = { state: 'IDLE' };
  #running: Promise<SubmissionState> | undefined;

  constructor(transport: Transport, wish: Wish, limits: RetryLimits = retryDefaults) {
    this.#transport = transport;
    this.#wish = wish;
    this.#limits = limits;
    this.#key = `sluice.request.${wish.activityId}.${wish.skuId}`;
    const kept = this.#kept();
    // A page that was reloaded in the middle: it is not known what became of the request.
    if (kept !== undefined)
      this.#state = {
        state: 'UNKNOWN',
        requestId: kept.requestId,
        sinceMs: transport.env.nowMs(),
      };
  }

  get state(): SubmissionState {
    return this.#state;
  }

  subscribe(run: (state: SubmissionState) => void): () => void {
    this.#listeners.add(run);
    return () => this.#listeners.delete(run);
  }

  /** Starts, goes on, or finds out; a call while one is under way joins it. Never rejects. */
  submit(): Promise<SubmissionState> {
    const { telemetry } = this.#transport;
    telemetry.add('intents');
    if (this.#running !== undefined) {
      telemetry.add('suppressed');
      return this.#running;
    }
    if (this.#state.state === 'SUCCEEDED') return Promise.resolve(this.#state);
    const asks = this.#state.state === 'UNKNOWN';
    this.#running = this.#run(asks).finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Lets go of the request id, so that the next `submit` is a new wish. False while it is not known. */
  forget(): boolean {
    if (this.#state.state === 'UNKNOWN' || this.#state.state === 'SUBMITTING') return false;
    this.#drop();
    this.#set({ state: 'IDLE' });
    return true;
  }

  async #run(startsByAsking: boolean): Promise<SubmissionState> {
    const { env, bucket, telemetry } = this.#transport;
    const startedMs = env.nowMs();
    const kept = this.#kept();
    let requestId = kept?.requestId ?? this.#keep(this.#transport.newRequestId());
    // An earlier wish with other content, whose end this browser never heard: that one comes first.
    let earlier = kept !== undefined && kept.content !== this.#content();
    let asks = startsByAsking || earlier;
    this.#set({ state: 'SUBMITTING', requestId });
    const startOver = (): void => {
      requestId = this.#keep(this.#transport.newRequestId());
      earlier = false;
      asks = false;
      this.#set({ state: 'SUBMITTING', requestId });
    };
    for (let attempt = 1; ; ) {
      const answer = asks ? await this.#ask(requestId) : await this.#send(requestId);
      const outcome = asOutcome(answer);
      if (outcome !== undefined && bought.includes(outcome.state))
        return this.#set({ state: 'SUCCEEDED', requestId, outcome });
      if (outcome !== undefined && over.includes(outcome.state)) {
        if (!earlier)
          return this.#failed(requestId, outcome.code, outcome.next_action, undefined, outcome);
        startOver();
        continue;
      }
      if (outcome?.state === 'QUEUED') {
        // Taken in, no order yet: not a retry, so it costs no attempt; only patience bounds it.
        this.#set({ state: 'SUBMITTING', requestId, outcome });
        if (env.nowMs() - startedMs > this.#limits.totalMs) return this.#unknown(requestId);
        await this.#pause((outcome.next_poll_after_ms ?? pollDefaultMs) * (1 + env.random() * 0.2));
        asks = true;
        continue;
      }
      const nextAction = answer.kind === 'lost' ? 'POLL' : nextActionOf(answer);
      // Past every margin our own id is not known, or the store has lost it: it holds nothing, and
      // the same id may be sent again.
      const surelyNothing =
        asks &&
        answer.kind === 'reply' &&
        (answer.status === 404 || codeOf(answer) === 'RESERVATION_LOST');
      if (surelyNothing && earlier) {
        startOver();
        continue;
      }
      if (!surelyNothing && nextAction !== 'POLL' && nextAction !== 'RETRY_LATER')
        return this.#failed(requestId, codeOf(answer), nextAction);
      const paceMs = outcome?.next_poll_after_ms ?? 0;
      const hintMs = answer.kind === 'lost' ? 0 : Math.max(answer.retryAfterMs, paceMs);
      const delay = retryDelayMs(env, this.#limits, attempt, startedMs, hintMs);
      const stillUnknown = !surelyNothing && (asks || nextAction === 'POLL');
      if (delay === undefined || !bucket.take())
        return stillUnknown
          ? this.#unknown(requestId)
          : this.#failed(requestId, codeOf(answer), 'RETRY_LATER', hintMs);
      telemetry.add('retried');
      attempt += 1;
      await this.#pause(delay);
      asks = stillUnknown;
    }
  }

  async #send(requestId: string): Promise<Answer> {
    const { activityId, skuId, quantity, seats } = this.#wish;
    const pass = await this.#transport.call('POST', `/v1/activities/${activityId}/passes`, {
      sku_id: skuId,
    });
    // Taking a pass reserves nothing: losing that answer is a refusal to try later, not an unknown.
    if (pass.kind === 'lost')
      return {
        kind: 'reply',
        status: 503,
        retryAfterMs: 0,
        body: { next_action: 'RETRY_LATER', code: 'DEPENDENCY_UNAVAILABLE' },
      };
    const body = pass.body as { pass?: unknown; submit_path?: unknown };
    if (
      pass.status !== 200 ||
      typeof body.pass !== 'string' ||
      typeof body.submit_path !== 'string'
    )
      return pass;
    return this.#transport.call(
      'POST',
      body.submit_path,
      {
        request_id: requestId,
        activity_id: activityId,
        sku_id: skuId,
        quantity,
        ...(seats === undefined ? {} : { seats }),
      },
      { 'sluice-pass': body.pass, 'idempotency-key': requestId },
    );
  }

  #ask(requestId: string): Promise<Answer> {
    const { activityId, skuId } = this.#wish;
    return this.#transport.call(
      'GET',
      `/v1/requests/${requestId}?activity_id=${activityId}&sku_id=${skuId}`,
    );
  }

  async #pause(delayMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#transport.env.after(delayMs, resolve);
    });
  }

  #unknown(requestId: string): SubmissionState {
    return this.#set({ state: 'UNKNOWN', requestId, sinceMs: this.#transport.env.nowMs() });
  }

  #failed(
    requestId: string,
    code: string,
    nextAction: NextAction,
    retryAfterMs?: number,
    outcome?: Outcome,
  ): SubmissionState {
    // The wish is over: another press is another wish, unless the server invites the same one.
    if (nextAction !== 'RETRY_LATER') this.#drop();
    return this.#set({
      state: 'FAILED',
      requestId,
      code,
      nextAction,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
      ...(outcome === undefined ? {} : { outcome }),
    });
  }

  #set(state: SubmissionState): SubmissionState {
    if (this.#state.state === 'UNKNOWN' && state.state !== 'UNKNOWN')
      this.#transport.telemetry.add(
        'unknownMs',
        Math.max(0, this.#transport.env.nowMs() - this.#state.sinceMs),
      );
    this.#state = state;
    for (const run of this.#listeners) run(state);
    return state;
  }

  /** What this browser sent before for this SKU, and how far it is known to be another wish. */
  #kept(): { readonly requestId: string; readonly content: string } | undefined {
    const { store } = this.#transport.env;
    if (store === undefined) return this.#memory;
    const [requestId, content] = store.get(this.#key)?.split(' ') ?? [];
    return requestId === undefined || content === undefined ? this.#memory : { requestId, content };
  }

  #keep(requestId: string): string {
    this.#memory = { requestId, content: this.#content() };
    this.#transport.env.store?.set(this.#key, `${requestId} ${this.#content()}`);
    return requestId;
  }

  #drop(): void {
    this.#memory = undefined;
    this.#transport.env.store?.remove(this.#key);
  }

  #content(): string {
    return `${this.#wish.quantity}:${(this.#wish.seats ?? []).map(encodeURIComponent).join(',')}`;
  }
}

function asOutcome(answer: Answer): Outcome | undefined {
  if (answer.kind === 'lost' || answer.status >= 300) return undefined;
  const body = answer.body as Partial<Outcome> | null;
  return typeof body?.state === 'string' ? (body as Outcome) : undefined;
}

function codeOf(answer: Answer): string {
  if (answer.kind === 'lost') return 'NETWORK';
  const { code } = (answer.body ?? {}) as { code?: unknown };
  return typeof code === 'string' ? code : `HTTP_${answer.status}`;
}

function nextActionOf(answer: Answer & { kind: 'reply' }): NextAction {
  const body = (answer.body ?? {}) as { next_action?: unknown; state?: unknown };
  if (typeof body.next_action === 'string') return body.next_action as NextAction;
  // No word from Sluice: a proxy in between. It may have passed the request on.
  return answer.status >= 500 || answer.status === 429 ? 'POLL' : 'STOP';
}
