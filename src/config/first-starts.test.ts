import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Config } from './config.ts';
import { openActivities } from './first-starts.ts';
import { loadConfig } from './load.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-first-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

const startMs = 1_800_000_000_000;

function config(openIn?: string): Config {
  const loaded = loadConfig({
    text: '',
    name: 'x',
    environment: {},
    nowMs: startMs,
    ...(openIn === undefined ? {} : { overrides: { openIn } }),
  });
  if (!loaded.ok) throw new Error('the default configuration is good');
  return loaded.config;
}

test('a restart continues the sale and does not open it again', () => {
  const [first] = openActivities(config('5s'), folder, startMs);
  expect(first?.opensAtMs).toBe(startMs + 5_000);
  const [again] = openActivities(config('5s'), folder, startMs + 60_000);
  expect(again).toEqual(first);
});

test('a fresh folder is a fresh sale', () => {
  openActivities(config(), folder, startMs);
  const other = mkdtempSync(join(tmpdir(), 'sluice-first-'));
  try {
    const [sale] = openActivities(config(), other, startMs + 60_000);
    expect(sale?.lobbyOpensAtMs).toBe(startMs + 60_000);
  } finally {
    rmSync(other, { recursive: true });
  }
});

test('a sale added later counts from its own first start', () => {
  const one = config();
  openActivities(one, folder, startMs);
  const [plan] = one.activities;
  const two = { ...one, activities: [plan!, { ...plan!, activityId: 'second' }] };
  const [first, second] = openActivities(two, folder, startMs + 60_000);
  expect(first?.lobbyOpensAtMs).toBe(startMs);
  expect(second?.lobbyOpensAtMs).toBe(startMs + 60_000);
});

test('a write that was cut short before the move changes nothing', () => {
  writeFileSync(join(folder, 'first-starts.json.new'), '{"schema_ver');
  const [sale] = openActivities(config(), folder, startMs);
  expect(sale?.lobbyOpensAtMs).toBe(startMs);
  expect(JSON.parse(readFileSync(join(folder, 'first-starts.json'), 'utf8'))).toEqual({
    schema_version: 1,
    first_starts: { demo: new Date(startMs).toISOString() },
  });
});

test.each(['{', '{}', '{"first_starts":{"demo":"soon"}}', '[]'])(
  'a damaged file is told, never guessed around: %s',
  (text) => {
    writeFileSync(join(folder, 'first-starts.json'), text);
    expect(() => openActivities(config(), folder, startMs)).toThrow(/is damaged/);
  },
);
