import { describe, expect, test } from 'vitest';
import { person, RoomWorld } from '../../test/support/room.ts';
import { UnavailableError } from '../ports/errors.ts';
import { MemoryAdmissionStore } from '../stores/memory/admission-store.ts';
import type { PassResult } from './door.ts';

const passOf = (result: PassResult): Extract<PassResult, { kind: 'pass' }> => {
  if (result.kind !== 'pass') throw new Error(`no pass: ${JSON.stringify(result)}`);
  return result;
};

const inState = (w: RoomWorld, tokens: Map<string, string>, state: string): string[] =>
  [...tokens].filter(([, token]) => w.standing(token).state === state).map(([name]) => name);

/** Each is a fault that rooms of this kind have had elsewhere, with the right result. */
describe('cases', () => {
  test('R1: admitted people leave without a word; the room moves on by itself', async () => {
    const w = await RoomWorld.started({ stock: 50, room: { maxActive: 10 } });
    const tokens = await w.joinMany('p', 100);
    await w.open();
    expect(w.state.counts).toMatchObject({ released: 10, active: 10 });
    await w.run(5_000);
    expect(w.state.counts.released, 'the cap is full of people who do nothing').toBe(10);
    await w.run(6_000);
    expect(w.state.counts).toMatchObject({ released: 20, active: 10, missed: 10 });
    // With a pass taken and not used, the place comes back once the pass has expired.
    const [first = ''] = inState(w, tokens, 'admitted');
    passOf(await w.door.takePass('concert', person(first), 'front'));
    await w.run(250);
    expect(w.standing(tokens.get(first)!).state).toBe('claimed');
    await w.run(36_000);
    expect(w.standing(tokens.get(first)!).state).toBe('missed');
    expect(w.state.counts.active).toBeLessThanOrEqual(10);
    expect(w.state.counts.released).toBeGreaterThan(40);
  });

  test('R2: counts follow reality within seconds', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const tokens = await w.joinMany('p', 40);
    await w.run(500);
    expect(w.state.counts).toMatchObject({ joined: 40, waiting: 40, left: 0 });
    for (let at = 0; at < 5; at += 1) await w.door.leave('concert', person(`p${at}`));
    await w.run(250);
    expect(w.state.counts).toMatchObject({ waiting: 35, left: 5 });
    await w.open();
    expect(w.state.counts).toMatchObject({ waiting: 23, released: 12, active: 12 });
    w.setStock('front', 0);
    await w.run(11_000);
    expect(w.state.counts).toMatchObject({ waiting: 23, active: 0, missed: 12 });
    expect(inState(w, tokens, 'missed')).toHaveLength(12);
    expect(inState(w, tokens, 'left')).toHaveLength(5);
    const late = await w.join('late');
    expect(w.standing(late).cohort).toBe('late');
    await w.run(250);
    expect(w.state.counts.waiting).toBe(24);
  });

  test('R3: browser closed and opened again: same place, same pass while it is valid', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const token = await w.join('ann');
    const joined = await w.door.join('concert', person('ann'), { skuIds: [] });
    expect(joined).toMatchObject({ kind: 'joined', created: false });
    await w.open();
    expect(w.standing(token).state).toBe('admitted');
    const first = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    await w.run(9_000);
    const second = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    expect(second).toEqual(first);
    await w.run(5_000);
    const third = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    expect(third, 'past the claim window, while the pass lives').toEqual(first);
    expect(w.verify(third.pass, 'ann').kind).toBe('valid');
    await w.run(20_000);
    expect(w.verify(third.pass, 'ann').kind).toBe('expired');
    const after = await w.door.takePass('concert', person('ann'), 'front');
    expect(after).toMatchObject({ kind: 'not_admitted', missed: true });
  });

  test('R4: a revoked wave’s passes stop at once, its places are offered again', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const tokens = await w.joinMany('p', 40);
    await w.open();
    const admitted = inState(w, tokens, 'admitted');
    expect(admitted).toHaveLength(12);
    const [a = '', b = '', c = ''] = admitted;
    const old = passOf(await w.door.takePass('concert', person(a), 'front'));
    expect(await w.buy(b)).toBe(true);
    await w.run(250);
    expect(w.verify(old.pass, a).kind).toBe('valid');
    const before = w.state.counts.released;
    expect(await w.loop.revokeWave(1, 'operator', 'released too early')).toBe(true);
    expect(w.verify(old.pass, a)).toEqual({ kind: 'refused', reason: 'wave_revoked' });
    expect(w.state.counts.active).toBe(0);
    expect(w.standing(tokens.get(c)!).state).toBe('waiting');
    expect(w.standing(tokens.get(c)!).ahead, 'first in line again').toBeLessThan(12);
    expect(w.standing(tokens.get(b)!).state, 'who bought has bought').toBe('claimed');
    await w.run(1_000);
    expect(w.state.counts.released).toBeGreaterThan(before);
    const again = inState(w, tokens, 'admitted');
    expect(again).toContain(a);
    expect(again).not.toContain(b);
    for (const name of again) expect(admitted, 'nobody overtook them').toContain(name);
    const fresh = passOf(await w.door.takePass('concert', person(a), 'front'));
    expect(fresh.nonce).not.toBe(old.nonce);
    expect(w.verify(fresh.pass, a).kind).toBe('valid');
    expect(await w.loop.revokeWave(1, 'operator', 'twice')).toBe(false);
    expect(await w.loop.revokeWave(99, 'operator', 'never was')).toBe(false);
  });

  test('R5: one entry for several dates; the pass is for the one chosen', async () => {
    const skus = ['fri', 'sat', 'sun'].map((skuId) => ({ skuId, stock: 5 }));
    const w = await RoomWorld.started({ skus });
    const token = await w.join('ann', ['sat', 'fri']);
    const other = await w.door.join('concert', person('ann'), { skuIds: ['sun'] });
    expect(other).toMatchObject({ created: false });
    expect(await w.door.join('concert', person('bob'), { skuIds: ['mon'] })).toEqual({
      kind: 'unknown_sku',
      skuId: 'mon',
      allowed: ['fri', 'sat', 'sun'],
    });
    await w.open();
    expect(w.standing(token).state).toBe('admitted');
    expect(await w.door.takePass('concert', person('ann'), 'sun')).toEqual({
      kind: 'unknown_sku',
      skuId: 'sun',
      allowed: ['fri', 'sat'],
    });
    const pass = passOf(await w.door.takePass('concert', person('ann'), 'sat'));
    expect(w.verify(pass.pass, 'ann', 'sat').kind).toBe('valid');
    expect(w.verify(pass.pass, 'ann', 'fri')).toEqual({ kind: 'refused', reason: 'sku' });
    expect(await w.door.takePass('concert', person('ann'), 'fri')).toMatchObject({
      kind: 'not_admitted',
      missed: false,
    });
  });

  test('R5: a sold-out date holds nobody up who wants another', async () => {
    const skus = ['fri', 'sat'].map((skuId) => ({ skuId, stock: 5 }));
    const w = await RoomWorld.started({ skus });
    const fri = new Map<string, string>();
    const sat = new Map<string, string>();
    for (let at = 0; at < 20; at += 1) {
      fri.set(`f${at}`, await w.join(`f${at}`, ['fri']));
      sat.set(`s${at}`, await w.join(`s${at}`, ['sat']));
    }
    w.setStock('fri', 0);
    await w.open();
    expect(inState(w, fri, 'admitted')).toEqual([]);
    expect(inState(w, sat, 'admitted').length).toBeGreaterThan(4);
    expect(inState(w, fri, 'sold_out')).toHaveLength(20);
    expect(inState(w, sat, 'sold_out')).toEqual([]);
    w.setStock('fri', 5);
    await w.run(2_000);
    expect(inState(w, fri, 'admitted').length).toBeGreaterThan(4);
  });

  test('R6: standing is found again from the identity alone', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    await w.join('ann');
    await w.open();
    expect(await w.door.standingByPerson('concert', person('ann'))).toMatchObject({
      kind: 'standing',
      standing: { state: 'admitted' },
    });
    expect(await w.door.standingByPerson('concert', person('bob'))).toEqual({
      kind: 'unknown_entry',
    });
    expect(await w.door.standingByPerson('none', person('ann'))).toEqual({
      kind: 'unknown_activity',
    });
    expect(await w.door.leave('concert', person('ann'))).toBe(true);
    expect(
      await w.door.standingByPerson('concert', person('ann')),
      'before any release state says so',
    ).toMatchObject({ standing: { state: 'left' } });
  });

  test('R7: in fifo nobody who came early is behind one who came later', async () => {
    const w = await RoomWorld.started({ stock: 100, room: { mode: 'fifo', maxActive: 7 } });
    const tokens = await w.joinMany('p', 60);
    await w.open();
    for (const [name, token] of await w.joinMany('q', 20)) tokens.set(name, token);
    const names = [...tokens.keys()];
    const admittedAt: string[] = [];
    for (let step = 0; step < 400; step += 1) {
      const now = inState(w, tokens, 'admitted').filter((name) => !admittedAt.includes(name));
      admittedAt.push(...now);
      for (const name of now) await w.buy(name);
      const positions = names
        .filter((name) => !admittedAt.includes(name))
        .map((name) => w.standing(tokens.get(name)!).position)
        .filter((position) => position !== null);
      expect(positions).toEqual([...positions].sort((x, y) => x - y));
      if (admittedAt.length === names.length) break;
      await w.run(250);
    }
    expect(admittedAt).toEqual(names);
    expect(w.standing(tokens.get('p0')!).order_rule).toBe('fifo');
  });

  test('R7: in a draw the order is not the order of arrival, and the standing says how it is made', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const tokens = await w.joinMany('p', 60);
    await w.open();
    const late = await w.join('late');
    await w.run(250);
    expect(w.standing(late)).toMatchObject({ order_rule: 'draw', cohort: 'late' });
    const admitted = inState(w, tokens, 'admitted').map((name) => Number(name.slice(1)));
    expect(admitted).not.toEqual(Array.from({ length: 12 }, (_, at) => at));
    // Whoever comes after the opening stands behind the whole lobby.
    expect(w.standing(late).position).toBe(60 - 12 + 1);
  });

  test('R8: sold out is told at the next publication, and the order is kept for returns', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const tokens = await w.joinMany('p', 40);
    await w.open();
    for (const name of inState(w, tokens, 'admitted')) await w.buy(name);
    expect(w.availableOf('front')).toBe(0);
    const waiting = [...tokens].filter(([, token]) => w.standing(token).state === 'waiting');
    const order = waiting
      .sort(([, a], [, b]) => w.standing(a).position! - w.standing(b).position!)
      .map(([name]) => name);
    await w.run(250);
    expect(inState(w, tokens, 'sold_out').sort()).toEqual([...order].sort());
    const told = w.standing(tokens.get(order[5]!)!);
    expect(told).toMatchObject({ sell_through: 'gone_for_now', position: 6, eta: null });
    expect(told.next_poll_after_ms).toBeGreaterThan(10_000);
    // Four units come back; two people who came too late still hold a pass, and may take two of them.
    w.setStock('front', 4);
    await w.run(1_000);
    const admitted = inState(w, tokens, 'admitted');
    expect(admitted.sort()).toEqual(order.slice(0, admitted.length).sort());
    expect(admitted.length).toBeGreaterThanOrEqual(2);
    expect(admitted.length).toBeLessThanOrEqual(3);
    expect(inState(w, tokens, 'waiting').length).toBe(order.length - admitted.length);
  });

  test('R8: while units are held they may come back, and nobody is told that it is over', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const tokens = await w.joinMany('p', 40);
    await w.open();
    w.setStock('front', 0, 3);
    await w.run(250);
    const [name = ''] = inState(w, tokens, 'waiting');
    expect(w.standing(tokens.get(name)!)).toMatchObject({ sell_through: 'gone_for_now' });
    expect(inState(w, tokens, 'sold_out')).toEqual([]);
  });

  test('R9: slots of clients that never use them are replaced; the stock still sells', async () => {
    const w = await RoomWorld.started({ stock: 20, room: { maxActive: 15 } });
    const tokens = await w.joinMany('p', 200);
    await w.open();
    // Four in five are machines that cannot hold a cookie: they never take a pass.
    const isReal = (name: string): boolean => Number(name.slice(1)) % 5 === 0;
    const sold = new Set<string>();
    for (let step = 0; step < 600 && sold.size < 20; step += 1) {
      for (const name of inState(w, tokens, 'admitted')) {
        if (isReal(name) && (await w.buy(name))) sold.add(name);
      }
      await w.run(250);
    }
    expect(sold.size).toBe(20);
    expect(w.state.counts.missed).toBeGreaterThan(30);
  });

  test('R10: ten thousand browsers of one account are one entry', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const joins = await Promise.all(
      Array.from({ length: 10_000 }, () => w.door.join('concert', person('ann'), { skuIds: [] })),
    );
    const ids = new Set(joins.map((each) => (each.kind === 'joined' ? each.entryId : each.kind)));
    expect(ids.size).toBe(1);
    expect(joins.filter((each) => each.kind === 'joined' && each.created)).toHaveLength(1);
    expect((await w.store.counts('concert')).joined).toBe(1);
  });

  test('R11: the server’s clock decides when it is open, and the answer says when', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    await w.join('ann');
    await w.run(57_000);
    // A buyer whose clock is 3 s fast asks now.
    expect(await w.door.takePass('concert', person('ann'), 'front')).toEqual({
      kind: 'not_open',
      opensAtMs: w.activity.opensAtMs,
      closesAtMs: w.activity.closesAtMs,
      over: false,
    });
    await w.open();
    expect((await w.door.takePass('concert', person('ann'), 'front')).kind).toBe('pass');
  });

  test('R12: control restarts at the opening: same draw, same order, no second release', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const tokens = await w.joinMany('p', 100);
    await w.run(500);
    w.loop = w.newLoop();
    await w.open();
    const first = w.state;
    const admitted = inState(w, tokens, 'admitted').sort();
    const places = [...tokens.values()].map((token) => w.standing(token).position);
    for (let restart = 0; restart < 5; restart += 1) {
      w.loop = w.newLoop();
      await w.run(250);
    }
    expect(w.state.epoch).toBe(first.epoch + 5);
    expect(w.state.draw).toEqual(first.draw);
    expect(inState(w, tokens, 'admitted').sort()).toEqual(admitted);
    expect([...tokens.values()].map((token) => w.standing(token).position)).toEqual(places);
    expect(w.state.counts.released).toBe(12);
  });

  test('control: without the fence two controls would release twice, and R12 would notice', async () => {
    class Fenceless extends MemoryAdmissionStore {
      override async saveState(name: string, value: string): Promise<boolean> {
        const known = await this.loadState(name);
        return super.saveState(name, value, known?.version ?? 0);
      }
    }
    const w = await RoomWorld.started({ stock: 10, store: new Fenceless() });
    await w.joinMany('p', 100);
    const other = w.newLoop();
    await other.runOnce();
    await w.open();
    await other.runOnce();
    w.setStock('front', 30);
    await w.world.advance(500);
    await w.loop.runOnce();
    w.setStock('front', 60);
    await w.world.advance(500);
    await other.runOnce();
    const log = w.published.filter((each) => each.counts.released > 0);
    const byWave = new Map<number, Set<string>>();
    for (const state of log) {
      for (const range of state.lanes[0]!.released) {
        const said = byWave.get(range.wave) ?? new Set();
        byWave.set(range.wave, said.add(String(range.upTo.key)));
      }
    }
    expect([...byWave.values()].some((said) => said.size > 1)).toBe(true);
  });
});

