import { Command, CommanderError } from 'commander';
import { ConfigError } from '../config/problems.ts';
import { UsageError, exitOk, exitUsage } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

/**
 * The `sluice` command. Each action loads its module when it runs, so that help and refusals are
 * instant and a broken part cannot stop the others.
 */
export async function runCommand(
  argv: readonly string[],
  version: string,
  surroundings: Surroundings,
): Promise<number> {
  let exitCode = exitOk;
  const done = (code: number): void => {
    exitCode = code;
  };
  try {
    await program(version, surroundings, done).parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    return exitCodeOf(error, surroundings);
  }
}

function exitCodeOf(error: unknown, surroundings: Surroundings): number {
  // Help and version are answers; everything else that the parser throws it has printed already.
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitOk : exitUsage;
  if (error instanceof ConfigError || error instanceof UsageError) {
    surroundings.err(`${error.message}\n`);
    return exitUsage;
  }
  const stack = surroundings.environment['SLUICE_DEBUG'] ? stackOf(error) : messageOf(error);
  surroundings.err(`sluice: ${stack}\n`);
  return exitUsage;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function program(
  version: string,
  surroundings: Surroundings,
  done: (code: number) => void,
): Command {
  const root = new Command('sluice')
    .description('A fair, crash-safe, provable flash sale on your own machines.')
    .version(version, '-V, --version', 'print the version')
    .exitOverride()
    .configureOutput({ writeOut: surroundings.out, writeErr: surroundings.err })
    .showSuggestionAfterError()
    .showHelpAfterError('(sluice COMMAND --help shows what is allowed)')
    .addHelpText(
      'after',
      `
Examples:
  sluice up                                  a demo sale on this machine
  sluice up --config sale.yaml               your sale
  sluice config check sale.yaml              everything that is wrong with it, at once
  sluice keys rotate pass                    sign passes with a fresh key, without a pause

Exit codes: 0 done or the verdict holds, 1 it does not hold, 2 not possible as asked.`,
    );
  addConfig(root, surroundings, done);
  addKeys(root, surroundings, done);
  for (const command of allCommands(root)) {
    command.helpOption('-h, --help', 'show this help').helpCommand(false);
    command.copyInheritedSettings(root);
  }
  return root;
}

function allCommands(command: Command): readonly Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}

const configFlag = [
  '-c, --config <file>',
  'configuration file (default: sluice.yaml if there)',
] as const;
const jsonFlag = ['--json', 'print one JSON document on standard output'] as const;

function addConfig(root: Command, surroundings: Surroundings, done: (code: number) => void): void {
  const config = root
    .command('config')
    .summary('check, show, describe a configuration')
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

function addKeys(root: Command, surroundings: Surroundings, done: (code: number) => void): void {
  const keys = root
    .command('keys')
    .summary('make, rotate, list, retire signing keys')
    .description(
      'Signing keys in the data folder. TYPE is one of user, entry, pass, decision. A running server takes changes up by itself.',
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
      .option('--data <folder>', 'data folder')
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
