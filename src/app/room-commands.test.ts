import { beforeEach, expect, test } from 'vitest';
import { RoomWorld } from '../../test/support/room.ts';
import type { RoomActs } from './room-commands.ts';
import { roomCommands } from './room-commands.ts';

let w: RoomWorld;
let run: (name: string, input: unknown) => Promise<unknown>;

beforeEach(async () => {
  w = await RoomWorld.started({ stock: 10, room: { beacon: 'round 9' } });
  const rooms: RoomActs = {
    announceBeacon: (_, value) => w.loop.announceBeacon(value),
    revokeWave: (_, wave, { who, why }) => w.loop.revokeWave(wave, who, why),
    revokeKey: (_, kid, { who, why }) => w.loop.revokeKey(kid, who, why),
    bypass: (_, entryId, { who, why }) => w.loop.bypass(entryId, who, why),
  };
  const commands = roomCommands(rooms);
  run = async (name, input) => {
    const command = commands.find((each) => each.name === name);
    if (command === undefined) throw new Error(`no command ${name}`);
    expect(command.changes).toBe(true);
    const principal = { name: 'operator', role: 'admin' } as const;
    return command.run(input, { principal, why: 'test' });
  };
});

test('the beacon lets the opening go on; a wave and a key are revoked; one person is let in', async () => {
  const tokens = await w.joinMany('p', 40);
  const beacon = { activity_id: 'concert', value: 'abc', reason: 'round 9 is out' };
  expect(await run('room-beacon', beacon), 'the lobby is still open').toEqual({ done: false });
  await w.open();
  expect(w.state.stage).toBe('drawing');
  expect(await run('room-beacon', beacon)).toEqual({ done: true });
  await w.run(250);
  expect(w.state.stage).toBe('open');
  const [last = ''] =
    [...tokens].filter(([, t]) => (w.standing(t).position ?? 0) > 20).at(-1) ?? [];
  const entryId = await w.door.entryIdOf('concert', last);
  expect(await run('room-bypass', { activity_id: 'concert', entry_id: entryId })).toEqual({
    done: true,
  });
  expect(w.standing(tokens.get(last)!).state).toBe('admitted');
  expect(await run('room-revoke-wave', { activity_id: 'concert', wave: 1 })).toEqual({
    done: true,
  });
  expect(await run('room-revoke-wave', { activity_id: 'concert', wave: 9 })).toEqual({
    done: false,
  });
  expect(await run('room-revoke-key', { activity_id: 'concert', kid: 'pass-1' })).toEqual({
    done: true,
  });
  expect(w.state.revoked).toEqual({ waves: [1], keys: ['pass-1'] });
});

test('what cannot be is told with what was found', async () => {
  const bad: [string, unknown, RegExp][] = [
    ['room-beacon', undefined, /found undefined/],
    ['room-beacon', { activity_id: 'concert' }, /value: found nothing/],
    ['room-beacon', { activity_id: 'a b', value: 'x' }, /activity_id: found "a b"/],
    ['room-beacon', { activity_id: 'concert', value: 'x', more: 1 }, /found "more"/],
    ['room-beacon', { activity_id: 'concert', value: 'x'.repeat(1_025) }, /1 to 1024/],
    ['room-revoke-wave', { activity_id: 'concert', wave: 0 }, /wave: found "0"/],
    ['room-revoke-wave', { activity_id: 'concert', wave: 1.5 }, /wave: found "1.5"/],
    ['room-bypass', { activity_id: 'concert', entry_id: 'ann' }, /entry_id: found "ann"/],
  ];
  for (const [name, input, message] of bad) {
    await expect(run(name, input), JSON.stringify(input)).rejects.toThrow(message);
    await expect(run(name, input)).rejects.toBeInstanceOf(RangeError);
  }
});
