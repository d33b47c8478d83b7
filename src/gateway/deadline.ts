import type { Timers } from '../ports/clock.ts';

/**
 * A route answers within this, ms, whatever the parts behind it do. Longer than any part's own time
 * limit, so that it only ever speaks for a part that has none.
 */
export const routeDeadlineMs = 8_000;

/**
 * The work's result, or `late` when it takes longer. The work goes on: what it holds is given back when
 * it really ends, so a part that hangs shows as slots in use and not as a leak.
 */
export function within<Result>(
  timers: Pick<Timers, 'after'>,
  ms: number,
  work: Promise<Result>,
  late: Result,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    const timer = timers.after(ms, () => resolve(late));
    work.then(
      (result) => {
        timer.cancel();
        resolve(result);
      },
      (error: unknown) => {
        timer.cancel();
        reject(error);
      },
    );
  });
}
