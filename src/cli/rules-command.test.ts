import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runCommand } from './program.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-rules-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

async function sluice(...argv: string[]) {
  let out = '';
  let err = '';
  const code = await runCommand(argv, '0', {
    environment: {},
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
    isTty: false,
    errIsTty: false,
    nowMs: () => Date.UTC(2027, 0, 1),
    stopSignal: () => Promise.resolve('SIGTERM'),
  });
  return { code, out, err };
}

function rules(text: string): string {
  const path = join(folder, 'rules.yaml');
  writeFileSync(path, text);
  return path;
}

const good = `
rules:
  - id: per-user
    match: { route: submit, activity: "lantern-*" }
    key: [user]
    limit: { algorithm: token_bucket, rate: 0.5/s, burst: 3 }
  - id: per-address
    match: { route: submit }
    key: [ip]
    limit: { algorithm: token_bucket, rate: 20/s, burst: 40 }
`;

test('check: 0 when good, 1 with line and path when not', async () => {
  expect(await sluice('rules', 'check', rules(good))).toMatchObject({
    code: 0,
    out: expect.stringContaining('2 rules'),
  });
  const bad = await sluice('rules', 'check', rules(good.replace('0.5/s', 'fast')));
  expect(bad.code).toBe(1);
  expect(bad.err).toMatch(/rules\.yaml:6:\d+ {2}rules\[0\]\.limit\.rate/);
  expect(bad.err).toContain('"fast"');
});

test('check against a configuration: names that match nothing are problems', async () => {
  const file = rules(good.replace('lantern-*', 'lantren-night'));
  const { code, out } = await sluice(
    'rules',
    'check',
    file,
    '-c',
    'examples/concert.yaml',
    '--json',
  );
  expect(code).toBe(1);
  expect(JSON.parse(out)).toMatchObject({
    ok: false,
    problems: [{ path: 'rules[0].match.activity', allowed: expect.stringContaining('lantern') }],
  });
});

test('explain: the rules that apply, in their order, and why others do not', async () => {
  const file = rules(good);
  const described = ['--route', 'submit', '--user', 'u_1', '--address', '192.0.2.7'];
  const { code, out } = await sluice('rules', 'explain', file, ...described);
  expect(code).toBe(0);
  expect(out).toContain('1 of 2 rules apply');
  expect(out).toContain('ip=192.0.2.7');
  expect(out).toContain('40 at once, then 429 RATE_LIMITED, again after exactly 50 ms');
  expect(out).toContain('per-user does not apply: activity');
  const more = [...described, '--activity', 'lantern-night', '--json'];
  const json = await sluice('rules', 'explain', file, ...more);
  const { rules: said } = JSON.parse(json.out) as { rules: { id: string; at_once: number }[] };
  expect(said.map(({ id, at_once }) => [id, at_once])).toEqual([
    ['per-address', 40],
    ['per-user', 3],
  ]);
});

test.each([
  [['--route', 'sbmit'], /--route: found "sbmit"; allowed: submit, status/],
  [['--route', 'submit', '--risk', 'huge'], /--risk: found "huge"/],
  [['--route', 'submit', '--quantity', '0'], /--quantity: found "0"/],
  [['--route', 'submit', '--header', 'x'], /--header: found "x"; allowed: name:value/],
  [['--route', 'submit', '--at', 'noon'], /--at: found "noon"/],
  [[], /required option '--route <name>'/],
])('%j is a usage error', async (flags, message) => {
  const { code, err } = await sluice('rules', 'explain', rules(good), ...flags);
  expect(code).toBe(2);
  expect(err).toMatch(message);
});

test('a file that is not there is a usage error', async () => {
  const { code, err } = await sluice('rules', 'check', join(folder, 'none.yaml'));
  expect(code).toBe(2);
  expect(err).toContain('ENOENT');
});
