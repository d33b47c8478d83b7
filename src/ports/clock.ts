/**
 * Time, injected. Wall time is for what people read and what is stored; monotonic time is for every
 * duration and deadline. The simulator's clocks drift, jump and skew.
 */
export interface Clock {
  /** Milliseconds since the Unix epoch; may jump either way. */
  wallMs(): number;
  /** Microseconds since an arbitrary start; never goes back. */
  monoUs(): number;
}

export interface TimerHandle {
  cancel(): void;
}

/** Timers, injected, so that a simulated world can own every wake-up. */
export interface Timers {
  after(delayMs: number, run: () => void): TimerHandle;
  every(periodMs: number, run: () => void): TimerHandle;
}
