import type { Scope } from '../wire/codes.ts';

/**
 * The limits as the path sees them: one question per stage, answered at once, never waiting. What
 * stands behind it (token buckets today, a rule set, leases) is composed outside.
 */
export interface PathLimits {
  /** This instance's own capacity, configured. */
  instance(route: RouteName, nowUs: number): LimitRefusal | undefined;
  /** Client address and its prefix; penalties. */
  source(route: RouteName, address: string, nowUs: number): LimitRefusal | undefined;
  /** The verified user, and the device where one is known. All or none are charged. */
  person(
    route: RouteName,
    userId: string,
    deviceHash: string | undefined,
    nowUs: number,
  ): LimitRefusal | undefined;
  /** The activity's and the SKU's shared budget. */
  budget(
    activityId: string,
    skuId: string,
    quantity: number,
    nowUs: number,
  ): LimitRefusal | undefined;
}

/** Names that rules match on; closed, and few, because they are metric labels too. */
export type RouteName =
  | 'submit'
  | 'status'
  | 'standing'
  | 'join'
  | 'pass'
  | 'session'
  | 'order'
  | 'pay'
  | 'callback'
  | 'facts'
  | 'page';

export interface LimitRefusal {
  readonly scope: Scope;
  readonly ruleId: string;
  /** Earliest useful moment, ms from now, at least 1. Already spread where the budget is shared. */
  readonly retryAfterMs: number;
  /** `RateLimit` and `RateLimit-Policy`, ready to send. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
}

/** No limits at all: for tests of other stages, and where a deployment configures none. */
export const noLimits: PathLimits = {
  instance: () => undefined,
  source: () => undefined,
  person: () => undefined,
  budget: () => undefined,
};
