import type { Backlog } from '../ports/order-queue.ts';
import type { HealthProbe, HealthReading } from '../ports/health-probe.ts';

/** What a process of a simulated deployment measures of itself. */
export class SimProbe implements HealthProbe {
  readonly #backlog: () => Backlog | undefined;
  #calls = 0;
  #failed = 0;
  #sumMs = 0;
  #stallMs = 0;
  #waits = 0;
  #waitMs = 0;

  constructor(backlog: () => Backlog | undefined) {
    this.#backlog = backlog;
  }

  reserved(ms: number, failed: boolean): void {
    this.#calls += 1;
    this.#sumMs += ms;
    if (failed) this.#failed += 1;
  }

  /** A reservation waited so long to be sent. */
  waited(ms: number): void {
    this.#waits += 1;
    this.#waitMs += ms;
  }

  /** The whole process stood still for so long. */
  stalled(ms: number): void {
    this.#stallMs = Math.max(this.#stallMs, ms);
  }

  read(): HealthReading {
    const backlog = this.#backlog();
    const reading: { -readonly [Part in keyof HealthReading]: HealthReading[Part] } = {
      queueWaitMs: this.#stallMs + this.#waitMs / Math.max(1, this.#waits),
      loopDelayMs: this.#stallMs,
    };
    if (this.#calls > 0) {
      reading.reserveMs = this.#sumMs / this.#calls;
      reading.storeErrorRatio = this.#failed / this.#calls;
    }
    if (backlog !== undefined) {
      reading.queueDepth = backlog.depth;
      reading.queueOldestAgeMs = backlog.oldestAgeMs;
    }
    this.#calls = 0;
    this.#failed = 0;
    this.#sumMs = 0;
    this.#stallMs = 0;
    this.#waits = 0;
    this.#waitMs = 0;
    return reading;
  }
}
