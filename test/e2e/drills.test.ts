import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock, systemRandom, systemTimers } from '../../src/app/system.ts';
import type { DrillReport } from '../../src/lab/drills/drill.ts';
import { Site } from '../../src/lab/drills/site.ts';
import { scripts } from '../../src/stores/redis/scripts.ts';
import { activity, inventoryPort, stockKey, watchRedis } from '../support/cluster-crowd.ts';
import { type RunningCluster, startCluster, until } from '../support/running-cluster.ts';

/**
 * The shipped drills against a deployment of many processes, as a person runs them; and what a gateway
 * asks of the stores when there is nothing left to sell.
 */
const long = process.env['SLUICE_LONG'] === '1';
let cluster: RunningCluster;
let site: Site;
beforeAll(async () => {
  cluster = await startCluster('--open-in', '1s', '--workers', '1', ...(long ? ['--standby'] : []));
  const place = (name: string): string => cluster.environment[name] ?? '';
  site = new Site({
    shop: cluster.shop,
    operator: cluster.operator,
    adminToken: cluster.adminToken,
    admissionUrl: place('SLUICE_ADMISSION'),
    inventoryUrl: place('SLUICE_INVENTORY'),
    ordersUrl: place('SLUICE_ORDERS'),
    processes: () => cluster.processes,
    activityId: activity,
    skuId: 'quay',
    prefix: 'sluice',
    clock: systemClock,
    timers: systemTimers,
    random: systemRandom,
  });
  await until('it is ready', () => site.isReady());
});
afterAll(async () => {
  site.close();
  await cluster.stop();
});

/** `sluice …`, in a process of its own. */
async function sluice(...words: readonly string[]): Promise<{ code: number | null; out: string }> {
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, '../../dist/main.js'), ...words],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: {
        ...process.env,
        SLUICE_CLUSTER_STATE: cluster.stateFile,
        SLUICE_ADMIN_URL: cluster.operator,
        SLUICE_ADMIN_TOKEN: cluster.adminToken,
      },
    },
  );
  let out = '';
  child.stdout.on('data', (part) => {
    out += String(part);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, out };
}

async function drilled(name: string): Promise<{ code: number | null; reports: DrillReport[] }> {
  const { code, out } = await sluice('drill', name, '--json');
  return { code, reports: JSON.parse(out) as DrillReport[] };
}

describe('sluice drill', () => {
  test.each(long ? ['all'] : ['ignore-retry-after', 'late-sold-out', 'slow-queue'])(
    '%s holds, and leaves the deployment as it was found',
    async (name) => {
      const { code, reports } = await drilled(name);
      for (const report of reports) {
        expect(report).toMatchObject({ verdict: 'holds', left_behind: [] });
      }
      expect(reports.length).toBeGreaterThan(0);
      expect(code).toBe(0);
    },
    long ? 600_000 : 120_000,
  );

  test('says nothing of a deployment that is not ready', async () => {
    const control = cluster.processes['control'] ?? 0;
    process.kill(control, 'SIGSTOP');
    try {
      await until('gateways miss their leader', async () => !(await site.isReady()));
      const { code, reports } = await drilled('ignore-retry-after');
      expect(reports).toMatchObject([{ verdict: 'void', seen: 'the shop is not ready before it' }]);
      expect(code).toBe(1);
    } finally {
      process.kill(control, 'SIGCONT');
    }
    await until('it is ready again', () => site.isReady());
  }, 120_000);

  // A minute of waiting for what does not come: in the long run only.
  test.each(long ? ['slow-queue'] : [])(
    '%s says "broken" of a deployment whose only worker is frozen',
    async (name) => {
      const worker = cluster.processes['worker-1'] ?? 0;
      process.kill(worker, 'SIGSTOP');
      try {
        const { code, reports } = await drilled(name);
        expect(reports).toMatchObject([{ verdict: 'broken', seen: /ordered never/ }].map(seenAs));
        expect(code).toBe(1);
      } finally {
        process.kill(worker, 'SIGCONT');
      }
    },
    240_000,
  );
});

/** A pattern in what was seen. */
function seenAs({ verdict, seen }: { verdict: string; seen: RegExp }): object {
  return { verdict, seen: expect.stringMatching(seen) as unknown };
}

/** Looks at the stock that each connection took after a change of it: the gateways' beat, two a second. */
function looksAfterChange(seen: readonly string[]): readonly number[] {
  const changed = seen.findIndex((line) => line.includes(scripts.adjust.sha));
  const looks = new Map<string, number>();
  for (const line of seen.slice(changed + 1)) {
    const [, who] = /\[\d+ ([^\]]+)\]/.exec(line) ?? [];
    if (who === undefined || !line.includes(stockKey) || !/"HMGET"/i.test(line)) continue;
    looks.set(who, (looks.get(who) ?? 0) + 1);
  }
  return [...looks.values()];
}
/** A second is two looks; one more may be under way at either end, and a busy machine may be late. */
const looksMax = 6;

