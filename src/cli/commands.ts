import type { Command } from 'commander';
import { rushFlags } from '../lab/rush/options.ts';
import type { ConsoleOptions } from './operate-command.ts';
import type { RehearseOptions } from './rehearse-command.ts';
import type { ExplainOptions } from './rules-command.ts';
import type { SimOptions } from '../simulator/command.ts';
import type { Surroundings } from './terminal.ts';
import type { VerifyDrawOptions } from './verify-draw-command.ts';
import type { UpOptions } from './up-command.ts';

/** One command each: what it is called, what it takes, and which module does it, loaded when asked. */

const configFlag = [
  '-c, --config <file>',
  'configuration file (default: sluice.yaml if there)',
] as const;
const jsonFlag = ['--json', 'print one JSON document on standard output'] as const;

const dataFlag = ['--data <folder>', 'data folder of the server'] as const;

type Done = (code: number) => void;

/** Adds every command in the order in which help lists them. */
export function addCommands(root: Command, surroundings: Surroundings, done: Done): void {
  addUp(root, surroundings, done);
  addConsole(root, surroundings, done);
  addConfig(root, surroundings, done);
  addRush(root, surroundings, done);
  addRehearse(root, surroundings, done);
  addSim(root, surroundings, done);
  addDrill(root, surroundings, done);
  addExport(root, surroundings, done);
  addVerify(root, surroundings, done);
  addReconcile(root, surroundings, done);
  addRecover(root, surroundings, done);
  addRules(root, surroundings, done);
  addKeys(root, surroundings, done);
}

function addUp(root: Command, surroundings: Surroundings, done: Done): void {
  root
    .command('up')
    .summary('start the server')
    .description(
      'Starts the whole system in this process: shop, waiting room, orders, operator page.',
    )
    .option(...configFlag)
    .option('--host <host>', 'where the shop listens')
    .option('--port <port>', 'port of the shop; 0 takes any free one')
    .option('--admin-port <port>', 'port of the operator page; 0 takes any free one')
    .option('--data <folder>', 'folder of journals, orders, keys')
    .option('--fsync <when>', 'always: on disk before each answer; os: left to the system')
    .option('--open-in <duration>', 'open every sale so long after its first start, such as 5s')
    .option('--stock <units>', 'units of every SKU')
    .option(
      '--role <role>',
      'gateway, worker or control; may be repeated (default: all)',
      (word: string, before: readonly string[] | undefined): readonly string[] => [
        ...(before ?? []),
        word,
      ],
    )
    .option('--processes <n>', 'gateway processes that share the port (with --role gateway)')
    .option('--json', 'print one JSON line with the addresses, then only the log')
    .addHelpText(
      'after',
      `
Examples:
  sluice up                                        a demo sale that opens in half a minute
  sluice up -c examples/concert.yaml --open-in 5s  for the hurried
  sluice up --port 0 --admin-port 0 --data /tmp/x  beside another one
  sluice up -c examples/cluster.yaml --role worker one process of many, on Redis and PostgreSQL

A sale continues where it was when its server is started again on the same data folder, however it
ended. Ctrl-C stops gently; a second Ctrl-C stops at once.`,
    )
    .action(async (options: UpOptions) => {
      const { up } = await import('./up-command.ts');
      done(await up(options, surroundings));
    });
}

function addConsole(root: Command, surroundings: Surroundings, done: Done): void {
  root
    .command('console')
    .summary('sign in to the operator page')
    .description(
      'Prints a link that signs one browser in to the operator page of a running server. It works once and not for long.',
    )
    .option('--role <role>', 'viewer, operator, approver or admin', 'operator')
    .option('--name <name>', 'who signs in, for the audit', 'operator')
    .option(...configFlag)
    .option(...dataFlag)
    .option(...jsonFlag)
    .addHelpText(
      'after',
      `
Examples:
  sluice console
  sluice console --role viewer --name "screen in the hall"`,
    )
    .action(async (options: ConsoleOptions) => {
      const { consoleLink } = await import('./operate-command.ts');
      done(await consoleLink(options, surroundings));
    });
}

