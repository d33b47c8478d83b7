import { existsSync, readFileSync } from 'node:fs';

const path = '/proc/self/schedstat';

/**
 * How long this process's main thread was ready to run while others had the CPU, since its start, ms:
 * what a busy neighbour takes from a measurement. 0 where the system does not count it.
 */
export function waitedForCpuMs(): number {
  if (!existsSync(path)) return 0;
  return Number(readFileSync(path, 'utf8').split(' ')[1] ?? 0) / 1e6;
}
