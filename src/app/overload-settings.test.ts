import { expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import { loadConfig } from '../config/load.ts';
import { OverloadLoop } from '../control/overload-loop.ts';
import { overloadSettings } from './overload-settings.ts';

/** An instance of this configuration that comes up in the middle of a crowd, far above its ceiling. */
async function admittedPerSecond(text: string, seconds: number): Promise<readonly number[]> {
  const loaded = loadConfig({
    text: `server: { ceiling: 1000/s }\n${text}`,
    name: 'test',
    environment: {},
    nowMs: 1_800_000_000_000,
  });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  const world = new World();
  const loop = new OverloadLoop({
    clock: world,
    probe: { read: () => ({ queueWaitMs: 1 }) },
    settings: overloadSettings(loaded.config),
  });
  loop.start(world);
  const told: number[] = [];
  let caller = 0;
  for (let second = 0; second < seconds; second += 1) {
    let admitted = 0;
    for (let window = 0; window < 10; window += 1) {
      for (let asks = 0; asks < 500; asks += 1) {
        caller += 1;
        if (loop.admit(1, `u${caller}`)) admitted += 1;
      }
      await world.advance(100);
    }
    told.push(admitted);
  }
  return told;
}

test('an instance that comes up lets in a little at first, and all of its budget within twenty seconds', async () => {
  const told = await admittedPerSecond('', 24);
  const most = [0.05, 0.1, 0.25, 0.5, 0.75];
  for (const [step, share] of most.entries()) {
    // Three clean seconds a step; one second to and fro at their edges.
    expect(told[step * 3 + 1]).toBeLessThanOrEqual(1.1 * share * 1_000);
    expect(told[step * 3 + 1]).toBeGreaterThan(0.5 * share * 1_000);
  }
  expect(told[0]).toBeLessThanOrEqual(1.1 * 0.05 * 1_000);
  expect(told.at(-1)).toBeGreaterThan(900);
  expect(Math.max(...told)).toBeLessThanOrEqual(1_100);
});

test('control: told to come up whole, it lets all of its budget in at once', async () => {
  const told = await admittedPerSecond('overload: { start: full }\n', 3);
  expect(told[1]).toBeGreaterThan(900);
});
