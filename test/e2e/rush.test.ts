import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runRush, storyOf, unlessVoid } from '../support/run-rush.ts';

/**
 * The command as people run it: the built `sluice rush --embedded`, a server of its own in another
 * process, a crowd of people and bots over real HTTP, and the verdict as exit code.
 */
const root = fileURLToPath(new URL('../..', import.meta.url));
let folder = '';

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'rush-e2e-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function sluice(...args: readonly string[]): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [join(root, 'dist', 'main.js'), ...args]);
    let out = '';
    let err = '';
    child.stdout.on('data', (chunk: Buffer) => {
      out += chunk.toString();
    });
    child.stderr.on('data', (chunk: Buffer) => {
      err += chunk.toString();
    });
    child.once('error', reject);
    child.once('exit', (code) => resolve({ code, out, err }));
  });
}

const sum = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((total, count) => total + count, 0);

test('arrivals, addresses and agents of an access log', async () => {
  const log = join(folder, 'access.log');
  const lines = Array.from({ length: 300 }, (_, at) => {
    const second = `${Math.floor(at / 60)}:${String(at % 60).padStart(2, '0')}`;
    return `203.0.113.${at % 40} - - [17/May/2026:10:0${second} +0000] "GET / HTTP/1.1" 200 5 "-" "Agent/${at % 7}"`;
  });
  writeFileSync(log, lines.join('\n'));
  const raw = { embedded: true, people: '400', over: '3s', stock: '30', arrivals: log };
  const run = await unlessVoid(() =>
    runRush(raw, {
      patience: { afterLastMs: 15_000, quietMs: 6_000, sweepMs: 5_000 },
      serverCommand: { file: process.execPath, args: [join(root, 'dist', 'main.js')] },
    }),
  );
  const { report } = run;
  expect(run.code, storyOf(run)).toBe(0);
  expect(report).toMatchObject({ people: 400, void: false, verdict: 'holds' });
  expect(report.run).toMatchObject({ arrivals_from: log, households: 40 });
  expect(sum(report.outcomes)).toBe(400);
}, 300_000);

test('usage errors are told at once, with exit code 2', async () => {
  const ran = await sluice('rush', '--people', '5');
  expect(ran.code).toBe(2);
  expect(ran.err).toMatch(/--embedded and --target/);
  expect((await sluice('rush', '--embedded', '--nonsense')).code).toBe(2);
});
