import { DrillCannotRunError, type Drill } from './drill.ts';
import { inMs, type Site } from './site.ts';
import { isAnswer } from './visitor.ts';

/** Fresh connections that meet every gateway behind the port more than once. */
const looks = 8;

/** What gateways say of the SKU, each look on a connection of its own; what health refused is left out. */
async function looksAt(site: Site, submitPath: string): Promise<readonly ('sold_out' | 'open')[]> {
  const nobody = site.visitor();
  const seen: ('sold_out' | 'open')[] = [];
  for (let look = 0; look < looks; look += 1) {
    const { status, body } = await nobody.submitAsNobody(submitPath);
    // Whoever has no credentials hears of a sell-out, or that they have none.
    if (status === 401) seen.push('open');
    else if (body['code'] === 'SECKILL_SOLD_OUT') seen.push('sold_out');
  }
  return seen;
}

/** Do all gateways say that the SKU is sold out, or all that it is not? */
async function allSay(site: Site, submitPath: string, soldOut: boolean): Promise<boolean> {
  const seen = await looksAt(site, submitPath);
  return seen.length > looks / 2 && seen.every((one) => (one === 'sold_out') === soldOut);
}

/** Takes all units off the shelf, and puts them back afterwards. */
async function emptyTheShelf(site: Site): Promise<() => Promise<void>> {
  const { available } = await site.stock();
  if (available === 0) throw new DrillCannotRunError('nothing is available to be taken away');
  const sku = { sku_id: site.parts.skuId };
  await site.act('restock', { ...sku, delta: -available });
  let back = false;
  const putBack = async (): Promise<void> => {
    if (back) return;
    await site.act('restock', { ...sku, delta: available });
    back = true;
  };
  site.undo('putting the units back', putBack);
  return putBack;
}

/** Every word between processes is lost. */
export const lostBroadcasts: Drill<{
  readonly soldOutMs: number | undefined;
  readonly reopenedMs: number | undefined;
  readonly cuts: number;
}> = {
  name: 'lost-broadcasts',
  about: 'no gateway hears a word while a SKU sells out and reopens',
  expected: 'both are seen by every gateway within 3.5 s: the snapshots heal it',
  async observe(site) {
    const { pass } = await site.admitted();
    let [cuts, cutting] = [0, true];
    const cutter = (async () => {
      while (cutting) {
        const cut = await site.admission.say('CLIENT', 'KILL', 'TYPE', 'pubsub').catch(() => 0);
        cuts += Number(cut);
        await site.sleep(10);
      }
    })();
    site.undo('letting them listen again', async () => {
      cutting = false;
      await cutter;
    });
    await site.sleep(200);
    const putBack = await emptyTheShelf(site);
    const soldOutMs = await site.msUntil(10_000, () => allSay(site, pass.submitPath, true));
    await putBack();
    const reopenedMs = await site.msUntil(10_000, () => allSay(site, pass.submitPath, false));
    cutting = false;
    await cutter;
    return { soldOutMs, reopenedMs, cuts };
  },
  judge: ({ soldOutMs, reopenedMs, cuts }) => ({
    holds: cuts > 0 && (soldOutMs ?? Infinity) <= 3_500 && (reopenedMs ?? Infinity) <= 3_500,
    seen: `${cuts} times cut off; sold out seen everywhere after ${inMs(soldOutMs)}, the reopening after ${inMs(reopenedMs)}`,
  }),
};

/** An old word comes after a new one. */
export const lateSoldOut: Drill<{
  readonly heardBy: number;
  readonly wentBack: boolean;
}> = {
  name: 'late-sold-out',
  about: 'a reopening is followed by the older sell-out, which was late',
  expected: 'every gateway stays open: an older epoch never replaces a newer one',
  async observe(site) {
    const { activityId, skuId, prefix } = site.parts;
    const { pass } = await site.admitted();
    const putBack = await emptyTheShelf(site);
    await site.within(10_000, () => allSay(site, pass.submitPath, true));
    const key = `${prefix}:{${activityId}/${skuId}}:stock`;
    const old = await site.inventory.say('HMGET', key, 'gen', 'epoch');
    await putBack();
    if (!(await site.within(10_000, () => allSay(site, pass.submitPath, false))))
      throw new DrillCannotRunError('the SKU did not reopen, so nothing can be late');
    const word = `epoch/${activityId}/${skuId}\n${JSON.stringify((old as readonly string[]).map(Number))}`;
    let [heardBy, wentBack] = [0, false];
    const endMs = site.nowMs() + 1_500;
    while (site.nowMs() < endMs) {
      heardBy = Math.max(
        heardBy,
        Number(await site.admission.say('PUBLISH', `${prefix}:words`, word)),
      );
      if ((await looksAt(site, pass.submitPath)).includes('sold_out')) wentBack = true;
    }
    return { heardBy, wentBack };
  },
  judge: ({ heardBy, wentBack }) => ({
    holds: heardBy > 0 && !wentBack,
    seen: `${heardBy} processes heard the old word; ${wentBack ? 'a gateway believed it' : 'none believed it'}`,
  }),
};

/** Where the room stands is not said any more. */
export const noReleaseState: Drill<{
  readonly polls: number;
  readonly wrong: number;
  readonly backMs: number | undefined;
}> = {
  name: 'no-release-state',
  about: 'the release state is taken away and not heard, for five seconds',
  expected: 'people who wait are answered all the time; it is back within 5 s',
  async observe(site) {
    const { activityId, prefix } = site.parts;
    const visitor = await site.waiting();
    const key = `${prefix}:{release/${activityId}}:announced`;
    let [polls, wrong] = [0, 0];
    const endMs = site.nowMs() + 5_000;
    while (site.nowMs() < endMs) {
      await site.admission.say('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await site.admission.say('DEL', key);
      polls += 1;
      if (!isAnswer(await visitor.standing(activityId))) wrong += 1;
      await site.sleep(20);
    }
    return { polls, wrong, backMs: await site.msUntil(5_000, () => site.isReady()) };
  },
  judge: ({ polls, wrong, backMs }) => ({
    holds: polls > 0 && wrong === 0 && backMs !== undefined,
    seen: `${polls - wrong} of ${polls} polls answered; ready again after ${inMs(backMs)}`,
  }),
};
