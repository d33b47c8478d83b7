import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import type { Clock } from '../ports/clock.ts';
import { type Campaign, digestOf, faultsInAll, runCampaign, unreached } from './campaign.ts';
import { commitHere } from './commit.ts';
import { type Plan, planOf, withItems } from './plan.ts';
import { recordProof } from './proof.ts';
import { shrink } from './shrink.ts';
import { type History, simulate } from './simulation.ts';
import { Trace } from './trace.ts';

/**
 * `sluice sim`: many histories of a sale with faults, or one of them again.
 */
export interface SimOptions {
  readonly seeds?: string;
  readonly minutes?: string;
  readonly seed?: string;
  /** Items of the seed's plan that are kept, by number. */
  readonly only?: string;
  /** A plan in a file instead of a seed's. */
  readonly plan?: string;
  readonly trace?: string;
  readonly shrink?: boolean;
  readonly runners?: string;
  readonly record?: string;
  readonly json?: boolean;
}

export interface SimSurroundings {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  readonly isTty: boolean;
  readonly clock: Clock;
  readonly stopSignal: () => Promise<string>;
}

/** Asked for in a way that cannot be. */
export class SimUsageError extends Error {
  override readonly name = 'SimUsageError';
}

const seedsDefault = 1_000;
/** Failing histories that are made small, and histories that each may take. */
const shrunkMax = 3;
const shrinkRunsMax = 400;
/** A campaign ends early when so many seeds have failed: there is enough to look at. */
const failuresMax = 25;
/** Share of seeds that are run again in another process. */
const againShare = 0.01;
const showEveryMs = 1_000;

/** @returns 0 when every invariant held in every history, 1 when not. */
export async function simCommand(options: SimOptions, around: SimSurroundings): Promise<number> {
  const one = onePlan(options);
  return one === undefined ? campaign(options, around) : oneHistory(one, options, around);
}

function onePlan(options: SimOptions): Plan | undefined {
  const { plan, seed, only, seeds, minutes, trace } = options;
  if (plan !== undefined) {
    const read = JSON.parse(readFileSync(plan, 'utf8')) as Plan | { readonly plan: Plan };
    return 'plan' in read ? read.plan : read;
  }
  const several = seeds !== undefined || minutes !== undefined;
  if (seed === undefined || several) {
    if (only !== undefined || trace !== undefined) {
      throw new SimUsageError('--only and --trace tell of one history: --seed S, or --plan FILE');
    }
    return undefined;
  }
  const whole = planOf(wholeNumber('--seed', seed, 0));
  if (only === undefined) return whole;
  const ids = only === '' ? [] : only.split(',').map((id) => wholeNumber('--only', id, 0));
  return withItems(whole, new Set(ids));
}

async function oneHistory(
  plan: Plan,
  options: SimOptions,
  { out, err }: SimSurroundings,
): Promise<number> {
  const trace = options.trace === undefined ? undefined : new Trace();
  const history = await simulate(plan, trace);
  if (options.trace !== undefined && trace !== undefined) {
    writeFileSync(options.trace, `${trace.lines.join('\n')}\n`);
    err(`${trace.lines.length} lines of history in ${options.trace}\n`);
  }
  if (options.json === true) out(`${JSON.stringify(reportOfOne(plan, history))}\n`);
  else {
    out(
      `seed ${plan.seed}: ${history.items} items, ${history.events} events, ` +
        `${(history.simulatedMs / 60_000).toFixed(1)} min simulated, digest ${history.digest}\n`,
    );
    out(history.failure === undefined ? 'every invariant held\n' : `${tell(history)}\n`);
  }
  if (history.failure === undefined) return 0;
  if (options.shrink === true) await makeSmall(plan, history, { out, err });
  return 1;
}

