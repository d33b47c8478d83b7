import { planOf } from './plan.ts';
import { type History, simulate } from './simulation.ts';

/**
 * A process that runs histories for a campaign: seeds come in, histories go out. It has the world's
 * time and chance trapped while it simulates, and nothing to hide from others.
 */
export interface RunnerOrder {
  readonly seeds: readonly number[];
}

/** A history as it goes over the wire. */
export interface SeedReport extends Omit<History, 'reached' | 'edges' | 'states'> {
  readonly reached: readonly (readonly [string, number])[];
  readonly edges: readonly (readonly [string, number])[];
  /** Shapes of the world that this runner has not told of before. */
  readonly states: readonly number[];
  /** Processor time, ms. */
  readonly cpuMs: number;
}

/** Runs one seed and packs what it saw. */
export async function report(seed: number, told: Set<number>): Promise<SeedReport> {
  const before = process.cpuUsage();
  const history = await simulate(planOf(seed));
  const { user, system } = process.cpuUsage(before);
  const states = [...history.states].filter((state) => !told.has(state));
  for (const state of states) told.add(state);
  return {
    ...history,
    reached: [...history.reached],
    edges: [...history.edges],
    states,
    cpuMs: (user + system) / 1_000,
  };
}

/** A rejection that nobody handles ends a real process: here it is a failure of the seed at work. */
function asRunner(): void {
  const told = new Set<number>();
  let unhandled: Error | undefined;
  process.on('unhandledRejection', (error) => {
    unhandled ??= error instanceof Error ? error : new Error(JSON.stringify(error));
  });
  const work = async ({ seeds }: RunnerOrder): Promise<void> => {
    for (const seed of seeds) {
      unhandled = undefined;
      const said = await report(seed, told);
      // Node tells of rejections once its queues are empty: a turn later.
      await new Promise<void>((resolve) => process.send?.(null, () => resolve()));
      process.send?.(withUnhandled(said, unhandled));
    }
  };
  process.on('message', (order: RunnerOrder) => void work(order));
  process.on('disconnect', () => process.exit(0));
}

function withUnhandled(said: SeedReport, error: Error | undefined): SeedReport {
  if (error === undefined || said.failure !== undefined) return said;
  const detail = error.stack ?? error.message;
  const failure = {
    invariant: 'no surprise',
    detail: `nobody handles the rejection: ${detail}`,
    atMs: said.simulatedMs,
  };
  return { ...said, failure };
}

if (process.argv[2] === 'sluice-simulator-runner' && process.send !== undefined) asRunner();
