import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { describe, expect, it } from 'vitest';

/** `sluice/client` as others load it: by the package's own name, from the built files. */
const entry = join(import.meta.dirname, '../../dist/sdk/index.js');
const sizeMax = 8 * 1024;

async function bundle(contents: string): Promise<{ bytes: number; imports: string[] }> {
  const result = await build({
    stdin: { contents, resolveDir: import.meta.dirname, loader: 'js' },
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    write: false,
    metafile: true,
  });
  const outside = Object.keys(result.metafile.inputs).filter(
    (path) => !path.includes('dist/sdk/') && path !== '<stdin>',
  );
  return {
    bytes: gzipSync(result.outputFiles[0]!.contents, { level: 9 }).length,
    imports: outside,
  };
}

describe('sluice/client', () => {
  it('loads by name and offers what it says', async () => {
    const name = 'sluice/client';
    const client = (await import(name)) as Record<string, unknown>;
    for (const offered of [
      'createClient',
      'systemEnvironment',
      'watchStanding',
      'debounce',
      'throttle',
    ])
      expect([offered, typeof client[offered]]).toEqual([offered, 'function']);
  });

  it('imports nothing from outside itself and stays within 8 KiB compressed', async () => {
    const whole = await bundle(`export * from ${JSON.stringify(entry)}`);
    expect(whole.imports).toEqual([]);
    expect(whole.bytes).toBeGreaterThan(1_000);
    expect(whole.bytes).toBeLessThanOrEqual(sizeMax);
  });

  it('has a negative control: a client that carried more would be seen', async () => {
    const more = join(import.meta.dirname, '../../node_modules/uplot/dist/uPlot.esm.js');
    const heavy = await bundle(
      `export * from ${JSON.stringify(entry)}; export * from ${JSON.stringify(more)}`,
    );
    expect(heavy.imports).not.toEqual([]);
    expect(heavy.bytes).toBeGreaterThan(sizeMax);
  });

  it('speaks from Node to a real server', async () => {
    const seen: string[] = [];
    const server = createServer((request, response) => {
      seen.push(`${request.method} ${request.url} ${request.headers.authorization}`);
      response.setHeader('content-type', 'application/json');
      response.statusCode = request.method === 'POST' ? 201 : 200;
      response.end(
        JSON.stringify({
          entry_id: 'e',
          entry_token: 't',
          state: 'waiting',
          next_poll_after_ms: 60_000,
        }),
      );
    });
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    try {
      const { createClient, systemEnvironment } = await import('../../src/sdk/index.ts');
      const client = createClient({
        env: systemEnvironment(),
        baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
        userToken: () => 'token',
      });
      expect(await client.join('a')).toMatchObject({ ok: true, status: 201 });
      const first = await new Promise((resolve) => {
        const watch = client.watch('a', {
          onStanding: (standing) => {
            watch.stop();
            resolve(standing.state);
          },
        });
      });
      expect(first).toBe('waiting');
      expect(seen).toEqual([
        'POST /v1/activities/a/entries Bearer token',
        'GET /v1/activities/a/entries/me Bearer token',
      ]);
    } finally {
      server.close();
      server.closeAllConnections();
    }
  });
});
