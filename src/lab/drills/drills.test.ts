import { describe, expect, test } from 'vitest';
import { drills } from './all.ts';
import { ignoreRetryAfter } from './crowd.ts';
import { type Drill, DrillCannotRunError, runDrill } from './drill.ts';
import {
  cutInventory,
  databaseRestart,
  growthOf,
  inventoryFailover,
  killWorker,
} from './losses.ts';
import { killGateway, staleControl } from './processes.ts';
import type { Site } from './site.ts';
import { squeeze, squeezedRules, withVersion } from './squeeze.ts';
import {
  brokerRestart,
  cutAdmission,
  databaseCrash,
  noDatabaseConnections,
  slowQueue,
} from './stores.ts';
import { lateSoldOut, lostBroadcasts, noReleaseState } from './words.ts';

/** What a good system shows, and what bad ones would. */
function controlOf<Observed extends object>(
  drill: Drill<Observed>,
  good: Observed,
  bad: Readonly<Record<string, Partial<Observed>>>,
) {
  return { drill: drill as Drill, good, bad };
}

const slowed = { submitted: '202 SECKILL_QUEUED', meanwhile: 'QUEUED', orderedMs: 80 };
const slowedBadly = {
  'refuses what it could keep': { submitted: '503 DEPENDENCY_UNAVAILABLE' },
  'says that it failed': { meanwhile: 'REJECTED' },
  'says an order that is not there': { meanwhile: 'ORDERED' },
  'forgets it': { orderedMs: undefined },
};
const lost = { crowd: true, orderedMs: 90, replacedMs: 1_400, residual: 0 };
const lostBadly = {
  'sells no more': { orderedMs: undefined },
  'replaces nobody': { replacedMs: undefined },
  'loses requests': { residual: 3 },
};
const answered = { polls: 70, wrong: 0 };
const nobodyAsked = { 'asks nobody': { polls: 0 }, 'leaves a poll unanswered': { wrong: 1 } };

const controls = [
  controlOf(
    ignoreRetryAfter,
    { loud: 75, loudRefused: 20, polite: 3, politeRefused: 0 },
    { 'has no limit': { loudRefused: 0 }, 'limits the others': { politeRefused: 1 } },
  ),
  controlOf(
    squeeze,
    {
      peakPerSecond: 200,
      squeezed: { asked: 800, fresh: 490, fallback: 310, told: 0, stranded: 0 },
      freshPerSecond: 122,
      backMs: 600,
    },
    {
      'does not keep the budget': { freshPerSecond: 190 },
      'serves nobody': { freshPerSecond: 0 },
      'knows no fallback': {
        squeezed: { asked: 800, fresh: 490, fallback: 0, told: 310, stranded: 0 },
      },
      'sends somebody away with nothing': {
        squeezed: { asked: 800, fresh: 490, fallback: 309, told: 0, stranded: 1 },
      },
      'stays squeezed': { backMs: undefined },
    },
  ),
  controlOf(
    lateSoldOut,
    { heardBy: 5, wentBack: false },
    { 'believes the older word': { wentBack: true }, 'hears nothing at all': { heardBy: 0 } },
  ),
  controlOf(
    lostBroadcasts,
    { cuts: 300, soldOutMs: 400, reopenedMs: 900 },
    {
      'never hears of the sell-out': { soldOutMs: undefined },
      'hears of the reopening late': { reopenedMs: 9_000 },
      'was never cut off': { cuts: 0 },
    },
  ),
  controlOf(
    noReleaseState,
    { ...answered, backMs: 100 },
    { ...nobodyAsked, 'does not come back': { backMs: undefined } },
  ),
  controlOf(
    cutAdmission,
    { ...answered, join: '503 DEPENDENCY_UNAVAILABLE', joinMs: 510, againMs: 80 },
    {
      ...nobodyAsked,
      'lets a join hang': { joinMs: 10_000, join: '0' },
      'fails without words': { join: '500 INTERNAL' },
      'stays so': { againMs: undefined },
    },
  ),
  controlOf(slowQueue, slowed, slowedBadly),
  controlOf(databaseCrash, slowed, slowedBadly),
  controlOf(
    noDatabaseConnections,
    { ...slowed, held: 100 },
    { ...slowedBadly, 'was left its connections': { held: 0 } },
  ),
  controlOf(
    killGateway,
    { replacedMs: 160, asked: 30, unanswered: 2, residual: 0 },
    {
      'replaces nobody': { replacedMs: undefined },
      'answers hardly anybody': { unanswered: 29 },
      'loses requests': { residual: 3 },
    },
  ),
  controlOf(
    staleControl,
    { ...answered, letIn: false, backMs: 140 },
    {
      ...nobodyAsked,
      'lets people in by guess': { letIn: true },
      'does not come back': { backMs: undefined },
    },
  ),
  controlOf(killWorker, lost, lostBadly),
  controlOf(databaseRestart, lost, lostBadly),
  controlOf(
    cutInventory,
    { crowd: false, cuts: 60, orderedMs: 900 },
    { 'sells no more': { orderedMs: undefined }, 'was never cut off': { cuts: 0 } },
  ),
  controlOf(
    inventoryFailover,
    {
      crowd: true,
      forgotten: 30,
      generations: [1, 2],
      rebuiltMs: 1_800,
      orderedMs: 300,
      balanced: true,
    },
    {
      'forgot nothing': { forgotten: 0 },
      'goes on with what it has left': { generations: [1, 1] },
      'is never rebuilt': { rebuiltMs: undefined },
      'stays paused': { orderedMs: undefined },
      'sells twice': { balanced: false },
    },
  ),
  controlOf(
    brokerRestart,
    { uptimeBefore: 44, uptimeAfter: 0, orderedMs: 20, secondMs: 70 },
    {
      'did not restart': { uptimeAfter: 45 },
      'cannot be asked': { uptimeAfter: Number.NaN },
      'loses the reservation': { orderedMs: undefined },
      'serves nobody after': { secondMs: undefined },
    },
  ),
];

