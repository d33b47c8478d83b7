import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, expect, test } from 'vitest';

const run = promisify(execFile);
const command = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'dist', 'main.js');
const folder = mkdtempSync(join(tmpdir(), 'sluice-sim-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const sluice = (...words: readonly string[]) => run(process.execPath, [command, 'sim', ...words]);

test('a campaign over processes holds, tells its numbers, and comes out the same elsewhere', async () => {
  const record = join(folder, 'PROOF.md');
  const { stdout } = await sluice('--seeds', '6', '--runners', '2', '--record', record, '--json');
  const report = JSON.parse(stdout) as Record<string, unknown>;
  expect(report).toMatchObject({
    seeds: 6,
    first_seed: 1,
    failures: [],
    verdict: true,
    rerun: { seeds: 1, different: [] },
  });
  expect(report['events']).toBeGreaterThan(1_000);
  const written = readFileSync(record, 'utf8');
  expect(written).toContain('every invariant held in every history');
  expect(written).toContain(`digest of all histories | ${String(report['digest'])}`);

  const trace = join(folder, 'trace.txt');
  const one = await sluice('--seed', '3', '--trace', trace, '--json');
  const other = await sluice('--seed', '3', '--json');
  expect(JSON.parse(one.stdout)).toEqual(JSON.parse(other.stdout));
  expect(readFileSync(trace, 'utf8')).toContain('● heal');
});

test('what cannot be asked is told', async () => {
  await expect(sluice('--seeds', 'many')).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringContaining('found "many"; allowed is a whole number from 1') as string,
  });
  await expect(sluice('--trace', 'x')).rejects.toMatchObject({ code: 2 });
});
