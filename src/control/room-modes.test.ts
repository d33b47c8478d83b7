import { describe, expect, test } from 'vitest';
import { person, RoomWorld } from '../../test/support/room.ts';
import type { RoomWorldOptions } from '../../test/support/room.ts';
import { decodeRelease, encodeRelease } from '../core/room/release-codec.ts';
import { ReleaseView } from '../core/room/standing.ts';

async function joinAs(
  w: RoomWorld,
  name: string,
  claims: Readonly<Record<string, string | number>>,
): Promise<string> {
  const claim = (wanted: string): string | undefined =>
    claims[wanted] === undefined ? undefined : String(claims[wanted]);
  const joined = await w.door.join('concert', { ...person(name), claim }, { skuIds: [] });
  if (joined.kind !== 'joined') throw new Error(joined.kind);
  return joined.entryToken;
}

const inState = (w: RoomWorld, tokens: ReadonlyMap<string, string>, state: string): string[] =>
  [...tokens].filter(([, token]) => w.standing(token).state === state).map(([name]) => name);

describe('quota', () => {
  async function quotaRoom(leftover: 'kept' | 'to_all', room: RoomWorldOptions['room'] = {}) {
    const w = await RoomWorld.started({
      stock: 1_000,
      room: {
        mode: 'quota',
        groupClaim: 'group',
        quota: { places: { eu: 10, us: 5 }, leftover },
        ...room,
      },
    });
    const tokens = new Map<string, string>();
    for (let at = 0; at < 40; at += 1) {
      tokens.set(`eu${at}`, await joinAs(w, `eu${at}`, { group: 'eu' }));
      if (at < 2) tokens.set(`us${at}`, await joinAs(w, `us${at}`, { group: 'us' }));
      tokens.set(`xx${at}`, await joinAs(w, `xx${at}`, { group: 'nowhere' }));
    }
    await w.open();
    return { w, tokens };
  }

  test('each group has its places, and a draw inside; leftovers are kept where the rule says so', async () => {
    const { w, tokens } = await quotaRoom('kept');
    await w.run(2_000);
    const admitted = inState(w, tokens, 'admitted');
    expect(admitted.filter((name) => name.startsWith('eu'))).toHaveLength(10);
    expect(admitted.filter((name) => name.startsWith('us'))).toHaveLength(2);
    expect(admitted.filter((name) => name.startsWith('xx'))).toHaveLength(0);
    expect(admitted.filter((name) => name.startsWith('eu'))).not.toEqual(
      Array.from({ length: 10 }, (_, at) => `eu${at}`),
    );
    // A group whose places are used is told that nothing is left for now.
    const [waiting = ''] = inState(w, tokens, 'waiting').filter((name) => name.startsWith('eu'));
    expect(w.standing(tokens.get(waiting)!).sell_through).toBe('gone_for_now');
  });

  test('a no-show’s place stays in its group', async () => {
    const { w, tokens } = await quotaRoom('kept');
    const first = inState(w, tokens, 'admitted').filter((name) => name.startsWith('eu'));
    for (const name of first.slice(0, 4)) expect(await w.buy(name)).toBe(true);
    await w.run(13_000);
    const next = inState(w, tokens, 'admitted').filter((name) => name.startsWith('eu'));
    expect(next).toHaveLength(6);
    for (const name of next) expect(first).not.toContain(name);
    expect(inState(w, tokens, 'admitted').filter((name) => name.startsWith('xx'))).toEqual([]);
  });

  test('leftovers go to all in draw order once a group’s line is empty', async () => {
    const { w, tokens } = await quotaRoom('to_all');
    await w.run(2_000);
    const admitted = inState(w, tokens, 'admitted');
    expect(admitted.filter((name) => name.startsWith('us'))).toHaveLength(2);
    // Three unused places of `us`, for whoever is next in the draw, of any group.
    expect(admitted).toHaveLength(10 + 5);
  });
});

describe('lottery', () => {
  test('so many are drawn; the rest are told once the results are out', async () => {
    const w = await RoomWorld.started({
      stock: 1_000,
      room: { mode: 'lottery', lotteryPlaces: 30, maxAdmissionsPerSecond: 10 },
    });
    const tokens = await w.joinMany('p', 100);
    await w.open();
    expect(inState(w, tokens, 'admitted')).toHaveLength(10);
    expect(inState(w, tokens, 'not_drawn'), 'results come in batches').toHaveLength(0);
    await w.run(6_000);
    expect(w.state.counts.released).toBe(30);
    expect(inState(w, tokens, 'not_drawn')).toHaveLength(70);
    const late = await w.join('late');
    await w.run(250);
    expect(w.standing(late).state).toBe('not_drawn');
    // Those who were drawn and did not come leave their places to the next in the drawn order.
    for (const name of inState(w, tokens, 'admitted').slice(0, 5)) await w.buy(name);
    await w.run(20_000);
    expect(w.state.counts.released).toBeGreaterThan(30);
    expect(inState(w, tokens, 'claimed').length).toBe(5);
  });

  test('a lobby smaller than the places: everybody is drawn', async () => {
    const w = await RoomWorld.started({
      stock: 1_000,
      room: { mode: 'lottery', lotteryPlaces: 30 },
    });
    const tokens = await w.joinMany('p', 12);
    await w.open();
    await w.run(1_000);
    expect(inState(w, tokens, 'admitted')).toHaveLength(12);
  });
});

