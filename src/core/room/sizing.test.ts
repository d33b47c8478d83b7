import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { paceFor, pollAfterMs, lobbyPollAfterMs, pollsPerSecond } from './pace.ts';
import { AdmissionWindow, RateGovernor, waveSize } from './sizing.ts';
import type { Pressure, WaveNeed } from './sizing.ts';

const calm: Pressure = { mode: 'NORMAL', backlogRatio: 0, reserveRatio: 0 };

describe('the rate', () => {
  test('falls fast, rises slowly, and stands still between the marks', () => {
    const rate = new RateGovernor(1_000);
    let nowMs = 0;
    const feel = (pressure: Partial<Pressure>, cycles = 1): number => {
      for (let at = 0; at < cycles; at += 1) {
        nowMs += 1_000;
        rate.feel({ ...calm, ...pressure }, nowMs);
      }
      return rate.perSecond;
    };
    expect(feel({ backlogRatio: 0.9 })).toBe(700);
    expect(feel({ reserveRatio: 0.5 }, 50)).toBe(700);
    expect(feel({}, 2), 'two calm cycles are not enough').toBe(700);
    expect(feel({})).toBe(800);
    expect(feel({ reserveRatio: 2 }, 100), 'it has a floor').toBe(20);
    expect(feel({}, 100), 'and a way back to its ceiling').toBe(1_000);
    expect(feel({ mode: 'DEGRADED' })).toBe(700);
  });

  test('acts once a second, however often it is asked', () => {
    const rate = new RateGovernor(1_000);
    for (let at = 0; at < 100; at += 1) rate.feel({ ...calm, backlogRatio: 1 }, 5_000 + at);
    expect(rate.perSecond).toBe(700);
  });

  test('constant pressure never flaps', () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1.5, noNaN: true }), (pressure) => {
        const rate = new RateGovernor(500);
        let changes = 0;
        let rises = 0;
        for (let at = 1; at < 300; at += 1) {
          const before = rate.perSecond;
          if (rate.feel({ ...calm, backlogRatio: pressure }, at * 1_000)) changes += 1;
          if (rate.perSecond > before) rises += 1;
        }
        expect(rises === 0 || changes === rises).toBe(true);
      }),
    );
  });
});

describe('a wave', () => {
  const need: WaveNeed = {
    wanted: 500,
    first: false,
    ratePerSecond: 400,
    sinceLastWaveMs: 250,
    mode: 'NORMAL',
    newPerSecondCap: 1_000,
    newLastSecond: 0,
    activeCap: 1_000,
    active: 0,
    nearEnd: false,
  };

  test('never exceeds either cap, nor the need, nor goes below zero', () => {
    const count = fc.integer({ min: 0, max: 5_000 });
    fc.assert(
      fc.property(
        fc.record({
          wanted: count,
          first: fc.boolean(),
          ratePerSecond: fc.integer({ min: 1, max: 5_000 }),
          sinceLastWaveMs: count,
          mode: fc.constantFrom('NORMAL', 'DEGRADED', 'QUEUE_ONLY', 'CLOSED'),
          newPerSecondCap: count,
          newLastSecond: count,
          activeCap: count,
          active: count,
          nearEnd: fc.boolean(),
        }),
        (some) => {
          const size = waveSize(some as WaveNeed);
          expect(Number.isInteger(size)).toBe(true);
          expect(size).toBeGreaterThanOrEqual(0);
          if (size === 0) return;
          expect(size).toBeLessThanOrEqual(some.wanted);
          expect(size + some.newLastSecond).toBeLessThanOrEqual(some.newPerSecondCap);
          expect(size + some.active).toBeLessThanOrEqual(some.activeCap);
          expect(['QUEUE_ONLY', 'CLOSED']).not.toContain(some.mode);
        },
      ),
    );
  });

  test('the first is bound by need and caps alone; later ones by the rate', () => {
    expect(waveSize({ ...need, first: true, wanted: 900 })).toBe(900);
    expect(waveSize(need)).toBe(100);
    expect(waveSize({ ...need, mode: 'DEGRADED' })).toBe(50);
    expect(waveSize({ ...need, sinceLastWaveMs: 60_000 }), 'a pause is no burst').toBe(200);
    expect(waveSize({ ...need, wanted: 9, nearEnd: true })).toBe(5);
    expect(waveSize({ ...need, ratePerSecond: 1, sinceLastWaveMs: 999 })).toBe(0);
    expect(waveSize({ ...need, ratePerSecond: 1, sinceLastWaveMs: 1_000 })).toBe(1);
  });

  test('the last second is counted on a clock that never goes back', () => {
    const window = new AdmissionWindow();
    window.note(5, 1_000);
    window.note(7, 1_500);
    expect(window.lastSecond(1_999)).toBe(12);
    expect(window.lastSecond(2_000)).toBe(7);
    expect(window.lastSecond(2_500)).toBe(0);
  });
});

describe('the pace of polls', () => {
  const budget = { perSecond: 5_000, baseMs: 1_000, maxMs: 30_000 };

  test('keeps a room of any size inside its budget, and grows with distance', () => {
    for (const waiting of [0, 1, 2, 100, 10_000, 150_000, 1_000_000, 5_000_000]) {
      const pace = paceFor(waiting, budget);
      expect(pollsPerSecond(waiting, pace.baseMs, pace.perPlaceUs / 1000)).toBeLessThanOrEqual(
        budget.perSecond,
      );
      // Counted, not computed: everybody's own interval, with the jitter at its shortest on average.
      let perSecond = 0;
      const step = Math.max(1, Math.floor(waiting / 5_000));
      for (let ahead = 0; ahead < waiting; ahead += step) {
        for (const chance of [0.1, 0.5, 0.9]) {
          perSecond += (step / 3) * (1_000 / pollAfterMs(pace, ahead, chance));
        }
      }
      expect(perSecond, `${waiting} people`).toBeLessThanOrEqual(budget.perSecond);
      const flat = (waiting * 1_000) / pollAfterMs(pace, null, 0.5);
      expect(flat, `${waiting} people without a place`).toBeLessThanOrEqual(budget.perSecond);
      if (waiting < 2) continue;
      expect(pollAfterMs(pace, waiting, 0.5)).toBeGreaterThan(pollAfterMs(pace, 0, 0.5));
    }
  });

  test('jitter spreads evenly around the plain interval', () => {
    const pace = paceFor(100_000, budget);
    const polls = Array.from({ length: 101 }, (_, at) => pollAfterMs(pace, 5_000, at / 101));
    const middle = pollAfterMs(pace, 5_000, 0.5);
    expect(Math.min(...polls) / middle).toBeCloseTo(0.85, 1);
    expect(Math.max(...polls) / middle).toBeCloseTo(1.15, 1);
  });

  test('the opening is not met by the whole room at once', () => {
    const pace = paceFor(200_000, budget);
    const after: number[] = [];
    for (let at = 0; at < 1_000; at += 1) {
      const poll = lobbyPollAfterMs(pace, 3_000, 2_000, at / 1_000);
      if (poll >= 3_000) after.push(poll - 3_000);
    }
    expect(after.length).toBe(1_000);
    // 200,000 people over the spread: no second of it holds more than the budget.
    for (let second = 0; second < 60; second += 1) {
      const inIt = after.filter((ms) => ms >= second * 1_000 && ms < (second + 1) * 1_000).length;
      expect((inIt / 1_000) * 200_000).toBeLessThanOrEqual(budget.perSecond);
    }
  });
});
