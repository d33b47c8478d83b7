import { beforeAll, expect, test } from 'vitest';
import { RoomWorld, person } from '../../../test/support/room.ts';
import { auditLines } from '../../control/room-audit.ts';
import { verifyDraw } from '../../core/room/audit.ts';
import { judgeAudit } from './draw-check.ts';

let text = '';
let commitment = '';

beforeAll(async () => {
  const world = await RoomWorld.started({
    skus: [{ skuId: 'fri', stock: 5 }],
    room: { maxAdmissionsPerSecond: 20 },
  });
  for (let at = 0; at < 30; at += 1) {
    await world.door.join('concert', { ...person(`p${at}`) }, { skuIds: ['fri'] });
  }
  await world.open();
  await world.run(2_000);
  for await (const line of auditLines(world.store, world.activity)) text += line;
  commitment = (JSON.parse(text.slice(0, text.indexOf('\n'))) as { commitment: string }).commitment;
});

test('the audit of the draw that was committed to, with everybody in it', () => {
  expect(judgeAudit(text, { commitment }, 30)).toMatchObject({
    kind: 'reproduced',
    detail: expect.stringContaining('30 in the lobby'),
  });
  expect(judgeAudit(text, { commitment: undefined }, 0).kind).toBe('reproduced');
});

test('another commitment than the page had shown', () => {
  expect(judgeAudit(text, { commitment: 'ab'.repeat(32) }, 30)).toMatchObject({
    kind: 'wrong',
    why: expect.stringContaining('the page had committed to abab'),
  });
});

test('decisions that the shop had shown and the file lacks', () => {
  const { checkpoint } = verifyDraw(text);
  expect(judgeAudit(text, { commitment, checkpoint }, 30).kind).toBe('reproduced');
  const ahead = checkpoint.replace(/^\d+/, (n) => `${Number(n) + 1}`);
  expect(judgeAudit(text, { commitment, checkpoint: ahead }, 30)).toMatchObject({
    kind: 'wrong',
    why: expect.stringContaining('the end of the file'),
  });
});

test('somebody who joined is not in it', () => {
  expect(judgeAudit(text, { commitment }, 31)).toMatchObject({
    kind: 'wrong',
    why: expect.stringContaining('lists 30 entries, 31 people'),
  });
});

test('one byte changed, or no audit at all', () => {
  const at = Math.floor(text.length / 2);
  const changed = `${text.slice(0, at)}${text[at] === 'a' ? 'b' : 'a'}${text.slice(at + 1)}`;
  expect(judgeAudit(changed, { commitment }, 30).kind).toBe('wrong');
  expect(judgeAudit('', { commitment }, 0).kind).toBe('wrong');
  expect(judgeAudit('{"kind":"else"}\n', { commitment }, 0).kind).toBe('wrong');
});
