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

/**
 * Retry hints that keep a crowd from returning at once. A refused flood asks for one each time, so the
 * spread comes from a small generator (xorshift32) that is seeded once: nobody gains by guessing it.
 */
export class RetrySpread {
  #state: number;

  constructor(random: { float(): number }) {
    this.#state = Math.floor(random.float() * 0xffffffff) | 1;
  }

  /** For refusals by health, ms: one second to three. */
  busyMs(): number {
    return 1_000 + this.#below(2_000);
  }

  /** For closed doors, ms: they stay closed for ten seconds at least. */
  closedMs(): number {
    return 5_000 + this.#below(10_000);
  }

  /** Uniform in [0, 1), for hints of limits. */
  draw(): number {
    return this.#below(0x4000_0000) / 0x4000_0000;
  }

  #below(bound: number): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x;
    return (x >>> 0) % bound;
  }
}

/** One such hint for refusals by health, where no spread is at hand. */
export function spreadRetryMs(random: { float(): number }): number {
  return 1_000 + Math.floor(random.float() * 2_000);
}
