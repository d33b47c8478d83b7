import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { parseRate } from '../core/limit/rate.ts';
import { routeAnswers, routeNames } from '../core/rules/model.ts';
import { RulesFile } from './rules-file.ts';

let folder: string;
let nowUs = 0;
let look: () => void = () => undefined;
let seen: string[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-rules-'));
  nowUs = 0;
  seen = [];
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Beside, and moved into place: never half of it. */
function write(text: string): void {
  const path = join(folder, 'rules.yaml');
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
}

const rules = (version: number, rate: string): string =>
  `version: ${version}\nrules:\n  - { id: one, match: { route: facts }, limit: { rate: ${rate} } }\n`;

function open(): RulesFile {
  return new RulesFile({
    path: join(folder, 'rules.yaml'),
    context: {
      routes: routeNames,
      answers: routeAnswers,
      activities: [],
      skus: [],
      maxInstances: 1,
      ceiling: parseRate('1000/s'),
    },
    environment: {},
    clock: { monoUs: () => nowUs },
    timers: {
      every: (_ms, run) => {
        look = run;
        return { cancel: () => undefined };
      },
      after: () => ({ cancel: () => undefined }),
    },
    onSet: ({ version }) => void seen.push(`set ${version}`),
    onRefused: () => void seen.push('refused'),
  });
}

/** Looks until it has had `wanted` to say, each look a quarter of a second after the last. */
const looksUntil = (wanted: () => void): Promise<void> =>
  vi.waitFor(() => {
    nowUs += 250_000;
    look();
    wanted();
  });

test('the age of rules is that of the last look which found them in their file', async () => {
  write(rules(1, '5/s'));
  const file = open();
  await file.first();
  file.watch();
  nowUs = 60_000_000;
  expect(file.ageMs).toBe(60_000);
  look();
  await vi.waitFor(() => expect(file.ageMs).toBe(0));

  write('version: 2\nrules: what is this');
  await looksUntil(() => expect(seen).toEqual(['refused']));
  const refusedAtUs = nowUs;
  nowUs += 30_000_000;
  look();
  await file.close();
  // The file holds something else than what is in force, however often it is looked at.
  expect(file.ageMs).toBeGreaterThanOrEqual((nowUs - refusedAtUs) / 1000);

  write(rules(3, '6/s'));
  await looksUntil(() => expect(seen).toEqual(['refused', 'set 3']));
  expect(file.ageMs).toBeLessThan(1_000);

  // Its owner did not put the set in force: a version below that of the one that is.
  file.notInForce();
  nowUs += 10_000_000;
  look();
  await file.close();
  expect(file.ageMs).toBeGreaterThanOrEqual(10_000);
});

test('a file that cannot be read makes rules age', async () => {
  write(rules(1, '5/s'));
  const file = open();
  await file.first();
  file.watch();
  rmSync(join(folder, 'rules.yaml'));
  await looksUntil(() => expect(seen).toEqual(['refused']));
  nowUs = 90_000_000;
  look();
  await file.close();
  expect(file.ageMs).toBe(90_000);
});
