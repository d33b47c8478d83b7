import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import {
  budgetShare,
  initialMode,
  type Mode,
  type ModeInput,
  type ModeState,
  modes,
  modeDefaults,
  modeInForce,
  pinMode,
  stepMode,
} from './mode.ts';

function run(
  state: ModeState,
  pressures: readonly (number | undefined)[],
  startMs = 1000,
  extra: Partial<ModeInput> = {},
): { state: ModeState; trail: Mode[]; nowMs: number } {
  const trail: Mode[] = [];
  let nowMs = startMs;
  for (const pressure of pressures) {
    state = stepMode(state, { pressure, trips: [], settled: true, nowMs, ...extra });
    trail.push(state.mode);
    nowMs += 1000;
  }
  return { state, trail, nowMs };
}

const times = (value: number | undefined, count: number): (number | undefined)[] =>
  Array.from({ length: count }, () => value);

describe('going up', () => {
  test('two bad cycles are not enough, three are, and it climbs one level at a time', () => {
    const steady = initialMode(0, 'steady');
    expect(run(steady, [1.5, 1.5]).state.mode).toBe('NORMAL');
    expect(run(steady, [1.5, 1.5, 1.5]).state.mode).toBe('DEGRADED');
    expect(run(steady, times(1.5, 9)).trail).toEqual([
      'NORMAL',
      'NORMAL',
      'DEGRADED',
      'DEGRADED',
      'DEGRADED',
      'QUEUE_ONLY',
      'QUEUE_ONLY',
      'QUEUE_ONLY',
      'CLOSED',
    ]);
  });

  test('a clean cycle between resets the count', () => {
    expect(run(initialMode(0, 'steady'), [0.7, 0.7, 0.1, 0.7, 0.7]).state.mode).toBe('NORMAL');
  });

  test('a trip closes at once and keeps closed while it holds', () => {
    let state = stepMode(initialMode(0, 'steady'), {
      pressure: 0,
      trips: ['stock_invariant'],
      settled: true,
      nowMs: 1000,
    });
    expect(state.mode).toBe('CLOSED');
    state = run(state, times(0, 500), 2000, { trips: ['stock_invariant'] }).state;
    expect(state.mode).toBe('CLOSED');
  });
});

describe('coming back', () => {
  const closed = run(initialMode(0, 'steady'), times(1.5, 9));

  test('needs five clean cycles and the minimum stay', () => {
    const { trail } = run(closed.state, times(0, 12), closed.nowMs);
    expect(trail.indexOf('QUEUE_ONLY')).toBe(9);
  });

  test('leads through stabilizing and the ramp to the full budget', () => {
    let { state, nowMs } = closed;
    const shares = new Set<number>();
    for (let cycle = 0; cycle < 120; cycle += 1) {
      state = stepMode(state, { pressure: 0, trips: [], settled: true, nowMs });
      if (state.mode === 'NORMAL' || state.stage === 'ramping') {
        shares.add(budgetShare(state, 0, nowMs));
      }
      nowMs += 1000;
    }
    expect(state).toMatchObject({ mode: 'NORMAL', stage: 'steady' });
    expect(budgetShare(state, 0, nowMs)).toBe(1);
    for (const share of shares) expect([0.05, 0.1, 0.25, 0.5, 0.75, 1]).toContain(share);
  });

  test('does not start the ramp before backlog and retries have settled', () => {
    const down = run(closed.state, times(0, 12), closed.nowMs);
    const unsettled = run(down.state, times(0, 20), down.nowMs, { settled: false });
    expect(unsettled.state.stage).toBe('stabilizing');
    const settled = run(unsettled.state, times(0, 2), unsettled.nowMs);
    expect(settled.state.stage).toBe('ramping');
  });

  test('a recovery that fails doubles the stay, up to its bound', () => {
    let { state, nowMs } = closed;
    const stays: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      const down = run(state, times(0, 70), nowMs);
      const firstDown = down.trail.indexOf('QUEUE_ONLY');
      const again = run(state, times(0, firstDown + 1), nowMs);
      const up = run(again.state, times(1.5, 3), again.nowMs);
      expect(up.state.mode).toBe('CLOSED');
      state = up.state;
      nowMs = up.nowMs;
      stays.push(state.minStayMs);
    }
    expect(stays).toEqual([20_000, 40_000, 60_000, 60_000, 60_000]);
  });

  test('one bad cycle on the ramp steps back', () => {
    const ramping: ModeState = { ...initialMode(0, 'ramping'), rampStep: 3 };
    expect(run(ramping, [0.7]).state.rampStep).toBe(2);
    expect(run(ramping, [0, 0, 0]).state.rampStep).toBe(4);
  });

  test('trouble on the ramp never earns more budget', () => {
    const fresh = initialMode(0, 'ramping');
    const { state, nowMs } = run(fresh, times(0.7, 3));
    expect([state.mode, budgetShare(state, 0.7, nowMs)]).toEqual(['DEGRADED', 0.05]);
    const further = run(state, times(0.9, 3), nowMs);
    expect([further.state.mode, budgetShare(further.state, 0.9, further.nowMs)]).toEqual([
      'QUEUE_ONLY',
      0.05,
    ]);
  });

  test('silence is not health, and not a prison either', () => {
    const silent = run(closed.state, times(undefined, 59), closed.nowMs);
    expect(silent.state.mode).toBe('CLOSED');
    expect(run(silent.state, times(undefined, 5), silent.nowMs).state.mode).toBe('QUEUE_ONLY');
  });
});

