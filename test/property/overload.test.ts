import { describe, expect, test } from 'vitest';
import {
  OverloadLoop,
  overloadDefaults,
  type OverloadSettings,
} from '../../src/control/overload-loop.ts';
import {
  budgetShare,
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
  admitted = 0;
  #work = 0;
  #credit = 0;
  #arrivals = 0;
  /** When each of those in progress came in, oldest first. */
  readonly #waiting: number[] = [];
  #waits: number[] = [];

  constructor(
    capacity: number,
    adaptive: 'on' | 'off' = 'on',
    settings: Partial<OverloadSettings> = {},
  ) {
    this.capacity = capacity;
    const { world } = this;
    this.loop = new OverloadLoop({
      clock: world,
      settings: { ...overloadDefaults, adaptive, ...settings },
      probe: {
        read: () => {
          const waits = this.#waits;
          this.#waits = [];
          // Where nothing was served at all, the one that has waited longest speaks, as in a real process.
          const oldest = this.#waiting[0];
          if (waits.length === 0 && oldest !== undefined)
            waits.push(world.monoUs() / 1000 - oldest);
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
        if (!submit.tryTake()) continue;
        this.admitted += 1;
        this.#waiting.push(nowMs);
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

/** Served and admitted in each of so many seconds. */
async function eachSecond(
  plant: Plant,
  seconds: number,
  perSecond: number,
): Promise<readonly { readonly served: number; readonly admitted: number }[]> {
  const told = [];
  for (let second = 0; second < seconds; second += 1) {
    const { served, admitted } = plant;
    await plant.run(1, perSecond);
    told.push({ served: plant.served - served, admitted: plant.admitted - admitted });
  }
  return told;
}

/** From which second on every one serves `least`; undefined where the last does not. */
function wholeFrom(
  told: readonly { readonly served: number }[],
  least: number,
): number | undefined {
  const last = told.findLastIndex(({ served }) => served < least);
  return last === told.length - 1 ? undefined : last + 1;
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

describe('a spike, then calm', () => {
  const [capacity, calm] = [300, 240];
  // The budget is what the stock can do: what is let in beside it would be a second peak.
  const settings = { admitPerSecond: capacity } as const;
  const most = ({ admitted }: { admitted: number }): number => admitted;

  test('that never goes past DEGRADED is over within five seconds', async () => {
    const plant = new Plant(capacity, 'on', settings);
    await plant.run(5, calm);
    await plant.run(8, 10 * capacity);
    expect(['NORMAL', 'DEGRADED']).toContain(plant.loop.mode);
    const after = await eachSecond(plant, 20, calm);
    expect(wholeFrom(after, 0.95 * calm)).toBeLessThanOrEqual(5);
    expect(Math.max(...after.map(most))).toBeLessThanOrEqual(1.1 * capacity);
    expect(plant.loop.modeChanges).toBeLessThanOrEqual(2);
  });

  async function stopped(ramp: Partial<OverloadSettings> = {}): Promise<{
    readonly wholeAfterS: number | undefined;
    readonly peak: number;
    readonly peakOnTheWay: number;
    readonly changes: number;
  }> {
    const plant = new Plant(capacity, 'on', { ...settings, ...ramp });
    await plant.run(5, calm);
    plant.capacity = 3;
    await plant.run(20, 10 * capacity);
    expect(plant.loop.mode).toBe('CLOSED');
    plant.capacity = capacity;
    // The crowd that was turned away is still there for a while.
    const crowd = await eachSecond(plant, 25, 3 * capacity);
    const after = [...crowd, ...(await eachSecond(plant, 45, calm))];
    return {
      wholeAfterS: wholeFrom(after, 0.95 * calm),
      peak: Math.max(...after.map(most)),
      peakOnTheWay: Math.max(...crowd.map(most)),
      changes: plant.loop.modeChanges,
    };
  }

  test('a stop of the stock shuts the doors; whole again by the ramp, within a minute, no second peak', async () => {
    const { wholeAfterS, peak, peakOnTheWay, changes } = await stopped();
    expect(wholeAfterS).toBeLessThanOrEqual(60);
    expect(peak).toBeLessThanOrEqual(1.1 * capacity);
    expect(peakOnTheWay).toBeLessThanOrEqual(0.5 * capacity);
    // Three up, three down, and not once more.
    expect(changes).toBe(6);
  });

  test('control: without a ramp the crowd that was turned away comes in at once', async () => {
    const { peakOnTheWay } = await stopped({ mode: { ...modeDefaults, rampShares: [1] } });
    expect(peakOnTheWay).toBeGreaterThan(0.5 * capacity);
  });
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

  test('a step up never raises the share, also where it comes in the middle of a ramp', () => {
    let upOnRamp = 0;
    const look = (history: readonly Parameters<typeof after>[0][number][]): void => {
      let at = 0;
      after(history, (before, next) => {
        const pressure = history[at]?.pressure;
        at += 1;
        if (modes.indexOf(next.mode) <= modes.indexOf(before.mode)) return;
        if (before.stage === 'ramping') upOnRamp += 1;
        expect(budgetShare(next, pressure, at * 1_000)).toBeLessThanOrEqual(
          budgetShare(before, pressure, at * 1_000),
        );
      });
    };
    fc.assert(fc.property(fc.array(cycle, { maxLength: 200 }), look));
    // Closed by a trip, back to the ramp, and trouble there.
    const ill = { pressure: 0.9, trip: undefined, settled: true };
    const well = { ...ill, pressure: 0 };
    for (let steps = 14; steps < 50; steps += 1) {
      const tripped = { ...well, trip: 'inventory_gone' } as const;
      look([tripped, ...Array.from({ length: steps }, () => well), ill, ill, ill]);
    }
    expect(upOnRamp).toBeGreaterThan(10);
  });
});
