import { expect, test } from 'vitest';
import { sim, smallSize } from './sim.bench.ts';

test('the small size holds, and comes out the same each time', async () => {
  const { report } = await sim(smallSize);
  expect(report).toMatchObject({ bench: 'sim', ratio: null, failed: 0 });
  expect(report['events']).toBeGreaterThan(5_000);
  expect(report['simulated_h']).toBeGreaterThan(0);
  expect((await sim(smallSize)).report['result']).toBe(report['result']);
}, 120_000);
