import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Trace } from '../../src/simulator/trace.ts';
import { type Hunt, hunt } from './hunt.ts';
import { mutants } from './mutants.ts';
import { plant } from './plant.ts';

/**
 * `npm run test:mutants`: plants every bug in turn, runs seeds until it shows, makes the history small,
 * and says how to see it again. With names, those bugs only; with `--seed`, that one history of one.
 * `--resume FILE` runs it in pieces; `--record docs/PROOF.md` writes down what was seen of all.
 */
const medianMax = 100;
const itemsMax = 25;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string' },
    only: { type: 'string' },
    trace: { type: 'string' },
    from: { type: 'string', default: '1' },
    seeds: { type: 'string', default: '1200' },
    'without-shrinking': { type: 'boolean', default: false },
    /** Bugs hunted at a time. */
    runners: { type: 'string' },
    /** What was seen is kept here, a line for each bug, and is not hunted again. */
    resume: { type: 'string' },
    /** A page that tells of all of them. */
    record: { type: 'string' },
    /** Inside: this process hunts the one bug itself. */
    alone: { type: 'boolean', default: false },
  },
});

// A bug may well leave a rejection that nobody handles: its history says so by other means.
process.on('unhandledRejection', () => undefined);
process.exitCode = values.alone
  ? await huntHere(positionals[0] ?? '')
  : values.seed === undefined
    ? await huntAll()
    : await again();

async function huntAll(): Promise<number> {
  const wanted = mutants.filter(
    ({ name }) => positionals.length === 0 || positionals.includes(name),
  );
  if (wanted.length === 0) {
    console.error(
      `found ${positionals.join(', ')}; allowed: ${mutants.map(({ name }) => name).join(', ')}`,
    );
    return 2;
  }
  const known = values.resume === undefined ? [] : resumed(values.resume);
  const found: Hunt[] = known.filter(({ name }) => wanted.some((one) => one.name === name));
  const left = wanted.filter(({ name }) => !found.some((one) => one.name === name));
  if (found.length > 0) console.log(`${found.length} known from ${values.resume ?? ''}`);
  const startedMs = Date.now();
  const total = left.length;
  let done = 0;
  const work = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const one = await elsewhere(next.name);
      found.push(one);
      done += 1;
      const seconds = Math.round((Date.now() - startedMs) / 1_000);
      console.log(`${done} of ${total}, ${seconds} s  ${lineOf(one)}`);
      if (one.seeds > 0 && one.left >= 0) console.log(`        ${againOf(one)}`);
      if (values.resume !== undefined) appendFileSync(values.resume, `${JSON.stringify(one)}\n`);
    }
  };
  const workers = Math.max(1, Number(values.runners ?? availableParallelism()));
  await Promise.all(Array.from({ length: Math.min(workers, Math.max(1, total)) }, work));
  const whole = wanted.length === mutants.length;
  const so = summary(found);
  console.log(so.text);
  if (values.record !== undefined) {
    if (whole) record(values.record, found, so.text);
    else console.error('--record tells of all planted bugs: give no names');
  }
  return so.all && (!whole || so.median <= medianMax) ? 0 : 1;
}

/** Hunts one bug here, and tells the process that asked. */
async function huntHere(name: string): Promise<number> {
  const mutant = mutants.find((one) => one.name === name);
  if (mutant === undefined) return 2;
  const one = await hunt(mutant, {
    firstSeed: Number(values.from),
    seedsMax: Number(values.seeds),
    shrinkRunsMax: values['without-shrinking'] ? 0 : 80,
  });
  console.log(JSON.stringify(one));
  return 0;
}

/** Each bug in a process of its own: as many at a time as there are cores. */
function elsewhere(name: string): Promise<Hunt> {
  const passed = ['--from', values.from, '--seeds', values.seeds];
  if (values['without-shrinking']) passed.push('--without-shrinking');
  const script = fileURLToPath(import.meta.url);
  const child = spawn(process.execPath, ['--import', 'tsx', script, name, '--alone', ...passed], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (piece: string) => {
    text += piece;
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => {
      if (code === 0) resolve(JSON.parse(text) as Hunt);
      else reject(new Error(`the hunt for ${name} ended with ${code ?? 'a signal'}`));
    });
  });
}

