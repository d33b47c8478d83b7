import type { Site } from './site.ts';

/**
 * A fault, made on purpose in a deployment that runs, and what is expected of it meanwhile and after.
 *
 * Each drill observes and judges apart: `observe` breaks something and writes down what was seen,
 * `judge` says whether that is what was promised. So each judge can be shown what a system that
 * misbehaves would have done, and must say so.
 */
export interface Drill<Observed extends object = object> {
  readonly name: string;
  /** What it breaks, in a few words. */
  readonly about: string;
  /** What a good system does then. */
  readonly expected: string;
  /** Whatever it changes is undone through `site.undo`, also when it fails half way. */
  observe(site: Site): Promise<Observed>;
  judge(observed: Observed): Judgement;
}

export interface Judgement {
  readonly holds: boolean;
  /** What was seen, for people. */
  readonly seen: string;
}

export interface DrillReport {
  readonly drill: string;
  readonly expected: string;
  readonly seen: string;
  /** `void`: it could not be done here, so nothing is said of the system. */
  readonly verdict: 'holds' | 'broken' | 'void';
  /** Empty when the system was left as it was found; else what is different. */
  readonly left_behind: readonly string[];
}

/** The deployment is not what the drill needs: no fault of the system. */
export class DrillCannotRunError extends Error {
  override readonly name = 'DrillCannotRunError';
}

/** Runs one drill, undoes what it did, and looks whether all is as before. Never rejects. */
export async function runDrill(drill: Drill, site: Site): Promise<DrillReport> {
  const { name, expected } = drill;
  const report = { drill: name, expected };
  let said: Pick<DrillReport, 'seen' | 'verdict'>;
  let before: Standing | undefined;
  try {
    before = await standingOf(site);
    const { holds, seen } = drill.judge(await drill.observe(site));
    said = { seen, verdict: holds ? 'holds' : 'broken' };
  } catch (error) {
    const verdict = error instanceof DrillCannotRunError ? 'void' : 'broken';
    said = { seen: error instanceof Error ? error.message : String(error), verdict };
  }
  const left = [...(await site.cleanUp())];
  if (before !== undefined) left.push(...(await differences(site, before)));
  const verdict = said.verdict === 'holds' && left.length > 0 ? 'broken' : said.verdict;
  return { ...report, ...said, verdict, left_behind: left };
}

interface Standing {
  readonly total: number;
  readonly available: number;
  readonly gateways: number;
}

async function standingOf(site: Site): Promise<Standing> {
  if (!(await site.isReady())) throw new DrillCannotRunError('the shop is not ready before it');
  const { total, available } = await site.stock();
  return { total, available, gateways: site.gateways().length };
}

/** What is not as before, once the system has had the time to come back. */
async function differences(site: Site, before: Standing): Promise<readonly string[]> {
  const left: string[] = [];
  if (!(await site.within(30_000, () => site.isReady()))) left.push('the shop is not ready');
  const gateways = await site.within(
    10_000,
    async () => site.gateways().length === before.gateways,
  );
  if (!gateways) left.push(`${site.gateways().length} of ${before.gateways} gateways`);
  // Somebody else may be buying meanwhile; nobody gives units back that were never taken.
  const settled = await site.within(20_000, async () => {
    const now = await site.stock();
    return now.total === before.total && now.held === 0;
  });
  if (!settled) {
    const now = await site.stock();
    left.push(`${now.total} units of ${before.total}, ${now.held} of them held`);
  }
  const residual = await site.ledgerResidual();
  if (residual !== 0) left.push(`${residual} requests are not found again`);
  return left;
}
