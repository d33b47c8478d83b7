import { Agent as PlainAgent, request as plainRequest } from 'node:http';
import { Agent as TlsAgent, request as tlsRequest } from 'node:https';

/** An answer to one of the few questions that are asked beside the crowd. */
export interface Answer {
  readonly status: number;
  /** Parsed JSON, or undefined when the body was none. */
  readonly json: unknown;
  readonly text: string;
}

/** An audit of a draw of a million people fits. */
const answerMaxBytes = 256 * 1024 * 1024;

/**
 * A plain client for the questions around a run (what is on sale, what does the ledger say), on
 * connections of its own, so that a busy crowd does not stand in their way.
 */
export class Asker {
  readonly #base: URL;
  readonly #token: string | undefined;
  readonly #agent: PlainAgent | TlsAgent;
  readonly #secure: boolean;

  constructor(base: URL, token?: string) {
    this.#base = base;
    this.#token = token;
    this.#secure = base.protocol === 'https:';
    const options = { keepAlive: true, maxSockets: 4 };
    this.#agent = this.#secure ? new TlsAgent(options) : new PlainAgent(options);
  }

  get(path: string, timeoutMs = 5_000): Promise<Answer> {
    return this.#ask('GET', path, undefined, timeoutMs);
  }

  post(path: string, body: unknown, timeoutMs = 30_000): Promise<Answer> {
    return this.#ask('POST', path, JSON.stringify(body), timeoutMs);
  }

  close(): void {
    this.#agent.destroy();
  }

  /** @throws Error when nobody answers within the time. */
  #ask(method: string, path: string, body: string | undefined, timeoutMs: number): Promise<Answer> {
    const base = this.#base.pathname === '/' ? '' : this.#base.pathname.replace(/\/+$/, '');
    return new Promise((resolve, reject) => {
      const send = this.#secure ? tlsRequest : plainRequest;
      const outgoing = send(
        new URL(base + path, this.#base),
        {
          method,
          agent: this.#agent,
          timeout: timeoutMs,
          headers: {
            accept: 'application/json',
            ...(this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }),
            ...(body === undefined
              ? {}
              : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
          },
        },
        (incoming) => {
          const chunks: Buffer[] = [];
          let size = 0;
          incoming.on('data', (chunk: Buffer) => {
            size += chunk.length;
            if (size > answerMaxBytes) outgoing.destroy(new Error('answer of more than 256 MiB'));
            else chunks.push(chunk);
          });
          incoming.on('end', () => {
            const text = Buffer.concat(chunks).toString('utf8');
            resolve({ status: incoming.statusCode ?? 0, json: parsed(text), text });
          });
          incoming.on('error', reject);
        },
      );
      outgoing.on('timeout', () =>
        outgoing.destroy(new Error(`${method} ${path}: no answer within ${timeoutMs} ms`)),
      );
      outgoing.on('error', reject);
      outgoing.end(body);
    });
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A member of something that may be an object. */
export function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? (value as Readonly<Record<string, unknown>>)[name]
    : undefined;
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}
