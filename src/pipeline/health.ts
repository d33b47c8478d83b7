import type { InflightSlots } from '../core/overload/inflight.ts';
import type { Mode } from '../core/overload/mode.ts';
import type { Priority } from '../core/overload/priority.ts';

export type Resource = 'submit' | 'status' | 'payment' | 'admin';

/** What the overload control has set; requests only read it, and never wait for it. */
export interface Health {
  readonly mode: Mode;
  /** Whether this priority's share of the window has room for this caller. Counts the demand. */
  admit(priority: Priority, caller: string): boolean;
  readonly slots: Readonly<Record<Resource, InflightSlots>>;
}

/** Hint for refusals by health: a second at least, spread so that a crowd does not return at once. */
export function spreadRetryMs(random: { float(): number }): number {
  return 1_000 + Math.floor(random.float() * 2_000);
}

/** The same for closed doors, which stay closed for ten seconds at least. */
export function spreadClosedRetryMs(random: { float(): number }): number {
  return 5_000 + Math.floor(random.float() * 10_000);
}