function addConfig(root: Command, surroundings: Surroundings, done: Done): void {
  const config = root
    .command('config')
    .summary('check and show a configuration, and the schema of all settings')
    .description('Looks at a configuration without starting anything.')
    .addHelpText(
      'after',
      `
Examples:
  sluice config check examples/concert.yaml
  sluice config show --json | jq .server
  sluice config schema > sluice.schema.json`,
    );
  config
    .command('check [file]')
    .description('List every problem: file, line, path, what was found, what is allowed.')
    .option(...jsonFlag)
    .action(async (file: string | undefined, options: { json?: boolean }) => {
      const { checkConfig } = await import('./config-command.ts');
      done(checkConfig(file, options, surroundings));
    });
  config
    .command('show [file]')
    .description('Print what is in force, every default filled in, secrets hidden.')
    .option(...jsonFlag)
    .action(async (file: string | undefined, options: { json?: boolean }) => {
      const { showConfig } = await import('./config-command.ts');
      done(showConfig(file, options, surroundings));
    });
  config
    .command('schema')
    .description('Print the JSON Schema, for editors.')
    .action(async () => {
      const { printSchema } = await import('./config-command.ts');
      done(printSchema(surroundings));
    });
}

function addKeys(root: Command, surroundings: Surroundings, done: Done): void {
  const keys = root
    .command('keys')
    .summary('make, rotate, list, retire signing keys')
    .description(
      'Signing keys in the data folder. TYPE is one of user, entry, pass, decision, challenge. A running server takes changes up by itself.',
    )
    .addHelpText(
      'after',
      `
Rotation without a pause:
  sluice keys new pass          a key that verifies everywhere, before it signs anywhere
  sluice keys rotate pass       now it signs; the old one goes on verifying
  sluice keys list
  sluice keys retire KID        at once, when a key has leaked`,
    );
  const shared = (command: Command): Command =>
    command
      .option(...configFlag)
      .option(...dataFlag)
      .option(...jsonFlag);
  type Options = { config?: string; data?: string; algorithm?: string; json?: boolean };
  shared(keys.command('new <type>').description('Make a key that verifies and waits to sign.'))
    .option('--algorithm <name>', 'HS256, or EdDSA where the verifier must not be able to sign')
    .action(async (type: string, options: Options) => {
      const { makeKey } = await import('./keys-command.ts');
      done(makeKey(type, options, surroundings));
    });
  shared(keys.command('rotate <type>').description('Let the waiting key, or a new one, sign.'))
    .option('--algorithm <name>', 'HS256 or EdDSA')
    .action(async (type: string, options: Options) => {
      const { rotateKey } = await import('./keys-command.ts');
      done(rotateKey(type, options, surroundings));
    });
  shared(keys.command('list').description('Ids, ages and uses; never a key.')).action(
    async (options: Options) => {
      const { showKeys } = await import('./keys-command.ts');
      done(showKeys(options, surroundings));
    },
  );
  shared(keys.command('retire <kid>').description('Refuse the tokens of a key.')).action(
    async (kid: string, options: Options) => {
      const { dropKey } = await import('./keys-command.ts');
      done(dropKey(kid, options, surroundings));
    },
  );
}

function addRush(root: Command, surroundings: Surroundings, done: Done): void {
  const rush = root
    .command('rush')
    .summary('send a crowd, and judge what became of it')
    .description(
      'Sends virtual people and bots over real HTTP: they join, wait, take a pass, submit, poll, pay or walk away. Checks from outside that nothing was sold twice and that everyone got an answer. Exit code 0 when the verdict holds.',
    )
    .addHelpText(
      'after',
      `
Examples:
  sluice rush --embedded --people 2000 --stock 100 --over 10s
  sluice rush --embedded --scenario spike --bots 20% --report r.json
  sluice rush --target http://127.0.0.1:8080 --people 500
  sluice rush --target cluster --people 20000      at what npm run cluster has started

SLUICE_ADMIN_URL and SLUICE_ADMIN_TOKEN let it look at the operator's side of a target too.`,
    );
  for (const { flag, value, about } of rushFlags)
    rush.option(value === undefined ? flag : `${flag} <${value.toLowerCase()}>`, about);
  rush.action(async (options: Readonly<Record<string, unknown>>) => {
    const { rushWith } = await import('./rush-command.ts');
    done(await rushWith(options, surroundings));
  });
}

function addRehearse(root: Command, surroundings: Surroundings, done: Done): void {
  root
    .command('rehearse <activity>')
    .summary('a copy of a sale, and a crowd in it')
    .description(
      'Makes a copy of a sale on a running server: the same room and the same amount of stock, but its own, at other times. It is on no list, is marked wherever it is shown, and is forgotten an hour after it closes. With --people a crowd is sent into it and judged, as sluice rush does; without, the copy is there to be looked at.',
    )
    .option('--opens-in <duration>', 'when it opens; its lobby opens at once (default: 60s)')
    .option('--lasts <duration>', 'how long it is open (default: 10m)')
    .option(
      '--challenge <kind>',
      'what is asked on joining: full, as in the sale; light, work that a crowd can do; none (default: full, with --people light)',
    )
    .option('--people <n>', 'send a crowd of so many')
    .option('--over <duration>', 'time over which they arrive (default: 10s)')
    .option('--seed <n>', 'the same seed makes the same people')
    .option('--report <file>', 'write the report as JSON, and as HTML beside it')
    .option('--target <url>', 'the shop, where it is not as the configuration says')
    .option('--reason <words>', 'why, for the audit')
    .option(...configFlag)
    .option(...dataFlag)
    .option(...jsonFlag)
    .addHelpText(
      'after',
      `
Examples:
  sluice rehearse concert --people 2000 --over 20s
  sluice rehearse concert --opens-in 2m            to be walked through by hand`,
    )
    .action(async (activity: string, options: RehearseOptions) => {
      const { rehearse } = await import('./rehearse-command.ts');
      done(await rehearse(activity, options, surroundings));
    });
}

