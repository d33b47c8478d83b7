import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

/**
 * The command as a person types it: `sluice up` from the README, and the commands that look at a
 * running server, against a real process.
 */
const main = join(import.meta.dirname, '../../dist/main.js');

interface Finished {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function sluice(...argv: string[]): Promise<Finished> {
  return finished(spawn(process.execPath, [main, ...argv]));
}

function finished(child: ChildProcess): Promise<Finished> {
  let out = '';
  let err = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    out += chunk.toString();
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    err += chunk.toString();
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, out, err }));
  });
}

interface Running {
  readonly child: ChildProcess;
  readonly shop: string;
  readonly operator: string;
  readonly ended: Promise<Finished>;
}

const running: ChildProcess[] = [];

async function up(data: string, ...flags: string[]): Promise<Running> {
  const argv = ['up', '--port', '0', '--admin-port', '0', '--data', data, '--fsync', 'os'];
  const child = spawn(process.execPath, [main, ...argv, '--json', ...flags]);
  running.push(child);
  const ended = finished(child);
  const line = await new Promise<string>((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      const [first, rest] = text.split('\n', 2);
      if (rest !== undefined) resolve(first ?? '');
    });
    void ended.then(({ code, err }) => reject(new Error(`ended with ${code}: ${err}`)));
  });
  const { shop, operator } = JSON.parse(line) as { shop: string; operator: string };
  return { child, shop, operator, ended };
}

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-command-'));
});
afterEach(() => {
  for (const child of running.splice(0)) if (child.exitCode === null) child.kill('SIGKILL');
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

interface ActivityFacts {
  readonly activities: readonly {
    readonly activity_id: string;
    readonly opens_at: string;
    readonly skus: readonly { readonly sku_id: string }[];
  }[];
}

const facts = async (shop: string): Promise<ActivityFacts> =>
  (await (await fetch(`${shop}/v1/activities`)).json()) as ActivityFacts;

describe('sluice up', () => {
  test('serves, is looked at, stops gently, and goes on where it was', async () => {
    const data = join(folder, 'sale');
    const first = await up(data, '--config', 'examples/concert.yaml', '--open-in', '5s');
    const before = await facts(first.shop);
    expect(before.activities.map((one) => one.activity_id)).toEqual(['lantern-night']);
    const page = await fetch(first.shop, { headers: { accept: 'text/html' } });
    expect(page.status).toBe(200);
    expect(await page.text()).toContain('Lantern Night');

    const metrics = await (await fetch(`${first.operator}/metrics`)).text();
    const documented = [
      ...readFileSync('docs/METRICS.md', 'utf8').matchAll(/^\| `(sluice_\w+)`/gm),
    ];
    const served = [...metrics.matchAll(/^# HELP (\S+)/gm)].map((match) => match[1]);
    expect(served).toEqual(documented.map((match) => match[1]));

    const ledger = await sluice('verify', 'ledger', '--data', data, '--json');
    expect(ledger).toMatchObject({ code: 0, err: '' });
    expect(JSON.parse(ledger.out)).toMatchObject({ residual: 0, verdict: 'holds' });
    const look = await sluice('reconcile', '--dry-run', '--data', data);
    expect(look).toMatchObject({ code: 0, err: '' });
    const keys = await sluice('keys', 'list', '--data', data);
    expect(keys.out).toMatch(/^pass +pass-\S+ +HS256 .* signs$/m);

    const second = await sluice('up', '--data', data, '--port', '0', '--admin-port', '0');
    expect(second.code).toBe(2);
    expect(second.err).toContain('is in use by');

    const { port } = new URL(first.shop);
    const elsewhere = ['--admin-port', '0', '--data', join(folder, 'other')];
    const taken = await sluice('up', '--port', port, ...elsewhere);
    expect(taken.code).toBe(2);
    expect(taken.err).toContain(`127.0.0.1:${port} is taken`);
    expect(taken.err).toContain('--port');

    first.child.kill('SIGTERM');
    expect(await first.ended).toMatchObject({ code: 0 });

    const again = await up(data, '--config', 'examples/concert.yaml', '--open-in', '5s');
    expect((await facts(again.shop)).activities[0]?.opens_at).toBe(before.activities[0]?.opens_at);
    again.child.kill('SIGINT');
    expect(await again.ended).toMatchObject({ code: 0 });
  });

  test('needs no file at all, and says where everything is', async () => {
    const data = join(folder, 'plain');
    const child = spawn(process.execPath, [
      main,
      'up',
      '--port=0',
      '--admin-port=0',
      `--data=${data}`,
    ]);
    running.push(child);
    const ended = finished(child);
    await new Promise<void>((resolve, reject) => {
      child.stdout.on('data', (chunk: Buffer) => {
        if (chunk.toString().includes('Ctrl-C')) resolve();
      });
      void ended.then(({ err }) => reject(new Error(err)));
    });
    child.kill('SIGTERM');
    const { code, out } = await ended;
    expect(code).toBe(0);
    expect(out).toMatch(/shop +http:\/\/127\.0\.0\.1:\d+/);
    expect(out).toMatch(/operator +http:\/\/127\.0\.0\.1:\d+\/#sign-in=/);
    expect(out).toContain('Demo sale');
    expect(out).not.toContain('\u001B');
  });

  test('a configuration with mistakes starts nothing', async () => {
    const file = join(folder, 'bad.yaml');
    writeFileSync(file, 'server:\n  prot: 1\n');
    const bad = await sluice('up', '--config', file);
    expect(bad.code).toBe(2);
    expect(bad.err).toContain('bad.yaml:2:3  server.prot');
    expect(await sluice('up', '--open-in', 'soon', '--data', join(folder, 'none'))).toMatchObject({
      code: 2,
      err: expect.stringContaining('--open-in'),
    });
  });
});

describe('the commands of the documents', () => {
  test('look without a server', async () => {
    expect(await sluice('config', 'check', 'examples/concert.yaml')).toMatchObject({ code: 0 });
    expect(await sluice('config', 'show', '--json')).toMatchObject({ code: 0 });
    expect(await sluice('--help')).toMatchObject({ code: 0 });
    const schema = await sluice('config', 'schema');
    expect(JSON.parse(schema.out)).toEqual(
      JSON.parse(readFileSync('docs/config.schema.json', 'utf8')),
    );
  });
});
