import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { person, RoomWorld, voucherMac } from '../../test/support/room.ts';
import { leadingZeroBits, solveChallenge } from '../core/pass/challenge.ts';
import type { ChallengeDemand, JoinResult } from './door.ts';

const demandOf = (result: JoinResult): ChallengeDemand => {
  if (result.kind !== 'challenge') throw new Error(`no challenge: ${result.kind}`);
  return result.demand;
};

const world = (minBits = 6, maxBits = 12) =>
  RoomWorld.started({ room: { challenge: { kind: 'proof_of_work', minBits, maxBits } } });

describe('proof of work', () => {
  test('demanded on joining, answered once, and never again of somebody who has a place', async () => {
    const w = await world();
    const join = (name: string, challenge?: string) =>
      w.door.join('concert', person(name), {
        skuIds: [],
        ...(challenge === undefined ? {} : { challenge }),
      });
    const first = await join('ann');
    expect(first).toMatchObject({ kind: 'challenge', reason: 'none' });
    const { token, bits } = demandOf(first);
    const answer = solveChallenge(token, bits);
    expect(answer.length).toBeLessThanOrEqual(1024);
    expect(await join('ann', answer)).toMatchObject({ kind: 'joined', created: true });
    expect(await join('ann')).toMatchObject({ kind: 'joined', created: false });
    await w.door.leave('concert', person('ann'));
    expect(await join('ann', answer), 'used up').toMatchObject({
      kind: 'challenge',
      reason: 'used',
    });
  });

  test('bound to person, activity, difficulty and expiry', async () => {
    const w = await world();
    const join = (name: string, challenge: string) =>
      w.door.join('concert', person(name), { skuIds: [], challenge });
    const { token, bits } = demandOf(await w.door.join('concert', person('ann'), { skuIds: [] }));
    const answer = solveChallenge(token, bits);
    expect(await join('bob', answer)).toMatchObject({ reason: 'user' });
    const reasonOf = async (text: string) => {
      const result = await join('ann', text);
      return result.kind === 'challenge' ? result.reason : result.kind;
    };
    expect(await reasonOf(token)).toBe('structure');
    expect(await reasonOf('')).toBe('structure');
    expect(await reasonOf(`x${answer}`)).toMatch(/structure|type|key|signature/);
    let lazy = 0;
    while ((await reasonOf(`${token}~lazy${lazy}`)) !== 'work') lazy += 1;
    expect(lazy).toBeLessThan(3);
    // A harder activity does not take what an easier time asked for.
    w.activity = {
      ...w.activity,
      room: { ...w.activity.room, challenge: { kind: 'proof_of_work', minBits: 20 } },
    };
    expect(await reasonOf(answer)).toBe('work');
    w.activity = {
      ...w.activity,
      room: { ...w.activity.room, challenge: { kind: 'proof_of_work', minBits: 6 } },
    };
    await w.run(190_000);
    expect(await reasonOf(answer)).toBe('expired');
  });

  test('a device that keeps coming under new names is asked for more', async () => {
    const w = await world(6, 16);
    const bits: number[] = [];
    for (let at = 0; at < 60; at += 1) {
      const asked = await w.door.join(
        'concert',
        { ...person(`p${at}`), deviceHash: 'ab'.repeat(32) },
        { skuIds: [] },
      );
      bits.push(demandOf(asked).bits);
    }
    expect(bits[0]).toBe(6);
    expect(bits.at(-1)).toBe(16);
    expect(bits).toEqual([...bits].sort((a, b) => a - b));
    const other = await w.door.join(
      'concert',
      { ...person('x'), deviceHash: 'cd'.repeat(32) },
      { skuIds: [] },
    );
    expect(demandOf(other).bits, 'another device is not punished for it').toBe(6);
    await w.run(600_000);
    const later = await w.door.join(
      'concert',
      { ...person('y'), deviceHash: 'ab'.repeat(32) },
      { skuIds: [] },
    );
    expect(demandOf(later).bits, 'forgotten in time').toBeLessThan(16);
  });

  test('an answer is used up for every process, by the place that it made', async () => {
    const w = await world();
    const other = w.newDoor();
    const { token, bits } = demandOf(await w.door.join('concert', person('ann'), { skuIds: [] }));
    const wish = { skuIds: [], challenge: solveChallenge(token, bits) };
    await w.world.advance(500);
    expect(await w.door.join('concert', person('ann'), wish)).toMatchObject({ kind: 'joined' });
    await w.door.leave('concert', person('ann'));
    expect(await other.join('concert', person('ann'), wish)).toMatchObject({ reason: 'used' });
    // What is asked after the leaving is another matter.
    await w.world.advance(500);
    const next = demandOf(await other.join('concert', person('ann'), { skuIds: [] }));
    const answer = solveChallenge(next.token, next.bits);
    expect(
      await w.door.join('concert', person('ann'), { skuIds: [], challenge: answer }),
    ).toMatchObject({ kind: 'joined', created: true });
  });

  test('a challenge does not say for whom it is', async () => {
    const w = await world();
    const name = 'somebody@example.org';
    const { token } = demandOf(await w.door.join('concert', person(name), { skuIds: [] }));
    const said = Buffer.from(token.split('.')[1] ?? '', 'base64url').toString();
    expect(said).toContain('concert');
    expect(said).not.toContain('somebody');
  });

  test('a network that far more come from than from others is asked for more', async () => {
    const w = await world(6, 12);
    const ask = async (name: string, networkBucket: number): Promise<number> => {
      const origin = { device: 'phone', network: 'ipv4', networkBucket } as const;
      const who = {
        ...person(name),
        origin,
        deviceHash: createHash('sha256').update(name).digest('hex'),
      };
      return demandOf(await w.door.join('concert', who, { skuIds: [] })).bits;
    };
    const few: number[] = [];
    for (let at = 0; at < 3_000; at += 1) few.push(await ask(`${at.toString(16)}`, at % 1_000));
    expect(Math.max(...few), 'a crowd from everywhere').toBe(6);
    const many: number[] = [];
    for (let at = 0; at < 5_000; at += 1) many.push(await ask(`f${at.toString(16)}`, 1_001));
    expect(many.slice(0, 100).every((bits) => bits === 6)).toBe(true);
    expect(many.at(-1)).toBe(12);
    expect(await ask('ff', 7), 'others go on as before').toBe(6);
  });

  test('zero bits are counted from the front', () => {
    expect(leadingZeroBits(Uint8Array.of(0x80))).toBe(0);
    expect(leadingZeroBits(Uint8Array.of(0x01))).toBe(7);
    expect(leadingZeroBits(Uint8Array.of(0, 0x10))).toBe(11);
    expect(leadingZeroBits(Uint8Array.of(0, 0))).toBe(16);
  });
});

test('a provider vouches by signing our token, and nothing else counts', async () => {
  const w = await RoomWorld.started({ room: { challenge: { kind: 'callback' } } });
  const join = (challenge?: string) =>
    w.door.join('concert', person('ann'), {
      skuIds: [],
      ...(challenge === undefined ? {} : { challenge }),
    });
  const { token, url, bits } = demandOf(await join());
  expect([url, bits]).toEqual(['https://vouch.example/', 0]);
  expect(await join(`${token}~x`)).toMatchObject({ kind: 'challenge', reason: 'voucher' });
  expect(await join(`${token}~${voucherMac('other')}`)).toMatchObject({ reason: 'voucher' });
  expect(await join(`${token}~${voucherMac(token)}`)).toMatchObject({ kind: 'joined' });
});
