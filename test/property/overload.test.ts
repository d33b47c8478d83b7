import { describe, expect, test } from 'vitest';
import { OverloadLoop, overloadDefaults } from '../../src/control/overload-loop.ts';
import {
  initialMode,
  type HardTrip,
  modeDefaults,
  modes,
  type ModeState,
  stepMode,
} from '../../src/core/overload/mode.ts';
import { World } from '../support/world.ts';
import { fc } from '../support/property.ts';

/**
 * The overload control and what it controls, in virtual time: a stock of known capacity that serves in
 * order, a crowd that comes at a constant rate, and the real loop between them.
 */
const stepMs = 5;

class Plant {
  readonly world = new World();
  readonly loop: OverloadLoop;
  capacity: number;
  served = 0;
  #work = 0;
  #credit = 0;
  #arrivals = 0;
  /** When each of those in progress came in, oldest first. */
  readonly #waiting: number[] = [];
  #waits: number[] = [];

  constructor(capacity: number, adaptive: 'on' | 'off' = 'on') {
    this.capacity = capacity;
    const { world } = this;
    this.loop = new OverloadLoop({
      clock: world,
      settings: { ...overloadDefaults, adaptive },
      probe: {
        read: () => {
          const waits = this.#waits;
          this.#waits = [];
          const mean = waits.reduce((sum, wait) => sum + wait, 0) / Math.max(1, waits.length);
          return { queueWaitMs: mean, loopUtilization: 0.5, admittedP99Ms: Math.max(0, ...waits) };
        },
      },
    });
    this.loop.start(world);
  }

  /** So many seconds of `perSecond` people. */
  async run(seconds: number, perSecond: number): Promise<void> {
    const { submit } = this.loop.slots;
    for (let step = 0; step < (seconds * 1000) / stepMs; step += 1) {
      const nowMs = this.world.monoUs() / 1000;
      this.#arrivals += (perSecond * stepMs) / 1000;
      for (; this.#arrivals >= 1; this.#arrivals -= 1) {
        this.#work += 1;
        if (this.loop.mode === 'CLOSED' || !this.loop.admit(1, `u${this.#work}`)) continue;
        if (submit.tryTake()) this.#waiting.push(nowMs);
      }
      this.#credit = Math.min(
        this.#credit + (this.capacity * stepMs) / 1000,
        this.#waiting.length + 1,
      );
      while (this.#credit >= 1 && this.#waiting.length > 0) {
        this.#credit -= 1;
        this.served += 1;
        this.#waits.push(nowMs - (this.#waiting.shift() ?? nowMs));
        submit.release('success');
      }
      await this.world.advance(stepMs);
    }
  }
}

interface Constant {
  readonly goodput: number;
  readonly changes: number;
  readonly mode: string;
}

async function constant(plant: Plant, load: number): Promise<Constant> {
  await plant.run(8, load * plant.capacity);
  const { served } = plant;
  const changes = plant.loop.modeChanges;
  await plant.run(20, load * plant.capacity);
  return {
    goodput: (plant.served - served) / 20 / plant.capacity,
    changes: plant.loop.modeChanges - changes,
    mode: plant.loop.mode,
  };
}

const load = fc.record({
  capacity: fc.integer({ min: 100, max: 600 }),
  times: fc.double({ min: 0.3, max: 12, noNaN: true }),
});

describe('constant load', () => {
  test('never flaps, keeps the doors open, and serves what can be served', async () => {
    await fc.assert(
      fc.asyncProperty(load, async ({ capacity, times }) => {
        const { goodput, changes, mode } = await constant(new Plant(capacity), times);
        expect(changes).toBeLessThanOrEqual(1);
        expect(['NORMAL', 'DEGRADED']).toContain(mode);
        expect(goodput).toBeGreaterThan(0.85 * Math.min(1, times));
      }),
      { numRuns: 6 },
    );
  });

  test('control: without the adaptive limit the same load shuts the doors and opens them again', async () => {
    const { goodput, mode } = await constant(new Plant(200, 'off'), 10);
    expect(goodput < 0.85 || !['NORMAL', 'DEGRADED'].includes(mode)).toBe(true);
  });
});