function resumed(file: string): readonly Hunt[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n');
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Hunt);
}

function summary(found: readonly Hunt[]): { text: string; all: boolean; median: number } {
  const caught = found.filter((one) => one.caught);
  const seeds = caught
    .map((one) => (one.seeds === 0 ? Number.MAX_SAFE_INTEGER : one.seeds))
    .toSorted((a, b) => a - b);
  const median = seeds[Math.floor(seeds.length / 2)] ?? Number.NaN;
  const largest = Math.max(-1, ...caught.map((one) => one.left));
  const text =
    `${caught.length} of ${found.length} planted bugs caught; median ${median} seeds; ` +
    `largest history left: ${largest} people, faults and acts`;
  return { text, all: caught.length === found.length && largest <= itemsMax, median };
}

/** Writes what was seen into its part of a page, and leaves the rest as it is. */
function record(path: string, found: readonly Hunt[], text: string): void {
  const [open, close] = ['<!-- mutants -->', '<!-- /mutants -->'];
  const before = readFileSync(path, 'utf8');
  const rows = found
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, caught, seeds, invariant, items, left, ids, seed }) => {
      const after = caught ? (seeds === 0 ? 'a committed history' : String(seeds)) : 'missed';
      const again = caught && seeds > 0 ? `--seed ${seed} --only ${ids.join(',')}` : '';
      return `| ${name} | ${after} | ${invariant} | ${items} | ${left < 0 ? '' : left} | ${again} |`;
    });
  const part = [
    open,
    '## Planted bugs',
    '',
    `${text}. By \`npm run test:mutants -- --record docs/PROOF.md\`; again: ` +
      '`npm run test:mutants -- NAME`, and what stands in the last column.',
    '',
    '| bug | seeds | invariant | items | left | again |',
    '| --- | --: | --- | --: | --: | --- |',
    ...rows,
    close,
  ].join('\n');
  const [from, to] = [before.indexOf(open), before.indexOf(close)];
  const after =
    from >= 0 && to > from
      ? before.slice(0, from) + part + before.slice(to + close.length)
      : `${before.trimEnd()}\n\n${part}\n`;
  writeFileSync(path, after);
}

function againOf({ name, seed, ids }: Hunt): string {
  return `npm run test:mutants -- ${name} --seed ${seed} --only ${ids.join(',')}`;
}

/** One history with one bug. */
async function again(): Promise<number> {
  const mutant = mutants.find(({ name }) => name === positionals[0]);
  if (mutant === undefined) {
    console.error('--seed tells of one bug: give its name');
    return 2;
  }
  const planted = await plant(mutant);
  const whole = planted.planOf(Number(values.seed));
  const plan =
    values.only === undefined
      ? whole
      : planted.withItems(whole, new Set(values.only.split(',').map(Number)));
  const trace = new Trace();
  const history = await planted.simulate(plan, trace);
  planted.remove();
  if (values.trace !== undefined) writeFileSync(values.trace, `${trace.lines.join('\n')}\n`);
  for (const item of plan.items) console.log(JSON.stringify(item));
  console.log(history.failure?.detail ?? 'every invariant held');
  return history.failure === undefined ? 1 : 0;
}

function lineOf(one: Hunt): string {
  if (!one.caught) return `MISSED  ${one.name}: ${one.seeds} seeds, and nothing was seen`;
  const small = one.left < 0 ? '' : `, ${one.items} items made ${one.left}`;
  const [detail = ''] = one.detail.split('\n');
  const how = one.seeds === 0 ? 'by a committed history' : `after ${one.seeds} seeds`;
  return `caught  ${one.name}: ${how}${small}: ${detail.slice(0, 140)}`;
}
