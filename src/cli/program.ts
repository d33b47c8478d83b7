import { Command, CommanderError } from 'commander';
import { ConfigError } from '../config/problems.ts';
import { addCommands } from './commands.ts';
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
    await commandTree(version, surroundings, done).parseAsync(argv, { from: 'user' });
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

/** All commands, ready to parse; `done` hears the exit code of the one that ran. */
export function commandTree(
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
  sluice rush --embedded --people 2000       a crowd, its outcomes, and a verdict
  sluice verify ledger                       is every request found again?
  sluice keys rotate pass                    sign passes with a fresh key, without a pause

Exit codes: 0 done or the verdict holds, 1 it does not hold, 2 not possible as asked.`,
    );
  addCommands(root, surroundings, done);
  for (const command of allCommands(root)) {
    command.helpOption('-h, --help', 'show this help').helpCommand(false);
    command.copyInheritedSettings(root);
  }
  return root;
}

function allCommands(command: Command): readonly Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}
