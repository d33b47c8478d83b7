import { describe, expect, test } from 'vitest';
import { ofOneProcess } from './config.ts';
import type { StoreOptions } from './config.ts';
import { loadConfig } from './load.ts';
import { showYaml } from './show.ts';

function load(stores: string): ReturnType<typeof loadConfig> {
  const text = `stores: { ${stores} }\nactivities: []\n`;
  return loadConfig({ text, name: 'sale.yaml', environment: {}, nowMs: 0 });
}

function storesOf(stores: string): StoreOptions {
  const loaded = load(stores);
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  return loaded.config.stores;
}

function problemsOf(stores: string): readonly string[] {
  const loaded = load(stores);
  return loaded.ok
    ? []
    : loaded.problems.map(({ path, found, allowed }) => `${path}: ${found}; ${allowed}`);
}

const many =
  'admission: "redis://a:6379", inventory: "redis://b:6379", orders: "postgres://u:p@c/sluice", queue: redis-streams';

describe('stores', () => {
  test('by default they are of one process, and say which', () => {
    expect(ofOneProcess(storesOf(''))).toBe(
      'stores.admission: memory, stores.inventory: memory, stores.orders: pglite',
    );
    expect(ofOneProcess(storesOf('admission: "redis://a"'))).not.toMatch(/admission/);
    expect(ofOneProcess(storesOf(many))).toBeUndefined();
  });

  test('servers, TLS, and clusters by some of their nodes, all with one login', () => {
    expect(storesOf(many)).toMatchObject({
      admission: { kind: 'redis', urls: ['redis://a:6379'], cluster: false },
      orders: { kind: 'postgres', url: 'postgres://u:p@c/sluice' },
      queue: { kind: 'redis-streams' },
      prefix: 'sluice',
    });
    const cluster = 'admission: "redis-cluster://me:pw@a:7000,b:7001,[::1]:7002"';
    expect(storesOf(cluster).admission).toEqual({
      kind: 'redis',
      urls: ['redis://me:pw@a:7000', 'redis://me:pw@b:7001', 'redis://me:pw@[::1]:7002'],
      cluster: true,
    });
    expect(storesOf('admission: "rediss://a:6380"').admission).toMatchObject({ cluster: false });
  });

  test('the queue lies where the inventory lies, and it is said why', () => {
    expect(problemsOf('queue: redis-streams')).toEqual([
      expect.stringMatching(/stores\.queue: redis-streams with inventory: memory; .*same step/),
    ]);
    expect(problemsOf('inventory: "redis://b"')).toEqual([
      expect.stringMatching(/stores\.queue: memory with an inventory in Redis; .*same step/),
    ]);
  });

  test('a broker by some of its servers, all with one login, with an inventory in Redis', () => {
    const queueOf = (queue: string): StoreOptions['queue'] =>
      storesOf(many.replace('redis-streams', `"${queue}"`)).queue;
    expect(queueOf('nats://me:p%40ss@a:4222,b?replicas=3')).toEqual({
      kind: 'nats',
      urls: ['nats://me:p%40ss@a:4222', 'nats://me:p%40ss@b'],
      replicas: 3,
    });
    expect(queueOf('nats+tls://token@a')).toEqual({
      kind: 'nats',
      urls: ['tls://token@a'],
      replicas: 1,
    });
    expect(queueOf('kafka://a:9092/')).toEqual({
      kind: 'kafka',
      urls: ['kafka://a:9092'],
      replicas: 1,
    });
    expect(queueOf('kafka+tls://a').kind).toBe('kafka');
    expect(problemsOf('queue: "nats://me:hunter2@a"')).toEqual([
      expect.stringMatching(/stores\.queue: nats:\/\/\*\*\*@a with inventory: memory; .*same step/),
    ]);
  });

  test.each([
    'rabbit://a',
    'nats://',
    'kafka://a,,b',
    'nats://a?replicas=9',
    'nats://a b',
    'kafka',
  ])('queue: %s is refused with what is allowed', (queue) => {
    const [problem = ''] = problemsOf(`queue: "${queue}"`);
    expect(problem).toMatch(/memory, redis-streams, nats:\/\//);
  });

  test.each([
    'admission: redis',
    'admission: "http://a"',
    'admission: "redis://"',
    'admission: "redis-cluster://"',
    'admission: "redis-cluster://a:7000,,b"',
    'orders: "postgres://host"',
    'orders: memory',
    'inventory: "redis://a b"',
  ])('%s is refused with what is allowed', (stores) => {
    const [problem = ''] = problemsOf(stores);
    expect(problem).toMatch(/memory, redis:\/\/|pglite, or postgres:\/\//);
  });

  test('a password is never shown, neither in what is in force nor in what is refused', () => {
    const loaded = load(many.replace('redis://a', 'redis://me:hunter2@a'));
    if (!loaded.ok) throw new Error('not good');
    const shown = showYaml(loaded.written);
    expect(shown).toContain('redis://***@a:6379');
    expect(shown).toContain('postgres://***@c/sluice');
    expect(shown).not.toMatch(/hunter2|u:p@/);
    const refused = problemsOf('admission: "redi://me:hunter2@a"').join();
    expect(refused).toContain('redi://***@a');
    expect(refused).not.toContain('hunter2');
  });
});
