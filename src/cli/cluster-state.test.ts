import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findLocalCluster } from './cluster-state.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'cluster-state-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const place = (name: string): string => join(folder, name);

test('a cluster is found by what its script wrote, credential and all', () => {
  writeFileSync(place('token'), 'secret-of-the-operator\n');
  const about = {
    config: 'cluster.yaml',
    environment: { SLUICE_ORDERS: 'postgres://x' },
    processes: { control: 17 },
  };
  const state = {
    shop: 'http://a',
    operator: 'http://b',
    admin_token_file: place('token'),
    ...about,
  };
  writeFileSync(place('state.json'), JSON.stringify(state));
  expect(findLocalCluster(place('state.json'))).toEqual({
    shop: 'http://a',
    operator: 'http://b',
    adminToken: 'secret-of-the-operator',
    ...about,
  });
});

test('where none runs, or it is gone, that is said with what is allowed', () => {
  const hint = /npm run cluster/;
  expect(() => findLocalCluster(place('none.json'))).toThrow(hint);
  writeFileSync(place('broken.json'), '{');
  expect(() => findLocalCluster(place('broken.json'))).toThrow(/not JSON/);
  writeFileSync(place('half.json'), '{}');
  expect(() => findLocalCluster(place('half.json'))).toThrow(/admin_token_file/);
  const gone = { shop: 'http://a', operator: 'http://b', admin_token_file: place('gone') };
  writeFileSync(place('gone.json'), JSON.stringify(gone));
  expect(() => findLocalCluster(place('gone.json'))).toThrow(/is gone/);
});