function addSim(root: Command, surroundings: Surroundings, done: Done): void {
  root
    .command('sim')
    .summary('thousands of simulated sales with faults, checked after every event')
    .description(
      'Runs the real code of a sale under virtual time, once for each seed: people, crashes, lost messages, failovers, clocks that leap. Every invariant is checked after every event. The same seed is the same history, everywhere.',
    )
    .option('--seeds <n>', 'how many histories (default: 1000)')
    .option('--minutes <m>', 'go on for so long')
    .option('--seed <s>', 'the first seed; alone: this history only')
    .option('--only <ids>', 'of its people, faults and acts, these only: 3,17,22')
    .option('--plan <file>', 'a history from a file')
    .option('--trace <file>', 'write one history, event by event')
    .option('--shrink', 'make what fails small')
    .option('--runners <n>', 'processes at work (default: one for each core)')
    .option('--record <file>', 'write the outcome into a document')
    .option(...jsonFlag)
    .addHelpText(
      'after',
      `
Examples:
  sluice sim --seeds 2000
  sluice sim --seed 812 --trace trace.txt
  sluice sim --seed 812 --shrink

Exit code 1 when an invariant broke, or a seed told two stories.`,
    )
    .action(async (options: SimOptions) => {
      const { simWith } = await import('./sim-command.ts');
      done(await simWith(options, surroundings));
    });
}

function addDrill(root: Command, surroundings: Surroundings, done: Done): void {
  root
    .command('drill [name]')
    .summary('break a running cluster on purpose, and see whether it holds')
    .description(
      'Does to the cluster that npm run cluster has started what happens to clusters: stores that hang, processes that die, words that are lost. Says what is expected, what was seen, and the verdict, and leaves the cluster as it was found. Without a name: the list of drills.',
    )
    .option('--activity <id>', 'the sale to drill; needed where there are several')
    .option(...jsonFlag)
    .addHelpText(
      'after',
      `
Examples:
  npm run cluster -- --open-in 5s --standby      in another terminal; the sale must be open, with units
  sluice drill                         what there is
  sluice drill cut-admission
  sluice drill all --json

Exit code 1 when a drill does not hold. Never at a sale that is real: units are taken and given back.`,
    )
    .action(async (name: string | undefined, options: { activity?: string; json?: boolean }) => {
      const { drill } = await import('./drill-command.ts');
      done(await drill(name, options, surroundings));
    });
}

function addExport(root: Command, surroundings: Surroundings, done: Done): void {
  const k6 = root
    .command('export')
    .summary('the crowd for another tool')
    .description('Writes what sluice rush would send in the form of another load tool.')
    .command('k6')
    .description('A script for k6 (k6.io): the same schedule, the same people; bots stay here.')
    .option('--output <file>', 'write it there instead of to standard output')
    .addHelpText(
      'after',
      `
Examples:
  sluice export k6 --target https://shop.example --people 5000 --over 30s > crowd.js
  k6 run crowd.js`,
    );
  const taken = ['--embedded', '--stock', '--report', '--json'];
  for (const { flag, value, about } of rushFlags.filter((each) => !taken.includes(each.flag)))
    k6.option(value === undefined ? flag : `${flag} <${value.toLowerCase()}>`, about);
  k6.action(async (options: Readonly<Record<string, unknown>>) => {
    const { exportK6Command } = await import('../lab/export-command.ts');
    done(exportK6Command(options, surroundings));
  });
}

