import type { ClientEnvironment } from './environment.ts';

/** What buyers wanted against what went over the wire. Counts only: no ids, no contents. */
export interface ClientCounts {
  /** Things the buyer asked for. */
  intents: number;
  /** Requests sent, retries included. */
  requests: number;
  /** Intents that were under way already. */
  suppressed: number;
  merged: number;
  cancelled: number;
  retried: number;
  /** Time spent not knowing an outcome, ms. */
  unknownMs: number;
}

/** Batches are this far apart at least, ms. */
const batchMs = 30_000;

/**
 * Counts in batches, handed to `send` when nothing better is to do; what cannot be sent is dropped,
 * never kept and never retried: telemetry is the first thing to go.
 */
export class Telemetry {
  readonly #env: Pick<ClientEnvironment, 'after'>;
  readonly #send: ((counts: Readonly<ClientCounts>) => void) | undefined;
  #counts = zero();
  #planned = false;

  constructor(
    env: Pick<ClientEnvironment, 'after'>,
    send: ((counts: Readonly<ClientCounts>) => void) | undefined,
  ) {
    this.#env = env;
    this.#send = send;
  }

  add(name: keyof ClientCounts, amount = 1): void {
    this.#counts[name] += amount;
    if (this.#planned || this.#send === undefined) return;
    this.#planned = true;
    this.#env.after(batchMs, () => {
      this.#planned = false;
      const batch = this.#counts;
      this.#counts = zero();
      this.#send?.(batch);
    });
  }

  /** Since the last batch. */
  get counts(): Readonly<ClientCounts> {
    return this.#counts;
  }
}

function zero(): ClientCounts {
  return {
    intents: 0,
    requests: 0,
    suppressed: 0,
    merged: 0,
    cancelled: 0,
    retried: 0,
    unknownMs: 0,
  };
}
