import { describe, expect, test } from 'vitest';
import { RuleEngine } from '../../src/core/rules/engine.ts';
import { readRules } from '../../src/core/rules/read.ts';
import { LimitedCall } from '../../src/pipeline/limited-request.ts';
import { RuleLimits } from '../../src/pipeline/rule-limits.ts';
import type { BudgetStore } from '../../src/ports/budget-store.ts';
import { SharedBudgets } from '../../src/stores/limits/shared-budgets.ts';
import { SeededRandom, World } from '../support/world.ts';
import type { BudgetHarness } from './budget-store.ts';

/**
 * What ten thousand callers are told whom a limit refuses that they all share. One number for all of
 * them would bring them back in one instant; a number that is too small brings them back for nothing.
 */
const allCallers = 10_000;
/** Over a network each of them is a call: fewer where the time of a test counts. */
const someCallers = process.env['SLUICE_LONG'] === '1' ? allCallers : 1_500;
/** Wall time of the shared clock at the start, µs: stores keep instants, not durations. */
const startUs = 1_700_000_000_000_000;

interface Scene {
  readonly name: string;
  readonly rule: object;
  readonly ceiling?: { readonly rate: string; readonly burst: number };
}

const scenes: readonly Scene[] = [
  {
    name: 'a budget of an activity, asked for each request',
    rule: { key: ['activity'], scope: 'exact', limit: { rate: '50/s', burst: 5 } },
  },
  {
    name: 'the same where the next one is far away',
    rule: { key: ['activity'], scope: 'exact', limit: { rate: '1/7s', burst: 1 } },
  },
  {
    name: 'a leased budget',
    rule: { key: ['activity'], scope: 'lease', limit: { rate: '2000/s', burst: 50 } },
  },
  {
    name: 'the counter of an instance',
    rule: { match: { activity: '*' }, limit: { rate: '10/s', burst: 10 } },
  },
];

export function sharedHints(
  name: string,
  make: () => Promise<BudgetHarness>,
  where: 'here' | 'on a server',
): void {
  const callers = where === 'here' ? allCallers : someCallers;
  describe(`${name}: hints of what many share`, () => {
    test.each(scenes)('$name: spread, and none before it is of use', async ({ rule }) => {
      const harness = await make();
      const stage = await open(harness, rule);
      const hints: number[] = [];
      let admitted = 0;
      while (hints.length < callers) {
        // In one instant, as a crowd comes.
        for (const said of await Promise.all(Array.from({ length: 100 }, stage.ask))) {
          if (said === undefined) admitted += 1;
          else if (hints.length < callers) hints.push(said);
        }
        if (admitted > 5 * callers) throw new Error('nothing is refused');
      }
      const sorted = hints.toSorted((a, b) => a - b);
      const [earliest = 0] = sorted;
      const median = sorted[callers / 2] ?? 0;
      expect(earliest).toBeGreaterThan(0);
      expect(crowdest(sorted, median / 10)).toBeLessThan(callers / 4);
      expect((sorted.at(-1) ?? 0) - earliest).toBeGreaterThan(median / 2);
      // A moment before the earliest hint nobody who comes back is too late; at it there is room again.
      await stage.advance(earliest);
      expect(await stage.ask()).toBeUndefined();
      await stage.close();
      await harness.dispose();
    });

    test('one number for all of them is what this would notice', () => {
      const same = Array.from({ length: callers }, () => 1_000);
      expect(crowdest(same, 100)).toBe(callers);
    });
  });
}

/** Most callers that come back within one window of this width, ms. */
function crowdest(sorted: readonly number[], widthMs: number): number {
  let most = 0;
  let from = 0;
  for (const [at, hint] of sorted.entries()) {
    while (hint - (sorted[from] ?? 0) > widthMs) from += 1;
    most = Math.max(most, at - from + 1);
  }
  return most;
}

async function open(harness: BudgetHarness, rule: object) {
  const world = new World();
  const clock = {
    wallMs: () => world.wallMs(),
    monoUs: () => startUs + world.monoUs(),
  };
  /** Calls on their way: the world stands still until they are back. */
  const flying = new Set<Promise<unknown>>();
  const watched = <Reply>(call: Promise<Reply>): Promise<Reply> => {
    const done = call.finally(() => flying.delete(done));
    flying.add(done);
    return done;
  };
  const { store } = harness;
  const seen: BudgetStore = {
    renew: (...asked) => watched(store.renew(...asked)),
    raiseEpoch: (...asked) => watched(store.raiseEpoch(...asked)),
    take: (...asked) => watched(store.take(...asked)),
    giveBack: (...asked) => watched(store.giveBack(...asked)),
    close: () => Promise.resolve(),
  };
  const shared = new SharedBudgets({
    store: seen,
    clock,
    timers: world,
    random: new SeededRandom('hints'),
    ledger: {
      arm: () => Promise.resolve(),
      spend: () => Promise.resolve(false),
      rearm: () => Promise.resolve(),
    },
    emergencyTokens: 0,
    onTrouble: (error) => {
      throw error;
    },
  });
  const engine = new RuleEngine({ hashSeed: [1, 2], shared }, clock.monoUs());
  const { set, problems } = readRules([{ id: harness.unique('hinted'), ...rule }]);
  expect(problems).toEqual([]);
  engine.apply(set, clock.monoUs());
  const limits = new RuleLimits({ engine, clock, random: new SeededRandom('callers') });
  harness.setNowUs(clock.monoUs());
  const ask = async (): Promise<number | undefined> => {
    const request = new LimitedCall(
      {
        route: 'join',
        method: 'POST',
        arrivedUs: clock.monoUs(),
        nowMs: clock.wallMs(),
        address: '192.0.2.7',
        fromTrustedProxy: false,
        p0: false,
        header: () => undefined,
      },
      limits,
    );
    request.user = 'ann';
    request.activity = 'concert';
    const said =
      limits.instance(request) ?? limits.person(request) ?? (await limits.budget(request));
    return said?.retryAfterMs;
  };
  const advance = async (byMs: number): Promise<void> => {
    for (let moved = 0; moved < byMs; ) {
      const step = Math.min(10, byMs - moved);
      moved += step;
      harness.setNowUs(clock.monoUs() + step * 1_000);
      await world.advance(step);
      while (flying.size > 0) await Promise.allSettled(flying);
    }
  };
  // The first lease is here before the crowd is.
  await ask();
  await advance(200);
  return { ask, advance, close: () => shared.close() };
}
