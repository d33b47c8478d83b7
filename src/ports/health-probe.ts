/**
 * Measurements of one instance over the last interval. Every value is of the interval, never since
 * start; `undefined` means that nothing was measured, which is not the same as nothing being wrong.
 */
export interface HealthProbe {
  /** Reads and resets. Called once per inner window. */
  read(): HealthReading;
}

export interface HealthReading {
  /** From socket readable to handler, and waiting for a batch, ms. */
  readonly queueWaitMs?: number;
  /** 99th percentile of the event loop's delay, ms. */
  readonly loopDelayMs?: number;
  /** Share of the interval in which the event loop was busy, 0…1. */
  readonly loopUtilization?: number;
  /** p99 of admitted work, ms. */
  readonly admittedP99Ms?: number;
  /** Round trip of the reservation step, ms. */
  readonly reserveMs?: number;
  /** Store errors and timeouts ÷ attempts, 0…1. */
  readonly storeErrorRatio?: number;
  readonly queueDepth?: number;
  readonly queueOldestAgeMs?: number;
  /** Wait for a database connection, ms. */
  readonly poolWaitMs?: number;
  /** CPU time of the process ÷ what all cores could have given, 0…1. */
  readonly cpuRatio?: number;
  /** Resident memory ÷ its limit, 0…1. */
  readonly memoryRatio?: number;
}
