import {
  chmodSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SeededRandom } from '../../test/support/world.ts';
import { nonceOf, pathIdOf } from '../core/pass/path-id.ts';
import { openToken, sealToken } from '../core/pass/token.ts';
import { listKeys, newKey, openKeys, reloadKeys, retireKey, rotateKeys } from './keys-folder.ts';

const nowMs = 1_800_000_000_000;
let folder = '';
let context = { nowMs, random: new SeededRandom('keys') };

beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'sluice-keys-')), 'keys');
  context = { nowMs, random: new SeededRandom('keys') };
});
afterEach(() => rmSync(join(folder, '..'), { recursive: true, force: true }));

test('absent keys are made once, for the owner only', () => {
  const first = openKeys(folder, context);
  for (const name of readdirSync(folder)) {
    expect(statSync(join(folder, name)).mode & 0o777, name).toBe(0o600);
  }
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  const token = sealToken(first.rings.pass, { sub: 'a' });
  const again = openKeys(folder, context);
  expect(openToken(again.rings.pass, token, nowMs).ok).toBe(true);
  expect(again.pathMac('x')).toBe(first.pathMac('x'));
  expect(again.nonceMac('x')).not.toBe(first.pathMac('x'));
  expect(openToken(again.rings.entry, token, nowMs).ok).toBe(false);
});

test('rotation has no pause, and a running server follows by reloading', () => {
  const { rings } = openKeys(folder, context);
  const old = sealToken(rings.pass, {});
  const waiting = newKey(folder, 'pass', 'EdDSA', context);
  reloadKeys(folder, rings);
  expect(rings.pass.signer().kid).not.toBe(waiting);
  expect(rotateKeys(folder, 'pass', context)).toBe(waiting);
  reloadKeys(folder, rings);
  expect(rings.pass.signer().kid).toBe(waiting);
  const fresh = sealToken(rings.pass, {});
  expect([openToken(rings.pass, old, nowMs).ok, openToken(rings.pass, fresh, nowMs).ok]).toEqual([
    true,
    true,
  ]);
  expect(openToken(rings.pass, old, nowMs + 15 * 60_000).ok).toBe(false);

  const [first] = listKeys(folder).filter((info) => info.type === 'pass');
  expect(() => retireKey(folder, waiting, context)).toThrow(/rotate first/);
  expect(retireKey(folder, first!.kid, context)).toBe('pass');
  reloadKeys(folder, rings);
  expect(openToken(rings.pass, old, nowMs)).toEqual({ ok: false, reason: 'key' });
  expect(openToken(rings.pass, fresh, nowMs).ok).toBe(true);
  expect(() => retireKey(folder, 'nobody', context)).toThrow(/"nobody"/);
});

test('rotation without a waiting key makes one, and forgets those long past', () => {
  openKeys(folder, context);
  const second = rotateKeys(folder, 'user', context);
  const later = { ...context, nowMs: nowMs + 30 * 24 * 3_600_000 };
  const third = rotateKeys(folder, 'user', later);
  expect(listKeys(folder).filter((info) => info.type === 'user')).toMatchObject([
    { kid: second, signs: false },
    { kid: third, signs: true, algorithm: 'HS256' },
  ]);
  expect(readFileSync(join(folder, 'user.json'), 'utf8')).toContain(third);
});

test('keys that others can read are refused, and so is a broken file', () => {
  openKeys(folder, context);
  chmodSync(join(folder, 'pass.json'), 0o644);
  expect(() => openKeys(folder, context)).toThrow(/mode 644.*chmod 600/);
  chmodSync(join(folder, 'pass.json'), 0o600);
  writeFileSync(join(folder, 'pass.json'), '{"schema_version":2}');
  expect(() => openKeys(folder, context)).toThrow(/not a key file of version 1/);
});

test('two changes at once: the second is told, and a change cut short does not block for ever', () => {
  openKeys(folder, context);
  writeFileSync(join(folder, 'pass.json.lock'), '');
  const made = statSync(join(folder, 'pass.json.lock')).mtimeMs;
  expect(() => newKey(folder, 'pass', 'HS256', { ...context, nowMs: made })).toThrow(/under way/);
  newKey(folder, 'pass', 'HS256', { ...context, nowMs: made + 60_000 });
  writeFileSync(join(folder, 'pass.json.new'), 'half a fi');
  newKey(folder, 'pass', 'HS256', context);
  expect(listKeys(folder).filter((info) => info.type === 'pass')).toHaveLength(3);
});

test('a folder holds a bounded number of keys', () => {
  openKeys(folder, context);
  for (let made = 1; made < 32; made += 1) newKey(folder, 'entry', 'HS256', context);
  expect(() => newKey(folder, 'entry', 'HS256', context)).toThrow(/at most 32/);
});

test('path ids and nonces differ in every part they are made of', () => {
  const { pathMac } = openKeys(folder, context);
  const sku = { activityId: 'a', skuId: 's' };
  const ids = [
    pathIdOf(pathMac, sku, 1),
    pathIdOf(pathMac, sku, 2),
    pathIdOf(pathMac, { ...sku, skuId: 't' }, 1),
    pathIdOf(pathMac, { ...sku, activityId: 'b' }, 1),
  ];
  expect(new Set(ids).size).toBe(4);
  for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{16}$/);
  const nonces = [
    nonceOf(pathMac, 'a', 'e', 's', 1),
    nonceOf(pathMac, 'a', 'e', 's', 2),
    nonceOf(pathMac, 'a', 'e', 't', 1),
    nonceOf(pathMac, 'a', 'f', 's', 1),
    nonceOf(pathMac, 'b', 'e', 's', 1),
  ];
  expect(new Set(nonces).size).toBe(5);
  for (const nonce of nonces) expect(nonce).toMatch(/^[A-Za-z0-9_-]{22}$/);
});
