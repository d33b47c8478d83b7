import type { ClientEnvironment, FetchReply } from './environment.ts';
import type { Reads } from './reads.ts';
import type { RetryBucket } from './retry.ts';
import type { Telemetry } from './telemetry.ts';
import { solveWork, workIn } from './work.ts';

/** A reply, or the news that there was none: the request may or may not have arrived. */
export type Answer =
  | {
      readonly kind: 'reply';
      readonly status: number;
      /** 0 where the server gave no hint. */
      readonly retryAfterMs: number;
      readonly body: unknown;
    }
  | { readonly kind: 'lost' };

export interface Transport {
  readonly env: ClientEnvironment;
  readonly bucket: RetryBucket;
  readonly telemetry: Telemetry;
  readonly reads: Reads;
  newRequestId(): string;
  /** One attempt. Never rejects. */
  call(
    method: 'GET' | 'POST' | 'DELETE',
    path: string,
    body?: unknown,
    headers?: Readonly<Record<string, string>>,
    signal?: AbortSignal,
  ): Promise<Answer>;
}

/** Requests with a place ahead that this client remembers. */
const ticketsMax = 100;

/** A request without an answer for so long is lost, ms. */
const answerMs = 10_000;

export function makeTransport(
  parts: Pick<Transport, 'env' | 'bucket' | 'telemetry' | 'reads'>,
  base: string,
  credentials: () => Readonly<Record<string, string>>,
): Transport {
  const { env } = parts;
  /** Method and path → the ticket for its place. Only this client keeps the request. */
  const tickets = new Map<string, string>();

  const attempt: Transport['call'] = async (method, path, body, headers = {}, signal) => {
    parts.telemetry.add('requests');
    const abort = new AbortController();
    const cancel = env.after(answerMs, () => abort.abort());
    const stop = (): void => abort.abort();
    signal?.addEventListener('abort', stop);
    try {
      const reply = await env.fetch(base + path, {
        method,
        headers: {
          accept: 'application/json',
          ...credentials(),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: abort.signal,
      });
      const content = reply.status === 204 ? null : await reply.json();
      if (reply.status < 500) parts.bucket.success();
      return {
        kind: 'reply',
        status: reply.status,
        retryAfterMs: retryHintMs(reply, content),
        body: content,
      };
    } catch {
      // Refused, reset, cut off, too late, or no JSON: whether it arrived is not known.
      return { kind: 'lost' };
    } finally {
      cancel();
      signal?.removeEventListener('abort', stop);
    }
  };

  return {
    ...parts,
    newRequestId: () => `req_${env.token()}`,
    async call(method, path, body, headers = {}, signal) {
      const name = `${method} ${path}`;
      const ticket = tickets.get(name);
      tickets.delete(name);
      const own = ticket === undefined ? headers : { ...headers, 'sluice-ticket': ticket };
      let answer = await attempt(method, path, body, own, signal);
      // What a limit asks for is paid here, for this one request; a room asks whoever joins.
      const work = answer.kind === 'lost' ? undefined : workIn(answer.body);
      if (work?.inHeader === true) {
        const { token, bits, limitMs } = work;
        const patience = signal === undefined ? { limitMs } : { limitMs, signal };
        const solved = await solveWork(env, token, bits, patience);
        if (solved !== undefined && signal?.aborted !== true) {
          answer = await attempt(
            method,
            path,
            body,
            { ...own, 'sluice-challenge': solved },
            signal,
          );
        }
      }
      const next = answer.kind === 'lost' ? ticket : ticketIn(answer.body);
      if (next !== undefined && tickets.size < ticketsMax) tickets.set(name, next);
      return answer;
    },
  };
}

/** A place that was taken for this request, when that is what the answer says. */
export function ticketIn(body: unknown): string | undefined {
  const { code, ticket } = Object(body) as { code?: unknown; ticket?: unknown };
  return code === 'ACCEPTED_LATER' && typeof ticket === 'string' ? ticket : undefined;
}

/** The exact hint where the body has one, else the header's whole seconds. */
export function retryHintMs(reply: FetchReply, body: unknown): number {
  if (typeof body === 'object' && body !== null && 'retry_after_ms' in body) {
    const hint = Number(body.retry_after_ms);
    if (Number.isFinite(hint)) return Math.max(0, hint);
  }
  const seconds = Number(reply.header('retry-after'));
  return Number.isFinite(seconds) ? Math.max(0, seconds * 1000) : 0;
}
