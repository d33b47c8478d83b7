import type { Clock, TimerHandle, Timers } from '../../src/ports/clock.ts';
export { SeededRandom } from '../../src/simulator/chance.ts';

interface Sleeper {
  dueUs: number;
  order: number;
  run: () => void;
}

/** Virtual time: nothing moves until a test moves it. Timers fire in order of due time, then of making. */
export class World implements Clock, Timers {
  #nowUs = 0;
  #order = 0;
  #wallOffsetMs: number;
  readonly #sleepers: Sleeper[] = [];

  constructor(startMs = 1_800_000_000_000) {
    this.#wallOffsetMs = startMs;
  }

  wallMs(): number {
    return this.#wallOffsetMs + Math.floor(this.#nowUs / 1000);
  }

  monoUs(): number {
    return this.#nowUs;
  }

  /** Moves the wall clock alone, as an operator or NTP would. */
  jumpWall(byMs: number): void {
    this.#wallOffsetMs += byMs;
  }

  after(delayMs: number, run: () => void): TimerHandle {
    const sleeper = { dueUs: this.#nowUs + Math.max(0, delayMs) * 1000, order: this.#order++, run };
    this.#sleepers.push(sleeper);
    return {
      cancel: () => {
        const at = this.#sleepers.indexOf(sleeper);
        if (at >= 0) this.#sleepers.splice(at, 1);
      },
    };
  }

  every(periodMs: number, run: () => void): TimerHandle {
    let handle: TimerHandle;
    let stopped = false;
    const again = (): void => {
      run();
      if (!stopped) handle = this.after(periodMs, again);
    };
    handle = this.after(periodMs, again);
    return {
      cancel: () => {
        stopped = true;
        handle.cancel();
      },
    };
  }

  /** Moves time forward, firing what falls due; lets promise callbacks run between timers. */
  async advance(byMs: number): Promise<void> {
    const untilUs = this.#nowUs + byMs * 1000;
    for (;;) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      this.#sleepers.sort((a, b) => a.dueUs - b.dueUs || a.order - b.order);
      const next = this.#sleepers[0];
      if (next === undefined || next.dueUs > untilUs) break;
      this.#sleepers.shift();
      this.#nowUs = Math.max(this.#nowUs, next.dueUs);
      next.run();
    }
    this.#nowUs = untilUs;
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
}
