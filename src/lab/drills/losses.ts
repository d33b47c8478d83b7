import { type Drill, DrillCannotRunError } from './drill.ts';
import { RedisHand } from './redis-hand.ts';
import { inMs, type Site } from './site.ts';

/*
 * Losses in mid-sale. Each works beside a crowd (`sluice rush --target cluster`), whose orders then show
 * that the sale goes on, and without one: then a buyer of ours buys.
 */

/** How long nothing is sold, until there is no crowd, ms. */
const noCrowdMs = 2_000;

/** Whether units are being sold by others: again and again, or it was a straggler. */
async function isBusy(site: Site): Promise<boolean> {
  return site.within(
    noCrowdMs,
    growthOf(async () => (await site.stock()).sold, 2),
  );
}

/** Says whether a number has grown from one look to the next, so many times: units that come back do not count. */
export function growthOf(look: () => Promise<number>, times: number): () => Promise<boolean> {
  let before: number | undefined;
  let grown = 0;
  return async () => {
    const now = await look();
    if (before !== undefined && now > before) grown += 1;
    before = now;
    return grown >= times;
  };
}

/** How long it takes from now until somebody has got an order, ms; undefined where nobody does in time. */
async function msUntilOrdered(site: Site, busy: boolean): Promise<number | undefined> {
  const withinMs = 40_000;
  if (busy)
    return site.msUntil(
      withinMs,
      growthOf(async () => (await site.stock()).sold, 1),
    );
  const begunMs = site.nowMs();
  // Signing in and joining may be told "not now" at first.
  let buyer: Awaited<ReturnType<Site['admitted']>> | undefined;
  for (let tries = 0; buyer === undefined; tries += 1) {
    buyer = await site.admitted().catch((error: unknown) => {
      if (tries < 2) return undefined;
      throw error;
    });
  }
  const { requestId } = await site.buy(buyer.visitor, buyer.pass);
  const ordered = await site.within(
    withinMs,
    async () => (await site.stateOf(buyer.visitor, requestId)) === 'ORDERED',
  );
  return ordered ? site.nowMs() - begunMs : undefined;
}

/** Ends a process, and waits for the one that whoever runs the deployment puts in its place. */
async function replacing(
  site: Site,
  name: string,
  signal: NodeJS.Signals,
): Promise<() => Promise<boolean>> {
  const victim = site.pid(name);
  process.kill(victim, signal);
  return async () => (site.parts.processes()[name] ?? victim) !== victim;
}

interface Lost {
  /** By whom the sale was kept going. */
  readonly crowd: boolean;
  /** After the loss. */
  readonly orderedMs: number | undefined;
  readonly replacedMs: number | undefined;
  readonly residual: number;
}

const judgeLost = ({ crowd, orderedMs, replacedMs, residual }: Lost) => ({
  holds: orderedMs !== undefined && replacedMs !== undefined && residual === 0,
  seen: `the next order ${crowd ? 'of the crowd' : 'of a buyer of ours'} ${inMs(orderedMs)} after; in place again ${inMs(replacedMs)} after; ledger residual ${residual}`,
});

async function lose(site: Site, name: string, signal: NodeJS.Signals): Promise<Lost> {
  const crowd = await isBusy(site);
  const isReplaced = await replacing(site, name, signal);
  const [orderedMs, replacedMs] = await Promise.all([
    msUntilOrdered(site, crowd),
    site.msUntil(30_000, isReplaced),
  ]);
  return { crowd, orderedMs, replacedMs, residual: await site.ledgerResidual() };
}

/** Whoever makes orders dies with some in hand. */
export const killWorker: Drill<Lost> = {
  name: 'kill-worker',
  about: 'a worker is killed, with the messages that it holds',
  expected: 'the others make orders of them, within 40 s; another takes its place',
  observe: (site) => lose(site, 'worker-1', 'SIGKILL'),
  judge: judgeLost,
};

/** The database stops and is started again. */
export const databaseRestart: Drill<Lost> = {
  name: 'database-restart',
  about: 'PostgreSQL is stopped, all of it, and started again',
  expected: 'what was reserved meanwhile becomes an order within 40 s, once',
  observe: (site) => lose(site, 'postgres', 'SIGINT'),
  judge: judgeLost,
};

