import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { RushReport } from '../../src/lab/rush/report.ts';

/**
 * The README, done as it says: each command in its blocks is run here, with free ports, a folder of
 * its own and a smaller crowd put in. A command that nothing here runs is a failure.
 */
const root = fileURLToPath(new URL('../..', import.meta.url));
const read = (file: string): string => readFileSync(join(root, file), 'utf8');
let folder = '';

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'readme-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The command lines of a document's shell blocks. */
function commandsOf(document: string): readonly string[] {
  return [...document.matchAll(/^```sh\n([\s\S]*?)^```/gm)].flatMap(([, block = '']) =>
    block.split('\n').filter((line) => line !== ''),
  );
}

interface Ran {
  readonly code: number | null;
  readonly out: string;
}

/** A command line as a person types it; ended by `until`, where it does not end by itself. */
function type(line: string, until?: (out: string) => Promise<void> | undefined): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = spawn('/bin/sh', ['-c', `exec ${line}`], { cwd: root, detached: true });
    const end = (): void => void (child.pid !== undefined && process.kill(-child.pid, 'SIGTERM'));
    let out = '';
    let seen = false;
    const hear = (chunk: Buffer): void => {
      out += chunk.toString();
      const looking = seen ? undefined : until?.(out);
      if (looking === undefined) return;
      seen = true;
      looking.then(end, (error: unknown) => {
        end();
        reject(error instanceof Error ? error : new Error(String(error)));
      });
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, out }));
  });
}

/** Runs a sale until its shop has shown a page, then stops it gently. */
async function visit(line: string): Promise<void> {
  const { code, out } = await type(line, (said) => {
    const shop = /shop\s+(http:\S+)\n/.exec(said)?.[1];
    return shop === undefined
      ? undefined
      : fetch(shop).then(async (answer) => {
          expect(answer.status).toBe(200);
          expect(await answer.text()).toContain('Lantern Night');
        });
  });
  // npm itself ends by the signal that it passes on.
  expect(code ?? 0, out).toBe(0);
  expect(out).toContain('stopping gently');
}

const own = (name: string): string =>
  `--port 0 --admin-port 0 --data ${join(folder, name)} --fsync os`;

/** How each command of the README is done here. */
const doings: Readonly<Record<string, (line: string) => Promise<void>>> = {
  'npm ci && npm start': () => visit(`npm start -- ${own('start')}`),
  'npm run sluice -- up --config examples/concert.yaml': (line) => visit(`${line} ${own('up')}`),
  'npm run sluice -- config check examples/concert.yaml': async (line) => {
    const { code, out } = await type(line);
    expect(code, out).toBe(0);
  },
  // What runs this very test; the build server does the same two steps.
  'npm ci && npm test': async (line) => {
    expect(read('.ci/run').split('\n')).toEqual(expect.arrayContaining(line.split(' && ')));
  },
  'npm run sluice -- rush --embedded --people 20000 --stock 500 --bots 20% --duplicates 50% --timeouts 10%':
    rush,
};

const sum = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((total, count) => total + count, 0);

async function rush(line: string): Promise<void> {
  const file = join(folder, 'r.json');
  const smaller = line.replace('20000', '600 --over 3s').replace('500', '60');
  const ran = await type(`${smaller} --report ${file}`);
  expect(ran.code, ran.out).toBe(0);
  const report = JSON.parse(readFileSync(file, 'utf8')) as RushReport;
  expect(report).toMatchObject({
    people: 600,
    arrivals_planned: 600,
    void: false,
    verdict: 'holds',
    ledger: { residual: 0 },
  });
  expect(sum(report.outcomes)).toBe(600);
  expect(report.outcomes.unknown).toBe(0);
  const { total, sold, held, available } = report.stock;
  expect(total).toBe(60);
  expect(sold + held + (available ?? Number.NaN)).toBe(60);
  expect(report.outcomes.paid).toBeGreaterThan(0);
  expect(report.invariants.every(({ held: holds }) => holds)).toBe(true);
  // Seen, not assumed.
  const seen = report.invariants.filter(({ evidence }) => evidence !== 'none').map(({ id }) => id);
  expect(seen).toEqual(expect.arrayContaining(['1', '2', '3', '4', '5', '6', '8', '11', '12']));
  expect(ran.out).toContain('verdict    holds');
  expect(existsSync(join(folder, 'r.html'))).toBe(true);
  // Duplicates and lost answers were really sent, and answered as repeats.
  expect(report.run.answers['submit 200 REQUEST_REPLAYED']).toBeGreaterThan(0);
  expect(report.run.answers['submit 403 REPLAY_REJECTED']).toBeGreaterThan(0);
}

describe('the README', () => {
  test('shows the same commands in both languages, and each is done here', () => {
    const shown = commandsOf(read('README.md'));
    expect(commandsOf(read('README.zh-CN.md'))).toEqual(shown);
    expect([...shown].sort()).toEqual(Object.keys(doings).sort());
  });

  test.each(Object.entries(doings))('%s', (line, doing) => doing(line), 300_000);
});
