import { afterEach, describe, expect, test, vi } from 'vitest';
import { fc } from '../../../test/support/property.ts';
import { runSilentCrowd } from '../../../test/support/silent-crowd.ts';
import type { SilentCrowd, Visitor } from '../../../test/support/silent-crowd.ts';
import type { SeededRandom } from '../../../test/support/world.ts';
import { Hazards } from './hazards.ts';

/** Somebody at an open page comes within seconds. */
const soon = (random: SeededRandom): number =>
  250 + 1_500 * random.float() - 700 * Math.log(1 - random.float());

const gone: Visitor = { goneAtMs: 0, comesAfterMs: Infinity };

/**
 * The shape of a rush: those of the first waves are all there and come over seven seconds, as they
 * learn of the opening; of those behind them, who saw it sold out, three in a hundred still look.
 */
const afterTheRush: SilentCrowd = {
  people: 6_000,
  stock: 500,
  claimWindowMs: 16_700,
  passLifeMs: 15_000,
  maxActive: 1_000,
  maxAdmissionsPerSecond: 500,
  visitor: (place, random) => {
    if (place < 600) return { comesAfterMs: 250 + 7_000 * random.float() };
    return random.float() < 0.03 ? { comesAfterMs: soon(random) } : gone;
  },
  returns: (atMs) => (atMs === 36_000 ? 40 : 0),
  untilMs: 120_000,
};

/** A fifth have gone, a tenth think better of it: nothing unusual. */
const usualDay: SilentCrowd = {
  people: 4_000,
  stock: 1_000,
  claimWindowMs: 30_000,
  passLifeMs: 30_000,
  maxActive: 3_000,
  maxAdmissionsPerSecond: 500,
  visitor: (_, random) =>
    random.float() < 0.2 ? gone : { comesAfterMs: soon(random), declines: random.float() < 0.1 },
  untilMs: 120_000,
};

/** The control: whoever has not come counts in full until their window ends. */
function countEverybodyInFull(): void {
  vi.spyOn(Hazards.prototype, 'chanceFrom').mockReturnValue(Math.sqrt(1 / 1.2));
}

describe('people who left without a word', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  test('do not keep returned units from those who are still there', () => {
    const learnt = runSilentCrowd(afterTheRush, 'rush');
    expect(learnt.unsold).toBe(0);
    expect(learnt.capsBroken).toEqual([]);
    countEverybodyInFull();
    const counted = runSilentCrowd(afterTheRush, 'rush');
    expect(counted.capsBroken).toEqual([]);
    expect(counted.idleAfterReturns).toBeGreaterThan(2.5 * learnt.idleAfterReturns);
    // Not by letting in everybody: hardly anybody comes in vain for it.
    expect(learnt.inVain).toBeLessThan(counted.inVain + 40);
  });

  test('are made up for within the first window, not after it', () => {
    const learnt = runSilentCrowd(usualDay, 'usual');
    expect(learnt.unsold).toBe(0);
    expect(learnt.inVain).toBeLessThan(10);
    countEverybodyInFull();
    const counted = runSilentCrowd(usualDay, 'usual');
    expect(learnt.idleUnitSeconds).toBeLessThan(0.8 * counted.idleUnitSeconds);
  });

  test('property: whatever the crowd, the caps hold, and what somebody waits for is sold', () => {
    const shapes = fc.record({
      seed: fc.string({ maxLength: 8 }),
      stock: fc.integer({ min: 1, max: 60 }),
      present: fc.double({ min: 0.05, max: 1, noNaN: true }),
      spread: fc.double({ min: 0.02, max: 0.9, noNaN: true }),
      declines: fc.double({ min: 0, max: 0.3, noNaN: true }),
      claimWindowMs: fc.integer({ min: 4_000, max: 60_000 }),
      maxActive: fc.integer({ min: 20, max: 300 }),
      maxAdmissionsPerSecond: fc.integer({ min: 5, max: 300 }),
      returned: fc.integer({ min: 0, max: 10 }),
    });
    fc.assert(
      fc.property(shapes, ({ seed, present, spread, declines, returned, ...sale }) => {
        const people = 600;
        const passLifeMs = 10_000;
        const { claimWindowMs, maxActive } = sale;
        const spanMs = claimWindowMs + passLifeMs + 5_000;
        const lastReturnMs = 3 * spanMs;
        const result = runSilentCrowd(
          {
            ...sale,
            people,
            passLifeMs,
            visitor: (_, random) =>
              random.float() < present
                ? {
                    comesAfterMs: spread * claimWindowMs * random.float(),
                    declines: random.float() < declines,
                  }
                : gone,
            returns: (atMs) =>
              atMs % spanMs < 250 && atMs > 0 && atMs <= lastReturnMs ? returned : 0,
            // As long as it takes when everybody keeps their place to the end, and no longer.
            untilMs: lastReturnMs + spanMs * (8 + Math.ceil(people / maxActive)),
          },
          seed,
        );
        expect(result.capsBroken).toEqual([]);
        expect(result.unsold).toBe(0);
      }),
      { numRuns: 20 },
    );
  });
});
