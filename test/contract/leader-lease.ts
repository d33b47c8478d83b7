import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { LeaderLease } from '../../src/ports/leader-lease.ts';

/** What every implementation promises. `open` answers a lease of that name, held by nobody. */
export function leaderLeaseContract(name: string, open: (name: string) => LeaderLease): void {
  describe(name, () => {
    test('of many who ask at once one holds, and each change raises the epoch', async () => {
      const lease = open('race');
      const names = Array.from({ length: 20 }, (_, at) => `c${at}`);
      const replies = await Promise.all(names.map((name) => lease.renew(name, 60_000)));
      const held = names.filter((_, at) => replies[at]?.kind === 'held');
      expect(held).toHaveLength(1);
      const [holder = ''] = held;
      expect(await lease.renew(holder, 60_000)).toEqual({ kind: 'held', epoch: 1 });
      expect(await lease.renew('another', 60_000)).toEqual({ kind: 'taken', by: holder });
      await lease.release('another');
      expect(await lease.renew('another', 60_000)).toMatchObject({ kind: 'taken' });
      await lease.release(holder);
      expect(await lease.renew('another', 60_000)).toEqual({ kind: 'held', epoch: 2 });
      expect(await lease.renew(holder, 60_000)).toEqual({ kind: 'taken', by: 'another' });
    });

    test('a lease that has run out is anybody’s, and its holder gets it only as a new one', async () => {
      const lease = open('ends');
      expect(await lease.renew('one', 1)).toEqual({ kind: 'held', epoch: 1 });
      await sleep(5);
      expect(await lease.renew('one', 1)).toEqual({ kind: 'held', epoch: 2 });
      await sleep(5);
      expect(await lease.renew('two', 60_000)).toEqual({ kind: 'held', epoch: 3 });
    });
  });
}
