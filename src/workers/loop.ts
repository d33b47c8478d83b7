import type { TimerHandle, Timers } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';

/**
 * What a pass over the work found: `more` work waits already; `idle`: nothing to do now; `blocked`: a
 * part did not answer, so that going on at once would only press on it.
 */
export type PassResult = 'more' | 'idle' | 'blocked';

export interface LoopOptions {
  readonly timers: Timers;
  readonly random: Random;
  /** One bounded piece of work. A rejection counts as `blocked` and is told to `onError`. */
  readonly pass: () => Promise<PassResult>;
  /** Wait after `idle`, ms. */
  readonly idleMs: number;
  /** Waits after `blocked` grow from the first to the second, ms, doubling, with full jitter. */
  readonly backOffMs: { readonly first: number; readonly most: number };
  readonly onError: (error: unknown) => void;
}

/**
 * Runs passes one after another until stopped. Time and chance are injected, and a pass can be run
 * without the loop, so that tests and simulations drive the same code.
 */
export class WorkLoop {
  readonly #options: LoopOptions;
  #running: Promise<void> | undefined;
  #stopping = false;
  #blockedPasses = 0;
  #sleeping: { timer: TimerHandle; wake: () => void } | undefined;
  #nudged = false;

  constructor(options: LoopOptions) {
    this.#options = options;
  }

  /** Idempotent. */
  start(): void {
    this.#running ??= this.#run();
  }

  /** There may be work: ends an idle wait. A wait for a part that did not answer goes on. */
  nudge(): void {
    this.#nudged = true;
    if (this.#blockedPasses === 0) this.#sleeping?.wake();
  }

  /** Resolves once the pass under way has ended. Never started again. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#sleeping?.wake();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      this.#nudged = false;
      const waitMs = this.#waitAfter(await this.#pass());
      if (waitMs > 0) await this.#sleep(waitMs);
    }
  }

  async #pass(): Promise<PassResult> {
    try {
      return await this.#options.pass();
    } catch (error) {
      this.#options.onError(error);
      return 'blocked';
    }
  }

  #waitAfter(result: PassResult): number {
    if (result === 'blocked') {
      this.#blockedPasses += 1;
      return backOff(this.#options, this.#blockedPasses);
    }
    this.#blockedPasses = 0;
    return result === 'more' || this.#nudged ? 0 : this.#options.idleMs;
  }

  #sleep(ms: number): Promise<void> {
    if (this.#stopping) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#sleeping?.timer.cancel();
        this.#sleeping = undefined;
        resolve();
      };
      this.#sleeping = { timer: this.#options.timers.after(ms, wake), wake };
    });
  }
}

/** At least half of the doubled wait, so that jitter never means "at once". */
function backOff({ random, backOffMs }: LoopOptions, blockedPasses: number): number {
  const ceiling = Math.min(backOffMs.most, backOffMs.first * 2 ** Math.min(blockedPasses - 1, 30));
  return Math.ceil(ceiling * (0.5 + random.float() / 2));
}
