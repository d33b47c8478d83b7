import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plan } from '../../src/simulator/plan.ts';
import type { Mutant } from './mutants.ts';
import { type Planted, plant } from './plant.ts';

/** What became of one planted bug. */
export interface Hunt {
  readonly name: string;
  readonly caught: boolean;
  /** Seeds that it took, from the first; 0 where no seed found it and a committed regression did. */
  readonly seeds: number;
  readonly seed: number;
  readonly invariant: string;
  readonly detail: string;
  /** People, faults and acts before and after making it small; -1 where that was not asked for. */
  readonly items: number;
  readonly left: number;
  /** Items that are left, by number. */
  readonly ids: readonly number[];
}

export interface HuntOptions {
  readonly firstSeed: number;
  readonly seedsMax: number;
  /** Histories for making it small; 0: do not. */
  readonly shrinkRunsMax: number;
}

const folder = join(dirname(fileURLToPath(import.meta.url)), '..', 'regressions', 'sim');

/** Histories that failed once, small already. */
function regressions(): readonly { readonly name: string; readonly plan: Plan }[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .map((name) => {
      const { plan } = JSON.parse(readFileSync(join(folder, name), 'utf8')) as { plan: Plan };
      return { name, plan };
    });
}

let product: Promise<Planted> | undefined;

/** The product as it is: what fails here was not planted. */
function sound(): Promise<Planted> {
  product ??= plant(undefined);
  return product;
}

/** Runs seeds until the bug shows, then makes its history small. */
export async function hunt(mutant: Mutant, options: HuntOptions): Promise<Hunt> {
  const { firstSeed, seedsMax, shrinkRunsMax } = options;
  const planted = await plant(mutant);
  try {
    for (let at = 0; at < seedsMax; at += 1) {
      const seed = firstSeed + at;
      const plan = planted.planOf(seed);
      const { failure, items } = await planted.simulate(plan);
      if (failure === undefined) continue;
      const without = await (await sound()).simulate(plan);
      if (without.failure !== undefined) {
        throw new Error(`seed ${seed} fails without a bug too: ${without.failure.detail}`);
      }
      const small =
        shrinkRunsMax === 0
          ? undefined
          : await planted.shrink(plan, failure, { runsMax: shrinkRunsMax, keepShape: true });
      const kept = small?.plan ?? plan;
      return {
        name: mutant.name,
        caught: true,
        seeds: at + 1,
        seed,
        invariant: failure.invariant,
        detail: failure.detail,
        items,
        left: small === undefined ? -1 : kept.items.length,
        ids: kept.items.map(({ id }) => id),
      };
    }
    for (const { name, plan } of regressions()) {
      const { failure, items } = await planted.simulate(plan);
      if (failure === undefined) continue;
      return {
        name: mutant.name,
        caught: true,
        seeds: 0,
        seed: plan.seed,
        invariant: failure.invariant,
        detail: `${name}: ${failure.detail}`,
        items,
        left: items,
        ids: plan.items.map(({ id }) => id),
      };
    }
  } finally {
    planted.remove();
  }
  return {
    name: mutant.name,
    caught: false,
    seeds: seedsMax,
    seed: -1,
    invariant: '',
    detail: '',
    items: 0,
    left: -1,
    ids: [],
  };
}