describe('weighted', () => {
  test('a weight of ten is drawn about ten times as often, and is in the standing’s rule', async () => {
    let heavy = 0;
    let light = 0;
    for (let round = 0; round < 30; round += 1) {
      const w = await RoomWorld.started({
        seed: `weighted ${round}`,
        stock: 4,
        room: { mode: 'weighted', weightClaim: 'weight' },
      });
      const tokens = new Map<string, string>();
      for (let at = 0; at < 60; at += 1) {
        const weight = at < 30 ? 10 : 1;
        tokens.set(`${weight}/${at}`, await joinAs(w, `p${at}`, { weight }));
      }
      await w.open();
      const admitted = inState(w, tokens, 'admitted');
      expect(admitted).toHaveLength(5);
      heavy += admitted.filter((name) => name.startsWith('10/')).length;
      light += admitted.filter((name) => name.startsWith('1/')).length;
      expect(w.standing(tokens.get('1/59')!).order_rule).toBe('weighted');
    }
    // 150 places; 10/11 of them expected at first, a little less as heavy ones are used up.
    expect(heavy + light).toBe(150);
    expect(heavy).toBeGreaterThan(125);
    expect(light).toBeGreaterThan(2);
  });

  test('a weight that makes no sense counts as one', async () => {
    const w = await RoomWorld.started({
      stock: 4,
      room: { mode: 'weighted', weightClaim: 'weight' },
    });
    for (const [at, weight] of [0, -1, Number.NaN, Infinity, 1e12].entries()) {
      await joinAs(w, `p${at}`, { weight });
    }
    const log = await w.store.participants('concert', 0, 10);
    expect(log.map((each) => each.weight)).toEqual([1, 1, 1, 1, 1]);
  });
});

describe('an edit while the room runs', () => {
  test('everybody let in at once, and back: the order that was drawn is kept', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const tokens = await w.joinMany('p', 40);
    await w.open();
    const places = [...tokens.values()].map((token) => w.standing(token).position);
    const { room } = w.activity;
    w.activity = { ...w.activity, room: { ...room, mode: 'passthrough' } };
    await w.run(250);
    expect(inState(w, tokens, 'admitted')).toHaveLength(40);
    w.activity = { ...w.activity, room: { ...room, mode: 'fifo' } };
    await w.run(250);
    expect(w.state.mode, 'an order that exists cannot become another').toBe('draw');
    expect([...tokens.values()].map((token) => w.standing(token).position)).toEqual(places);
  });

  test('caps edited in mid-sale bind from the next wave', async () => {
    const w = await RoomWorld.started({ stock: 1_000, room: { maxActive: 5 } });
    await w.joinMany('p', 100);
    await w.open();
    expect(w.state.counts.released).toBe(5);
    w.activity = { ...w.activity, room: { ...w.activity.room, maxActive: 12 } };
    await w.run(2_000);
    expect(w.state.counts.active).toBe(12);
  });
});

test('a release state survives being written and read, for every standing', async () => {
  const w = await RoomWorld.started({
    skus: [
      { skuId: 'a', stock: 10 },
      { skuId: 'b', stock: 3 },
    ],
  });
  const tokens = new Map<string, string>();
  for (let at = 0; at < 200; at += 1) {
    tokens.set(`p${at}`, await w.join(`p${at}`, at % 3 === 0 ? ['a'] : at % 3 === 1 ? ['b'] : []));
  }
  await w.open();
  for (let at = 0; at < 40; at += 1) await w.door.leave('concert', person(`p${at * 5}`));
  for (let at = 0; at < 200; at += 1) await w.buy(`p${at}`, 'a');
  await w.loop.revokeKey('pass-9', 'op', 'test');
  await w.run(15_000);
  const text = encodeRelease(w.state);
  const copy = decodeRelease(text);
  expect(encodeRelease(copy)).toBe(text);
  const [original, read] = [new ReleaseView(w.state), new ReleaseView(copy)];
  const nowMs = w.world.wallMs();
  for (const each of await w.store.participants('concert', 0, 1_000)) {
    const lane = each.skuIds.length === 0 ? '' : `/${each.skuIds.join(',')}`;
    const place = { ...each, cohort: 'lobby' as const, lane };
    expect(read.standing(place, w.activity, nowMs, 0.5)).toEqual(
      original.standing(place, w.activity, nowMs, 0.5),
    );
  }
  expect(() => decodeRelease(text.replace('"schemaVersion":1', '"schemaVersion":2'))).toThrow(
    /version 2; known: 1/,
  );
  expect(() => decodeRelease(text.replace('"left":"', '"left":"?'))).toThrow(/set/);
});
