import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, mkdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import { describe, expect, test } from 'vitest';

/** The library as others load it: by the package's own name, from the built files. */
const root = join(import.meta.dirname, '../..');
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  exports: Record<string, { types: string; default: string }>;
};
const names = ['express', 'fastify', 'hono', 'koa', 'http'] as const;

describe.each(names)('sluice/%s', (name) => {
  test('is exported, with its types, and offers rateLimit', async () => {
    const entry = manifest.exports[`./${name}`];
    expect(readFileSync(join(root, entry?.types ?? ''), 'utf8')).toContain('rateLimit');
    const specifier = `sluice/${name}`;
    const loaded = (await import(specifier)) as Record<string, unknown>;
    expect(typeof loaded['rateLimit']).toBe('function');
    expect(typeof loaded['RateLimitOptionError']).toBe('function');
  });

  test('brings pure code and one package with it: no store, no server, no framework', async () => {
    const result = await build({
      entryPoints: [join(root, manifest.exports[`./${name}`]?.default ?? '')],
      bundle: true,
      format: 'esm',
      platform: 'node',
      write: false,
      metafile: true,
      logLevel: 'silent',
    });
    const inputs = Object.keys(result.metafile.inputs).map((path) =>
      path.replace(/^.*?dist\//, 'dist/'),
    );
    const odd = inputs.filter(
      (path) => !/^dist\/(middleware|core|wire)\/|node_modules\/ipaddr\.js\//.test(path),
    );
    expect(odd).toEqual([]);
    expect(inputs.length).toBeGreaterThan(10);
  });

  test('does nothing on import: no timer, no handle, nothing on the terminal, and the process ends', () => {
    const script = `
      // Reading the modules themselves leaves file requests behind for a moment.
      const kinds = () => process.getActiveResourcesInfo().filter((kind) => !/^(FS|File|Close)/.test(kind));
      const before = kinds().length;
      const globals = Object.keys(globalThis).length;
      await import('sluice/${name}');
      if (kinds().length > before) throw new Error('left: ' + kinds());
      if (Object.keys(globalThis).length > globals) throw new Error('a global is left');`;
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      cwd: root,
      timeout: 20_000,
      encoding: 'utf8',
    });
    expect([run.status, run.stdout, run.stderr]).toEqual([0, '', '']);
  });
});

test('types are inferred: a handler knows its request, and a wrong option does not compile', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-types-'));
  try {
    mkdirSync(join(folder, 'node_modules', '@types'), { recursive: true });
    symlinkSync(root, join(folder, 'node_modules', 'sluice'));
    for (const known of [
      'express',
      'fastify',
      'hono',
      'koa',
      '@types/node',
      '@types/express',
      '@types/koa',
    ]) {
      symlinkSync(join(root, 'node_modules', known), join(folder, 'node_modules', known));
    }
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    writeFileSync(
      join(folder, 'use.ts'),
      `import express, { type Request, type Response } from 'express';
import fastify from 'fastify';
import Koa from 'koa';
import { createServer } from 'node:http';
import { rateLimit as forExpress } from 'sluice/express';
import { rateLimit as forFastify } from 'sluice/fastify';
import { rateLimit as forHttp } from 'sluice/http';
import { rateLimit as forKoa } from 'sluice/koa';
import { rateLimit as forHono } from 'sluice/hono';

express().use(forExpress({ limit: 100, window: '15m' }));
express().use(forExpress<Request, Response>({ rate: '5/s', key: (request) => request.ip }));
const app = fastify();
await app.register(forFastify, { limit: 5, key: (request) => String(request.raw.headers['x-user']) });
new Koa().use(forKoa<Koa.Context>({ limit: 5, key: (context) => context.ip }));
const limited = forHttp({ limit: 5, key: (request) => request.socket.remoteAddress });
createServer(async (request, response) => {
  const go: boolean = await limited(request, response);
  if (go) response.end();
});
forHono({ limit: 5, key: (context) => context.req.header('x-user') });
// @ts-expect-error: there is no such option
forExpress({ limitt: 5 });
// @ts-expect-error: a limit is a number
forKoa({ limit: '5' });
`,
    );
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const flags = [
      '--noEmit',
      '--strict',
      '--module',
      'nodenext',
      '--target',
      'es2022',
      '--skipLibCheck',
      '--types',
      'node',
    ];
    const run = spawnSync(process.execPath, [tsc, ...flags, 'use.ts'], {
      cwd: folder,
      encoding: 'utf8',
    });
    expect(run.stdout).toBe('');
    expect(run.status).toBe(0);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
