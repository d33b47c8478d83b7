import { describe, expect, test } from 'vitest';
import { RoomWorld } from '../../../test/support/room.ts';
import { SeededRandom } from '../../../test/support/world.ts';
import { etaOf, sellThroughOf } from './forecast.ts';
import { Forecaster } from './forecaster.ts';
import type { LaneForecast } from './release.ts';

const startMs = 1_800_000_000_000;

const forecastAt = (forecaster: Forecaster, atMs: number): LaneForecast => ({
  ...forecaster.forecast(atMs),
  likelyPlaces: 0,
  unlikelyPlaces: 0,
});

interface Asked {
  readonly atMs: number;
  readonly target: number;
  readonly lowMs: number;
  readonly highMs: number;
}

/** Follows what people were told until their turn came. */
class Truth {
  #open: Asked[] = [];
  held = 0;
  settled = 0;

  ask(asked: Asked): void {
    this.#open.push(asked);
  }

  released(total: number, nowMs: number): void {
    this.#open = this.#open.filter((asked) => {
      if (asked.target > total) return true;
      const tookMs = nowMs - asked.atMs;
      this.settled += 1;
      // A person learns it up to one publication later.
      if (tookMs >= asked.lowMs - 250 && tookMs <= asked.highMs + 250) this.held += 1;
      return false;
    });
  }

  get share(): number {
    return this.held / this.settled;
  }
}

describe('ranges hold as often as they should, and the published share is the true one', () => {
  /** People released in the quarter second at `t`, by shape of the sale. */
  const shapes: Record<
    string,
    (t: number, random: SeededRandom, state: { stallMs: number }) => number
  > = {
    steady: () => 10,
    noisy: (_, random) => (random.float() < 0.3 ? random.below(60) : 0),
    'bursts as windows close': (t) => (t % 12_000 < 500 ? 120 : 0),
    slowing: (t) => Math.max(1, Math.round(40 - t / 20_000)),
    speeding: (t) => Math.round(2 + t / 20_000),
    'a sudden slow-down': (t) => (t < 200_000 ? 30 : 5),
    'a tide': (t) => Math.round(12 + 10 * Math.sin(t / 60_000)),
    'a shop that is away for a minute': (t) => (t > 200_000 && t < 260_000 ? 0 : 14),
    'stalls of a failing shop': (_, random, state) => {
      if (state.stallMs > 0) {
        state.stallMs -= 250;
        return 0;
      }
      if (random.float() < 0.01) state.stallMs = 20_000 * random.float();
      return 12;
    },
  };

  test.each(Object.keys(shapes))('%s', (name) => {
    for (const seed of ['a', 'b', 'c', 'd']) {
      const random = new SeededRandom(`${name} ${seed}`);
      const forecaster = new Forecaster();
      const truth = new Truth();
      const people = 20_000;
      let released = 0;
      const state = { stallMs: 0 };
      for (let t = 0; t < 900_000 && released < people; t += 250) {
        const wanted = t === 0 ? 1_000 : (shapes[name]?.(t, random, state) ?? 0);
        const count = Math.min(people - released, wanted);
        if (count > 0) {
          released += count;
          forecaster.wave(startMs + t, count, people - released);
          truth.released(released, t);
        }
        if (t % 2_000 !== 0 || t === 0) continue;
        const forecast = forecastAt(forecaster, startMs + t);
        for (let one = 0; one < 3; one += 1) {
          // As the room paces them: whoever is near the front asks more often than who is far.
          const ahead = Math.floor(((people - released) / 29) * (30 ** random.float() - 1));
          const eta = etaOf(forecast, ahead);
          if (eta === null) continue;
          const target = released + ahead + 1;
          truth.ask({ atMs: t, target, lowMs: eta.low_ms, highMs: eta.high_ms });
        }
      }
      const { heldRatio } = forecaster.forecast(startMs + 900_000);
      expect(truth.settled).toBeGreaterThan(150);
      expect(truth.share, `${name} ${seed}`).toBeGreaterThanOrEqual(0.8);
      expect(Math.abs((heldRatio ?? 0) - truth.share), `${name} ${seed}`).toBeLessThanOrEqual(0.05);
    }
  });

  test.each([
    { name: 'eager buyers', buys: 0.95, thinkMs: 2_000, maxActive: 40 },
    { name: 'many no-shows', buys: 0.3, thinkMs: 4_000, maxActive: 25 },
    { name: 'slow and few', buys: 0.6, thinkMs: 9_000, maxActive: 12 },
  ])(
    'a whole sale: $name',
    async ({ name, buys, thinkMs, maxActive }) => {
      const random = new SeededRandom(name);
      const w = await RoomWorld.started({
        seed: name,
        stock: 100_000,
        room: { maxActive, maxAdmissionsPerSecond: 20 },
      });
      const tokens = [...(await w.joinMany('p', 700))];
      await w.open();
      const truth = new Truth();
      const waiting = new Map(tokens);
      const acting: { readonly atMs: number; readonly name: string }[] = [];
      let released = 0;
      let published: number | null = null;
      const openedMs = w.world.wallMs();
      const asked = new Map<string, { atMs: number; lowMs: number; highMs: number }[]>();
      while (waiting.size > 0 && w.world.wallMs() - openedMs < 1_200_000) {
        await w.run(250);
        const nowMs = w.world.wallMs();
        const isRound = (nowMs - openedMs) % 3_000 === 0;
        if (w.state.counts.released !== released || isRound) {
          released = w.state.counts.released;
          for (const [who, token] of waiting) {
            const standing = w.standing(token);
            if (standing.state === 'admitted') {
              waiting.delete(who);
              if (random.float() < buys)
                acting.push({ atMs: nowMs + random.float() * thinkMs, name: who });
              for (const { atMs, lowMs, highMs } of asked.get(who) ?? []) {
                truth.ask({ atMs, target: 0, lowMs, highMs });
              }
              truth.released(0, nowMs);
            } else if (isRound && standing.eta !== null && random.below(10) === 0) {
              const told = asked.get(who) ?? [];
              told.push({ atMs: nowMs, lowMs: standing.eta.low_ms, highMs: standing.eta.high_ms });
              asked.set(who, told);
              published = standing.eta.held_ratio ?? published;
            }
          }
        }
        for (const act of acting.filter((each) => each.atMs <= nowMs)) {
          acting.splice(acting.indexOf(act), 1);
          await w.buy(act.name);
        }
      }
      expect(truth.settled).toBeGreaterThan(200);
      expect(truth.share).toBeGreaterThanOrEqual(0.8);
      expect(Math.abs((published ?? 0) - truth.share)).toBeLessThanOrEqual(0.05);
    },
    60_000,
  );
});