function addVerify(root: Command, surroundings: Surroundings, done: Done): void {
  const verify = root
    .command('verify')
    .summary('check what a sale promised')
    .description('Checks promises from records. Exit code 1 when one does not hold.');
  verify
    .command('draw <file>')
    .description('Recompute a draw from its audit file alone: commitments, root, order, waves.')
    .option('--entry <id>', 'also show that this entry stood in the lobby, and its place')
    .option('--checkpoint <text>', 'what the shop showed at some time: the file must contain it')
    .option(...jsonFlag)
    .action(async (file: string, options: VerifyDrawOptions) => {
      const { verifyDrawFile } = await import('./verify-draw-command.ts');
      done(verifyDrawFile(file, options, surroundings));
    });
  verify
    .command('ledger')
    .description('Is every request that came to a running server found again?')
    .option(...configFlag)
    .option(...dataFlag)
    .option(...jsonFlag)
    .action(async (options: { config?: string; data?: string; json?: boolean }) => {
      const { verifyLedger } = await import('./operate-command.ts');
      done(await verifyLedger(options, surroundings));
    });
}

function addReconcile(root: Command, surroundings: Surroundings, done: Done): void {
  root
    .command('reconcile')
    .summary('compare stock, queue and orders of a running server')
    .description(
      'Compares inventory, queue and orders, and repairs each class of difference in its defined way, with an audit row. Exit code 1 when there was one.',
    )
    .option('--dry-run', 'only look')
    .option(
      '--rebuild',
      'also rebuild the inventory of a SKU that cannot be repaired piece by piece',
    )
    .option('--reason <words>', 'why, for the audit')
    .option(...configFlag)
    .option(...dataFlag)
    .option(...jsonFlag)
    .addHelpText(
      'after',
      `
Examples:
  sluice reconcile --dry-run
  sluice reconcile --reason "after the power cut"`,
    )
    .action(
      async (options: {
        config?: string;
        data?: string;
        json?: boolean;
        dryRun?: boolean;
        rebuild?: boolean;
        reason?: string;
      }) => {
        const { reconcile } = await import('./operate-command.ts');
        done(await reconcile(options, surroundings));
      },
    );
}

function addRules(root: Command, surroundings: Surroundings, done: Done): void {
  const rules = root
    .command('rules')
    .summary('check and explain limits')
    .description('Looks at a file of rules without starting anything.')
    .addHelpText(
      'after',
      `
Examples:
  sluice rules check rules.yaml --config sale.yaml
  sluice rules explain rules.yaml --route submit --user u_1 --address 192.0.2.7`,
    );
  rules
    .command('check <file>')
    .description('List every problem, and what is worth a second look. Exit code 1 on problems.')
    .option('-c, --config <file>', 'judge against the activities and ceiling of a configuration')
    .option(...jsonFlag)
    .action(async (file: string, options: { config?: string; json?: boolean }) => {
      const { checkRulesFile } = await import('./rules-command.ts');
      done(checkRulesFile(file, options, surroundings));
    });
  const collect = (word: string, before: readonly string[] = []): readonly string[] => [
    ...before,
    word,
  ];
  rules
    .command('explain <file>')
    .description('Which rules apply to a request, in which order, and what each would say.')
    .requiredOption('--route <name>', 'submit, status, standing, join, pass, …')
    .option('--method <method>', 'POST for submit, GET otherwise')
    .option('--address <address>', 'of the caller')
    .option('--activity <id>', 'activity')
    .option('--sku <id>', 'SKU')
    .option('--user <id>', 'user id')
    .option('--device <hash>', 'hash of the device')
    .option('--pass <id>', 'id of the pass')
    .option('--quantity <n>', 'units asked for')
    .option('--risk <word>', 'trusted, low, medium, high; assessed where left out')
    .option('--header <name:value>', 'a header; may be repeated', collect)
    .option('--claim <name=value>', 'a claim of the token; may be repeated', collect)
    .option('--at <instant>', 'when: 2027-05-01T10:00:00Z, or +30s from now')
    .option('--retry', 'a repetition of something admitted before')
    .option('--trusted-proxy', 'it comes through one of our proxies')
    .option('-c, --config <file>', 'judge against a configuration')
    .option(...jsonFlag)
    .action(async (file: string, options: ExplainOptions) => {
      const { explainRules } = await import('./rules-command.ts');
      done(explainRules(file, options, surroundings));
    });
}

function addRecover(root: Command, surroundings: Surroundings, done: Done): void {
  root
    .command('recover')
    .summary('rebuild the inventory from the orders')
    .description(
      'Rebuilds the inventory of every SKU of a running server from its orders, after a total loss. Reservations without an order are given up, and their buyers told so.',
    )
    .requiredOption('--reason <words>', 'why, for the audit')
    .option(...configFlag)
    .option(...dataFlag)
    .option(...jsonFlag)
    .action(async (options: { config?: string; data?: string; json?: boolean; reason: string }) => {
      const { recover } = await import('./operate-command.ts');
      done(await recover(options, surroundings));
    });
}
