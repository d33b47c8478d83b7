import type { Random } from '../../src/ports/random.ts';

export interface Told {
  readonly code: string;
  readonly state: string;
  readonly reservationId: string | null;
  readonly orderId: string | null;
}

type Json = Record<string, unknown>;

/**
 * One persistent buyer over real HTTP: goes on through lost connections and restarts, always with the
 * same request id, and writes down everything it was told.
 */
export class SaleBuyer {
  readonly told: Told[] = [];
  /** HTTP statuses of 500 and of what no contract knows. */
  readonly faults: string[] = [];
  readonly requestId: string;
  userId = '';
  pass: Json | undefined;
  /** What it decided to do with an order. */
  readonly plan: 'pay' | 'cancel' | 'keep';
  readonly #shop: string;
  readonly #activity: string;
  readonly #sku: string;
  readonly #address: string;
  #token = '';
  #entryToken = '';

  constructor(shop: string, activity: string, sku: string, number: number, random: Random) {
    this.#shop = shop;
    this.#activity = activity;
    this.#sku = sku;
    this.#address = `10.${(number >> 8) & 255}.${number & 255}.7`;
    this.requestId = `req_${number}_${random.below(1e9)}`;
    const chance = random.float();
    this.plan = chance < 0.6 ? 'pay' : chance < 0.75 ? 'cancel' : 'keep';
  }

  /** Runs until it has an outcome or `stop` says that the sale is over. */
  async run(stop: () => boolean): Promise<void> {
    const session = await this.#untilAnswered('POST', '/v1/session', {}, stop);
    if (session === undefined) return;
    this.#token = String(session.json['token']);
    this.userId = String(session.json['user_id']);
    const room = `/v1/activities/${this.#activity}/entries`;
    const joined = await this.#untilAnswered('POST', room, {}, stop);
    if (joined === undefined) return;
    this.#entryToken = String(joined.json['entry_token']);
    if (!(await this.#wait(room, stop))) return;
    await this.#buy(stop);
  }

  async #wait(room: string, stop: () => boolean): Promise<boolean> {
    while (!stop()) {
      const standing = await this.#untilAnswered('GET', `${room}/me`, undefined, stop);
      const state = standing?.json['state'];
      if (state === 'admitted' || state === 'claimed') {
        const taken = await this.#untilAnswered(
          'POST',
          `/v1/activities/${this.#activity}/passes`,
          { sku_id: this.#sku },
          stop,
        );
        if (taken?.status === 200) {
          this.pass = taken.json;
          return true;
        }
      }
      if (state === 'missed') return false;
      await sleep(100);
    }
    return false;
  }

  async #buy(stop: () => boolean): Promise<void> {
    while (!stop()) {
      const answer = await this.submit(stop);
      if (answer === undefined) return;
      if (answer.json['next_action'] === 'RETRY_LATER' || answer.json['next_action'] === 'POLL') {
        const settled = await this.#poll(stop);
        if (settled !== undefined) return;
        continue;
      }
      return;
    }
  }

  /** The submit, the same each time. */
  async submit(stop: () => boolean): Promise<{ status: number; json: Json } | undefined> {
    const answer = await this.#untilAnswered(
      'POST',
      String(this.pass?.['submit_path']),
      {
        request_id: this.requestId,
        activity_id: this.#activity,
        sku_id: this.#sku,
        quantity: 1,
      },
      stop,
      { 'sluice-pass': String(this.pass?.['pass']), 'idempotency-key': this.requestId },
    );
    if (answer !== undefined) this.#note(answer.json);
    return answer;
  }

  status(stop: () => boolean): Promise<{ status: number; json: Json } | undefined> {
    const query = `activity_id=${this.#activity}&sku_id=${this.#sku}`;
    return this.#untilAnswered('GET', `/v1/requests/${this.requestId}?${query}`, undefined, stop);
  }

  async #poll(stop: () => boolean): Promise<string | undefined> {
    for (let tries = 0; tries < 400 && !stop(); tries += 1) {
      const answer = await this.status(stop);
      if (answer === undefined) return undefined;
      if (answer.status === 404 || answer.status === 409) return undefined;
      this.#note(answer.json);
      const state = String(answer.json['state']);
      if (state === 'ORDERED') {
        await this.#settle(String(answer.json['order_id']), stop);
        return state;
      }
      if (state !== 'QUEUED' && state !== 'UNKNOWN') return state;
      await sleep(80);
    }
    return undefined;
  }

  async #settle(orderId: string, stop: () => boolean): Promise<void> {
    if (this.plan === 'keep') return;
    const change =
      this.plan === 'pay'
        ? await this.#untilAnswered('POST', `/v1/orders/${orderId}/pay`, {}, stop)
        : await this.#untilAnswered('DELETE', `/v1/orders/${orderId}`, undefined, stop);
    if (change !== undefined && change.status === 200)
      this.#note({ ...change.json, code: 'ORDER' });
  }

  #note(json: Json): void {
    const text = (name: string): string | null =>
      typeof json[name] === 'string' ? json[name] : null;
    this.told.push({
      code: text('code') ?? '',
      state: text('state') ?? '',
      reservationId: text('reservation_id'),
      orderId: text('order_id'),
    });
  }

  /** Asks until there is an answer other than "not now"; lost connections are asked again. */
  async #untilAnswered(
    method: string,
    path: string,
    body: object | undefined,
    stop: () => boolean,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ status: number; json: Json } | undefined> {
    while (!stop()) {
      try {
        const response = await fetch(`${this.#shop}${path}`, {
          method,
          headers: {
            'x-forwarded-for': this.#address,
            ...(this.#token === '' ? {} : { authorization: `Bearer ${this.#token}` }),
            ...(this.#entryToken === '' ? {} : { 'sluice-entry': this.#entryToken }),
            ...(body === undefined ? {} : { 'content-type': 'application/json' }),
            ...headers,
          },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
          signal: AbortSignal.timeout(5_000),
        });
        const text = await response.text();
        const json = (text === '' ? {} : JSON.parse(text)) as Json;
        if (response.status === 500) this.faults.push(`${method} ${path}: 500 ${text}`);
        const later = response.status === 429 || response.status === 503;
        const unknown = json['code'] === 'DEPENDENCY_UNAVAILABLE' && path.endsWith('/submit');
        if (!later || unknown) return { status: response.status, json };
      } catch {
        // The connection was lost, or the server is away: what it did is not known. Ask again.
      }
      await sleep(100);
    }
    return undefined;
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