describe('a forecast', () => {
  test('says nothing before there is a pace, nor after the room stands still by decision', () => {
    const forecaster = new Forecaster();
    expect(etaOf(forecastAt(forecaster, startMs), 10)).toBeNull();
    forecaster.wave(startMs, 100, 900);
    forecaster.wave(startMs + 250, 5, 895);
    expect(etaOf(forecastAt(forecaster, startMs + 500), 10), 'two waves are no pace').toBeNull();
    for (let t = 500; t < 20_000; t += 500) forecaster.wave(startMs + t, 5, 800);
    const eta = etaOf(forecastAt(forecaster, startMs + 20_000), 100);
    expect(eta?.low_ms).toBeGreaterThan(0);
    expect(eta?.high_ms).toBeGreaterThan(eta?.low_ms ?? 0);
    forecaster.suspend(startMs + 20_000);
    const longAfter = startMs + 2_000_000;
    forecaster.wave(longAfter, 5, 795);
    const { heldRatio } = forecaster.forecast(longAfter);
    expect(heldRatio === null || heldRatio > 0.5, 'the hold is not held against it').toBe(true);
  });

  test('learns the same from the same log, however often it is asked', () => {
    const [often, once] = [new Forecaster(), new Forecaster()];
    for (let t = 0; t < 60_000; t += 700) {
      often.wave(startMs + t, 1 + (t % 7), 500);
      once.wave(startMs + t, 1 + (t % 7), 500);
      for (let ask = 0; ask < 5; ask += 1) often.forecast(startMs + t + ask);
    }
    expect(often.forecast(startMs + 60_000)).toEqual(once.forecast(startMs + 60_000));
  });

  test('sell-through follows the reach of the stock', () => {
    const forecast = { ...forecastAt(new Forecaster(), 0), likelyPlaces: 10, unlikelyPlaces: 30 };
    expect([0, 9, 10, 29, 30, 1e6].map((ahead) => sellThroughOf(forecast, ahead))).toEqual([
      'likely',
      'likely',
      'uncertain',
      'uncertain',
      'unlikely',
      'unlikely',
    ]);
  });
});

test('sell-through in a sale: who stands behind the stock is told early, and it comes true', async () => {
  const w = await RoomWorld.started({ stock: 60, room: { maxActive: 20 } });
  const tokens = await w.joinMany('p', 400);
  await w.open();
  const told = new Map<string, string>();
  for (let step = 0; step < 200; step += 1) {
    if (step === 0) for (const [name, t] of tokens) told.set(name, w.standing(t).sell_through);
    for (const [name, token] of tokens) {
      if (w.standing(token).state === 'admitted') await w.buy(name);
    }
    await w.run(250);
  }
  const bought = new Set(
    [...tokens].filter(([, t]) => w.standing(t).state === 'claimed').map(([name]) => name),
  );
  expect(bought.size).toBe(60);
  const share = (word: string): number => {
    const people = [...told].filter(([, said]) => said === word);
    return people.filter(([name]) => bought.has(name)).length / people.length;
  };
  expect(share('likely')).toBeGreaterThan(0.9);
  expect(share('unlikely')).toBeLessThan(0.05);
  expect([...told.values()].filter((said) => said === 'unlikely').length).toBeGreaterThan(250);
});
