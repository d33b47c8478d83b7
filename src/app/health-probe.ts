import { getHeapStatistics } from 'node:v8';
import { availableParallelism } from 'node:os';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { Clock } from '../ports/clock.ts';
import type { HealthProbe, HealthReading } from '../ports/health-probe.ts';

/** Resolution of the event-loop delay histogram, ms; an idle loop reads exactly this. */
const resolutionMs = 10;

const cores = availableParallelism();

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
 * The probe of a real process. The queue wait is what a request waits for us, in two places.
 *
 * Before its handler runs it waits for the event loop: for exactly what delays the loop's own timers,
 * so that the mean lateness of a 10 ms timer over the window is its mean wait, and costs nothing per
 * request. After, it waits for its batch; each tells how long when it is sent, and where nothing could
 * be sent at all, the oldest that waits speaks for them.
 */
export class ProcessProbe implements HealthProbe {
  readonly reserve = new IntervalMeter();
  readonly storeCalls = new IntervalMeter();
  readonly batchWait = new IntervalMeter();
  readonly poolWait = new IntervalMeter();
  /** Of the last second or two. */
  admittedP99Ms: () => number | undefined = () => undefined;
  /** How long the oldest request waits to be sent to the store. */
  oldestWaitMs: () => number | undefined = () => undefined;
  queueDepth: number | undefined;
  queueOldestAgeMs: number | undefined;
  readonly #delay = monitorEventLoopDelay({ resolution: resolutionMs });
  readonly #clock: Pick<Clock, 'monoUs'>;
  #cpu = { spentUs: 0, atUs: 0 };
  #utilization = performance.eventLoopUtilization();

  constructor(clock: Pick<Clock, 'monoUs'>) {
    this.#clock = clock;
    this.#delay.enable();
    this.#cpuRatio();
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
    const poolWait = this.poolWait.take();
    const admittedP99Ms = this.admittedP99Ms();
    const batchMs = this.batchWait.take()?.mean ?? this.oldestWaitMs() ?? 0;
    const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
    return {
      ...(measured ? { queueWaitMs: lateMs(mean) + batchMs, loopDelayMs: lateMs(p99) } : {}),
      loopUtilization: busy,
      memoryRatio: used / limit,
      ...(reserve === undefined ? {} : { reserveMs: reserve.mean }),
      ...(stores === undefined ? {} : { storeErrorRatio: stores.mean }),
      ...(admittedP99Ms === undefined ? {} : { admittedP99Ms }),
      ...(poolWait === undefined ? {} : { poolWaitMs: poolWait.mean }),
      cpuRatio: this.#cpuRatio(),
      ...(this.queueDepth === undefined ? {} : { queueDepth: this.queueDepth }),
      ...(this.queueOldestAgeMs === undefined ? {} : { queueOldestAgeMs: this.queueOldestAgeMs }),
    };
  }

  /** CPU time of the whole process since the last read, of what all cores could have given. */
  #cpuRatio(): number {
    const cpu = process.cpuUsage();
    const atUs = this.#clock.monoUs();
    const spentUs = cpu.user + cpu.system - this.#cpu.spentUs;
    const passedUs = Math.max(1, atUs - this.#cpu.atUs);
    this.#cpu = { spentUs: cpu.user + cpu.system, atUs };
    return spentUs / passedUs / cores;
  }

  stop(): void {
    this.#delay.disable();
  }
}
