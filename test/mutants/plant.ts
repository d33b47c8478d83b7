import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import type { Plan } from '../../src/simulator/plan.ts';
import type { Shrunk, ShrinkOptions } from '../../src/simulator/shrink.ts';
import type { Failure, History } from '../../src/simulator/simulation.ts';
import type { Trace } from '../../src/simulator/trace.ts';
import type { Edit, Mutant } from './mutants.ts';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');

/** A simulator whose product has the bug. */
export interface Planted {
  simulate(plan: Plan, trace?: Trace): Promise<History>;
  shrink(plan: Plan, failure: Failure, options: ShrinkOptions): Promise<Shrunk>;
  planOf(seed: number): Plan;
  withItems(plan: Plan, ids: ReadonlySet<number>): Plan;
  /** Removes what was written. */
  remove(): void;
}

/** The text with the bug. Throws where the place is not there exactly once: the mutant is out of date. */
export function mutated(text: string, { file, find, put }: Edit): string {
  const parts = text.split(find);
  if (parts.length !== 2) {
    throw new Error(`${file}: found ${parts.length - 1} times, expected once: ${find}`);
  }
  return parts.join(put);
}

/** Bundles the simulator with the bug in it, as its sources are loaded, and imports the bundle. */
export async function plant(mutant: Mutant | undefined): Promise<Planted> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-mutant-'));
  const outfile = join(folder, 'simulator.mjs');
  const used = new Set<Edit>();
  await build({
    stdin: {
      contents: [
        "export { simulate } from './src/simulator/simulation.ts';",
        "export { shrink } from './src/simulator/shrink.ts';",
        "export { planOf, withItems } from './src/simulator/plan.ts';",
      ].join('\n'),
      resolveDir: root,
    },
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    outfile,
    logLevel: 'error',
    banner: {
      js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
    },
    plugins: [
      {
        name: 'plant',
        setup(bundler) {
          bundler.onLoad({ filter: /\.ts$/ }, ({ path }) => {
            const file = relative(root, path).replaceAll('\\', '/');
            let text = readFileSync(path, 'utf8');
            for (const edit of mutant?.edits ?? []) {
              if (edit.file !== file) continue;
              text = mutated(text, edit);
              used.add(edit);
            }
            return { contents: text, loader: 'ts' };
          });
        },
      },
    ],
  });
  for (const edit of mutant?.edits ?? []) {
    if (!used.has(edit)) throw new Error(`${edit.file} is no part of the simulated product`);
  }
  const planted = (await import(pathToFileURL(outfile).href)) as Omit<Planted, 'remove'>;
  return { ...planted, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
