import type { ClientEnvironment } from './environment.ts';

/** Trailing: runs once, `quietMs` after the last call. Each call puts it off. */
export function debounce<Arguments extends unknown[]>(
  env: Pick<ClientEnvironment, 'after'>,
  quietMs: number,
  run: (...values: Arguments) => void,
): (...values: Arguments) => void {
  let cancel: (() => void) | undefined;
  return (...values) => {
    cancel?.();
    cancel = env.after(quietMs, () => {
      cancel = undefined;
      run(...values);
    });
  };
}

/** Leading: runs at once, then ignores calls for `everyMs`. Answers whether it ran. */
export function throttle<Arguments extends unknown[]>(
  env: Pick<ClientEnvironment, 'nowMs'>,
  everyMs: number,
  run: (...values: Arguments) => void,
): (...values: Arguments) => boolean {
  let last = Number.NEGATIVE_INFINITY;
  return (...values) => {
    const now = env.nowMs();
    // A clock that went back ends the pause instead of making it last for ever.
    if (now - last < everyMs && now >= last) return false;
    last = now;
    run(...values);
    return true;
  };
}