test('a pin holds until its expiry, whatever the signals say', () => {
  const pinned = pinMode(initialMode(0, 'steady'), {
    mode: 'CLOSED',
    untilMs: 5000,
    reason: 'rehearsal',
    who: 'operator',
  });
  expect(modeInForce(pinned, 4999)).toBe('CLOSED');
  expect(budgetShare(pinned, 0, 4999)).toBe(0);
  expect(modeInForce(pinned, 5000)).toBe('NORMAL');
  expect(run(pinned, times(0, 6)).state.pin).toBeUndefined();
});

describe('for every history', () => {
  const pressures = fc.array(
    fc.option(fc.double({ min: 0, max: 1.5, noNaN: true }), { nil: undefined }),
    { maxLength: 300 },
  );

  test('no cycle moves more than one level', () => {
    fc.assert(
      fc.property(pressures, (history) => {
        let state = initialMode(0, 'ramping');
        let nowMs = 0;
        for (const pressure of history) {
          const next = stepMode(state, { pressure, trips: [], settled: false, nowMs });
          const moved = Math.abs(modes.indexOf(next.mode) - modes.indexOf(state.mode));
          expect(moved).toBeLessThanOrEqual(1);
          state = next;
          nowMs += 1000;
        }
      }),
    );
  });

  test('there is a way back to the full budget', () => {
    fc.assert(
      fc.property(pressures, fc.boolean(), (history, trip) => {
        const first = run(initialMode(0, 'ramping'), history);
        const tripped = trip
          ? run(first.state, [1], first.nowMs, { trips: ['inventory_gone'] })
          : first;
        // Four levels at the longest minimum stay, then stabilizing and six ramp steps.
        const healed = run(tripped.state, times(0, 4 * 61 + 61 + 6 * 4), tripped.nowMs);
        expect(healed.state).toMatchObject({ mode: 'NORMAL', stage: 'steady' });
      }),
    );
  });

  test('constant pressure below the severe marks settles and never changes again', () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 0.79, noNaN: true }), (pressure) => {
        const { trail } = run(initialMode(0, 'steady'), times(pressure, 600));
        expect(new Set(trail.slice(3)).size).toBe(1);
      }),
    );
  });

  test('constant severe pressure changes the mode no more often than its probes', () => {
    fc.assert(
      fc.property(fc.double({ min: 0.8, max: 1.5, noNaN: true }), (pressure) => {
        const { trail } = run(initialMode(0, 'steady'), times(pressure, 600));
        let changes = 0;
        for (let at = 1; at < trail.length; at += 1) if (trail[at] !== trail[at - 1]) changes += 1;
        // Climb (≤ 3), then at most one probe down and up per longest stay.
        expect(changes).toBeLessThanOrEqual(
          3 + 2 * Math.ceil(600_000 / modeDefaults.longestStayMs),
        );
      }),
    );
  });
});
