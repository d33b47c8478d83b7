import type { Refusal } from '../core/decision.ts';
import type { Answer, Outcome, Verdict } from '../pipeline/stage.ts';
import { codes } from '../wire/codes.ts';
import { keepHead } from './learned-heads.ts';

/**
 * Verdicts as bytes. A million people may get the same refusal in a second, so what does not change
 * from one to the next is rendered once: everything but the time and the moment to come back. Both
 * stand at the end of the body, and the rest is a string kept by its template object.
 */
export interface HttpAnswer {
  readonly status: number;
  /** Name, value, name, value …; `Content-Length` is added by whoever sends it. */
  readonly headers: readonly string[];
  /** More of them, of this answer alone. */
  readonly more?: readonly string[];
  readonly body: string;
  /** The body is known to be ASCII; otherwise whoever sends it has to look. */
  readonly ascii?: boolean;
}

/** Largest wait that is ever told, ms: a year, the longest period that a rate may have. */
export const retryAfterMaxMs = 366 * 86_400_000;

interface Template {
  readonly status: number;
  readonly headers: readonly string[];
  /** The body up to its last members, without the closing brace. */
  readonly head: string;
  readonly ascii: boolean;
  /** `Retry-After: n` with the headers before it, by its seconds: a handful per template. */
  readonly withRetry: Map<number, readonly string[]>;
}

/** Headers of an answer with those of a limit behind them. */
interface Joined {
  readonly before: readonly string[];
  /** Made once the same two have met twice: most lists are met a million times or once. */
  headers: readonly string[] | undefined;
}

/** Different waits whose headers are kept; hints are spread over a few seconds only. */
const keptWaitsMax = 64;

const noStore = ['Cache-Control', 'no-store', 'X-Content-Type-Options', 'nosniff'] as const;
const problemHeaders = ['Content-Type', 'application/problem+json', ...noStore] as const;
export const jsonHeaders = keepHead(['Content-Type', 'application/json', ...noStore] as const);

/** Name under which a code is a problem type (RFC 9457): stable, and no address that could vanish. */
export const problemType = (code: string): string => `urn:sluice:problem:${code.toLowerCase()}`;

export class Renderer {
  readonly #templates = new WeakMap<object, Template>();
  readonly #joined = new WeakMap<NonNullable<Refusal['headers']>, Joined>();
  readonly #gray: boolean;
  #timeMs = Number.NaN;
  #timeText = '';

  /** @param gray refusals say that they are of a canary. */
  constructor(gray = false) {
    this.#gray = gray;
  }

  /** `server_time` of this millisecond; many answers share one. */
  serverTime(nowMs: number): string {
    if (nowMs !== this.#timeMs) {
      this.#timeText = new Date(nowMs).toISOString();
      this.#timeMs = nowMs;
    }
    return this.#timeText;
  }

  verdict(verdict: Verdict, nowMs: number): HttpAnswer {
    return verdict.decision === 'reject'
      ? this.refusal(verdict, nowMs)
      : this.answer(verdict, nowMs);
  }

  refusal(refusal: Refusal, nowMs: number): HttpAnswer {
    const template = this.#kept(refusal.template, () => problemTemplate(refusal, this.#gray));
    const { retryAfterMs, extra } = refusal;
    let body = template.head;
    let { headers } = template;
    if (extra !== undefined) {
      for (const [name, value] of Object.entries(extra)) {
        body += `,${JSON.stringify(name)}:${JSON.stringify(value)}`;
      }
    }
    if (retryAfterMs !== undefined) {
      const waitMs = Math.min(Math.max(1, Math.ceil(retryAfterMs)), retryAfterMaxMs);
      body += `,"retry_after_ms":${waitMs}`;
      headers = headersWithRetry(template, Math.ceil(waitMs / 1000));
    }
    if (refusal.headers !== undefined) headers = this.#join(headers, refusal.headers);
    body += `,"server_time":"${this.serverTime(nowMs)}"}`;
    return {
      status: template.status,
      headers,
      body,
      ascii: template.ascii && extra === undefined,
    };
  }

