import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runCommand } from './program.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-cli-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

async function sluice(...argv: string[]) {
  let out = '';
  let err = '';
  const code = await runCommand(argv, '1.2.3', {
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

function file(text: string): string {
  const path = join(folder, 'sale.yaml');
  writeFileSync(path, text);
  return path;
}

describe('usage', () => {
  test('help teaches by example and is an answer, not an error', async () => {
    for (const argv of [['--help'], ['config', '--help'], ['keys', '-h']]) {
      const { code, out } = await sluice(...argv);
      expect(code).toBe(0);
      expect(out).toContain('sluice ');
    }
    expect((await sluice('--help')).out).toContain('Exit codes');
    expect((await sluice('--version')).out).toBe('1.2.3\n');
  });

  test.each([
    [['cofnig'], /Did you mean config/],
    [['config', 'chekc'], /Did you mean check/],
    [['config', 'check', '--jsno'], /Did you mean --json/],
    [['keys', 'new'], /missing required argument 'type'/],
    [['config', 'check', 'a', 'b'], /too many arguments/],
  ])('%j is told what is allowed, with exit code 2', async (argv, message) => {
    const { code, err, out } = await sluice(...argv);
    expect(code).toBe(2);
    expect(err).toMatch(message);
    expect(out).toBe('');
  });

  test('no command at all shows the help, with exit code 2', async () => {
    const { code, err } = await sluice();
    expect(code).toBe(2);
    expect(err).toContain('Examples:');
  });
});

describe('config', () => {
  test('check: 0 and a line when good, 1 and every problem when not', async () => {
    expect(await sluice('config', 'check', 'examples/concert.yaml')).toEqual({
      code: 0,
      out: 'ok  examples/concert.yaml: 1 activity, 100 units on sale\n',
      err: '',
    });
    const bad = await sluice('config', 'check', file('server: { port: x, prot: 1 }'));
    expect(bad.code).toBe(1);
    expect(bad.err).toContain('sale.yaml:1:17  server.port');
    expect(bad.err).toContain('2 problems');
  });

  test('check --json is one document', async () => {
    const { code, out } = await sluice('config', 'check', '--json', file('server: { port: x }'));
    expect(code).toBe(1);
    expect(JSON.parse(out)).toMatchObject({
      ok: false,
      problems: [{ path: 'server.port', line: 1 }],
    });
  });

  test('a file that cannot be read is a usage error', async () => {
    const { code, err } = await sluice('config', 'check', join(folder, 'none.yaml'));
    expect(code).toBe(2);
    expect(err).toContain('there is no such file');
    expect((await sluice('config', 'show', folder)).err).toContain('it is a folder');
  });

  test('show prints what is in force', async () => {
    const { out } = await sluice('config', 'show', 'examples/concert.yaml');
    expect(out).toContain('fsync: always');
    const json = await sluice('config', 'show', '--json', 'examples/concert.yaml');
    expect(JSON.parse(json.out)).toMatchObject({ stores: { fsync: 'always' } });
  });

  test('show of a bad one tells its problems, with exit code 2', async () => {
    const { code, err } = await sluice('config', 'show', file('x: 1'));
    expect(code).toBe(2);
    expect(err).toContain('unknown key "x"');
  });

  test('schema is JSON', async () => {
    const { out } = await sluice('config', 'schema');
    expect(JSON.parse(out)).toMatchObject({ type: 'object', additionalProperties: false });
  });
});

describe('keys', () => {
  test('new, rotate, list, retire in a folder', async () => {
    const on = ['--data', folder, '--json'];
    const first = await sluice('keys', 'new', 'pass', ...on);
    const { kid } = JSON.parse(first.out) as { kid: string };
    expect(first.code).toBe(0);
    await sluice('keys', 'new', 'pass', '--algorithm', 'eddsa', ...on);
    const rotated = await sluice('keys', 'rotate', 'pass', ...on);
    expect(JSON.parse(rotated.out)).toMatchObject({ type: 'pass', signs: true });
    const listed = JSON.parse((await sluice('keys', 'list', ...on)).out) as { keys: object[] };
    expect(listed.keys).toHaveLength(2);
    expect(listed.keys).toContainEqual(expect.objectContaining({ kid, signs: false }));
    expect((await sluice('keys', 'retire', kid, ...on)).code).toBe(0);
    const left = await sluice('keys', 'list', '--data', folder);
    expect(left.out).not.toContain(kid);
    expect(left.out).toContain('signs');
  });

  test('what is not allowed says what is', async () => {
    const typo = await sluice('keys', 'new', 'pas', '--data', folder);
    expect(typo).toMatchObject({ code: 2, err: expect.stringContaining('user, entry, pass') });
    const nowhere = await sluice('keys', 'list', '--data', join(folder, 'nope'));
    expect(nowhere).toMatchObject({ code: 2, err: expect.stringContaining('no such folder') });
    const unknown = await sluice('keys', 'retire', 'k', '--data', folder);
    expect(unknown).toMatchObject({ code: 2, err: expect.stringContaining('"k"') });
  });
});
