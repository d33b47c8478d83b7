import type { Code, NextAction, Scope } from '../wire/codes.ts';

/**
 * What a stage said of a request. A stage that lets a request through returns `undefined`; anything
 * else is a value that ends the path. Refusals are values, never exceptions: they carry when to come
 * back. Exceptions are left for what can never be.
 */
export type StageName =
  | 'receive'
  | 'shed'
  | 'instance'
  | 'source'
  | 'sold_out'
  | 'identify'
  | 'person'
  | 'budget'
  | 'slot'
  | 'reserve'
  | 'enqueue';

export interface Refusal {
  readonly decision: 'reject';
  readonly stage: StageName;
  readonly code: Code;
  /** Short machine word from a closed set: becomes a metric label. */
  readonly reason: string;
  readonly detail: string;
  readonly scope?: Scope;
  readonly ruleId?: string;
  /** Earliest useful moment to come back, from now. */
  readonly retryAfterMs?: number;
  readonly nextAction?: NextAction;
  /** More members of the problem body, already in wire form (snake_case). */
  readonly extra?: Readonly<Record<string, unknown>>;
  /** More answer headers, e.g. `RateLimit`. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /**
   * An object that stands for everything here but `retryAfterMs` and `headers`: refusals that share
   * it are the same bytes but for the time, and are rendered from one template.
   */
  readonly template?: object;
}

/** A refusal that is made once and answered a million times. */
export type FixedRefusal = Omit<Refusal, 'retryAfterMs' | 'headers' | 'template' | 'extra'>;

/** The refusal with its moment; O(1), and cheap to render because of its template. */
export function refuse(
  fixed: FixedRefusal,
  retryAfterMs?: number,
  headers?: Refusal['headers'],
): Refusal {
  return {
    ...fixed,
    template: fixed,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(headers === undefined ? {} : { headers }),
  };
}