describe('the door', () => {
  test('a poll asks no store, whatever the store does', async () => {
    const store = new MemoryAdmissionStore();
    const w = await RoomWorld.started({ stock: 10, store });
    const tokens = await w.joinMany('p', 50);
    await w.open();
    const methods = Object.getOwnPropertyNames(MemoryAdmissionStore.prototype);
    for (const name of methods) {
      if (name !== 'constructor') {
        // Getters among them, which assigning would not replace.
        Object.defineProperty(store, name, {
          value: () => {
            throw new Error(`a poll called ${name}`);
          },
        });
      }
    }
    for (const token of tokens.values()) w.standing(token);
    expect(() => w.door.standingByToken('concert', 'x.y.z')).not.toThrow();
  });

  test('stale release state holds people: no pass, no entry, no position', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const token = await w.join('ann');
    await w.open();
    expect(w.standing(token).state).toBe('admitted');
    w.cut = true;
    await w.run(5_000);
    expect(w.standing(token).state, 'at its age limit').toBe('admitted');
    await w.run(250);
    expect(w.standing(token)).toMatchObject({ state: 'waiting', position: null });
    expect(await w.door.takePass('concert', person('ann'), 'front')).toMatchObject({
      kind: 'not_admitted',
      missed: false,
    });
    expect(await w.door.join('concert', person('bob'), { skuIds: [] })).toEqual({ kind: 'held' });
    w.cut = false;
    await w.run(250);
    expect(w.standing(token).state).toBe('admitted');
    expect((await w.door.takePass('concert', person('ann'), 'front')).kind).toBe('pass');
  });

  test('no release state ever: held from the first', async () => {
    const w = new RoomWorld();
    expect(await w.door.join('concert', person('ann'), { skuIds: [] })).toEqual({ kind: 'held' });
  });

  test('joining before the lobby and after the end is told with the instants', async () => {
    const w = await RoomWorld.started();
    w.activity = { ...w.activity, lobbyOpensAtMs: w.world.wallMs() + 1 };
    const { opensAtMs, closesAtMs } = w.activity;
    const ask = () => w.door.join('concert', person('ann'), { skuIds: [] });
    expect(await ask()).toEqual({ kind: 'not_open', opensAtMs, closesAtMs, over: false });
    await w.run(250);
    expect((await ask()).kind).toBe('joined');
    await w.world.advance(closesAtMs - w.world.wallMs());
    expect(await ask()).toEqual({ kind: 'not_open', opensAtMs, closesAtMs, over: true });
    expect(await w.door.join('none', person('ann'), { skuIds: [] })).toEqual({
      kind: 'unknown_activity',
    });
  });

  test('tokens of another activity, of strangers, and broken ones are refused with a reason', async () => {
    const w = await RoomWorld.started();
    const token = await w.join('ann');
    expect(w.door.standingByToken('concert', `${token}x`)).toEqual({
      kind: 'bad_token',
      reason: 'signature',
    });
    expect(w.door.standingByToken('none', token)).toEqual({ kind: 'unknown_activity' });
    const stranger = await RoomWorld.started({ seed: 'other' });
    expect(w.door.standingByToken('concert', await stranger.join('ann'))).toEqual({
      kind: 'bad_token',
      reason: 'signature',
    });
    await w.loop.revokeKey('entry-1', 'operator', 'leaked');
    expect(w.door.standingByToken('concert', token)).toEqual({ kind: 'bad_token', reason: 'key' });
  });

  test('a person’s entry token saves the store read, another person’s does not help', async () => {
    const store = new MemoryAdmissionStore();
    let reads = 0;
    const find = store.findEntry.bind(store);
    store.findEntry = (...args) => {
      reads += 1;
      return find(...args);
    };
    const w = await RoomWorld.started({ stock: 10, store });
    const ann = await w.join('ann');
    await w.join('bob');
    await w.open();
    passOf(await w.door.takePass('concert', person('ann'), 'front', ann));
    expect(reads).toBe(0);
    const bob = passOf(await w.door.takePass('concert', person('bob'), 'front', ann));
    expect(reads).toBe(1);
    expect(w.verify(bob.pass, 'bob').kind).toBe('valid');
    expect(w.verify(bob.pass, 'ann')).toEqual({ kind: 'refused', reason: 'user' });
    expect(await w.door.takePass('concert', person('eve'), 'front', ann)).toEqual({
      kind: 'unknown_entry',
    });
  });

  test('who missed the turn joins again as a later arrival, with a new nonce', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const token = await w.join('ann');
    await w.open();
    const old = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    await w.run(40_000);
    expect(w.standing(token).state).toBe('missed');
    const again = await w.door.join('concert', person('ann'), { skuIds: [] });
    expect(again).toMatchObject({ kind: 'joined', created: true, standing: { cohort: 'late' } });
    await w.run(2_000);
    const fresh = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    expect(fresh.nonce).not.toBe(old.nonce);
    expect(w.standing(token).state, 'the old token is of the place that was given up').toBe('left');
  });

  test('a pass that ran out is told so within a second, though its holder counts a little longer', async () => {
    const w = await RoomWorld.started({ stock: 10, room: { claimWindowMs: 120_000 } });
    const token = await w.join('ann');
    await w.open();
    await w.door.takePass('concert', person('ann'), 'front');
    await w.run(29_000);
    expect(w.standing(token).state).toBe('claimed');
    await w.run(2_500);
    expect(w.standing(token).state).toBe('missed');
    expect(w.state.counts.active, 'a request of the last moment may still be under way').toBe(1);
    await w.run(3_000);
    expect(w.state.counts.active).toBe(0);
  });

  test('who has bought, and may buy more, stands in line again once the window is over', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const token = await w.join('ann');
    await w.open();
    expect(await w.buy('ann')).toBe(true);
    await w.run(1_000);
    const join = (): ReturnType<RoomWorld['door']['join']> =>
      w.door.join('concert', person('ann'), { skuIds: [] });
    w.mayBuyMore = true;
    expect(await join(), 'the window is open: the same place').toMatchObject({ created: false });
    w.mayBuyMore = false;
    await w.run(40_000);
    expect(w.standing(token).state).toBe('claimed');
    expect(await join(), 'the limit is used').toMatchObject({
      created: false,
      standing: { state: 'claimed' },
    });
    w.mayBuyMore = true;
    expect(await join()).toMatchObject({ created: true, standing: { cohort: 'late' } });
    await w.run(1_000);
    expect(await w.buy('ann')).toBe(true);
    await w.run(250);
    expect(w.state.counts.finished).toBe(2);
  });

  test.each([
    [
      'not_your_turn',
      async (w: RoomWorld): Promise<void> => {
        await w.join('ann');
      },
    ],
    [
      'turn_over',
      async (w: RoomWorld) => {
        await w.join('ann');
        await w.open();
        await w.run(12_000);
      },
    ],
    [
      'left',
      async (w: RoomWorld) => {
        await w.join('ann');
        await w.open();
        await w.door.leave('concert', person('ann'));
        await w.run(500);
      },
    ],
    [
      'other_sku',
      async (w: RoomWorld) => {
        await w.join('ann');
        await w.open();
        await w.door.takePass('concert', person('ann'), 'back');
      },
    ],
    [
      'room_paused',
      async (w: RoomWorld) => {
        await w.join('ann');
        await w.open();
        await w.loop.pause('operator', 'test');
      },
    ],
  ] as const)('no pass, and why: %s', async (why, prepare) => {
    const w = await RoomWorld.started({
      skus: [
        { skuId: 'front', stock: why === 'not_your_turn' ? 0 : 10 },
        { skuId: 'back', stock: why === 'not_your_turn' ? 0 : 10 },
      ],
    });
    await prepare(w);
    if (why === 'not_your_turn') await w.open();
    expect(await w.door.takePass('concert', person('ann'), 'front')).toMatchObject({
      kind: 'not_admitted',
      why,
    });
  });

  test('a pass that expired inside the claim window ends the turn; who joins again waits again', async () => {
    const w = await RoomWorld.started({ stock: 10, room: { claimWindowMs: 120_000 } });
    const token = await w.join('ann');
    await w.open();
    const first = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    await w.run(36_000);
    expect(w.verify(first.pass, 'ann').kind).toBe('expired');
    // Were they told that it is their turn, they would be sent from one door to the other.
    expect(w.standing(token).state).toBe('missed');
    const refused = await w.door.takePass('concert', person('ann'), 'front');
    expect(refused).toMatchObject({ kind: 'not_admitted', missed: true });
    const again = await w.door.join('concert', person('ann'), { skuIds: [] });
    expect(again).toMatchObject({ kind: 'joined', created: true, standing: { state: 'waiting' } });
    await w.run(1_000);
    const second = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    expect(second.nonce).not.toBe(first.nonce);
    // The window of the first turn is over: nothing of it is remembered.
    await w.run(125_000);
    expect(w.state.lapsed.size).toBe(0);
  });

  test('whoever may buy more is given another nonce while the window is open, and counts once', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const token = await w.join('ann');
    await w.open();
    const first = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    const entryId = await w.door.entryIdOf('concert', 'ann');
    await w.store.endAttempt('concert', entryId, 'front', 1, w.world.wallMs());
    await w.store.finish('concert', entryId, 'bought', w.world.wallMs());
    await w.run(250);
    expect(w.standing(token).state).toBe('claimed');
    expect(w.state.counts).toMatchObject({ released: 1, active: 0, finished: 1, missed: 0 });
    const second = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    expect(second.nonce).not.toBe(first.nonce);
    await w.run(250);
    expect(w.state.counts).toMatchObject({ released: 1, active: 1, missed: 0 });
    await w.run(15_000);
    expect(w.state.counts).toMatchObject({ active: 1, missed: 0 });
  });

  test('held: nobody is released; paused: nobody gets a pass, and all are first afterwards', async () => {
    const w = await RoomWorld.started({ stock: 100, room: { maxAdmissionsPerSecond: 5 } });
    const tokens = await w.joinMany('p', 60);
    await w.open();
    const first = inState(w, tokens, 'admitted');
    expect(first).toHaveLength(5);
    expect(await w.loop.hold('operator', 'look first')).toBe(true);
    expect(await w.loop.hold('operator', 'again')).toBe(false);
    await w.run(5_000);
    expect(inState(w, tokens, 'admitted').sort()).toEqual(first.sort());
    const [a = ''] = first;
    const pass = passOf(await w.door.takePass('concert', person(a), 'front'));
    expect(await w.loop.unhold('operator', 'fine')).toBe(true);
    expect(await w.loop.pause('operator', 'shop is down')).toBe(true);
    await w.run(60_000);
    expect(inState(w, tokens, 'admitted')).toEqual([]);
    expect(w.verify(pass.pass, a)).toMatchObject({ kind: 'refused' });
    expect(await w.door.takePass('concert', person(a), 'front')).toMatchObject({
      kind: 'not_admitted',
      missed: false,
    });
    expect(await w.loop.resume('operator', 'shop is back')).toBe(true);
    await w.run(250);
    const again = inState(w, tokens, 'admitted');
    expect(again.length).toBeGreaterThan(0);
    for (const name of again) expect(first).toContain(name);
    await w.run(1_750);
    for (const name of first) expect(inState(w, tokens, 'admitted')).toContain(name);
    expect(passOf(await w.door.takePass('concert', person(a), 'front')).nonce).not.toBe(pass.nonce);
  });

  test('passthrough: everybody is let in from the opening, passes renew, caps do not apply', async () => {
    const w = await RoomWorld.started({ room: { mode: 'passthrough', maxActive: 1 } });
    const tokens = await w.joinMany('p', 20);
    expect(inState(w, tokens, 'waiting')).toHaveLength(20);
    await w.open();
    expect(inState(w, tokens, 'admitted')).toHaveLength(20);
    const first = passOf(await w.door.takePass('concert', person('p3'), 'front'));
    expect(passOf(await w.door.takePass('concert', person('p3'), 'front'))).toEqual(first);
    await w.run(40_000);
    const second = passOf(await w.door.takePass('concert', person('p3'), 'front'));
    expect(second.nonce).not.toBe(first.nonce);
    expect(w.state.counts.joined).toBe(20);
  });

  test('reject: nobody is let in, nobody joins', async () => {
    const w = await RoomWorld.started({ room: { mode: 'reject' } });
    expect(await w.door.join('concert', person('ann'), { skuIds: [] })).toMatchObject({
      kind: 'not_open',
      over: true,
    });
  });

  test('a store that does not answer is an error for the caller, and asked again by the next', async () => {
    const store = new MemoryAdmissionStore();
    const w = await RoomWorld.started({ store });
    const load = store.loadState.bind(store);
    store.loadState = () => Promise.reject(new UnavailableError('gone'));
    await expect(w.join('ann')).rejects.toBeInstanceOf(UnavailableError);
    store.loadState = load;
    expect(await w.join('ann')).toMatch(/\./);
  });

  test('what a pass says: times of the store, version, path, quantity', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    await w.join('ann');
    await w.open();
    const pass = passOf(await w.door.takePass('concert', person('ann'), 'front'));
    const verdict = w.verify(pass.pass, 'ann');
    expect(verdict).toMatchObject({
      kind: 'valid',
      claims: {
        activityId: 'concert',
        skuId: 'front',
        userId: 'ann',
        activityVersion: 1,
        pathId: pass.pathId,
        nonce: pass.nonce,
        wave: 1,
        maxQuantity: 1,
        notBeforeMs: pass.notBeforeMs,
        expiresAtMs: pass.expiresAtMs,
      },
    });
    expect(pass.expiresAtMs - w.world.wallMs()).toBeGreaterThanOrEqual(30_000);
    expect(pass.expiresAtMs % 1000).toBe(0);
  });
});
