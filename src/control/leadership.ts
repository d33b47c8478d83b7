import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import type { LeaderLease } from '../ports/leader-lease.ts';

/**
 * Whether this process leads, and for how long it may believe so.
 *
 * The lease lies elsewhere and ends on a clock that is not ours. So the belief is shorter than the
 * lease: it is counted on our monotonic clock from before the question was sent, less a margin for
 * clocks that run at different speeds. A process that was stopped for a while finds on waking that
 * its belief is over, before it has asked anybody. And where it acts in the instant between looking
 * and being stopped, stores refuse it by its epoch: this class makes such instants rare, not harmless.
 */
export interface LeadershipOptions {
  readonly lease: LeaderLease;
  /** Of this process, unlike any other's. */
  readonly holder: string;
  readonly clock: Pick<Clock, 'monoUs'>;
  readonly timers: Timers;
  /** Called once for each time of leading; `onLost` only after it has ended. */
  readonly onGained: (epoch: number) => Promise<void>;
  readonly onLost: () => Promise<void>;
  readonly onError: (error: unknown) => void;
  /** How long the lease runs unless it is renewed, ms. Default 4,000. */
  readonly leaseMs?: number;
  /** Between two renewals, ms. Default 1,000. */
  readonly renewMs?: number;
}

/** Share of a lease that we do not count on. */
const margin = 0.1;

export class Leadership {
  readonly #options: LeadershipOptions;
  readonly #leaseMs: number;
  #epoch = 0;
  #untilUs = Number.NEGATIVE_INFINITY;
  /** Epoch for which `onGained` was called and `onLost` not yet. */
  #acting = 0;
  #leader: string | undefined;
  #timer: TimerHandle | undefined;
  #asking: Promise<void> | undefined;
  #moving: Promise<void> | undefined;
  #stopped = false;

  constructor(options: LeadershipOptions) {
    this.#options = options;
    this.#leaseMs = options.leaseMs ?? 4_000;
  }

  /** True while the lease is surely ours. O(1), asks nobody. */
  get leads(): boolean {
    return !this.#stopped && this.#options.clock.monoUs() < this.#untilUs;
  }

  /** Of the lease that we hold or held last; 0 before the first. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Whoever held the lease when last asked. */
  get leader(): string | undefined {
    return this.#leader;
  }

  /** Resolves after the first answer, whoever it names, and after what follows from it. */
  async start(): Promise<void> {
    const { timers, renewMs } = this.#options;
    this.#timer ??= timers.every(renewMs ?? 1_000, () => void this.look());
    await this.look();
    await this.#moving;
  }

  /** Gives the lease back, so that another need not wait for its end. */
  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#timer?.cancel();
    await this.#asking;
    this.#stopped = true;
    const held = this.#acting > 0;
    this.#settle();
    await this.#moving;
    if (!held) return;
    try {
      await this.#options.lease.release(this.#options.holder);
    } catch (error) {
      // It ends by itself.
      this.#options.onError(error);
    }
  }

  /** One renewal, or one try; never two at once. Never rejects. */
  look(): Promise<void> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #ask(): Promise<void> {
    if (this.#stopped) return;
    const { lease, holder, clock, onError } = this.#options;
    // Whoever was stopped for a while hears of it here, before the question.
    this.#settle();
    const askedUs = clock.monoUs();
    try {
      const reply = await lease.renew(holder, this.#leaseMs);
      if (reply.kind === 'held') {
        this.#leader = holder;
        this.#epoch = reply.epoch;
        this.#untilUs = askedUs + this.#leaseMs * (1 - margin) * 1_000;
      } else {
        this.#leader = reply.by;
        this.#untilUs = Number.NEGATIVE_INFINITY;
      }
    } catch (error) {
      // What was believed before runs out by itself.
      onError(error);
    }
    this.#settle();
  }

  /** Brings what we do in line with what we may; beside the renewals, which must not wait for it. */
  #settle(): void {
    this.#moving ??= this.#move().finally(() => {
      this.#moving = undefined;
    });
  }

  async #move(): Promise<void> {
    const { onGained, onLost, onError } = this.#options;
    for (;;) {
      const due = this.leads ? this.#epoch : 0;
      if (this.#acting === due) return;
      try {
        if (this.#acting > 0) {
          this.#acting = 0;
          await onLost();
        } else {
          this.#acting = due;
          await onGained(due);
        }
      } catch (error) {
        onError(error);
      }
    }
  }
}
