import type { Timers } from '../ports/clock.ts';
import { OutcomeUnknownError } from '../ports/errors.ts';

/**
 * A call to somebody else, with an end: past `ms` it rejects with OutcomeUnknownError, because the
 * other side may still do it. A late answer is dropped; whoever needs it asks again.
 */
export function withinMs<Result>(
  timers: Timers,
  ms: number,
  what: string,
  call: () => Promise<Result>,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    const timer = timers.after(ms, () => {
      reject(new OutcomeUnknownError(`${what}: no answer within ${ms} ms`));
    });
    call().then(
      (result) => {
        timer.cancel();
        resolve(result);
      },
      (error: unknown) => {
        timer.cancel();
        reject(error instanceof Error ? error : new Error(String(error)));
      },
    );
  });
}

/** Runs `work` over all items, at most `slots` at a time. The first rejection is passed on at the end. */
export async function inSlots<Item>(
  items: readonly Item[],
  slots: number,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  let next = 0;
  let failed: { readonly error: unknown } | undefined;
  const slot = async (): Promise<void> => {
    while (next < items.length) {
      const item = items[next];
      next += 1;
      if (item === undefined) continue;
      try {
        await work(item);
      } catch (error) {
        failed ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(slots, items.length) }, slot));
  if (failed !== undefined) throw failed.error;
}
