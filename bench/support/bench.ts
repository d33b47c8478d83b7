import { readFileSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * What every benchmark shares: the machine, medians with their spread, peers measured in the same run
 * in turn with ours, a hash of the results so that no work can be optimised away, a table for people
 * and, as the last line of stdout, one JSON object for tools.
 *
 * A benchmark is a file `NAME.bench.ts` that exports its work as a function of a size. The small size
 * is a test beside it; the large one runs from the command line.
 */

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memory_gib: number;
  readonly os: string;
  readonly node: string;
  readonly v8: string;
}

export function machine(): Machine {
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memory_gib: Math.round(totalmem() / 2 ** 30),
    os: `${process.platform} ${process.arch}`,
    node: process.versions.node,
    v8: process.versions.v8,
  };
}

/** Version of an installed package, for the peers' line of the report. */
export function versionOf(packageName: string): string {
  const path = fileURLToPath(
    new URL(`../../node_modules/${packageName}/package.json`, import.meta.url),
  );
  const parsed: unknown = JSON.parse(readFileSync(path, 'utf8'));
  const version =
    typeof parsed === 'object' && parsed !== null && 'version' in parsed ? parsed.version : '';
  return `${packageName}@${String(version)}`;
}

export interface Sample {
  readonly median: number;
  /** Interquartile range ÷ median: how far to trust the median. */
  readonly spread: number;
  readonly min: number;
  readonly max: number;
  readonly rounds: number;
}

export function sample(values: readonly number[]): Sample {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
  const median = at(0.5);
  return {
    median,
    spread: median === 0 ? 0 : (at(0.75) - at(0.25)) / median,
    min: sorted[0] ?? Number.NaN,
    max: sorted.at(-1) ?? Number.NaN,
    rounds: sorted.length,
  };
}

/** Folds results into one number that must come out the same in every round, and in every run. */
export class ResultHash {
  #hash = 0x811c9dc5;

  add(value: number): void {
    this.#hash = Math.imul(this.#hash ^ (value | 0), 0x01000193) >>> 0;
  }

  get hex(): string {
    return this.#hash.toString(16).padStart(8, '0');
  }
}

export interface Contender {
  readonly name: string;
  /** Does one round and answers how many operations it was. */
  readonly round: () => number | Promise<number>;
}

/**
 * Nanoseconds per operation of each contender. They take turns in every round, in an order that turns
 * as well, so that a slow moment of the machine falls on all; the first rounds warm up and are not
 * counted. CPU time of the process, not wall time, where `cpu` is set: a shared machine then disturbs
 * less.
 */
export async function race(
  contenders: readonly Contender[],
  options: { readonly warmups: number; readonly rounds: number; readonly cpu?: boolean },
): Promise<ReadonlyMap<string, Sample>> {
  const times = new Map<string, number[]>(contenders.map(({ name }) => [name, []]));
  for (let round = 0; round < options.warmups + options.rounds; round += 1) {
    for (let turn = 0; turn < contenders.length; turn += 1) {
      const contender = contenders[(turn + round) % contenders.length];
      if (contender === undefined) continue;
      const cpu = process.cpuUsage();
      const start = process.hrtime.bigint();
      const operations = await contender.round();
      const wallNs = Number(process.hrtime.bigint() - start);
      const { user, system } = process.cpuUsage(cpu);
      const spentNs = options.cpu === true ? (user + system) * 1000 : wallNs;
      if (round >= options.warmups) times.get(contender.name)?.push(spentNs / operations);
    }
  }
  return new Map([...times].map(([name, values]) => [name, sample(values)]));
}

/** Heap and array buffers in use after a full collection, bytes. */
export function settledBytes(): number {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  if (typeof collect !== 'function') throw new Error('this Node cannot collect on demand');
  for (let pass = 0; pass < 3; pass += 1) collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

export type Row = readonly (string | number)[];

export interface Report {
  readonly bench: string;
  /** Ours ÷ peer, or null where there is no peer. */
  readonly ratio: number | null;
  readonly better: 'higher' | 'lower' | null;
  readonly peer: string | null;
  readonly [field: string]: unknown;
}

export interface Table {
  /** Of its part of docs/BENCHMARKS.md. */
  readonly name: string;
  readonly header: Row;
  readonly rows: readonly Row[];
  /** Also rewrites that part, so that the document is what a run said and not what somebody remembered. */
  readonly record: boolean;
}

/** Prints the report as one table; its JSON is the last line. */
export function printReport(
  report: Report,
  header: Row,
  rows: readonly Row[],
  record: boolean,
): void {
  printTables(report, [{ name: report.bench, header, rows, record }]);
}

/** The same, of a report that needs several. */
export function printTables(report: Report, tables: readonly Table[]): void {
  const here = machine();
  console.log(
    `${report.bench} on ${here.cpu}, ${here.cores} cores, ${here.memory_gib} GiB, Node ${here.node}`,
  );
  for (const table of tables) {
    const { header, rows } = table;
    const cells = [header, ...rows].map((row) => row.map(String));
    const widths = header.map((_, at) => Math.max(...cells.map((row) => row[at]?.length ?? 0)));
    for (const row of cells) {
      console.log(`  ${row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  ')}`);
    }
    if (table.record) recordTable(table, here);
  }
  console.log(JSON.stringify({ ...report, machine: here }));
}

function recordTable({ name, header, rows }: Table, here: Machine): void {
  const path = join(fileURLToPath(new URL('../../docs/', import.meta.url)), 'BENCHMARKS.md');
  const [open, close] = [`<!-- bench:${name} -->`, `<!-- /bench:${name} -->`];
  const line = (row: Row): string => `| ${row.join(' | ')} |`;
  const table = [
    open,
    `## ${name}`,
    '',
    `${here.cpu}, ${here.cores} cores, ${here.memory_gib} GiB, ${here.os}, Node ${here.node}`,
    '',
    line(header),
    line(header.map(() => '---')),
    ...rows.map(line),
    close,
  ].join('\n');
  const before = readOr(
    path,
    '# Benchmarks\n\nEvery table is written by its run: `npm run bench -- NAME`.\n',
  );
  const from = before.indexOf(open);
  const to = before.indexOf(close);
  const after =
    from >= 0 && to > from
      ? before.slice(0, from) + table + before.slice(to + close.length)
      : `${before.trimEnd()}\n\n${table}\n`;
  writeFileSync(path, after);
}

function readOr(path: string, otherwise: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return otherwise;
    throw error;
  }
}

/** Was this module started from the command line, rather than imported by its test? */
export function isMain(moduleUrl: string): boolean {
  return process.argv[1] === fileURLToPath(moduleUrl);
}

/** `--small`: the size that runs as a test; nothing is recorded. */
export function smallAsked(): boolean {
  return process.argv.includes('--small');
}

export function round3(value: number): number {
  return Number(value.toPrecision(3));
}
