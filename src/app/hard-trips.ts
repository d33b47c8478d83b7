import type { OverloadLoop } from '../control/overload-loop.ts';
import type { HardTrip } from '../core/overload/mode.ts';
import type { FindingClass } from '../core/orders/compare.ts';
import type { Dependencies } from './dependencies.ts';

/** A store that has not answered for so long is gone, ms: beyond a failover's first hiccup. */
export const goneAfterMs = 2_000;

/** Findings that admit no doubt: more is sold than there is. */
const violations: ReadonlySet<FindingClass> = new Set(['overbooked']);

export interface HardTripsParts {
  readonly overload: Pick<OverloadLoop, 'trip' | 'clearTrip'>;
  readonly dependencies: Pick<Dependencies, 'unwellMs'>;
  /** Tokens left in leases; undefined where no rule spends leases. */
  readonly leaseTokens: () => number | undefined;
}

/**
 * What closes the doors at once, whatever the signals say: the store that sells is gone, the store of
 * shared limits is gone and its leases are spent, or more is sold than there is. Each ends with its
 * cause; the way back is then the ordinary one.
 */
export class HardTrips {
  readonly #parts: HardTripsParts;

  constructor(parts: HardTripsParts) {
    this.#parts = parts;
  }

  /** Called a few times a second. */
  look(): void {
    const { dependencies, leaseTokens } = this.#parts;
    const isGone = (name: 'inventory' | 'budgets'): boolean =>
      dependencies.unwellMs(name) >= goneAfterMs;
    this.#set('inventory_gone', isGone('inventory'));
    const tokens = leaseTokens();
    this.#set('leases_spent', isGone('budgets') && tokens !== undefined && tokens < 1);
  }

  /** After each reconciliation. */
  reconciled(counts: Readonly<Partial<Record<FindingClass, number>>>): void {
    const violated = [...violations].some((found) => (counts[found] ?? 0) > 0);
    this.#set('stock_invariant', violated);
  }

  #set(trip: HardTrip, on: boolean): void {
    if (on) this.#parts.overload.trip(trip);
    else this.#parts.overload.clearTrip(trip);
  }
}