  answer(answer: Answer, nowMs: number): HttpAnswer {
    const template = this.#kept(answer.template, () =>
      outcomeTemplate(answer.code, answer.outcome),
    );
    const body = `${template.head},"server_time":"${this.serverTime(nowMs)}"}`;
    return { status: template.status, headers: template.headers, body, ascii: template.ascii };
  }

  /** The status route's answer: the same shape, under the code that fits the state. */
  outcome(outcome: Outcome, nowMs: number): HttpAnswer {
    const template = outcomeTemplate(codeOfState(outcome), outcome, 200);
    const body = `${template.head},"server_time":"${this.serverTime(nowMs)}"}`;
    return { status: template.status, headers: template.headers, body };
  }

  /** Any JSON body that is nobody else's business to keep. */
  json(status: number, body: object, headers: readonly string[] = jsonHeaders): HttpAnswer {
    return { status, headers, body: JSON.stringify(body) };
  }

  /** A limit says the same few things to a flood: then the very same array is answered each time. */
  #join(before: readonly string[], limit: NonNullable<Refusal['headers']>): readonly string[] {
    const known = this.#joined.get(limit);
    if (known?.before !== before) {
      this.#joined.set(limit, { before, headers: undefined });
      return before.concat(...limit);
    }
    known.headers ??= keepHead(before.concat(...limit));
    return known.headers;
  }

  /** Extra members are not in the template, so a refusal with them may still share one. */
  #kept(key: object | undefined, make: () => Template): Template {
    if (key === undefined) return make();
    const known = this.#templates.get(key);
    if (known !== undefined) return known;
    const made = make();
    keepHead(made.headers);
    this.#templates.set(key, made);
    return made;
  }
}

function headersWithRetry(template: Template, seconds: number): readonly string[] {
  let headers = template.withRetry.get(seconds);
  if (headers === undefined) {
    headers = [...template.headers, 'Retry-After', String(seconds)];
    if (template.withRetry.size < keptWaitsMax) template.withRetry.set(seconds, keepHead(headers));
  }
  return headers;
}

function problemTemplate(refusal: Refusal, gray: boolean): Template {
  const entry = codes[refusal.code];
  const scope = refusal.scope ?? 'route';
  const members = {
    type: problemType(refusal.code),
    title: entry.title,
    status: entry.http,
    detail: refusal.detail,
    code: refusal.code,
    scope,
    reason: refusal.reason,
    ...(refusal.ruleId === undefined ? {} : { rule_id: refusal.ruleId }),
    retryable: entry.retryable,
    next_action: refusal.nextAction ?? entry.nextAction,
    ...(gray ? { gray: true } : {}),
  };
  // Not a problem, where it is no error: the same members all the same.
  const headers: string[] = [...(entry.http < 400 ? jsonHeaders : problemHeaders)];
  if (isLimited(refusal)) headers.push('Sluice-Limited', scope);
  if (entry.http === 401) headers.push('WWW-Authenticate', 'Bearer realm="sluice"');
  return templateOf(entry.http, headers, members);
}

const limitedCodes: ReadonlySet<string> = new Set([
  'RATE_LIMITED',
  'WAITING_ROOM',
  'ACCEPTED_LATER',
]);

/** Did a limit say this, and not the request's own fault or a part that is away? */
function isLimited({ code, ruleId }: Refusal): boolean {
  return limitedCodes.has(code) || (code === 'CHALLENGE_REQUIRED' && ruleId !== undefined);
}

function outcomeTemplate(code: Answer['code'], outcome: Outcome, status?: number): Template {
  const members = {
    request_id: outcome.requestId,
    activity_id: outcome.activityId,
    sku_id: outcome.skuId,
    state: outcome.state,
    code,
    message: outcome.message,
    reservation_id: outcome.reservationId,
    order_id: outcome.orderId,
    pay_before: outcome.payBeforeMs === null ? null : new Date(outcome.payBeforeMs).toISOString(),
    quantity: outcome.quantity,
    retryable: outcome.retryable,
    next_action: outcome.nextAction,
    next_poll_after_ms: outcome.nextPollAfterMs,
  };
  return templateOf(status ?? codes[code].http, jsonHeaders, members);
}

function templateOf(status: number, headers: readonly string[], members: object): Template {
  // JSON without its closing brace, to be continued.
  const head = JSON.stringify(members).slice(0, -1);
  return { status, headers, head, ascii: isAscii(head), withRetry: new Map() };
}

const isAscii = (text: string): boolean => Buffer.byteLength(text) === text.length;

function codeOfState(outcome: Outcome): Answer['code'] {
  if (outcome.state === 'QUEUED') return 'SECKILL_QUEUED';
  // The code that says "ask for the same request id", which is what unknown means.
  if (outcome.state === 'UNKNOWN') return 'DEPENDENCY_UNAVAILABLE';
  return outcome.state === 'SOLD_OUT' ? 'SECKILL_SOLD_OUT' : 'REQUEST_REPLAYED';
}
