import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import type { Config } from '../config/config.ts';
import { closeWithinMs, serve } from './up-command.ts';
import type { RunningServer, UpOptions } from './up-command.ts';

let folder = '';
let sale = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-up-'));
  sale = join(folder, 'sale.yaml');
  writeFileSync(sale, 'data: ./here\n');
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const urls = { shop: 'http://127.0.0.1:8080', operator: 'http://127.0.0.1:9090' };

function scene(server: Partial<RunningServer>, failure?: Error) {
  const world = new World();
  const seen: { out: string; err: string; config?: Config } = { out: '', err: '' };
  let stop = (_signal: string): void => undefined;
  const surroundings = {
    environment: {},
    out: (text: string) => {
      seen.out += text;
    },
    err: (text: string) => {
      seen.err += text;
    },
    isTty: false,
    errIsTty: false,
    nowMs: () => world.wallMs(),
    stopSignal: () =>
      new Promise<string>((resolve) => {
        stop = resolve;
      }),
  };
  const parts = {
    timers: world,
    start: (config: Config) => {
      seen.config = config;
      if (failure !== undefined) return Promise.reject(failure);
      return Promise.resolve({ urls, close: () => Promise.resolve(), ...server });
    },
  };
  return {
    world,
    seen,
    stop: (signal: string) => stop(signal),
    run: (options: UpOptions = {}) => serve({ config: sale, ...options }, surroundings, parts),
  };
}

test('prints where everything is, serves until asked to stop, and closes', async () => {
  let closed = false;
  const { seen, stop, run } = scene({
    close: () => {
      closed = true;
      return Promise.resolve();
    },
  });
  const running = run({ stock: '7', port: '0' });
  await new Promise((resolve) => setImmediate(resolve));
  expect(seen.out).toContain('http://127.0.0.1:8080');
  expect(seen.out).toContain('http://127.0.0.1:9090');
  expect(seen.out).toContain('7 units, opens 30s after its first start');
  expect(seen.out).not.toContain('\u001B');
  expect(seen.config?.server.port).toBe(0);
  expect(closed).toBe(false);
  stop('SIGTERM');
  expect(await running).toBe(0);
  expect(closed).toBe(true);
  expect(seen.err).toContain('SIGTERM');
});

test('--json is one line that a program can read', async () => {
  const { seen, stop, run } = scene({ urls: { ...urls, signIn: 'http://x/#once' } });
  const running = run({ json: true });
  await new Promise((resolve) => setImmediate(resolve));
  expect(JSON.parse(seen.out)).toEqual({
    event: 'listening',
    ...urls,
    sign_in: 'http://x/#once',
    data: './here',
    activities: ['demo'],
  });
  stop('SIGINT');
  expect(await running).toBe(0);
});

test('a stop that hangs is cut at its bound, and says so', async () => {
  const { world, seen, stop, run } = scene({ close: () => new Promise(() => undefined) });
  const running = run();
  await new Promise((resolve) => setImmediate(resolve));
  stop('SIGTERM');
  await world.advance(closeWithinMs - 1);
  expect(seen.err).not.toContain('Not closed');
  await world.advance(1);
  expect(await running).toBe(1);
  expect(seen.err).toContain('Not closed within 10s');
});

test.each([
  ['EADDRINUSE', 8080, /127\.0\.0\.1:8080 is taken .* --port N/],
  ['EADDRINUSE', 9090, /127\.0\.0\.1:9090 is taken .* --admin-port N/],
  ['EACCES', 8080, /may not be used/],
])('%s on %d is a usage error that names the flag', async (code, port, message) => {
  const failure = Object.assign(new Error('listen'), { code, port });
  await expect(scene({}, failure).run()).rejects.toThrow(message);
});

test('any other failure keeps its own words', async () => {
  await expect(scene({}, new Error('the folder is taken')).run()).rejects.toThrow(
    'the folder is taken',
  );
});