async function campaign(options: SimOptions, around: SimSurroundings): Promise<number> {
  const { out, err, isTty, clock } = around;
  const minutes =
    options.minutes === undefined ? undefined : positive('--minutes', options.minutes);
  const seeds =
    options.seeds === undefined
      ? minutes === undefined
        ? seedsDefault
        : undefined
      : wholeNumber('--seeds', options.seeds, 1);
  const first = options.seed === undefined ? 1 : wholeNumber('--seed', options.seed, 0);
  const runners =
    options.runners === undefined
      ? availableParallelism()
      : wholeNumber('--runners', options.runners, 1);
  let stopped = false;
  void around.stopSignal().then(() => {
    stopped = true;
  });
  const startedUs = clock.monoUs();
  let shownMs = -Infinity;
  const result = await runCampaign({
    first,
    seeds,
    forMs: minutes === undefined ? undefined : minutes * 60_000,
    runners,
    again: againShare,
    failuresMax,
    clock,
    stopped: () => stopped,
    onSeed: (sums) => {
      const elapsedMs = (clock.monoUs() - startedUs) / 1_000;
      if (elapsedMs - shownMs < (isTty ? showEveryMs : 30 * showEveryMs)) return;
      shownMs = elapsedMs;
      const line =
        `${Math.round(elapsedMs / 1_000)}s  ${sums.seeds}${seeds === undefined ? '' : ` of ${seeds}`} seeds  ` +
        `${(sums.simulatedMs / 3_600_000).toFixed(1)} h simulated  ${sums.states.size} states  ` +
        `${sums.failures.length} failed`;
      err(isTty ? `\r\u001B[K${line}` : `${line}\n`);
    },
  });
  if (isTty) err('\n');
  const report = reportOf(result, { first, runners });
  if (options.json === true) out(`${JSON.stringify(report)}\n`);
  else out(textOf(result, report));
  for (const failed of result.failures.slice(0, shrunkMax)) {
    if (options.json !== true) out(`\n${tell(failed)}\n`);
    if (options.shrink === true) await makeSmall(planOf(failed.seed), failed, { out: err, err });
  }
  if (options.record !== undefined) {
    recordProof(options.record, { report, result, runners });
    err(`recorded in ${options.record}\n`);
  }
  return report.verdict ? 0 : 1;
}

/** Prints what is left of a failing history, and how to see it again. */
async function makeSmall(
  plan: Plan,
  history: Pick<History, 'failure'>,
  { out, err }: Pick<SimSurroundings, 'out' | 'err'>,
): Promise<void> {
  if (history.failure === undefined) return;
  err('making it small …\n');
  const small = await shrink(plan, history.failure, { runsMax: shrinkRunsMax });
  out(
    `\nleft of ${plan.items.length} items after ${small.runs} histories: ${small.plan.items.length}\n`,
  );
  for (const item of small.plan.items) out(`  ${JSON.stringify(item)}\n`);
  out(`  ${small.failure.detail.split('\n')[0] ?? ''}\n`);
  const sameShape = JSON.stringify(small.plan.shape) === JSON.stringify(plan.shape);
  if (sameShape) {
    const ids = small.plan.items.map(({ id }) => id).join(',');
    out(`again: sluice sim --seed ${plan.seed} --only ${ids} --trace trace.txt\n`);
    return;
  }
  const file = `sim-${plan.seed}.json`;
  writeFileSync(file, `${JSON.stringify(small.plan, undefined, 2)}\n`);
  out(`again: sluice sim --plan ${file} --trace trace.txt\n`);
}

function tell(history: Pick<History, 'seed' | 'failure'>): string {
  const { seed, failure } = history;
  if (failure === undefined) return `seed ${seed} held`;
  const commit = commitHere();
  const at = commit === undefined ? '' : ` at commit ${commit}`;
  return [
    `seed ${seed}${at} failed after ${(failure.atMs / 1_000).toFixed(3)} s: ${failure.detail}`,
    `again: sluice sim --seed ${seed} --trace trace.txt      small: sluice sim --seed ${seed} --shrink`,
  ].join('\n');
}

