import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Trace } from '../../src/simulator/trace.ts';
import { type Hunt, hunt } from './hunt.ts';
import { mutants } from './mutants.ts';
import { plant } from './plant.ts';

/**
 * `npm run test:mutants`: plants every bug in turn, runs seeds until it shows, makes the history small,
 * and says how to see it again. With a name, that bug only; with `--seed`, that one history of it.
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
    seeds: { type: 'string', default: '400' },
    'without-shrinking': { type: 'boolean', default: false },
  },
});

// A bug may well leave a rejection that nobody handles: its history says so by other means.
process.on('unhandledRejection', () => undefined);
process.exitCode = values.seed === undefined ? await huntAll() : await again();

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
  const found: Hunt[] = [];
  for (const mutant of wanted) {
    const one = await hunt(mutant, {
      firstSeed: Number(values.from),
      seedsMax: Number(values.seeds),
      shrinkRunsMax: values['without-shrinking'] ? 0 : 80,
    });
    found.push(one);
    console.log(lineOf(one));
    if (one.seeds > 0 && one.left >= 0) {
      console.log(
        `        npm run test:mutants -- ${one.name} --seed ${one.seed} --only ${one.ids.join(',')}`,
      );
    }
  }
  const caught = found.filter((one) => one.caught);
  const seeds = caught
    .map((one) => (one.seeds === 0 ? Number.MAX_SAFE_INTEGER : one.seeds))
    .toSorted((a, b) => a - b);
  const median = seeds[Math.floor(seeds.length / 2)] ?? Number.NaN;
  const large = caught.filter((one) => one.left > itemsMax);
  console.log(
    `${caught.length} of ${found.length} planted bugs caught; median ${median} seeds; ` +
      `largest history left: ${Math.max(-1, ...caught.map((one) => one.left))} people, faults and acts`,
  );
  const whole = wanted.length === mutants.length;
  const holds =
    caught.length === found.length && large.length === 0 && (!whole || median <= medianMax);
  return holds ? 0 : 1;
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
