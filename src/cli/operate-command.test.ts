import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemRandom } from '../app/system.ts';
import { openDataFolder } from '../stores/data-folder.ts';
import { runCommand } from './program.ts';

let folder = '';
let server: Server;
let url = '';
let answer: unknown = {};
let byPath: Readonly<Record<string, unknown>> = {};
let status = 200;
let seen: { path: string; authorization: string; body: string }[] = [];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-operate-'));
  seen = [];
  status = 200;
  byPath = {};
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      const authorization = request.headers.authorization ?? '';
      seen.push({ path: `${request.method} ${request.url}`, authorization, body });
      response.writeHead(status, { 'content-type': 'application/json' });
      const said = byPath[request.url ?? ''] ?? answer;
      response.end(typeof said === 'string' ? said : JSON.stringify(said));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

async function sluice(argv: readonly string[], environment: Record<string, string> = {}) {
  let out = '';
  let err = '';
  const code = await runCommand(argv, '0', {
    environment,
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
    isTty: false,
    errIsTty: false,
    nowMs: () => 0,
    stopSignal: () => Promise.resolve('SIGTERM'),
  });
  return { code, out, err };
}

const access = () => ({ SLUICE_ADMIN_URL: `${url}/`, SLUICE_ADMIN_TOKEN: 't' });

test('a ledger that closes exits 0, one that does not exits 1 and says by how much', async () => {
  answer = { residual: 0, arrivals: 5, at_rest: true };
  expect(await sluice(['verify', 'ledger'], access())).toMatchObject({
    code: 0,
    out: expect.stringContaining('closes'),
  });
  expect(seen.map(({ path }) => path)).toEqual([
    'GET /admin/v1/ledger',
    'GET /admin/v1/ledger/queue',
  ]);
  answer = { residual: 3, arrivals: 9 };
  const open = await sluice(['verify', 'ledger'], access());
  expect(open).toMatchObject({ code: 1, out: expect.stringContaining('3 requests came in') });
  const json = await sluice(['verify', 'ledger', '--json'], access());
  expect(json.code).toBe(1);
  expect(JSON.parse(json.out)).toEqual({
    residual: 3,
    arrivals: 9,
    queue: { residual: 3, arrivals: 9 },
    verdict: 'broken',
  });
});

test('a queue that does not add up opens the ledger, and is named', async () => {
  byPath = {
    '/admin/v1/ledger': { residual: 0 },
    '/admin/v1/ledger/queue': { residual: 2, produced: 5, at_rest: true },
  };
  const lost = await sluice(['verify', 'ledger'], access());
  expect(lost.code).toBe(1);
  expect(lost.out).toContain('closes  every request');
  expect(lost.out).toContain('queue: 2 messages were produced and have no fate');
  byPath = { ...byPath, '/admin/v1/ledger/queue': { residual: -1, at_rest: false } };
  expect(await sluice(['verify', 'ledger'], access())).toMatchObject({
    code: 1,
    out: expect.stringContaining('queue: 1 fates are of messages that the queue does not know'),
  });
  byPath = { ...byPath, '/admin/v1/ledger/queue': { residual: 0, at_rest: false } };
  expect(await sluice(['verify', 'ledger'], access())).toMatchObject({
    code: 0,
    out: expect.stringContaining('as far as can be told while it moves'),
  });
});

test('console prints a link that signs one browser in', async () => {
  answer = { url: 'http://127.0.0.1:9090/#sign-in=x', expires_at: '2027-01-01T00:00:00.000Z' };
  const made = await sluice(['console', '--role', 'viewer', '--name', 'ann'], access());
  expect(made).toEqual({ code: 0, out: 'http://127.0.0.1:9090/#sign-in=x\n', err: '' });
  expect(seen[0]?.path).toBe('POST /admin/v1/sign-in-links');
  expect(JSON.parse(seen[0]?.body ?? '')).toEqual({ role: 'viewer', name: 'ann' });
  expect(JSON.parse((await sluice(['console', '--json'], access())).out)).toEqual(answer);
  expect(JSON.parse(seen[1]?.body ?? '')).toEqual({ role: 'operator', name: 'operator' });
  status = 400;
  answer = { detail: 'role: found "king", allowed: viewer, operator, approver, admin' };
  expect(await sluice(['console', '--role', 'king'], access())).toMatchObject({
    code: 2,
    err: expect.stringContaining('found \\"king\\"'),
  });
});

