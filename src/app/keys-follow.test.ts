import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SeededRandom, World } from '../../test/support/world.ts';
import { openToken, sealToken } from '../core/pass/token.ts';
import { followKeys, followKeysEveryMs } from './keys-follow.ts';
import { type Keys, openKeys, retireKey, rotateKeys } from './keys-folder.ts';

let folder = '';
let world: World;
let keys: Keys;
let random = new SeededRandom('keys');
let reloads = 0;
let faults: unknown[] = [];
let end: () => void = () => undefined;

const context = () => ({ nowMs: world.wallMs(), random: random });

beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'sluice-keys-')), 'keys');
  world = new World();
  random = new SeededRandom('keys');
  keys = openKeys(folder, context());
  reloads = 0;
  faults = [];
  end = followKeys({
    folder,
    rings: keys.rings,
    timers: world,
    onReload: () => (reloads += 1),
    onError: (error) => faults.push(error),
  });
});
afterEach(() => {
  end();
  rmSync(join(folder, '..'), { recursive: true, force: true });
});

test('a running server takes up rotation and retirement within a second', async () => {
  const old = sealToken(keys.rings.pass, {});
  const leaked = keys.rings.pass.signer().kid;
  const next = rotateKeys(folder, 'pass', context());
  expect(keys.rings.pass.signer().kid).toBe(leaked);
  await world.advance(followKeysEveryMs);
  expect(keys.rings.pass.signer().kid).toBe(next);
  expect(openToken(keys.rings.pass, old, world.wallMs()).ok).toBe(true);

  retireKey(folder, leaked, context());
  await world.advance(followKeysEveryMs);
  expect(openToken(keys.rings.pass, old, world.wallMs())).toEqual({
    ok: false,
    reason: 'key',
  });
  await world.advance(60 * followKeysEveryMs);
  expect(reloads, 'unchanged files are not read again').toBe(2);
});

test('files that cannot be read change nothing, and are told of once', async () => {
  const old = sealToken(keys.rings.pass, {});
  writeFileSync(join(folder, 'pass.json'), '{');
  await world.advance(10 * followKeysEveryMs);
  expect(openToken(keys.rings.pass, old, world.wallMs()).ok).toBe(true);
  rmSync(join(folder, 'pass.json'));
  await world.advance(10 * followKeysEveryMs);
  expect(openToken(keys.rings.pass, old, world.wallMs()).ok).toBe(true);
  expect([reloads, faults.length]).toEqual([0, 2]);
});
