import type { Population } from './population.ts';

/** Every kind of request that the crowd sends; latency and refusals are counted by kind. */
export type CallKind =
  | 'session'
  | 'join'
  | 'poll'
  | 'pass'
  | 'submit'
  | 'status'
  | 'pay'
  | 'order'
  | 'cancel'
  | 'leave'
  /** What only a bot sends. */
  | 'attack'
  /** The loud user's noise. */
  | 'noise';

export interface SubmitFields {
  readonly path: string;
  readonly requestId: string;
  readonly skuId: string;
  readonly quantity: number;
  readonly pass: string | undefined;
  /** 0 for the first device, 1 for the second. */
  readonly device: number;
  /** Overrides the person's own token (a stolen pass comes with its thief's identity). */
  readonly userToken?: string;
}

/** Writes requests as text. Everything in them is ASCII, so that characters are bytes. */
export class RequestWriter {
  readonly #host: string;
  readonly #base: string;
  readonly #activityId: string;
  readonly #people: Population;

  constructor(origin: URL, activityId: string, people: Population) {
    this.#host = origin.host;
    this.#base = origin.pathname === '/' ? '' : origin.pathname.replace(/\/+$/, '');
    this.#activityId = activityId;
    this.#people = people;
  }

  session(person: number): string {
    return this.#text('POST', '/v1/session', this.#from(person), '{}');
  }

  /** @param challenge what was asked before, answered */
  join(person: number, skuId: string, challenge?: string): string {
    const path = `/v1/activities/${this.#activityId}/entries`;
    const body = { sku_ids: [skuId], ...(challenge === undefined ? {} : { challenge }) };
    return this.#text('POST', path, this.#asUser(person), JSON.stringify(body));
  }

  poll(person: number): string {
    const entry = this.#people.entryToken(person);
    const headers = this.#asUser(person) + (entry === '' ? '' : `Sluice-Entry: ${entry}\r\n`);
    return this.#text('GET', `/v1/activities/${this.#activityId}/entries/me`, headers);
  }

  leave(person: number): string {
    const path = `/v1/activities/${this.#activityId}/entries/me`;
    return this.#text('DELETE', path, this.#asUser(person));
  }

  pass(person: number, skuId: string, device: number): string {
    const path = `/v1/activities/${this.#activityId}/passes`;
    const headers = this.#asUser(person, device);
    const entry = this.#people.entryToken(person);
    return this.#text(
      'POST',
      path,
      headers + (entry === '' ? '' : `Sluice-Entry: ${entry}\r\n`),
      JSON.stringify({ sku_id: skuId }),
    );
  }

  submit(person: number, fields: SubmitFields): string {
    const { pass, requestId, skuId, quantity } = fields;
    const headers =
      (fields.userToken === undefined
        ? this.#asUser(person, fields.device)
        : `${this.#from(person)}Authorization: Bearer ${fields.userToken}\r\n`) +
      (pass === undefined ? '' : `Sluice-Pass: ${pass}\r\n`) +
      `Idempotency-Key: ${requestId}\r\n`;
    const body = { request_id: requestId, activity_id: this.#activityId, sku_id: skuId, quantity };
    return this.#text('POST', fields.path, headers, JSON.stringify(body));
  }

  status(person: number, requestId: string, skuId: string): string {
    const query = `activity_id=${this.#activityId}&sku_id=${skuId}`;
    return this.#text('GET', `/v1/requests/${requestId}?${query}`, this.#asUser(person));
  }

  pay(person: number, orderId: string): string {
    return this.#text('POST', `/v1/orders/${orderId}/pay`, this.#asUser(person), '{}');
  }

  order(person: number, orderId: string): string {
    return this.#text('GET', `/v1/orders/${orderId}`, this.#asUser(person));
  }

  cancel(person: number, orderId: string): string {
    return this.#text('DELETE', `/v1/orders/${orderId}`, this.#asUser(person));
  }

  /** A request without credentials, as a scanner sends. */
  bare(person: number, method: string, path: string, body?: string): string {
    return this.#text(method, path, this.#from(person), body);
  }

  #from(person: number): string {
    return (
      `X-Forwarded-For: ${this.#people.address(person)}\r\n` +
      `User-Agent: ${this.#people.agent(person)}\r\n`
    );
  }

  #asUser(person: number, device = 0): string {
    const name =
      this.#people.kind(person) === 'farm'
        ? `farm-${Math.floor(person / 600)}`
        : `phone-${person}-${device}`;
    return (
      `${this.#from(person)}Authorization: Bearer ${this.#people.userToken(person)}\r\n` +
      `Sluice-Device: ${name}\r\n`
    );
  }

  #text(method: string, path: string, headers: string, body?: string): string {
    const head = `${method} ${this.#base}${path} HTTP/1.1\r\nHost: ${this.#host}\r\nAccept: application/json\r\n${headers}`;
    if (body === undefined) return `${head}\r\n`;
    return `${head}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  }
}
