import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Config } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { LimitDesk } from '../pipeline/limit-desk.ts';
import { LimitedCall } from '../pipeline/limited-request.ts';
import { EmergencyFile } from '../stores/limits/emergency-file.ts';
import { newRing } from '../../test/support/shop.ts';
import { Latency } from '../telemetry/latency.ts';
import { EventLog } from '../telemetry/log.ts';
import type { LiveRules } from './live-rules.ts';
import { openRules } from './open-rules.ts';
import { sideFileProblems, themeOf } from './side-files.ts';
import { systemClock, systemRandom, systemTimers } from './system.ts';

let folder: string;
const running: LiveRules[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-rules-'));
});
afterEach(async () => {
  for (const rules of running.splice(0)) await rules.close();
  rmSync(folder, { recursive: true, force: true });
});

function configOf(text: string): Config {
  const loaded = loadConfig({ text, name: 'test', environment: {}, nowMs: 1_800_000_000_000 });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  return loaded.config;
}

async function open(text: string, shared = false): Promise<LiveRules> {
  const rules = await openRules({
    config: configOf(text),
    folder,
    shared,
    environment: {},
    clock: systemClock,
    timers: systemTimers,
    random: systemRandom,
    log: new EventLog({ level: 'error', clock: systemClock, destination: { write: () => true } }),
    budgetCalls: new Latency(),
    desk: new LimitDesk({ ring: newRing('challenge'), issuer: 'test', random: systemRandom }),
  });
  running.push(rules);
  return rules;
}

describe('a start', () => {
  test('holds its first leases before the first buyer comes', async () => {
    const rules = await open('');
    expect(rules.engine.set.rules.map(({ id }) => id)).toContain('default-budget');
    expect(rules.numbers.leaseRemaining).toBeGreaterThan(100);
  });

  test('rules that are reloaded have their leases before their first caller', async () => {
    const file = join(folder, 'rules.yaml');
    const written = (version: number, rule: string): string =>
      `version: ${version}\nrules: [{ id: all, limit: { rate: 9000/s } }${rule}]`;
    writeFileSync(file, written(1, ''));
    const rules = await open(`rules_file: ${file}`);
    const leased =
      '{ id: leased, match: { route: join }, key: [route], scope: lease, limit: { rate: 3000/s } }';
    writeFileSync(file, written(2, `, ${leased}`));
    while (rules.engine.version < 2) await new Promise((resolve) => setTimeout(resolve, 1));
    // In the very moment in which they are in force.
    expect(rules.numbers.leaseRemaining).toBeGreaterThan(10);
    const request = new LimitedCall(
      {
        route: 'join',
        method: 'POST',
        arrivedUs: systemClock.monoUs(),
        nowMs: systemClock.wallMs(),
        address: '192.0.2.7',
        fromTrustedProxy: false,
        p0: false,
        header: () => undefined,
      },
      rules.limits,
    );
    expect(await rules.limits.budget(request)).toBeUndefined();
  });

  test('takes the rules that are written, in place of the built-in ones', async () => {
    const rules = await open('rules: [{ id: mine, limit: { rate: 5/s } }]');
    expect(rules.engine.set.rules.map(({ id }) => id)).toEqual(['mine']);
  });

  test('of several in one folder: each remembers its emergency budgets in a place of its own', async () => {
    const text = 'budgets: { max_instances: 2 }';
    const first = await open(text, true);
    await open(text, true);
    await expect(open(text, true)).rejects.toThrow('max_instances, 2');
    // The first has spent; whoever comes after it finds that.
    const ledger = new EmergencyFile(join(folder, 'limits', 'instance-0'));
    await ledger.arm('budget', 1);
    expect(await ledger.spend('budget')).toBe(true);
    await first.close();
    running.splice(running.indexOf(first), 1);
    await open(text, true);
    const after = new EmergencyFile(join(folder, 'limits', 'instance-0'));
    await after.arm('budget', 1);
    expect(await after.spend('budget')).toBe(false);
  });
});

describe('files that a configuration names', () => {
  test('are checked with it, each problem at its place', () => {
    const rules = join(folder, 'rules.yaml');
    const theme = join(folder, 'theme.yaml');
    writeFileSync(rules, '- { id: a, match: { route: sumbit }, limit: { rate: 5/s } }\n');
    writeFileSync(theme, 'name: Box office\naccent: "#ffff00"\n');
    const config = configOf(`{ rules_file: ${rules}, pages: { theme: ${theme} } }`);
    const problems = sideFileProblems(config, {});
    expect(problems).toHaveLength(2);
    expect(problems[0]).toMatchObject({ source: rules, line: 1 });
    expect(problems[0]?.found).toContain('sumbit');
    expect(problems[1]).toMatchObject({ source: theme, line: 2, path: 'accent' });
  });

  test('that are not there are problems; a good theme is taken', () => {
    const config = configOf(`{ rules_file: ${folder}/none.yaml, pages: { theme: ${folder}/no } }`);
    expect(sideFileProblems(config, {}).map(({ path }) => path)).toEqual([
      'rules_file',
      'pages.theme',
    ]);
    const theme = join(folder, 'theme.yaml');
    writeFileSync(theme, 'name: Box office\n');
    const good = configOf(`{ pages: { theme: ${theme} } }`);
    expect(sideFileProblems(good, {})).toEqual([]);
    expect(themeOf(good, {}).name).toBe('Box office');
  });
});

test('rules in the configuration: every problem at its line, and no open policy on what reaches stock', () => {
  const text = `
rules:
  - id: a
    match: { route: submit }
    scope: lease
    limit: { rate: 5000/s }
    fail: open
  - { id: b, limit: { rate: fast } }
`;
  const loaded = loadConfig({ text, name: 'sale.yaml', environment: {}, nowMs: 0 });
  expect(loaded.ok).toBe(false);
  if (loaded.ok) return;
  expect(loaded.problems.map(({ line, path }) => [line, path])).toEqual([
    [7, 'rules[0].fail'],
    [8, 'rules[1].limit.rate'],
  ]);
  expect(loaded.problems[0]?.found).toContain('open on routes that may reach stock');
});

test('rules and a rules file together are one too many', () => {
  const text = 'rules: [{ id: a, limit: { rate: 5/s } }]\nrules_file: ./rules.yaml\n';
  const loaded = loadConfig({ text, name: 'sale.yaml', environment: {}, nowMs: 0 });
  expect(loaded).toMatchObject({ ok: false, problems: [{ line: 2, path: 'rules_file' }] });
});
