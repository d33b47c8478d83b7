import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { RoomWorld, person } from '../../test/support/room.ts';
import { auditLines } from '../control/room-audit.ts';
import { runCommand } from './program.ts';

let folder = '';
let file = '';
let text = '';
let entry = '';

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-draw-'));
  file = join(folder, 'audit.jsonl');
  const world = await RoomWorld.started({
    skus: [{ skuId: 'fri', stock: 5 }],
    room: { maxAdmissionsPerSecond: 20 },
  });
  for (let at = 0; at < 30; at += 1) {
    await world.door.join('concert', { ...person(`p${at}`) }, { skuIds: ['fri'] });
  }
  entry = await world.door.entryIdOf('concert', 'p7');
  await world.open();
  await world.run(2_000);
  for await (const line of auditLines(world.store, world.activity)) text += line;
  writeFileSync(file, text);
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

async function verify(...argv: string[]) {
  let out = '';
  let err = '';
  const code = await runCommand(['verify', 'draw', ...argv], '0', {
    environment: {},
    out: (said) => {
      out += said;
    },
    err: (said) => {
      err += said;
    },
    isTty: false,
    errIsTty: false,
    nowMs: () => 0,
    stopSignal: () => Promise.resolve('SIGTERM'),
  });
  return { code, out, err };
}

test('a draw that was made as promised holds, and says which promise', async () => {
  const { code, out } = await verify(file);
  expect(code).toBe(0);
  expect(out).toContain('holds  activity concert: 30 in the lobby of 30');
  expect(out).toContain('secret committed before the lobby');
});

test('one byte changed: broken, with the line', async () => {
  const lines = text.split('\n');
  lines[4] = (lines[4] ?? '').replace(/[A-Za-z0-9]/, (one) => (one === 'A' ? 'B' : 'A'));
  const forged = join(folder, 'forged.jsonl');
  writeFileSync(forged, lines.join('\n'));
  const { code, out } = await verify(forged, '--json');
  expect(code).toBe(1);
  const said = JSON.parse(out) as { verdict: string; problems: { line: number }[] };
  expect(said.verdict).toBe('broken');
  expect(said.problems.length).toBeGreaterThan(0);
  expect((await verify(forged)).out).toMatch(/line \d+ /);
});

test('--entry shows its place, or that it was not there', async () => {
  const { code, out } = await verify(file, '--entry', entry);
  expect(code).toBe(0);
  expect(out).toMatch(/leaf 8 of 30, drawn as number \d+, value 0\.\d+/);
  const json = await verify(file, '--entry', entry, '--json');
  expect(JSON.parse(json.out)).toMatchObject({
    inclusion: { entry_id: entry, index: 7, size: 30 },
  });
  const stranger = await verify(file, '--entry', 'nobody');
  expect(stranger).toMatchObject({ code: 1, out: expect.stringContaining('absent') });
});

test('--checkpoint: what the shop had shown must be in it; how far the file goes is said', async () => {
  const said = JSON.parse((await verify(file, '--json')).out) as { checkpoint: string };
  const { code, out } = await verify(file, '--checkpoint', said.checkpoint);
  expect(code).toBe(0);
  expect(out).toMatch(/so far: \d+ decisions of a sale that had not closed/);
  expect(out).toContain(`checkpoint ${said.checkpoint}`);
  const ahead = said.checkpoint.replace(/^\d+/, (n) => `${Number(n) + 1}`);
  expect(await verify(file, '--checkpoint', ahead)).toMatchObject({
    code: 1,
    out: expect.stringContaining('the end of the file'),
  });
});

test('a file that is not there is a usage error', async () => {
  expect(await verify(join(folder, 'none'))).toMatchObject({
    code: 2,
    err: expect.stringContaining('ENOENT'),
  });
});