/** Connections die; servers do not. */
export const cutInventory: Drill<{
  readonly crowd: boolean;
  readonly cuts: number;
  readonly orderedMs: number | undefined;
}> = {
  name: 'cut-inventory',
  about: 'every connection to the inventory is cut, ten times within two seconds',
  expected: 'the sale goes on: the next order is there within 40 s',
  async observe(site) {
    const crowd = await isBusy(site);
    let cuts = 0;
    for (let round = 0; round < 10; round += 1) {
      cuts += Number(await site.inventory.say('CLIENT', 'KILL', 'TYPE', 'normal'));
      await site.sleep(200);
    }
    return { crowd, cuts, orderedMs: await msUntilOrdered(site, crowd) };
  },
  judge: ({ crowd, cuts, orderedMs }) => ({
    holds: cuts > 0 && orderedMs !== undefined,
    seen: `${cuts} connections cut; the next order ${crowd ? 'of the crowd' : 'of a buyer of ours'} ${inMs(orderedMs)} after`,
  }),
};

/** The stock forgets what it has said. */
export const inventoryFailover: Drill<{
  readonly crowd: boolean;
  /** Writes that the old server had made and the new one does not know. */
  readonly forgotten: number;
  readonly generations: readonly [number, number];
  readonly rebuiltMs: number | undefined;
  readonly orderedMs: number | undefined;
  /** Sold, held and available units are the total again: none was sold twice, none was lost. */
  readonly balanced: boolean;
}> = {
  name: 'inventory-failover',
  about: "the inventory's server dies, and a replica without its last second takes its place",
  expected:
    'the SKU pauses, is rebuilt from the orders as a new generation, and reopens within 40 s; nothing is sold twice',
  async observe(site) {
    const standbyUrl = site.parts.inventoryStandbyUrl?.();
    if (standbyUrl === undefined)
      throw new DrillCannotRunError('the inventory has no replica; npm run cluster -- --standby');
    const standby = new RedisHand(standbyUrl, site.parts.timers);
    const { activityId, skuId, prefix } = site.parts;
    const key = `${prefix}:{${activityId}/${skuId}}:stock`;
    const read = async (hand: RedisHand, field: string): Promise<number> => {
      const value = await hand.say('HGET', key, field);
      if (value === null) throw new DrillCannotRunError(`the inventory has no ${key}`);
      return Number(value);
    };
    const crowd = await isBusy(site);
    const before = await read(site.inventory, 'gen');
    const one = crowd ? undefined : await site.admitted();
    await standby.say('REPLICAOF', 'NO', 'ONE');
    const known = await read(standby, 'seq');
    if (one !== undefined) await site.buy(one.visitor, one.pass);
    const sold = await site.within(20_000, async () => (await read(site.inventory, 'seq')) > known);
    if (!sold) throw new DrillCannotRunError('nobody buys, so there is nothing to forget');
    await site.sleep(1_000);
    const forgotten = (await read(site.inventory, 'seq')) - known;
    const isReplaced = await replacing(site, 'redis-inventory', 'SIGKILL');
    await site.within(20_000, isReplaced);
    let after = before;
    const rebuiltMs = await site.msUntil(40_000, async () => {
      after = await read(site.inventory, 'gen');
      return after > before;
    });
    const orderedMs = await msUntilOrdered(site, crowd);
    const balanced = await site.within(20_000, async () => {
      const { total, sold: ordered, held, available } = await site.stock();
      return ordered + held + available === total;
    });
    return { crowd, forgotten, generations: [before, after], rebuiltMs, orderedMs, balanced };
  },
  judge: ({ crowd, forgotten, generations: [before, after], rebuiltMs, orderedMs, balanced }) => ({
    holds:
      forgotten > 0 &&
      after > before &&
      rebuiltMs !== undefined &&
      orderedMs !== undefined &&
      balanced,
    seen: `${forgotten} writes forgotten; generation ${before} became ${after} after ${inMs(rebuiltMs)}; the next order ${crowd ? 'of the crowd' : 'of a buyer of ours'} ${inMs(orderedMs)} after; units ${balanced ? 'add up' : 'do not add up'}`,
  }),
};
