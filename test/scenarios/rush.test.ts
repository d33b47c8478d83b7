import { describe, expect, test } from 'vitest';
import { scenarioNames, scenarios } from '../../src/lab/rush/scenarios.ts';
import type { ScenarioName } from '../../src/lab/rush/scenarios.ts';
import { runRush, storyOf, unlessVoid } from '../support/run-rush.ts';
import type { RushRun } from '../support/run-rush.ts';
import { StandIn } from '../support/stand-in/stand-in.ts';
import type { StandInOptions } from '../support/stand-in/stand-in.ts';

/**
 * Every scenario that is shipped does what it says. Against the stand-in, because here it is the
 * crowd that is under test: that it comes when it should, and behaves as it is named.
 */
const patience = { afterLastMs: 5_000, quietMs: 5_000, sweepMs: 2_000 };

/** Against a shop of its own each time. */
function play(...asked: Parameters<typeof playOnce>): ReturnType<typeof playOnce> {
  return unlessVoid(() => playOnce(...asked));
}

async function playOnce(
  scenario: ScenarioName,
  raw: Record<string, unknown> = {},
  shop: Partial<StandInOptions> = {},
): Promise<RushRun> {
  const standIn = new StandIn({ stock: 40, opensInMs: 400, paymentDeadlineMs: 700, ...shop });
  const { shop: target, operator, adminToken } = await standIn.listen();
  const options = { people: '160', over: '1s', seed: '4', ...raw };
  try {
    return await runRush(
      { target, adminUrl: operator, adminToken, scenario, ...options },
      { patience },
    );
  } finally {
    await standIn.close();
  }
}

const count = ({ report }: RushRun, pattern: RegExp): number =>
  Object.entries(report.run.answers)
    .filter(([answer]) => pattern.test(answer))
    .reduce((sum, [, times]) => sum + times, 0);

describe('every scenario', () => {
  test.concurrent.each(scenarioNames)('%s holds against an honest shop', async (name) => {
    const run = await play(name, name === 'million' ? { people: '160' } : {});
    expect(run.code, storyOf(run)).toBe(0);
    expect(run.report.run).toMatchObject({ scenario: name, about: scenarios[name].about });
    const { outcomes } = run.report;
    expect(Object.values(outcomes).reduce((sum, each) => sum + each, 0)).toBe(160);
    expect(outcomes.unknown).toBe(0);
  });
});

describe('what each is named for', () => {
  test.concurrent('duplicates: half the people send twice or more', async () => {
    const run = await play('duplicates', {}, { stock: 160 });
    expect(count(run, /^submit 200 REQUEST_REPLAYED/)).toBeGreaterThan(5);
    expect(count(run, /^submit 403 REPLAY_REJECTED/)).toBeGreaterThan(5);
    const submits = count(run, /^submit /);
    expect(submits).toBeGreaterThan(run.report.outcomes.paid * 1.3);
  });

  test.concurrent('timeouts: lost answers are asked for again with the same id', async () => {
    const run = await play('timeouts', { timeouts: '60%' }, { stock: 160 });
    expect(count(run, /^submit 200 REQUEST_REPLAYED/)).toBeGreaterThan(5);
  });

  test.concurrent('forged-passes: half the crowd only forges, and none gets in', async () => {
    const run = await play('forged-passes');
    expect(run.report.run.attacks.forged).toBeGreaterThan(500);
    expect(run.report.outcomes.rejected).toBeGreaterThanOrEqual(80);
  });

  test.concurrent('loud-user: one user asks two hundred times a second', async () => {
    const run = await play('loud-user');
    expect(count(run, /^noise 200/)).toBeGreaterThan(200);
  });

  test.concurrent('abandonment: orders that nobody pays go back', async () => {
    const run = await play('abandonment');
    expect(run.report.outcomes.expired).toBeGreaterThan(5);
  });

  test.concurrent('reopen: cancelled units are sold again', async () => {
    const run = await play('reopen');
    expect(run.report.outcomes.cancelled).toBeGreaterThan(5);
    expect(count(run, /^submit 202/)).toBeGreaterThan(40);
  });

  test.concurrent('retry-fixed asks far more often than retry-jitter while the shop is busy', async () => {
    const busy = { busyForMs: 2_500 };
    const [fixed, jitter] = await Promise.all([
      play('retry-fixed', {}, busy),
      play('retry-jitter', {}, busy),
    ]);
    const refused = (run: RushRun): number => count(run, /^join 503/);
    expect(refused(jitter)).toBeGreaterThan(160);
    expect(refused(fixed)).toBeGreaterThan(refused(jitter) * 1.5);
  });

  test.concurrent('scale multiplies people, and says so', async () => {
    const run = await play('million', { people: undefined, scale: '0.0001' });
    expect(run.report).toMatchObject({ people: 100, run: { scale: 0.0001 } });
  });
});
