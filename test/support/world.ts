import type { Clock, TimerHandle, Timers } from '../../src/ports/clock.ts';
import type { Random } from '../../src/ports/random.ts';

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

/** xoshiro128** seeded by a string hash: small, fast, the same everywhere. */
export class SeededRandom implements Random {
  readonly #state: Uint32Array;
  readonly #seed: string;

  constructor(seed: string) {
    this.#seed = seed;
    this.#state = new Uint32Array(4);
    let hash = 2166136261;
    for (let word = 0; word < 4; word += 1) {
      for (const char of `${seed}#${word}`) hash = Math.imul(hash ^ char.charCodeAt(0), 16777619);
      this.#state[word] = hash >>> 0 || 1;
    }
  }

  #next(): number {
    const s = this.#state;
    const [a = 0, b = 0, c = 0, d = 0] = s;
    const product = Math.imul(b, 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9) >>> 0;
    const t = b << 9;
    s[2] = c ^ a;
    s[3] = d ^ b;
    s[1] = b ^ (s[2] ?? 0);
    s[0] = a ^ (s[3] ?? 0);
    s[2] = (s[2] ?? 0) ^ t;
    const last = s[3] ?? 0;
    s[3] = (last << 11) | (last >>> 21);
    return result;
  }

  float(): number {
    return ((this.#next() >>> 5) * 67108864 + (this.#next() >>> 6)) / 2 ** 53;
  }

  below(bound: number): number {
    return Math.floor(this.float() * bound);
  }

  bytes(count: number): Uint8Array {
    return Uint8Array.from({ length: count }, () => this.#next() >>> 24);
  }

  fork(label: string): Random {
    return new SeededRandom(`${this.#seed}/${label}`);
  }
}
