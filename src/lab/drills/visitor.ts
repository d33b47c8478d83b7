import { Agent, request } from 'node:http';

/** What a drill's person hears. */
export interface Heard {
  /** 0 when nobody answered. */
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
  readonly tookMs: number;
  /** Marked as a cheaper answer than was asked for. */
  readonly degraded?: true;
}

export interface Pass {
  readonly pass: string;
  readonly submitPath: string;
}

const patienceMs = 10_000;

/**
 * One person at the shop, over HTTP. Each question takes a connection of its own, so that all gateways
 * behind a port are met in turn; `keeps` keeps one connection, for whoever asks fast.
 */
export class Visitor {
  readonly #shop: URL;
  readonly #address: string;
  readonly #nowMs: () => number;
  readonly #agent: Agent;
  #token = '';
  #entry = '';

  constructor(shop: URL, address: string, nowMs: () => number, keeps = false) {
    this.#shop = shop;
    this.#address = address;
    this.#nowMs = nowMs;
    this.#agent = new Agent({ keepAlive: keeps, maxSockets: keeps ? 1 : 16 });
  }

  /** A user of the shop's own. */
  async signIn(): Promise<Heard> {
    const heard = await this.ask('POST', '/v1/session', {});
    this.#token = textIn(heard, 'token');
    return heard;
  }

  async join(activityId: string, skuId: string): Promise<Heard> {
    const heard = await this.ask('POST', `/v1/activities/${activityId}/entries`, {
      sku_ids: [skuId],
    });
    const entry = textIn(heard, 'entry_token');
    if (entry !== '') this.#entry = entry;
    return heard;
  }

  standing(activityId: string): Promise<Heard> {
    return this.ask('GET', `/v1/activities/${activityId}/entries/me`);
  }

  leave(activityId: string): Promise<Heard> {
    return this.ask('DELETE', `/v1/activities/${activityId}/entries/me`);
  }

  async takePass(activityId: string, skuId: string): Promise<Pass | undefined> {
    const heard = await this.ask('POST', `/v1/activities/${activityId}/passes`, { sku_id: skuId });
    const pass = textIn(heard, 'pass');
    return pass === '' ? undefined : { pass, submitPath: textIn(heard, 'submit_path') };
  }

  submit(
    { pass, submitPath }: Pass,
    activityId: string,
    skuId: string,
    requestId: string,
  ): Promise<Heard> {
    const body = { request_id: requestId, activity_id: activityId, sku_id: skuId, quantity: 1 };
    return this.ask('POST', submitPath, body, {
      'sluice-pass': pass,
      'idempotency-key': requestId,
    });
  }

  /** A submit without any credentials: sold out is all that it may hear, or a refusal. */
  submitAsNobody(submitPath: string): Promise<Heard> {
    return this.ask('POST', submitPath, {}, { authorization: '' });
  }

  status(activityId: string, skuId: string, requestId: string): Promise<Heard> {
    return this.ask('GET', `/v1/requests/${requestId}?activity_id=${activityId}&sku_id=${skuId}`);
  }

  cancel(orderId: string): Promise<Heard> {
    return this.ask('DELETE', `/v1/orders/${orderId}`);
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Never rejects. */
  ask(
    method: string,
    path: string,
    body?: object,
    more: Readonly<Record<string, string>> = {},
  ): Promise<Heard> {
    const begunMs = this.#nowMs();
    const text = body === undefined ? undefined : JSON.stringify(body);
    const headers: Record<string, string | number> = {
      accept: 'application/json',
      'x-forwarded-for': this.#address,
      ...(this.#token === '' ? {} : { authorization: `Bearer ${this.#token}` }),
      ...(this.#entry === '' ? {} : { 'sluice-entry': this.#entry }),
      ...(text === undefined
        ? {}
        : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
      ...more,
    };
    if (headers['authorization'] === '') delete headers['authorization'];
    return new Promise((resolve) => {
      const heard = (status: number, said: string, degraded = false): void =>
        resolve({
          status,
          body: objectIn(said),
          tookMs: this.#nowMs() - begunMs,
          ...(degraded ? { degraded } : {}),
        });
      const outgoing = request(
        new URL(path, this.#shop),
        { method, agent: this.#agent, timeout: patienceMs, headers },
        (incoming) => {
          const parts: Buffer[] = [];
          incoming.on('data', (part: Buffer) => parts.push(part));
          incoming.on('end', () =>
            heard(
              incoming.statusCode ?? 0,
              Buffer.concat(parts).toString('utf8'),
              incoming.headers['sluice-degraded'] !== undefined,
            ),
          );
          incoming.on('error', () => heard(0, ''));
        },
      );
      outgoing.on('timeout', () => outgoing.destroy());
      outgoing.on('error', () => heard(0, ''));
      outgoing.end(text);
    });
  }
}

/** Was it an answer to the question, or a word of health to ask later? Anything else is a failure. */
export const isAnswer = ({ status, body }: Heard): boolean =>
  status === 200 || body['code'] === 'SYSTEM_OVERLOADED';

export const textIn = ({ body }: Pick<Heard, 'body'>, name: string): string => {
  const value = body[name];
  return typeof value === 'string' ? value : '';
};

function objectIn(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
