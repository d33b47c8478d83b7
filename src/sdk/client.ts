import type { Standing } from '../wire/standing.ts';
import type { ClientEnvironment } from './environment.ts';
import { type Priority, Reads } from './reads.ts';
import { RetryBucket, type RetryLimits } from './retry.ts';
import { Submission, type Wish } from './submission.ts';
import { type ClientCounts, Telemetry } from './telemetry.ts';
import { type Answer, makeTransport, ticketIn } from './transport.ts';
import { type Watch, type WatchOptions, watchStanding } from './watch.ts';
import { type WorkOptions, solveWork, workIn } from './work.ts';

/**
 * A buyer's side of a sale. Every method is one thing a person does; what may be repeated is repeated
 * within bounds, what may not is told as it is.
 */
export interface Client {
  /** Facts for a page: shared, cancellable, last in line. */
  activity(activityId: string): Promise<Result<unknown>>;
  availability(activityId: string, skuId: string): Promise<Result<unknown>>;
  /**
   * A place in the room. Where a proof of work is demanded first, it is done here; where somebody else
   * must vouch for the person, the refusal says at which address (`problem.challenge.url`), and what
   * is handed back there comes along as `challenge`.
   */
  join(
    activityId: string,
    skuIds?: readonly string[],
    options?: JoinOptions,
  ): Promise<Result<Joined>>;
  leave(activityId: string): Promise<Result<null>>;
  /** Follows the standing until it is final or stopped. */
  watch(activityId: string, options: Omit<WatchOptions, 'url' | 'headers'>): Watch;
  /** One wish to buy; the same wish again finds what became of it. */
  submission(wish: Wish, limits?: RetryLimits): Submission;
  order(orderId: string): Promise<Result<unknown>>;
  pay(orderId: string, method?: string): Promise<Result<unknown>>;
  cancel(orderId: string): Promise<Result<unknown>>;
  readonly counts: Readonly<ClientCounts>;
}

export type Joined = Standing & { readonly entry_id: string; readonly entry_token: string };

export interface JoinOptions extends Pick<WorkOptions, 'onProgress' | 'signal'> {
  /** An answer that the caller has already. */
  readonly challenge?: string;
}

/** Challenges answered in one join: a second where the first had expired, and no more. */
const challengesMax = 2;

export type Result<Value> =
  | { readonly ok: true; readonly status: number; readonly value: Value }
  | {
      readonly ok: false;
      /** 0: no answer came; it is not known whether the request arrived. */
      readonly status: number;
      readonly code: string;
      readonly retryAfterMs: number;
      readonly problem: unknown;
    };

export interface ClientOptions {
  /** `https://sale.example`, or empty for the page's own origin. */
  readonly baseUrl?: string;
  readonly env: ClientEnvironment;
  /** Absent where cookies say who asks. */
  readonly userToken?: () => string | undefined;
  readonly onTelemetry?: (counts: Readonly<ClientCounts>) => void;
}

/** How often a change is sent again for a place that was taken for it, and how far ahead that may be, ms. */
const comebacksMax = 3;
const comebackMaxMs = 60_000;

export function createClient(options: ClientOptions): Client {
  const { env, baseUrl = '', userToken } = options;
  const entryTokens = new Map<string, string>();
  const bearer = (): Readonly<Record<string, string>> => {
    const token = userToken?.();
    return token === undefined ? {} : { authorization: `Bearer ${token}` };
  };
  const telemetry = new Telemetry(env, options.onTelemetry);
  const reads = new Reads();
  const transport = makeTransport(
    { env, bucket: new RetryBucket(), telemetry, reads },
    baseUrl,
    bearer,
  );

  const read = async (path: string, priority: Priority): Promise<Result<unknown>> => {
    const merged = reads.merged;
    const flight = reads.get(path, priority, (signal) =>
      transport.call('GET', path, undefined, {}, signal),
    );
    if (reads.merged > merged) telemetry.add('merged');
    return resultOf(await flight);
  };
  const change = async (
    method: 'POST' | 'DELETE',
    path: string,
    body?: unknown,
  ): Promise<Result<unknown>> => {
    telemetry.add('intents');
    let answer = await transport.call(method, path, body);
    for (let n = 0; n < comebacksMax; n += 1) {
      if (answer.kind === 'lost' || ticketIn(answer.body) === undefined) break;
      const { retryAfterMs } = answer;
      if (retryAfterMs > comebackMaxMs) break;
      await new Promise<void>((resolve) => {
        env.after(retryAfterMs, resolve);
      });
      answer = await transport.call(method, path, body);
    }
    return resultOf(answer);
  };

  return {
    activity: (activityId) => read(`/v1/activities/${activityId}`, 3),
    availability: (activityId, skuId) =>
      read(`/v1/activities/${activityId}/skus/${skuId}/availability`, 3),
    async join(activityId, skuIds, joining = {}) {
      const path = `/v1/activities/${activityId}/entries`;
      const ask = async (challenge: string | undefined): Promise<Result<Joined>> =>
        (await change('POST', path, {
          ...(skuIds === undefined ? {} : { sku_ids: skuIds }),
          ...(challenge === undefined ? {} : { challenge }),
        })) as Result<Joined>;
      let result = await ask(joining.challenge);
      for (let answered = 0; !result.ok && answered < challengesMax; answered += 1) {
        const work = workIn(result.problem);
        // One of a limit has been answered on the way, where it could be.
        if (work === undefined || work.inHeader) break;
        const answer = await solveWork(env, work.token, work.bits, {
          ...joining,
          limitMs: work.limitMs,
        });
        if (joining.signal?.aborted === true) break;
        result = await ask(answer);
      }
      if (result.ok) entryTokens.set(activityId, result.value.entry_token);
      return result;
    },
    async leave(activityId) {
      entryTokens.delete(activityId);
      return (await change('DELETE', `/v1/activities/${activityId}/entries/me`)) as Result<null>;
    },
    watch(activityId, watching) {
      const entry = entryTokens.get(activityId);
      const headers = { ...bearer(), ...(entry === undefined ? {} : { 'sluice-entry': entry }) };
      // EventSource cannot send headers: with a token in hand the client polls, with cookies it streams.
      const { events, ...rest } = env;
      const streams = userToken === undefined && events !== undefined;
      return watchStanding(streams ? env : rest, {
        ...watching,
        url: `${baseUrl}/v1/activities/${activityId}/entries/me`,
        headers,
      });
    },
    submission: (wish, limits) => new Submission(transport, wish, limits),
    order: (orderId) => read(`/v1/orders/${orderId}`, 0),
    pay: (orderId, method) =>
      change('POST', `/v1/orders/${orderId}/pay`, method === undefined ? {} : { method }),
    cancel: (orderId) => change('DELETE', `/v1/orders/${orderId}`),
    get counts() {
      return telemetry.counts;
    },
  };
}

function resultOf(answer: Answer): Result<unknown> {
  if (answer.kind === 'lost')
    return { ok: false, status: 0, code: 'NETWORK', retryAfterMs: 0, problem: null };
  const { status, body, retryAfterMs } = answer;
  // A place ahead is no success yet.
  if (status < 300 && ticketIn(body) === undefined) return { ok: true, status, value: body };
  const { code } = (body ?? {}) as { code?: unknown };
  return {
    ok: false,
    status,
    code: typeof code === 'string' ? code : `HTTP_${status}`,
    retryAfterMs,
    problem: body,
  };
}
