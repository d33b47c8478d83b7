import type { Clock } from '../../ports/clock.ts';
import type { LeaderLease, LeaseReply } from '../../ports/leader-lease.ts';

/** The leader's lease in memory, on one clock: what the row in PostgreSQL does, said plainly. */
export class MemoryLeaderLease implements LeaderLease {
  readonly #clock: Pick<Clock, 'monoUs'>;
  #held: { readonly holder: string; readonly untilUs: number } | undefined;
  #epoch = 0;

  constructor(clock: Pick<Clock, 'monoUs'>) {
    this.#clock = clock;
  }

  async renew(holder: string, leaseMs: number): Promise<LeaseReply> {
    const nowUs = this.#clock.monoUs();
    const live = this.#held !== undefined && this.#held.untilUs > nowUs;
    if (live && this.#held?.holder !== holder) {
      return { kind: 'taken', by: this.#held?.holder ?? 'nobody' };
    }
    if (!live) this.#epoch += 1;
    this.#held = { holder, untilUs: nowUs + leaseMs * 1_000 };
    return { kind: 'held', epoch: this.#epoch };
  }

  async release(holder: string): Promise<void> {
    if (this.#held?.holder === holder) this.#held = undefined;
  }
}
