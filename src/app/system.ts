import { randomBytes } from 'node:crypto';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';

/** The real clock, timers and randomness: the only place that touches the system's own. */
export const systemClock: Clock = {
  wallMs: () => Date.now(),
  monoUs: () => Math.floor(performance.now() * 1000),
};

export const systemTimers: Timers = {
  after(delayMs: number, run: () => void): TimerHandle {
    const timer = setTimeout(run, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
  every(periodMs: number, run: () => void): TimerHandle {
    const timer = setInterval(run, periodMs);
    return { cancel: () => clearInterval(timer) };
  },
};

/** Runs a task once the I/O that has already arrived is handled. */
export const systemDefer = (task: () => void): void => {
  setImmediate(task);
};

/** A pool, because one system call per id would show in a profile of the submit path. */
class SecureRandom implements Random {
  #pool = Buffer.alloc(0);
  #used = 0;

  bytes(count: number): Uint8Array {
    if (count > 1024) return randomBytes(count);
    if (this.#used + count > this.#pool.length) {
      this.#pool = randomBytes(8192);
      this.#used = 0;
    }
    const taken = Buffer.from(this.#pool.subarray(this.#used, this.#used + count));
    this.#pool.fill(0, this.#used, this.#used + count);
    this.#used += count;
    return taken;
  }

  float(): number {
    const view = this.bytes(8);
    const high = ((view[0] ?? 0) << 16) | ((view[1] ?? 0) << 8) | (view[2] ?? 0);
    const low =
      (((view[3] ?? 0) << 24) | ((view[4] ?? 0) << 16) | ((view[5] ?? 0) << 8) | (view[6] ?? 0)) >>>
      3;
    return ((high & 0xffffff) * 2 ** 29 + (low & 0x1fffffff)) / 2 ** 53;
  }

  below(bound: number): number {
    return Math.floor(this.float() * bound);
  }

  fork(): Random {
    return new SecureRandom();
  }
}

export const systemRandom: Random = new SecureRandom();
