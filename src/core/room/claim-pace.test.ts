import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { ClaimPace, windowParts } from './claim-pace.ts';

/** Many waves of `people`, of whom `share` come, each in the part that `when` says. */
function learnt(share: number, people: number, when: (one: number) => number): ClaimPace {
  const pace = new ClaimPace();
  for (let wave = 0; wave < 20; wave += 1) {
    const came = Array.from({ length: windowParts }, () => 0);
    for (let one = 0; one < people * share; one += 1) came[when(one)]! += 1;
    let left = people;
    for (let part = 0; part < windowParts; part += 1) {
      pace.learn(part, left, came[part]!);
      left -= came[part]!;
    }
  }
  return pace;
}

const allParts = [...Array(windowParts).keys()];

describe('who has not come so far', () => {
  test('counts in full until a whole window has passed', () => {
    const pace = new ClaimPace();
    for (let part = 0; part < windowParts - 1; part += 1) pace.learn(part, 50, 0);
    for (const part of allParts) expect(pace.weightIn(part)).toBe(1);
    pace.learn(windowParts - 1, 50, 0);
    expect(pace.weightIn(windowParts / 2)).toBeLessThan(1);
  });

  test('is soon counted off where those who come come soon', () => {
    const pace = learnt(0.8, 50, () => 1);
    expect(pace.weightIn(0)).toBe(1);
    expect(pace.weightIn(4)).toBeLessThan(0.05);
  });

  test('goes on counting where people come all through the window', () => {
    const pace = learnt(0.9, 48, (one) => one % windowParts);
    // Of 90 in 100 who come evenly, 45 are left at half time, and 10 who never will.
    expect(pace.weightIn(windowParts / 2)).toBeGreaterThan(0.7);
    expect(pace.weightIn(windowParts - 2)).toBeLessThan(0.6);
  });

  test('property: weights are shares, whatever is learnt, and few people move them little', () => {
    const step = fc.record({
      part: fc.nat({ max: windowParts - 1 }),
      entered: fc.nat({ max: 5_000 }),
      came: fc.nat({ max: 5_000 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const pace = new ClaimPace();
        for (const { part, entered, came } of steps) pace.learn(part, entered, came);
        for (const part of allParts) {
          const weight = pace.weightIn(part);
          expect(weight).toBeGreaterThanOrEqual(0);
          expect(weight).toBeLessThanOrEqual(1);
        }
        expect(pace.weightIn(0)).toBe(1);
      }),
    );
  });
});
