#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import { systemClock } from './app/system.ts';
import { runCommand } from './cli/program.ts';

/** The one place that reads the process's arguments, environment, streams and signals. */

const packageFile = new URL('../package.json', import.meta.url);
const { version } = JSON.parse(readFileSync(packageFile, 'utf8')) as { version: string };

function stopSignal(): Promise<string> {
  return new Promise((resolve) => {
    let asked = false;
    const onSignal = (signal: NodeJS.Signals): void => {
      // The second one means it: whatever hangs, the journal has what was answered.
      if (asked) process.exit(signal === 'SIGINT' ? 130 : 143);
      asked = true;
      resolve(signal);
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
  });
}

// A reader that goes away (`sluice … | head`) ends the output, not the program with a stack trace.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

const exitCode = await runCommand(process.argv.slice(2), version, {
  environment: process.env,
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  isTty: process.stdout.isTTY,
  errIsTty: process.stderr.isTTY,
  nowMs: () => systemClock.wallMs(),
  stopSignal,
});

// What is still open by now (a server that would not close in time) must not keep the process.
await new Promise<void>((resolve) => {
  process.stdout.write('', () => resolve());
});
process.exit(exitCode);