describe('after the last unit', () => {
  test('a submit costs no call of a store, at any gateway', async () => {
    const { pass } = await site.admitted();
    const { available } = await site.stock();
    const sku = { sku_id: 'quay' };
    const port = inventoryPort(cluster);
    const selling = await watchRedis(port);
    await site.act('restock', { ...sku, delta: -available });
    let putBack = false;
    site.undo('putting the units back', async () => {
      if (!putBack) await site.act('restock', { ...sku, delta: available });
    });
    try {
      const people = Array.from({ length: 40 }, () => site.visitor(true));
      const heard = () =>
        Promise.all(people.map((person) => person.submitAsNobody(pass.submitPath)));
      const soldOut = async (): Promise<number> =>
        (await heard()).filter(({ body }) => body['code'] === 'SECKILL_SOLD_OUT').length;
      // Whoever has no credentials hears of a sell-out, or that they have none.
      const saysOpen = async (): Promise<boolean> =>
        (await heard()).some(({ status }) => status === 401);
      await until('no gateway takes it for open', async () => !(await saysOpen()));
      const looks = looksAfterChange(await selling.end());
      expect(looks.length).toBeGreaterThan(0);
      expect(Math.max(...looks)).toBeLessThanOrEqual(looksMax);
      await until('nearly all hear of it', async () => (await soldOut()) >= people.length - 2);

      const watched = await watchRedis(port);
      const rounds = 60;
      let answered = 0;
      for (let round = 0; round < rounds; round += 1) answered += await soldOut();
      const seen = await watched.end();
      // Health may ask some to wait; those answered are many enough to divide by.
      expect(answered).toBeGreaterThan((rounds * people.length) / 2);
      // A gateway's own look at its marks, twice a second, is no submit's doing, nor is a worker's at
      // its queue; a reservation, a search or a probe would be.
      expect(seen.length).toBeGreaterThan(0);
      expect(callsOfSubmits(seen) / answered).toBeLessThan(0.001);

      const reopening = await watchRedis(port);
      await site.act('restock', { ...sku, delta: available });
      putBack = true;
      await until('nobody hears of a sell-out any more', async () => (await soldOut()) === 0);
      expect(Math.max(...looksAfterChange(await reopening.end()))).toBeLessThanOrEqual(looksMax);
    } finally {
      expect(await site.cleanUp()).toEqual([]);
    }
    // Control: one that reserves is seen at the server.
    const buyer = await site.admitted();
    const watched = await watchRedis(inventoryPort(cluster));
    expect((await site.buy(buyer.visitor, buyer.pass)).submitted.status).toBe(202);
    expect(callsOfSubmits(await watched.end())).toBeGreaterThan(0);
    expect(await site.cleanUp()).toEqual([]);
  }, 120_000);
});

describe('the inventory server loses everything', () => {
  test('sluice recover builds it anew from the orders, and sluice reconcile finds nothing', async () => {
    const { visitor, pass } = await site.admitted();
    const { requestId } = await site.buy(visitor, pass);
    const isOrdered = async (): Promise<boolean> =>
      (await site.stateOf(visitor, requestId)) === 'ORDERED';
    await until('it is ordered', isOrdered);
    // What those before gave back is on its way yet.
    await until('nobody else has a unit, and the inventory knows of the order', async () => {
      const { sold, held } = await site.stock();
      return sold === 1 && held === 0;
    });
    const before = await site.stock();
    await site.inventory.say('FLUSHALL');
    const { code } = await sluice('recover', '--reason', 'the server was flushed');
    expect(code).toBe(0);
    expect(await site.stock()).toEqual(before);
    expect(await isOrdered()).toBe(true);
    await until('stock, queue and orders say the same', async () => {
      return (await sluice('reconcile', '--dry-run')).code === 0;
    });
    // The sale goes on, and the unit can be given back.
    expect(await site.cleanUp()).toEqual([]);
    const next = await site.admitted();
    expect((await site.buy(next.visitor, next.pass)).submitted.status).toBe(202);
    expect(await site.cleanUp()).toEqual([]);
  }, 120_000);
});

/** Commands that a submit alone can have caused. */
function callsOfSubmits(seen: readonly string[]): number {
  const { reserve, find } = scripts;
  return seen.filter((line) => line.includes(reserve.sha) || line.includes(find.sha)).length;
}
