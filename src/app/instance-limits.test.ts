import { expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import { parseRate } from '../core/limit/rate.ts';
import { readRules } from '../core/rules/read.ts';
import { EventLog } from '../telemetry/log.ts';
import { InstanceLimits } from './instance-limits.ts';

function scene(canary: boolean) {
  const world = new World();
  const written: string[] = [];
  const counts = new Map<string, number>();
  let gateways: readonly string[] = [];
  const limits = new InstanceLimits({
    canary,
    ceiling: parseRate('1000/s'),
    traffic: () => ({
      own: 'me',
      all: gateways.map((instance) => ({ instance, arrivals: counts.get(instance) ?? 0 })),
    }),
    log: new EventLog({
      level: 'info',
      clock: world,
      destination: {
        write: (line: string) => {
          written.push(line);
          return true;
        },
      },
    }),
  });
  const { set } = readRules([
    {
      id: 'shared',
      scope: 'exact',
      key: ['activity'],
      limit: { rate: '4000/s' },
      fail: 'instance',
    },
  ]);
  /** Seconds in which each gateway gets so many requests; how often the limits were to be scaled anew. */
  const pass = async (seconds: number, perSecond: Record<string, number>): Promise<number> => {
    gateways = Object.keys(perSecond);
    let changes = 0;
    for (let n = 0; n < seconds; n += 1) {
      for (const [name, more] of Object.entries(perSecond)) {
        counts.set(name, (counts.get(name) ?? 0) + more);
      }
      await world.advance(1_000);
      if (limits.look(set, world.monoUs())) changes += 1;
    }
    return changes;
  };
  return { limits, pass, written };
}

test('a canary’s limits follow its share and come back; nobody else’s move', async () => {
  const { limits, pass } = scene(true);
  expect(await pass(20, { me: 100, a: 100, b: 100, c: 100 })).toBe(0);
  await pass(30, { me: 300, a: 33, b: 33, c: 33 });
  expect(limits.quarters).toBe(12);
  await pass(40, { me: 100, a: 100, b: 100, c: 100 });
  expect(limits.quarters).toBe(4);
  const other = scene(false);
  expect(await other.pass(30, { me: 300, a: 33, b: 33, c: 33 })).toBe(0);
  expect(other.limits.quarters).toBe(4);
});

test('more instances than a quota was declared for are told once, and again when it changes', async () => {
  const { limits, pass, written } = scene(false);
  await pass(3, { me: 1, a: 1, b: 1, c: 1 });
  expect([limits.misfits, written]).toEqual([[], []]);
  await pass(10, { me: 1, a: 1, b: 1, c: 1, d: 1 });
  expect(limits.misfits).toMatchObject([{ ruleId: 'shared', instances: 5, fitsPerSecond: 800 }]);
  expect(written).toHaveLength(1);
  expect(written[0]).toContain('an instance limit of 800/s fits');
  await pass(5, { me: 1, a: 1, b: 1, c: 1, d: 1, e: 1 });
  expect(written).toHaveLength(2);
  await pass(5, { me: 1, a: 1 });
  expect(limits.misfits).toEqual([]);
});
