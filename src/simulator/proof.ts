import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import type { Campaign } from './campaign.ts';
import type { SimReport } from './command.ts';

/**
 * Writes a campaign's part of the proof: what a run said, not what somebody remembered. The failures
 * that were found before come from the committed regressions.
 */
export interface Proof {
  readonly report: SimReport;
  readonly result: Campaign;
  readonly runners: number;
}

const open = '<!-- sim -->';
const close = '<!-- /sim -->';
const regressionsFolder = 'test/regressions/sim';

const heading = `# Proof

What the simulator has shown, written by its own run: \`npm run sluice -- sim --minutes 30 --record docs/PROOF.md\`.
How to read it, and how to run it again: [how to trust Sluice](guide/trust.md).
`;

export function recordProof(path: string, proof: Proof): void {
  const before = existsSync(path) ? readFileSync(path, 'utf8') : heading;
  const part = [open, ...lines(proof, dirname(dirname(path))), close].join('\n');
  const from = before.indexOf(open);
  const to = before.indexOf(close);
  const after =
    from >= 0 && to > from
      ? before.slice(0, from) + part + before.slice(to + close.length)
      : `${before.trimEnd()}\n\n${part}\n`;
  writeFileSync(path, after);
}

function lines({ report, result }: Proof, root: string): readonly string[] {
  const number = (value: number): string => value.toLocaleString('en-US');
  const row = (...cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |`;
  const { faults, rerun } = report;
  const verdict = report.verdict
    ? 'every invariant held in every history'
    : `${report.failures.length} histories failed`;
  return [
    '## Simulated histories',
    '',
    `${cpus()[0]?.model ?? 'unknown processor'}, ${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, ` +
      `Node ${process.versions.node}`,
    '',
    row('what', 'seen'),
    row('---', '---'),
    row('verdict', verdict),
    row('seeds', `${number(report.seeds)}, from ${report.first_seed} on`),
    ...(report.commit === null ? [] : [row('commit', report.commit)]),
    row('ran for', `${(report.elapsed_s / 60).toFixed(1)} minutes, ${report.runners} at work`),
    row('seeds a minute on one core', number(report.seeds_per_min_core)),
    row('simulated', `${number(report.simulated_h)} hours`),
    row('events', number(report.events)),
    row('people, faults, acts', number(report.items)),
    row('distinct states', number(report.states)),
    row('faults that hit', number(faults.hits)),
    row('kinds of fault × port reached', `${faults.reached} of ${faults.of}`),
    ...(faults.missing.length === 0 ? [] : [row('not reached', faults.missing.join(', '))]),
    row('edges of states walked', number(Object.keys(report.edges).length)),
    row(
      'run again in another process',
      `${rerun.seeds}, ${rerun.different.length === 0 ? 'each the same' : `${rerun.different.length} different`}`,
    ),
    row('digest of all histories', report.digest),
    '',
    '### Faults',
    '',
    row('fault', 'hits'),
    row('---', '--:'),
    ...[...result.reached]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, count]) => row(name, number(count))),
    '',
    '### Found and fixed',
    '',
    ...found(root),
    ...(report.failures.length === 0
      ? []
      : [
          '',
          '### Found by this run',
          '',
          row('seed', 'invariant', 'what'),
          row('---', '---', '---'),
          ...report.failures.map(({ seed, invariant, detail }) =>
            row(seed, invariant, inOneCell(detail)),
          ),
        ]),
  ];
}

function found(root: string): readonly string[] {
  const folder = join(root, regressionsFolder);
  if (!existsSync(folder)) return ['Nothing is on record.'];
  const entries = readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .toSorted()
    .map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Regression);
  return [
    '| seed | items left | what was wrong |',
    '| --- | --: | --- |',
    ...entries.map(({ plan, why }) => `| ${plan.seed} | ${plan.items.length} | ${why} |`),
  ];
}

/** A history that failed once: its plan, made small, and what was wrong. */
export interface Regression {
  readonly why: string;
  readonly plan: {
    readonly seed: number;
    readonly items: readonly unknown[];
  };
}

/** The first line, with files named from the project's folder: the page is read elsewhere. */
function inOneCell(detail: string): string {
  const [first = ''] = detail.split('\n');
  return first.replaceAll(/file:\/\/\S*?\/((?:dist|src)\/)/g, '$1').replaceAll('|', '\\|');
}
