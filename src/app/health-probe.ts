import { getHeapStatistics } from 'node:v8';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { HealthProbe, HealthReading } from '../ports/health-probe.ts';

/** Resolution of the event-loop delay histogram, ms; an idle loop reads exactly this. */
const resolutionMs = 10;

/** Keeps the largest and the mean of what happened since the last read; O(1) memory. */
export class IntervalMeter {
  #sum = 0;
  #count = 0;
  #worst = 0;

  record(value: number): void {
    this.#sum += value;
    this.#count += 1;
    if (value > this.#worst) this.#worst = value;
  }

  take(): { readonly mean: number; readonly worst: number; readonly count: number } | undefined {
    if (this.#count === 0) return undefined;
    const taken = { mean: this.#sum / this.#count, worst: this.#worst, count: this.#count };
    this.#sum = 0;
    this.#count = 0;
    this.#worst = 0;
    return taken;
  }
}

/**
 * The probe of a real process. The queue wait is read off the event loop: a request that has become
 * readable waits for exactly what delays the loop's own timers, so the mean lateness of a 10 ms timer
 * over the window is the mean wait of a request, and costs nothing per request.
 */
export class ProcessProbe implements HealthProbe {
  readonly reserve = new IntervalMeter();
  readonly storeCalls = new IntervalMeter();
  readonly admitted = new IntervalMeter();
  queueDepth: number | undefined;
  queueOldestAgeMs: number | undefined;
  readonly #delay = monitorEventLoopDelay({ resolution: resolutionMs });
  #utilization = performance.eventLoopUtilization();

  constructor() {
    this.#delay.enable();
  }

  read(): HealthReading {
    const lateMs = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e6 - resolutionMs);
    const measured = this.#delay.count > 0;
    const mean = this.#delay.mean;
    const p99 = this.#delay.percentile(99);
    this.#delay.reset();
    const now = performance.eventLoopUtilization();
    const busy = performance.eventLoopUtilization(now, this.#utilization).utilization;
    this.#utilization = now;
    const reserve = this.reserve.take();
    const stores = this.storeCalls.take();
    const admitted = this.admitted.take();
    const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
    return {
      ...(measured ? { queueWaitMs: lateMs(mean), loopDelayMs: lateMs(p99) } : {}),
      loopUtilization: busy,
      memoryRatio: used / limit,
      ...(reserve === undefined ? {} : { reserveMs: reserve.mean }),
      ...(stores === undefined ? {} : { storeErrorRatio: stores.mean }),
      ...(admitted === undefined ? {} : { admittedP99Ms: admitted.worst }),
      ...(this.queueDepth === undefined ? {} : { queueDepth: this.queueDepth }),
      ...(this.queueOldestAgeMs === undefined ? {} : { queueOldestAgeMs: this.queueOldestAgeMs }),
    };
  }

  stop(): void {
    this.#delay.disable();
  }
}
