import { randomBytes } from 'node:crypto';

/** The clock, chance and timer of the process that the library is used in. */
export interface LibraryWorld {
  /** Monotonic, µs. */
  monoUs(): number;
  wallMs(): number;
  /** Uniform in [0, 1). */
  float(): number;
  /** Two random words for hashing. */
  seed(): Uint32Array;
  /** Calls `run` every `periodMs`, without keeping the process alive; answers how to stop. */
  every(periodMs: number, run: () => void): () => void;
  /** Resolves after `delayMs`. */
  sleep(delayMs: number): Promise<void>;
}

export const systemWorld: LibraryWorld = {
  monoUs: () => Math.floor(performance.now() * 1000),
  wallMs: () => Date.now(),
  float: () => Math.random(),
  seed: () => new Uint32Array(new Uint8Array(randomBytes(8)).buffer),
  every(periodMs, run) {
    const timer = setInterval(run, periodMs);
    timer.unref();
    return () => clearInterval(timer);
  },
  sleep: (delayMs) => new Promise((resolve) => setTimeout(resolve, delayMs)),
};

/** Calls `run` once after `delayMs`. */
export function systemAfter(delayMs: number, run: () => void): { cancel(): void } {
  const timer = setTimeout(run, delayMs);
  return { cancel: () => clearTimeout(timer) };
}