test('a dependency that slows to 60 % and heals: no lock-out, no flapping, whole within a minute', async () => {
  const plant = new Plant(300);
  await plant.run(5, 270);
  plant.capacity = 180;
  await plant.run(15, 270);
  plant.capacity = 300;
  await plant.run(30, 270);
  const before = plant.served;
  await plant.run(10, 270);
  expect((plant.served - before) / 10).toBeGreaterThan(0.95 * 270);
  expect(plant.loop.share).toBe(1);
  expect(plant.loop.modeChanges).toBeLessThanOrEqual(4);
});

describe('the way back', () => {
  const trips: readonly HardTrip[] = ['stock_invariant', 'inventory_gone', 'leases_spent'];
  const cycle = fc.record({
    pressure: fc.option(fc.double({ min: 0, max: 1.5, noNaN: true }), { nil: undefined }),
    trip: fc.option(fc.constantFrom(...trips), { nil: undefined, freq: 8 }),
    settled: fc.boolean(),
  });

  function after(
    history: readonly {
      pressure: number | undefined;
      trip: HardTrip | undefined;
      settled: boolean;
    }[],
    visit: (before: ModeState, next: ModeState, tripped: boolean) => void = () => undefined,
  ): { state: ModeState; nowMs: number } {
    let state = initialMode(0, 'steady');
    let nowMs = 0;
    for (const { pressure, trip, settled } of history) {
      nowMs += 1_000;
      const next = stepMode(state, {
        pressure,
        trips: trip === undefined ? [] : [trip],
        settled,
        nowMs,
      });
      visit(state, next, trip !== undefined);
      state = next;
    }
    return { state, nowMs };
  }

  const calm = (
    from: { state: ModeState; nowMs: number },
    pressure: number | undefined,
    settings = modeDefaults,
  ): number | undefined => {
    let { state } = from;
    for (let second = 1; second <= 900; second += 1) {
      const nowMs = from.nowMs + second * 1_000;
      state = stepMode(state, { pressure, trips: [], settled: true, nowMs }, settings);
      if (state.mode === 'NORMAL' && state.stage === 'steady') return second;
    }
    return undefined;
  };

  test('leads from every history to NORMAL and the full budget, measured or not', () => {
    fc.assert(
      fc.property(fc.array(cycle, { maxLength: 120 }), (history) => {
        const end = after(history);
        // Three stays of a minute, and seven steps of three clean cycles, at the longest.
        expect(calm(end, 0)).toBeLessThanOrEqual(3 * 60 + 8 * 3 + 10);
        // Blind, each level and each step of the ramp is left by its longest stay.
        expect(calm(end, undefined)).toBeLessThanOrEqual((3 + 7) * 60 + 10);
      }),
    );
  });

  test('control: without longest stays, blindness is a prison', () => {
    const end = after(
      Array.from({ length: 10 }, () => ({ pressure: 1.5, trip: undefined, settled: false })),
    );
    expect(end.state.mode).toBe('CLOSED');
    expect(calm(end, undefined, { ...modeDefaults, longestStayMs: Infinity })).toBeUndefined();
  });

  test('no cycle moves more than one level, but for a trip; and three bad ones are needed to go up', () => {
    fc.assert(
      fc.property(fc.array(cycle, { maxLength: 200 }), (history) => {
        let bad = 0;
        let at = 0;
        after(history, (before, next, tripped) => {
          const moved = modes.indexOf(next.mode) - modes.indexOf(before.mode);
          const pressure = history[at]?.pressure;
          at += 1;
          bad = pressure !== undefined && pressure >= 0.6 ? bad + 1 : 0;
          if (tripped) {
            expect(next.mode).toBe('CLOSED');
            bad = 0;
            return;
          }
          expect(Math.abs(moved)).toBeLessThanOrEqual(1);
          if (moved === 1) expect(bad).toBeGreaterThanOrEqual(3);
        });
      }),
    );
  });
});
