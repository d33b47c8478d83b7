/**
 * A circuit breaker: says that a dependency is failing, so that we stop paying for finding out.
 *
 * It opens on the failure rate or the slow-call rate over a sliding window of calls, never before a
 * stated minimum of calls has been seen: one failure out of one is not a rate. Open, it refuses at
 * once; after a pause it lets a few probes through, and nobody waits for them: everyone else is still
 * refused. All probes well: closed with a clean window; one bad: open again, the pause doubled up to
 * its cap. Our own refusals and limit answers must be reported as `ignored`: they are no evidence.
 */
export interface BreakerSettings {
  /** Calls that the window remembers, 1…10,000. */
  readonly window: number;
  readonly minimumCalls: number;
  /** Above 0, at most 1; opens at or above. */
  readonly failureRate: number;
  readonly slowRate: number;
  readonly slowMs: number;
  readonly openMs: number;
  readonly openCapMs: number;
  readonly probes: number;
}

export const breakerDefaults: BreakerSettings = {
  window: 100,
  minimumCalls: 20,
  failureRate: 0.5,
  slowRate: 0.8,
  slowMs: 1_000,
  openMs: 1_000,
  openCapMs: 30_000,
  probes: 3,
};

export type CallResult = 'success' | 'failure' | 'ignored';
export type BreakerState = 'closed' | 'open' | 'half_open';

/** Permission to make one call; must be given back with `settle`. */
export interface Permit {
  readonly kind: 'call' | 'probe';
  readonly epoch: number;
}

export class Breaker {
  readonly #s: BreakerSettings;
  /** Ring of the last calls: bit 0 failed, bit 1 slow. */
  readonly #ring: Uint8Array;
  #at = 0;
  #seen = 0;
  #failed = 0;
  #slow = 0;
  #state: BreakerState = 'closed';
  #openedAtMs = 0;
  #probingSinceMs = 0;
  #pauseMs: number;
  #probesOut = 0;
  #probesWell = 0;
  /** Grows at each change of state, so that late results of an older state change nothing. */
  #epoch = 0;

  /** @throws RangeError for settings that cannot work, quoting them. */
  constructor(settings: Partial<BreakerSettings> = {}) {
    this.#s = { ...breakerDefaults, ...settings };
    const { window, minimumCalls, probes } = this.#s;
    if (!(Number.isInteger(window) && window >= 1 && window <= 10_000)) {
      throw new RangeError(`breaker window ${window}; allowed: a whole number from 1 to 10000`);
    }
    if (!(minimumCalls >= 1 && minimumCalls <= window)) {
      throw new RangeError(
        `breaker minimumCalls ${minimumCalls} with window ${window}; allowed: 1 ≤ minimumCalls ≤ window`,
      );
    }
    if (!(Number.isInteger(probes) && probes >= 1)) {
      throw new RangeError(`breaker probes ${probes}; allowed: a whole number from 1`);
    }
    for (const name of ['failureRate', 'slowRate'] as const) {
      const rate = this.#s[name];
      if (!(rate > 0 && rate <= 1)) {
        throw new RangeError(`breaker ${name} ${rate}; allowed: above 0, at most 1`);
      }
    }
    const { slowMs, openMs, openCapMs } = this.#s;
    if (!(slowMs > 0)) throw new RangeError(`breaker slowMs ${slowMs}; allowed: above 0`);
    if (!(openMs > 0 && openMs <= openCapMs && Number.isFinite(openCapMs))) {
      throw new RangeError(
        `breaker openMs ${openMs} with openCapMs ${openCapMs}; allowed: 0 < openMs ≤ openCapMs, both finite`,
      );
    }
    this.#ring = new Uint8Array(window);
    this.#pauseMs = this.#s.openMs;
  }

  /** A permit, or the milliseconds after which asking again is useful. */
  ask(nowMs: number): Permit | { readonly kind: 'refused'; readonly retryAfterMs: number } {
    if (this.#state === 'open') {
      const left = this.#openedAtMs + this.#pauseMs - nowMs;
      if (left > 0) return { kind: 'refused', retryAfterMs: left };
      this.#probe(nowMs);
    }
    if (this.#state === 'half_open') {
      // A probe whose result never came back must not keep the door shut for ever.
      if (nowMs - this.#probingSinceMs > this.#s.openCapMs) this.#probe(nowMs);
      if (this.#probesOut + this.#probesWell >= this.#s.probes) {
        return { kind: 'refused', retryAfterMs: this.#s.openMs };
      }
      this.#probesOut += 1;
      return { kind: 'probe', epoch: this.#epoch };
    }
    return { kind: 'call', epoch: this.#epoch };
  }

  settle(permit: Permit, result: CallResult, tookMs: number, nowMs: number): void {
    if (permit.epoch !== this.#epoch) return;
    if (permit.kind === 'probe') this.#settleProbe(result, tookMs, nowMs);
    else if (result !== 'ignored')
      this.#record(result === 'failure', tookMs > this.#s.slowMs, nowMs);
  }

  #settleProbe(result: CallResult, tookMs: number, nowMs: number): void {
    this.#probesOut -= 1;
    if (result === 'ignored') return;
    if (result === 'failure' || tookMs > this.#s.slowMs) {
      this.#pauseMs = Math.min(this.#s.openCapMs, this.#pauseMs * 2);
      this.#open(nowMs);
      return;
    }
    this.#probesWell += 1;
    if (this.#probesWell >= this.#s.probes) {
      this.#pauseMs = this.#s.openMs;
      this.#become('closed');
    }
  }

  #record(failed: boolean, slow: boolean, nowMs: number): void {
    const old = this.#ring[this.#at] ?? 0;
    if (this.#seen === this.#s.window) {
      this.#failed -= old & 1;
      this.#slow -= old >> 1;
    } else {
      this.#seen += 1;
    }
    this.#ring[this.#at] = (failed ? 1 : 0) | (slow ? 2 : 0);
    this.#at = (this.#at + 1) % this.#s.window;
    this.#failed += failed ? 1 : 0;
    this.#slow += slow ? 1 : 0;
    if (this.#seen < this.#s.minimumCalls) return;
    if (
      this.#failed / this.#seen >= this.#s.failureRate ||
      this.#slow / this.#seen >= this.#s.slowRate
    ) {
      this.#open(nowMs);
    }
  }

  #probe(nowMs: number): void {
    this.#probingSinceMs = nowMs;
    this.#become('half_open');
  }

  #open(nowMs: number): void {
    this.#openedAtMs = nowMs;
    this.#become('open');
  }

  #become(state: BreakerState): void {
    this.#state = state;
    this.#epoch += 1;
    this.#probesOut = 0;
    this.#probesWell = 0;
    this.#at = 0;
    this.#seen = 0;
    this.#failed = 0;
    this.#slow = 0;
  }

  get state(): BreakerState {
    return this.#state;
  }
}
