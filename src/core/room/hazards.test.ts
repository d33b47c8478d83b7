import { describe, expect, test } from 'vitest';
import { fc } from '../../../test/support/property.ts';
import { hazardParts, Hazards, partAt } from './hazards.ts';

const spanMs = 60_000;
const firstChance = 0.9;
const allParts = [...Array(hazardParts).keys()];

/** Feeds waves of `people`, of whom `share` come when `when` says (0 to 1 of the time). */
function feed(
  hazards: Hazards,
  crowd: { people: number; share: number; waves: number; upTo?: number },
  when: (one: number) => number,
): Hazards {
  const came = Array.from({ length: hazardParts }, () => 0);
  for (let one = 0; one < crowd.people * crowd.share; one += 1) came[partAt(when(one))]! += 1;
  for (let wave = 0; wave < crowd.waves; wave += 1) {
    let left = crowd.people;
    for (let part = 0; part < (crowd.upTo ?? hazardParts); part += 1) {
      hazards.learn(part, left, came[part]!);
      left -= came[part]!;
    }
  }
  return hazards;
}

const learnt = (...given: [Parameters<typeof feed>[1], Parameters<typeof feed>[2]]): Hazards =>
  feed(new Hazards(firstChance, spanMs), ...given);

describe('who has not come so far', () => {
  test('is as likely to come as first guessed while nothing is known', () => {
    const hazards = new Hazards(firstChance, spanMs);
    for (const part of allParts) expect(hazards.chanceFrom(part)).toBeCloseTo(firstChance, 10);
    expect(hazards.chanceFrom(hazardParts)).toBe(0);
  });

  test('silence from the first proves nothing until a whole time has passed', () => {
    const hazards = new Hazards(firstChance, spanMs);
    for (let part = 0; part < hazardParts - 1; part += 1) hazards.learn(part, 500, 0);
    for (const part of allParts) expect(hazards.chanceFrom(part)).toBeCloseTo(firstChance, 10);
    hazards.learn(hazardParts - 1, 500, 0);
    expect(hazards.chanceFrom(0)).toBeLessThan(0.2);
  });

  test('nor do people who come evenly: that is no end of coming', () => {
    const hazards = learnt({ people: 400, share: 1, waves: 1, upTo: 20 }, (one) => one / 400);
    expect(hazards.chanceFrom(0)).toBeGreaterThan(0.7);
  });

  test('is counted off within the first time where the others came at once', () => {
    const hazards = learnt({ people: 400, share: 0.5, waves: 1, upTo: 12 }, () => 0.01);
    // Twelve parts of twenty-four are a quarter of the time.
    expect(hazards.chanceFrom(12)).toBeLessThan(0.2);
    expect(hazards.chanceFrom(0)).toBeLessThan(0.7);
  });

  test('shares come out as they were, however they are spread', () => {
    for (const share of [0.05, 0.3, 0.8]) {
      for (const when of [() => 0.001, (one: number) => (one % 97) / 97, () => 0.95]) {
        const hazards = new Hazards(firstChance, spanMs);
        for (let wave = 0; wave < 40; wave += 1) {
          feed(hazards, { people: 200, share, waves: 1 }, when);
          hazards.fade((wave * spanMs) / 4);
        }
        expect(Math.abs(hazards.chanceFrom(0) - share)).toBeLessThan(0.08);
      }
    }
  });

  test('another day is learnt from a hundred people', () => {
    const hazards = learnt({ people: 600, share: 0.95, waves: 20 }, (one) => (one % 10) / 40);
    hazards.fade(0);
    hazards.fade(2 * spanMs);
    feed(hazards, { people: 100, share: 0, waves: 1 }, () => 0);
    expect(hazards.chanceFrom(0)).toBeLessThan(0.4);
    // The control: nothing forgotten, and a hundred people are lost among thousands.
    const mindful = learnt({ people: 600, share: 0.95, waves: 20 }, (one) => (one % 10) / 40);
    feed(mindful, { people: 100, share: 0, waves: 1 }, () => 0);
    expect(mindful.chanceFrom(0)).toBeGreaterThan(0.6);
  });

  test('property: chances are shares, whatever is learnt and forgotten', () => {
    const step = fc.record({
      part: fc.nat({ max: hazardParts - 1 }),
      entered: fc.nat({ max: 5_000 }),
      happened: fc.nat({ max: 5_000 }),
      passedMs: fc.nat({ max: 100_000 }),
      never: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
        const hazards = new Hazards(firstChance, spanMs);
        let nowMs = 0;
        for (const { part, entered, happened, passedMs, never } of steps) {
          hazards.learn(part, entered, happened);
          if (never) hazards.learnNever(part);
          nowMs += passedMs;
          hazards.fade(nowMs);
          for (const at of allParts) {
            expect(hazards.chanceFrom(at)).toBeGreaterThanOrEqual(0);
            expect(hazards.chanceFrom(at)).toBeLessThanOrEqual(1);
          }
        }
      }),
    );
  });
});
