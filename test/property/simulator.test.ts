import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { planOf } from '../../src/simulator/plan.ts';
import type { Plan } from '../../src/simulator/plan.ts';
import { simulate } from '../../src/simulator/simulation.ts';
import { EscapeError, setTraps } from '../../src/simulator/traps.ts';
import { Trace } from '../../src/simulator/trace.ts';

const long = process.env['SLUICE_LONG'] !== undefined;
const folder = join(dirname(fileURLToPath(import.meta.url)), '..', 'regressions', 'sim');

describe('simulated histories', () => {
  test('hold every invariant', async () => {
    for (let seed = 1; seed <= (long ? 1_500 : 5); seed += 1) {
      const { failure } = await simulate(planOf(seed));
      expect(failure, `seed ${seed}: sluice sim --seed ${seed} --shrink`).toBeUndefined();
    }
  }, 1_200_000);

  test('are the same each time, event by event', async () => {
    const [first, second] = [new Trace(), new Trace()];
    const one = await simulate(planOf(12), first);
    const other = await simulate(planOf(12), second);
    expect(first.lines).toEqual(second.lines);
    expect(one.digest).toBe(other.digest);
    expect((await simulate(planOf(13))).digest).not.toBe(one.digest);
  }, 120_000);

  test.each(readdirSync(folder).filter((name) => name.endsWith('.json')))(
    'what failed once holds: %s',
    async (name) => {
      const { plan } = JSON.parse(readFileSync(join(folder, name), 'utf8')) as { plan: Plan };
      expect((await simulate(plan)).failure).toBeUndefined();
    },
    120_000,
  );
});

test('nothing escapes from a simulated world', () => {
  const calls: readonly (() => unknown)[] = [
    () => Date.now(),
    () => new Date(),
    () => Math.random(),
    () => performance.now(),
    () => process.hrtime(),
    () => setTimeout(() => undefined, 1),
    () => setInterval(() => undefined, 1),
    () => setImmediate(() => undefined),
    () => fetch('http://127.0.0.1'),
    () => crypto.randomUUID(),
  ];
  const release = setTraps();
  const escaped = calls.filter((call) => {
    try {
      call();
      return true;
    } catch (error) {
      return !(error instanceof EscapeError);
    }
  });
  const computed = new Date(1_000).toISOString();
  release();
  expect(escaped).toEqual([]);
  expect(computed).toBe('1970-01-01T00:00:01.000Z');
  expect(Date.now()).toBeGreaterThan(0);
  expect(Math.random()).toBeLessThan(1);
});
