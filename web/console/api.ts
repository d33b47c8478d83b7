/** The admin API as the page sees it: the wire's names, nothing translated. */
export interface Overview {
  readonly taken_at: string;
  readonly counters: Readonly<Record<string, number>>;
  readonly funnel: readonly { readonly step: string; readonly count: number }[];
  readonly refusals: readonly {
    readonly stage: string;
    readonly reason: string;
    readonly count: number;
  }[];
  readonly stock: readonly Stock[];
  readonly mode: {
    readonly mode: string;
    readonly since: string;
    readonly driver: { readonly signal: string; readonly value: number; readonly z: number } | null;
    readonly pinned_until?: string;
    readonly ramp?: number;
  };
  readonly rooms: readonly Room[];
  readonly queue: {
    readonly depth: number;
    readonly oldest_age_ms: number;
    readonly buried: number;
  } | null;
  readonly latency: { readonly admitted: Latency | null; readonly refused: Latency | null };
  readonly instances: readonly Instance[];
  readonly ledger_residual: number | null;
  readonly limited_share: number | null;
}

export interface Latency {
  readonly p50_ms: number;
  readonly p95_ms: number;
  readonly p99_ms: number;
}

export interface Stock {
  readonly activity_id: string;
  readonly sku_id: string;
  readonly name: string;
  readonly total: number;
  readonly paid: number;
  readonly pending: number;
  readonly held: number;
  readonly available: number;
}

export interface Room {
  readonly activity_id: string;
  readonly name: string;
  readonly phase: string;
  readonly rule: string;
  readonly state: string;
  readonly joined: number;
  readonly waiting: number;
  readonly released: number;
  readonly claimed: number;
  readonly finished: number;
  readonly left: number;
  readonly waves: number;
}

export interface Instance {
  readonly instance: string;
  readonly roles: readonly string[];
  readonly uptime_ms: number;
  readonly mode: string;
  readonly in_flight: number;
  readonly in_flight_limit: number;
  readonly loop_delay_ms: number;
  readonly memory_bytes: number;
  readonly rules_version: number;
}

export interface Point {
  readonly taken_at: string;
  readonly arrivals_per_second: number;
  readonly handled_per_second: number;
  readonly refused_per_second: number;
  readonly failed_per_second: number;
  readonly limited_per_second: number;
  readonly shed_per_second: number;
  readonly reserved_per_second: number;
  readonly ordered_per_second: number;
  readonly paid_per_second: number;
  readonly reasons: readonly number[];
  readonly p50_ms: number | null;
  readonly p99_ms: number | null;
  readonly refused_p99_ms: number | null;
  readonly queue_depth: number | null;
  readonly queue_age_ms: number | null;
  readonly stock: {
    readonly paid: number;
    readonly pending: number;
    readonly held: number;
    readonly available: number;
  } | null;
  readonly waiting: number;
}

export interface Me {
  readonly name: string;
  readonly role: string;
  readonly offered: readonly string[];
}

export interface OrderRow {
  readonly order_id: string;
  readonly activity_id: string;
  readonly sku_id: string;
  readonly user_id: string;
  readonly quantity: number;
  readonly amount_minor: number;
  readonly currency: string;
  readonly state: string;
  readonly created_at: string;
  readonly pay_before: string;
}

export interface AuditEntry {
  readonly at: string;
  readonly who: string;
  readonly what: string;
  readonly why: string;
  readonly subject: string;
}

export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly status: number;

  constructor(status: number, detail: string) {
    super(detail);
    this.status = status;
  }
}

export async function call<Answer>(
  method: 'GET' | 'POST' | 'DELETE',
  path: string,
  body?: unknown,
): Promise<Answer> {
  const reply = await fetch(`/admin/v1${path}`, {
    method,
    cache: 'no-store',
    headers: {
      'sluice-console': '1',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await reply.text();
  const answer: unknown = text === '' ? {} : JSON.parse(text);
  if (reply.ok) return answer as Answer;
  const detail =
    typeof answer === 'object' && answer !== null && 'detail' in answer
      ? String(answer.detail)
      : `HTTP ${reply.status}`;
  throw new ApiError(reply.status, detail);
}
