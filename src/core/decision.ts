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

/** One shape for all of them: this is made for every refused request of a flood. */
class MadeRefusal implements Refusal {
  readonly decision = 'reject';
  readonly stage: StageName;
  readonly code: Code;
  readonly reason: string;
  readonly detail: string;
  declare readonly scope?: Scope;
  declare readonly ruleId?: string;
  declare readonly retryAfterMs?: number;
  declare readonly nextAction?: NextAction;
  declare readonly headers?: readonly (readonly [name: string, value: string])[];
  readonly template: object;

  constructor(
    fixed: FixedRefusal,
    retryAfterMs: number | undefined,
    headers: Refusal['headers'] | undefined,
  ) {
    this.stage = fixed.stage;
    this.code = fixed.code;
    this.reason = fixed.reason;
    this.detail = fixed.detail;
    this.template = fixed;
    if (fixed.scope !== undefined) this.scope = fixed.scope;
    if (fixed.ruleId !== undefined) this.ruleId = fixed.ruleId;
    if (fixed.nextAction !== undefined) this.nextAction = fixed.nextAction;
    if (retryAfterMs !== undefined) this.retryAfterMs = retryAfterMs;
    if (headers !== undefined) this.headers = headers;
  }
}

/** The refusal with its moment; O(1), and cheap to render because of its template. */
export function refuse(
  fixed: FixedRefusal,
  retryAfterMs?: number,
  headers?: Refusal['headers'],
): Refusal {
  return new MadeRefusal(fixed, retryAfterMs, headers);
}
