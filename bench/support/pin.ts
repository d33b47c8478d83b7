import { execFileSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

/**
 * Which core a process may use. On a machine with few cores a generator, a gate and a server that the
 * scheduler moves about take turns on the same one, and each run says something else: with pinning the
 * server has a core of its own, and everything that asks shares the rest.
 */
export interface Cores {
  /** The server's, alone. */
  readonly server: string;
  /** The generator's and the gate's. */
  readonly others: string;
}

/** Cores to pin to; undefined where there is only one, or the system has no `taskset`. */
export function coresToPin(): Cores | undefined {
  const count = availableParallelism();
  if (count < 2 || process.platform !== 'linux') return undefined;
  try {
    execFileSync('taskset', ['-V'], { stdio: 'ignore' });
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
  return { server: String(count - 1), others: count === 2 ? '0' : `0-${count - 2}` };
}

/** All threads of a process, and those that they start. */
export function pin(pid: number, cores: string): void {
  execFileSync('taskset', ['-a', '-c', '-p', cores, String(pid)], { stdio: 'ignore' });
}