/** What the command reports with `--json`. */
export interface SimReport {
  readonly seeds: number;
  readonly first_seed: number;
  /** Of the checkout; null where it is installed without one. */
  readonly commit: string | null;
  readonly runners: number;
  readonly elapsed_s: number;
  /** Per minute of processor time. */
  readonly seeds_per_min_core: number;
  readonly simulated_h: number;
  readonly events: number;
  readonly items: number;
  readonly states: number;
  readonly faults: {
    readonly reached: number;
    readonly of: number;
    readonly missing: readonly string[];
    readonly hits: number;
  };
  readonly edges: Readonly<Record<string, number>>;
  readonly digest: string;
  readonly rerun: Campaign['rerun'];
  readonly failures: readonly {
    readonly seed: number;
    readonly invariant: string;
    readonly detail: string;
  }[];
  readonly verdict: boolean;
}

function reportOf(
  result: Campaign,
  { first, runners }: { readonly first: number; readonly runners: number },
): SimReport {
  const missing = unreached(result);
  let hits = 0;
  for (const count of result.reached.values()) hits += count;
  return {
    seeds: result.seeds,
    first_seed: first,
    commit: commitHere() ?? null,
    runners,
    elapsed_s: Math.round(result.elapsedMs / 100) / 10,
    seeds_per_min_core: Math.round((result.seeds * 60_000) / Math.max(1, result.cpuMs)),
    simulated_h: Math.round(result.simulatedMs / 36_000) / 100,
    events: result.events,
    items: result.items,
    states: result.states.size,
    faults: { reached: faultsInAll - missing.length, of: faultsInAll, missing, hits },
    edges: Object.fromEntries([...result.edges].toSorted(([a], [b]) => (a < b ? -1 : 1))),
    digest: digestOf(result),
    rerun: result.rerun,
    failures: result.failures.map(({ seed, failure }) => ({
      seed,
      invariant: failure?.invariant ?? '',
      detail: failure?.detail ?? '',
    })),
    verdict: result.failures.length === 0 && result.rerun.different.length === 0,
  };
}

function reportOfOne(plan: Plan, history: History): object {
  const { digest, events, simulatedMs, items, failure } = history;
  return {
    seed: plan.seed,
    digest,
    events,
    simulated_ms: simulatedMs,
    items,
    failure: failure ?? null,
    verdict: failure === undefined,
  };
}

function textOf(result: Campaign, report: SimReport): string {
  const { faults, rerun } = report;
  const number = (value: number): string => value.toLocaleString('en-US');
  const lines = [
    `${number(report.seeds)} histories from seed ${report.first_seed} on, ${number(report.events)} events, ` +
      `${number(report.simulated_h)} hours simulated, ${number(report.states)} distinct states`,
    `${number(report.seeds_per_min_core)} seeds a minute on one core; ${report.runners} at work for ${report.elapsed_s} s`,
    `faults: ${number(faults.hits)} hits; ${faults.reached} of ${faults.of} kinds × ports reached` +
      (faults.missing.length === 0 ? '' : `; not: ${faults.missing.join(', ')}`),
    `edges of states: ${Object.keys(report.edges).length} walked`,
    `digest ${report.digest}; ${rerun.seeds} run again in another process, ` +
      (rerun.different.length === 0
        ? 'each the same'
        : `${rerun.different.length} told another story: ${rerun.different.join(', ')}`),
    result.failures.length === 0
      ? 'every invariant held in every history'
      : `${result.failures.length} histories failed: ${result.failures.map(({ seed }) => seed).join(', ')}`,
  ];
  return `${lines.join('\n')}\n`;
}

function wholeNumber(flag: string, text: string, least: number): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new SimUsageError(`${flag}: found "${text}"; allowed is a whole number from ${least}`);
}

function positive(flag: string, text: string): number {
  const value = Number(text);
  if (value > 0 && value <= 10_000) return value;
  throw new SimUsageError(`${flag}: found "${text}"; allowed is a number above 0, up to 10000`);
}
