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
}