test('reconcile looks, or repairs with a reason for the audit', async () => {
  answer = { findings: [] };
  expect((await sluice(['reconcile', '--dry-run'], access())).code).toBe(0);
  expect(JSON.parse(seen[0]?.body ?? '')).toEqual({ dry_run: true, reason: 'only looking' });
  expect(seen[0]?.path).toBe('POST /admin/v1/commands/reconcile');
  expect(await sluice(['reconcile'], access())).toMatchObject({
    code: 2,
    err: expect.stringContaining('--reason'),
  });
  answer = { findings: [{ class: 'stock_differs' }] };
  const repaired = await sluice(['reconcile', '--reason', 'power cut'], access());
  expect(repaired).toMatchObject({ code: 1, out: expect.stringContaining('stock_differs') });
  expect(JSON.parse(seen.at(-1)?.body ?? '')).toEqual({ dry_run: false, reason: 'power cut' });
});

test('recover needs a reason, and says what was rebuilt', async () => {
  answer = { rebuilt: [{}, {}] };
  const done = await sluice(['recover', '--reason', 'disk lost'], access());
  expect(done).toMatchObject({ code: 0, out: expect.stringContaining('2 SKUs') });
  expect(seen[0]).toMatchObject({
    path: 'POST /admin/v1/commands/recover',
    body: '{"reason":"disk lost"}',
  });
  expect((await sluice(['recover'], access())).code).toBe(2);
});

test('the server is found by the lock of its data folder, its credential beside it', async () => {
  const lock = await openDataFolder({ path: folder, random: systemRandom, adminUrl: url });
  try {
    const without = await sluice(['verify', 'ledger', '--data', folder]);
    expect(without).toMatchObject({ code: 2, err: expect.stringContaining('credential') });
    writeFileSync(join(folder, 'admin-token'), 'from-file\n', { mode: 0o600 });
    answer = { residual: 0 };
    expect((await sluice(['verify', 'ledger', '--data', folder])).code).toBe(0);
    expect(seen.at(-1)?.authorization).toBe('Bearer from-file');
  } finally {
    await lock.release();
  }
  const gone = await sluice(['verify', 'ledger', '--data', folder]);
  expect(gone).toMatchObject({ code: 2, err: expect.stringContaining('no server is running') });
  const nowhere = await sluice(['verify', 'ledger', '--data', join(folder, 'none')]);
  expect(nowhere).toMatchObject({ code: 2, err: expect.stringContaining('found no folder') });
});

test('a folder that many processes share is locked by none: control says where it is', async () => {
  const config = join(folder, 'many.yaml');
  const stores = {
    admission: 'redis://127.0.0.1:1',
    inventory: 'redis://127.0.0.1:2',
    orders: 'postgres://x@127.0.0.1:3/x',
    queue: 'redis-streams',
  };
  writeFileSync(config, JSON.stringify({ data: folder, stores, server: { admin_port: 0 } }));
  writeFileSync(join(folder, 'admin-token'), 'from-file\n', { mode: 0o600 });
  const unknown = await sluice(['verify', 'ledger', '--config', config]);
  expect(unknown).toMatchObject({ code: 2, err: expect.stringContaining('does not say where') });
  writeFileSync(join(folder, 'admin-url'), `${url}\n`);
  answer = { residual: 0 };
  expect((await sluice(['verify', 'ledger', '--config', config])).code).toBe(0);
  expect(seen.at(-1)?.authorization).toBe('Bearer from-file');
});

test.each([
  [500, '{}', /answered 500/],
  [200, 'not json', /expected JSON/],
  [200, '{"residual":null}', /no number "residual"/],
])('answer %d %s is told, exit 2', async (code, text, message) => {
  status = code;
  answer = text;
  const { code: exit, err } = await sluice(['verify', 'ledger'], access());
  expect(exit).toBe(2);
  expect(err).toMatch(message);
});

test('half an access in the environment is a mistake', async () => {
  const { code, err } = await sluice(['verify', 'ledger'], { SLUICE_ADMIN_URL: url });
  expect(code).toBe(2);
  expect(err).toContain('found only SLUICE_ADMIN_URL');
});

test('rush checks its flags', async () => {
  const { code, err } = await sluice(['rush', '--people', 'many', '--embedded']);
  expect(code).toBe(2);
  expect(err).toContain('--people');
});
