import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../ports/clock.ts';
import { faultPortPairs, otherFaults } from './faults.ts';
import type { RunnerOrder, SeedReport } from './runner.ts';
import { hashOf } from './trace.ts';

/** Many seeds over many processes, added up. */
export interface CampaignOptions {
  readonly first: number;
  /** How many seeds at most; undefined: as many as fit. */
  readonly seeds: number | undefined;
  /** Hands out no more seeds after this, ms; undefined: no end. */
  readonly forMs: number | undefined;
  readonly runners: number;
  /** Share of the seeds that are run again, in a process of their own. */
  readonly again: number;
  /** Seeds are handed out until so many have failed. */
  readonly failuresMax: number;
  readonly clock: Clock;
  readonly onSeed?: (so: CampaignSums) => void;
  readonly stopped?: () => boolean;
}

export interface CampaignSums {
  seeds: number;
  events: number;
  simulatedMs: number;
  items: number;
  cpuMs: number;
  readonly failures: SeedReport[];
  readonly reached: Map<string, number>;
  readonly edges: Map<string, number>;
  readonly states: Set<number>;
  readonly digests: Map<number, string>;
}

export interface Campaign extends CampaignSums {
  readonly elapsedMs: number;
  /** Seeds run again elsewhere, and those of them that told another story. */
  readonly rerun: { readonly seeds: number; readonly different: readonly number[] };
}

/** Seeds that one runner is given at a time. */
const orderSize = 4;

export async function runCampaign(options: CampaignOptions): Promise<Campaign> {
  const { first, seeds, forMs, runners, again, failuresMax, clock, onSeed, stopped } = options;
  const startedUs = clock.monoUs();
  const elapsedMs = (): number => (clock.monoUs() - startedUs) / 1_000;
  const sums = noSums();
  const last = seeds === undefined ? Number.MAX_SAFE_INTEGER : first + seeds;
  let next = first;
  const order = (): RunnerOrder | undefined => {
    const over = forMs !== undefined && elapsedMs() >= forMs;
    if (next >= last || over || sums.failures.length >= failuresMax || stopped?.() === true) {
      return undefined;
    }
    const upTo = Math.min(last, next + orderSize);
    const batch = Array.from({ length: upTo - next }, (_, at) => next + at);
    next = upTo;
    return { seeds: batch };
  };
  const take = (said: SeedReport): void => {
    add(sums, said);
    onSeed?.(sums);
  };
  await Promise.all(Array.from({ length: runners }, () => drive(order, take)));
  const rerun = await runAgain(sums, again);
  return { ...sums, elapsedMs: elapsedMs(), rerun };
}

/** A sample of the seeds in a process that has run none of them. */
async function runAgain(sums: CampaignSums, share: number): Promise<Campaign['rerun']> {
  const every = Math.max(1, Math.round(1 / Math.max(share, 1e-9)));
  const chosen =
    share <= 0
      ? []
      : [...sums.digests.keys()].toSorted((a, b) => a - b).filter((_, at) => at % every === 0);
  const different: number[] = [];
  const orders = chosen.length === 0 ? [] : [{ seeds: chosen }];
  await drive(
    () => orders.pop(),
    ({ seed, digest }) => {
      if (sums.digests.get(seed) !== digest) different.push(seed);
    },
  );
  return { seeds: chosen.length, different };
}

/** One runner's life: an order at a time until there are none. Rejects when it dies. */
function drive(
  order: () => RunnerOrder | undefined,
  take: (said: SeedReport) => void,
): Promise<void> {
  const first = order();
  if (first === undefined) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const runner = startRunner();
    let open = 0;
    const give = (one: RunnerOrder | undefined): void => {
      if (one === undefined) {
        runner.disconnect();
        resolve();
        return;
      }
      open = one.seeds.length;
      runner.send(one);
    };
    runner.on('message', (said: SeedReport | null) => {
      if (said === null) return;
      take(said);
      open -= 1;
      if (open === 0) give(order());
    });
    runner.on('error', reject);
    runner.on('exit', (code) => {
      if (open > 0) reject(new Error(`a runner of seeds ended with code ${code ?? 'none'}`));
    });
    give(first);
  });
}

function startRunner(): ChildProcess {
  // The built file beside the built one; from a checkout's sources, the source.
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const script = fileURLToPath(new URL(`./runner.${extension}`, import.meta.url));
  return fork(script, ['sluice-simulator-runner'], {
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
}

function noSums(): CampaignSums {
  return {
    seeds: 0,
    events: 0,
    simulatedMs: 0,
    items: 0,
    cpuMs: 0,
    failures: [],
    reached: new Map(),
    edges: new Map(),
    states: new Set(),
    digests: new Map(),
  };
}

export function add(sums: CampaignSums, said: SeedReport): void {
  sums.seeds += 1;
  sums.events += said.events;
  sums.simulatedMs += said.simulatedMs;
  sums.items += said.items;
  sums.cpuMs += said.cpuMs;
  if (said.failure !== undefined) sums.failures.push(said);
  for (const [name, count] of said.reached) {
    sums.reached.set(name, (sums.reached.get(name) ?? 0) + count);
  }
  for (const [name, count] of said.edges) {
    sums.edges.set(name, (sums.edges.get(name) ?? 0) + count);
  }
  for (const state of said.states) sums.states.add(state);
  sums.digests.set(said.seed, said.digest);
}

/** One number for all histories, whatever the order in which they came back. */
export function digestOf({ digests }: CampaignSums): string {
  let sum = 0;
  for (const [seed, digest] of digests) sum = (sum + hashOf(`${seed} ${digest}`)) | 0;
  return (sum >>> 0).toString(16).padStart(8, '0');
}

/** Faults that no history has reached. */
export function unreached({ reached }: CampaignSums): readonly string[] {
  return [...faultPortPairs, ...otherFaults].filter((name) => !reached.has(name));
}

export const faultsInAll = faultPortPairs.length + otherFaults.length;