describe('each drill can fail', () => {
  test.each(controls)('$drill.name', ({ drill, good, bad }) => {
    expect(drill.judge(good)).toMatchObject({ holds: true });
    for (const [what, seen] of Object.entries(bad)) {
      const judged = drill.judge({ ...good, ...seen });
      expect(judged.holds, `a system that ${what}`).toBe(false);
    }
  });

  test('and none is without its control', () => {
    expect(controls.map(({ drill }) => drill.name).toSorted()).toEqual(
      drills.map(({ name }) => name).toSorted(),
    );
  });
});

/** A site on which nothing happens, but for what a test says. */
function siteWith(over: Partial<Record<keyof Site, unknown>>): Site {
  const undone: (() => unknown)[] = [];
  return {
    isReady: async () => true,
    stock: async () => ({ total: 10, sold: 0, held: 0, available: 10 }),
    gateways: () => [1, 2],
    ledgerResidual: async () => 0,
    within: async (_ms: number, holds: () => Promise<boolean>) => holds(),
    undo: (_what: string, run: () => unknown) => undone.push(run),
    cleanUp: async () => {
      for (const run of undone.splice(0)) await run();
      return [];
    },
    ...over,
  } as unknown as Site;
}

describe('a drill', () => {
  const quiet: Drill<{ readonly good: boolean }> = {
    name: 'quiet',
    about: 'nothing',
    expected: 'nothing',
    observe: async () => ({ good: true }),
    judge: ({ good }) => ({ holds: good, seen: 'nothing' }),
  };

  test('says what was expected and seen, and that all is as it was found', async () => {
    expect(await runDrill(quiet as Drill, siteWith({}))).toEqual({
      drill: 'quiet',
      expected: 'nothing',
      seen: 'nothing',
      verdict: 'holds',
      left_behind: [],
    });
  });

  test('is broken when it leaves the system other than it was, and says how', async () => {
    let looks = 0;
    const stock = async () => {
      looks += 1;
      return { total: 10, sold: 0, held: looks === 1 ? 0 : 2, available: 8 };
    };
    const left = await runDrill(quiet as Drill, siteWith({ stock }));
    expect(left).toMatchObject({
      verdict: 'broken',
      left_behind: ['10 units of 10, 2 of them held'],
    });
    const stuck = siteWith({ cleanUp: async () => ['waking control: no such process'] });
    expect(await runDrill(quiet as Drill, stuck)).toMatchObject({ verdict: 'broken' });
  });

  test('undoes what it did when it fails half way; and a fault of the drill is no verdict', async () => {
    let undone = 0;
    const failing: Drill = {
      ...quiet,
      observe: async (site) => {
        site.undo('it', () => (undone += 1));
        throw new Error('the shop went away');
      },
      judge: () => ({ holds: true, seen: '' }),
    };
    expect(await runDrill(failing, siteWith({}))).toMatchObject({
      verdict: 'broken',
      seen: 'the shop went away',
    });
    expect(undone).toBe(1);
    const void1 = {
      ...failing,
      observe: () => Promise.reject(new DrillCannotRunError('no units')),
    };
    expect(await runDrill(void1, siteWith({}))).toMatchObject({ verdict: 'void' });
    const notReady = await runDrill(quiet as Drill, siteWith({ isReady: async () => false }));
    expect(notReady).toMatchObject({ verdict: 'void' });
  });
});

test('rules are squeezed by one more, and come back in every letter but their version', () => {
  const text =
    '# ours\nversion: 7\nrules:\n  - { id: one, match: { route: facts }, limit: { rate: 5/s } }\n';
  expect(squeezedRules(text, 8, 120.7)).toContain('rate: 120/s');
  expect(squeezedRules(text, 8, 120.7)).toMatch(/^version: 8$/m);
  expect(squeezedRules(text, 8, 0.2)).toContain('rate: 1/s');
  expect(withVersion(text, 9)).toBe(text.replace('version: 7', 'version: 9'));
  expect(() => squeezedRules('version: 1\n', 2, 5)).toThrow(DrillCannotRunError);
});

describe('a crowd is who buys again and again', () => {
  test.each([
    ['two more, one at a time', [10, 11, 12], true],
    ['one that came back between', [10, 11, 10, 11], true],
    ['a straggler', [10, 11, 11, 11], false],
    ['units that only come back', [10, 9, 8, 7], false],
    ['nobody', [10, 10, 10, 10], false],
  ])('%s', async (_what, sold, expected) => {
    const looks = [...sold];
    const grown = growthOf(async () => looks.shift() ?? Number.NaN, 2);
    let seen = false;
    for (const _look of sold) seen = await grown();
    expect(seen).toBe(expected);
  });
});
