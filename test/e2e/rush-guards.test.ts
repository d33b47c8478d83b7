import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { brokenIn, runRush, storyOf, unlessVoid } from '../support/run-rush.ts';
import type { RushRun } from '../support/run-rush.ts';
import type { Guard, HarshWorld } from '../support/unguarded/guards.ts';

/**
 * The real server with one guard taken out of it, and the crowd that must notice; and the same harsh
 * world with every guard in place, in which the crowd must find nothing. What a guard protects is
 * thereby shown from outside: by what people are told. One at a time: a crowd that has to share its
 * processors with five others comes too late to meet anything.
 */
const main = fileURLToPath(new URL('../support/unguarded/main.ts', import.meta.url));

function crowdAgainst(world: HarshWorld, guard: Guard, stock = 40): Promise<RushRun> {
  const asked = (): Promise<RushRun> =>
    runRush(
      {
        embedded: true,
        people: '400',
        over: '3s',
        stock: String(stock),
        bots: guard === 'nonce' ? '60%' : '30%',
        duplicates: '70%',
        // Who lost an answer asks again, after the reopening, and is then told a wrong one or not.
        timeouts: world === 'late' ? '50%' : '20%',
        seed: '5',
        scenario: world === 'late' ? 'reopen' : 'even',
      },
      {
        // Time enough for a busy machine, whole or not: what is found missing must be missing.
        patience: { afterLastMs: 40_000, quietMs: 12_000, sweepMs: 20_000 },
        serverCommand: {
          file: process.execPath,
          args: ['--import', 'tsx', main, '--world', world, '--without', guard],
        },
      },
    );
  return unlessVoid(asked);
}

describe('every guard in place', () => {
  test.each(['flagless', 'late'] as const)(
    'the %s world holds',
    async (world) => {
      const run = await crowdAgainst(world, 'nothing', world === 'late' ? 100 : 40);
      expect(run.code, storyOf(run)).toBe(0);
    },
    240_000,
  );
});

describe('with one guard taken out, the crowd notices', () => {
  test.each([
    ['flagless', 'stock', 40, ['1']],
    // Units enough for everybody, or a second unit, and a replay, would only meet the stock check. Two
    // units at once seen by their holder (2), or the second refused by the orders' own guard (1): which
    // of them first is a matter of how long the queue was.
    ['flagless', 'person', 400, ['2', '1']],
    ['flagless', 'nonce', 400, ['3']],
    // Some sixteen winners ask again while the late word is believed.
    ['late', 'epoch', 100, ['8', '12']],
  ] as const)(
    '%s world, no %s check, stock %d: one of %j is broken',
    async (...given) => {
      const [world, guard, stock, ids] = given;
      const run = await crowdAgainst(world, guard, stock);
      expect(run.code, storyOf(run)).toBe(1);
      const broken = brokenIn(run);
      expect(
        ids.some((id) => broken.includes(id)),
        storyOf(run),
      ).toBe(true);
    },
    240_000,
  );
});
