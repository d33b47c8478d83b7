import type { ClientEnvironment } from './environment.ts';

/**
 * When a client may ask again by itself. Three bounds together, because each alone fails: attempts
 * (one call must end), time (a buyer's patience ends), and a bucket shared by all calls of the client
 * (in an outage every call fails, and a million clients that each retry "only three times" make four
 * times the load). Successes fill the bucket slowly, so that retries stay near a tenth of all calls.
 */
export interface RetryLimits {
  readonly maxAttempts: number;
  readonly totalMs: number;
  readonly baseMs: number;
  readonly capMs: number;
}

export const retryDefaults: RetryLimits = {
  maxAttempts: 6,
  totalMs: 60_000,
  baseMs: 300,
  capMs: 10_000,
};

/** A retry costs one; a success gives a tenth back. */
const bucketMax = 10;
const bucketGain = 0.1;

export class RetryBucket {
  #tokens = bucketMax;

  success(): void {
    this.#tokens = Math.min(bucketMax, this.#tokens + bucketGain);
  }

  /** False: no retry now, whatever the call's own bounds say. */
  take(): boolean {
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}

/**
 * Before which attempt to wait how long, ms; undefined when it is over. `attempt` is the one that
 * just failed, from 1. Never before `hintMs`, with full jitter on top: U(0, min(cap, base·2^n)).
 */
export function retryDelayMs(
  env: Pick<ClientEnvironment, 'random' | 'nowMs'>,
  limits: RetryLimits,
  attempt: number,
  startedMs: number,
  hintMs: number,
): number | undefined {
  if (attempt >= limits.maxAttempts) return undefined;
  const bound = Math.min(limits.capMs, limits.baseMs * 2 ** (attempt - 1));
  const delay = Math.max(0, hintMs) + env.random() * bound;
  return env.nowMs() + delay - startedMs > limits.totalMs ? undefined : delay;
}
