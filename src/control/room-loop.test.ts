import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { person, RoomWorld } from '../../test/support/room.ts';
import { SeededRandom } from '../../test/support/world.ts';
import { fromHex } from '../core/room/bytes.ts';
import { commitmentOf, Drawer, participantLeaf } from '../core/room/draw.ts';
import { wavePeople } from '../core/room/events.ts';
import type { RoomEvent } from '../core/room/events.ts';
import { MerkleLog, sameBytes } from '../core/room/merkle.ts';
import type { ReleaseState } from '../core/room/release.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import { MemoryAdmissionStore } from '../stores/memory/admission-store.ts';
import { RoomLog } from './room-log.ts';

/** Fails one call, counted over all methods: before it did anything, or after it did everything. */
class FailingStore {
  readonly inner = new MemoryAdmissionStore();
  readonly store: AdmissionStore;
  calls = 0;
  failAt: number | undefined;
  after = false;

  constructor() {
    this.store = new Proxy(this.inner, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]): unknown => this.#call(value.bind(target), args);
      },
    });
  }

  async #call(method: (...args: unknown[]) => unknown, args: unknown[]): Promise<unknown> {
    this.calls += 1;
    if (this.calls !== this.failAt) return method(...args);
    if (!this.after) throw new UnavailableError('the store did not answer');
    await method(...args);
    throw new OutcomeUnknownError('the store’s answer was lost');
  }
}

/** The true order of the lobby, from the published facts alone. */
async function trueOrder(world: RoomWorld): Promise<string[]> {
  const facts = world.state.draw;
  if (facts === null) throw new Error('not drawn');
  const drawer = new Drawer(fromHex(facts.secret)!, fromHex(facts.root)!, fromHex(facts.beacon)!);
  const lobby = await world.store.participants('concert', 0, world.state.lobbySize!);
  return lobby
    .map((each) => each.entryId)
    .sort((a, b) => drawer.valueOf(a) - drawer.valueOf(b) || (a < b ? -1 : 1));
}

const events = (world: RoomWorld): Promise<readonly RoomEvent[]> =>
  new RoomLog(world.store, 'concert').load();

/**
 * What a state says, without the stamps that differ between two publications, and without what follows
 * from the yield: a new control begins with the cautious one.
 */
function essence(state: ReleaseState): unknown {
  const { epoch: _e, version: _v, publishedAtMs: _p, left, claimed, lanes, ...rest } = state;
  return {
    ...rest,
    left: [...left],
    claimed: [...claimed],
    // How well forecasts did is remembered by the control that made them; the pace is in the log.
    lanes: lanes.map(({ forecast: { shortPerSecond, longPerSecond }, ...lane }) => ({
      ...lane,
      shortPerSecond,
      longPerSecond,
    })),
  };
}

describe('the draw', () => {
  test('commitment before the lobby, root at closing, secret with the result', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    const { commitment } = w.state;
    expect(w.state).toMatchObject({ stage: 'lobby', draw: null, lobbySize: null });
    expect(commitment).toMatch(/^[0-9a-f]{64}$/);
    const tokens = await w.joinMany('p', 50);
    await w.run(1_000);
    await w.open();
    const { draw } = w.state;
    expect(w.state.stage).toBe('open');
    expect(commitmentOf(fromHex(draw!.secret)!)).toBe(commitment);
    const log = new MerkleLog();
    for (const each of await w.store.participants('concert', 0, 1000)) {
      log.append(participantLeaf(each.entryId, each.weight));
    }
    expect(sameBytes(log.root(), fromHex(draw!.root)!)).toBe(true);
    const order = await trueOrder(w);
    const admitted = [...tokens].filter(([, token]) => w.standing(token).state === 'admitted');
    const ids = await Promise.all(admitted.map(([name]) => w.door.entryIdOf('concert', name)));
    expect(ids.sort()).toEqual(order.slice(0, 12).sort());
  });

  test('nobody is let in before the opening, whatever the signals', async () => {
    const w = await RoomWorld.started();
    const tokens = await w.joinMany('p', 20);
    await w.run(59_750);
    expect([...tokens.values()].every((t) => w.standing(t).state === 'waiting')).toBe(true);
    expect(w.state.counts.released).toBe(0);
  });

  test('a named beacon is waited for, and changes the order', async () => {
    const w = await RoomWorld.started({ stock: 10, room: { beacon: 'drand round 1' } });
    const tokens = await w.joinMany('p', 40);
    await w.open();
    await w.run(3_000);
    expect(w.state).toMatchObject({ stage: 'drawing', beacon: { value: null } });
    expect(w.standing([...tokens.values()][0]!).position).toBeNull();
    w.beacon = 'd3adb33f';
    await w.run(250);
    expect(w.state.stage).toBe('open');
    expect(Buffer.from(w.state.draw!.beacon, 'hex').toString()).toBe('d3adb33f');
    expect(w.state.counts.released).toBe(12);
    const order = await trueOrder(w);
    const plain = new Drawer(
      fromHex(w.state.draw!.secret)!,
      fromHex(w.state.draw!.root)!,
      new Uint8Array(0),
    );
    const without = [...order].sort((a, b) => plain.valueOf(a) - plain.valueOf(b));
    expect(without).not.toEqual(order);
  });

  test('a beacon is announced after the closing, once', async () => {
    const w = await RoomWorld.started({ stock: 10, room: { beacon: 'drand round 1' } });
    await w.joinMany('p', 20);
    expect(await w.loop.announceBeacon('too early'), 'while people still join').toBe(false);
    await w.open();
    expect(w.state.stage).toBe('drawing');
    expect(await w.loop.announceBeacon('the value')).toBe(true);
    expect(await w.loop.announceBeacon('another')).toBe(false);
    await w.run(250);
    expect(w.state.stage).toBe('open');
    expect(Buffer.from(w.state.draw!.beacon, 'hex').toString()).toBe('the value');
    const plain = await RoomWorld.started({ stock: 10 });
    await plain.open();
    expect(await plain.loop.announceBeacon('nobody named one')).toBe(false);
  });

  test('those who left before the draw are not in it; who came back stands once', async () => {
    const w = await RoomWorld.started({ stock: 100 });
    await w.joinMany('p', 30);
    for (let at = 0; at < 10; at += 1) await w.door.leave('concert', person(`p${at}`));
    const again = await w.join('p0');
    await w.open();
    expect(w.state.counts).toMatchObject({ joined: 31, left: 10, released: 21 });
    expect(w.standing(again).state).toBe('admitted');
  });
});

describe('dying at any instant', () => {
  /** A small sale with joins, leavers, passes and purchases; returns what everybody was told. */
  async function sale(w: RoomWorld, turn: () => Promise<void>): Promise<Set<string>> {
    const admitted = new Set<string>();
    await turn();
    const names = Array.from({ length: 40 }, (_, at) => `p${at}`);
    const tokens = new Map<string, string>();
    for (const name of names.slice(0, 30)) tokens.set(name, await w.join(name));
    await w.door.leave('concert', person('p3'));
    await w.world.advance(w.activity.opensAtMs - w.world.wallMs());
    for (let step = 0; step < 12; step += 1) {
      await turn();
      if (step === 1) for (const name of names.slice(30)) tokens.set(name, await w.join(name));
      for (const [name, token] of tokens) {
        if (w.standing(token).state === 'admitted') {
          admitted.add(name);
          if (Number(name.slice(1)) % 3 === 0) await w.buy(name);
        }
      }
      await w.world.advance(step % 4 === 3 ? 11_000 : 500);
    }
    return admitted;
  }

  async function inspect(w: RoomWorld): Promise<void> {
    const log = await events(w);
    expect(log.filter((each) => each.e === 'closed')).toHaveLength(1);
    expect(log.filter((each) => each.e === 'drawn')).toHaveLength(1);
    const waves = log.filter((each) => each.e === 'wave');
    expect(waves.map((each) => each.wave)).toEqual(waves.map((_, at) => at + 1));
    const released = waves.reduce((sum, wave) => sum + wavePeople(wave), 0);
    expect(released).toBe(w.state.counts.released);
    // Exactly the first so many of the true order, then arrivals in order.
    const order = (await trueOrder(w)).filter((id) => !leftIds.has(id));
    const last = waves.at(-1)?.lanes[0]?.upTo;
    if (last?.cohort === 0) expect(released).toBeLessThanOrEqual(order.length);
    else expect(released).toBe(order.length + (last!.key - w.state.lobbySize! + 1));
  }
  const leftIds = new Set<string>();

  test('no store call fails in vain: same draw, no second release, nobody lost', async () => {
    const clean = new FailingStore();
    const first = new RoomWorld({ stock: 12, store: clean.store });
    leftIds.clear();
    leftIds.add(await first.door.entryIdOf('concert', 'p3'));
    const before = clean.calls;
    const wanted = await sale(first, () => first.loop.runOnce());
    const total = clean.calls - before;
    await inspect(first);
    expect(wanted.size).toBeGreaterThan(20);

    let crashes = 0;
    for (let at = 1; at <= total; at += 1) {
      for (const after of [false, true]) {
        const failing = new FailingStore();
        const w = new RoomWorld({ stock: 12, store: failing.store });
        await w.door.entryIdOf('concert', 'p3');
        const turn = async (): Promise<void> => {
          // Only control's own calls fail; the process then dies and another one starts.
          failing.after = after;
          failing.failAt = failing.calls < at ? at : undefined;
          const limit = failing.calls;
          try {
            await w.loop.runOnce();
          } catch (error) {
            expect(error).toBeInstanceOf(after ? OutcomeUnknownError : UnavailableError);
            expect(failing.calls).toBeGreaterThan(limit);
            crashes += 1;
            failing.failAt = undefined;
            w.loop = w.newLoop();
            await w.loop.runOnce();
          } finally {
            failing.failAt = undefined;
          }
        };
        await sale(w, turn);
        await inspect(w);
        // One secret from the first commitment anybody saw to the end.
        expect(new Set(w.published.map((each) => each.commitment)).size).toBe(1);
        expect(commitmentOf(fromHex(w.state.draw!.secret)!)).toBe(w.state.commitment);
        expect(w.state.counts.joined).toBe(first.state.counts.joined);
      }
    }
    expect(crashes).toBeGreaterThan(50);
  }, 120_000);

  test('the log has no room for two leaders: the slower one is told and starts anew', async () => {
    const w = await RoomWorld.started({ stock: 10 });
    await w.joinMany('p', 30);
    const other = w.newLoop();
    await w.loop.runOnce();
    await other.runOnce();
    await w.world.advance(60_000);
    await other.runOnce();
    await expect(w.loop.runOnce()).rejects.toThrow(/there already/);
    await w.loop.runOnce();
    await w.run(1_000);
    const waves = (await events(w)).filter((each) => each.e === 'wave');
    expect(waves.reduce((sum, wave) => sum + wavePeople(wave), 0)).toBe(12);
    expect(w.state.counts.released).toBe(12);
  });

  test('an older leader’s publication never replaces a newer one’s', async () => {
    const w = await RoomWorld.started();
    await w.loop.runOnce();
    const old = w.published.at(-1)!;
    w.loop = w.newLoop();
    await w.loop.runOnce();
    expect(w.states.accept({ ...old, version: 99 })).toBe(false);
    expect(w.states.accept(w.state)).toBe(false);
  });
});

describe('any history', () => {
  interface Step {
    readonly what: string;
    readonly who: number;
    readonly ms: number;
  }
  const histories = fc.array(
    fc.record({
      what: fc.constantFrom(
        'join',
        'join',
        'join',
        'leave',
        'buy',
        'buy',
        'pass',
        'end',
        'gave_up',
        'failed',
        'wait',
        'wait',
        'hold',
        'unhold',
        'pause',
        'resume',
        'revoke',
        'bypass',
        'stock',
      ),
      who: fc.nat(60),
      ms: fc.constantFrom(250, 250, 1_000, 5_000, 12_000),
    }),
    { minLength: 20, maxLength: 90 },
  );

  async function play(w: RoomWorld, history: readonly Step[]): Promise<void> {
    const skuIds = ['a', 'b'];
    for (const { what, who, ms } of history) {
      const name = `p${who}`;
      const skuId = skuIds[who % 2]!;
      const now = w.world.wallMs();
      const entryId = await w.door.entryIdOf('concert', name);
      if (what === 'join') await w.join(name, who % 3 === 0 ? [] : [skuId]);
      else if (what === 'leave') await w.door.leave('concert', person(name));
      else if (what === 'buy') await w.buy(name, skuId);
      else if (what === 'pass') await w.door.takePass('concert', person(name), skuId);
      else if (what === 'end') await w.store.endAttempt('concert', entryId, skuId, 1, now);
      else if (what === 'gave_up' || what === 'failed') {
        await w.store.finish('concert', entryId, what, now);
      } else if (what === 'hold') await w.loop.hold('op', 'test');
      else if (what === 'unhold') await w.loop.unhold('op', 'test');
      else if (what === 'pause') await w.loop.pause('op', 'test');
      else if (what === 'resume') await w.loop.resume('op', 'test');
      else if (what === 'revoke') await w.loop.revokeWave(1 + (who % 5), 'op', 'test');
      else if (what === 'bypass') await w.loop.bypass(entryId, 'op', 'test');
      else if (what === 'stock') w.setStock(skuId, who % 20);
      await w.run(ms > 1_000 ? 250 : ms);
      if (ms > 1_000) {
        await w.world.advance(ms);
        await w.loop.runOnce();
      }
    }
  }

  const step = (what: string, who: number, ms: number): Step => ({ what, who, ms });
  /** Somebody knocks again and again while time goes by. */
  const pass = (...times: readonly number[]): readonly Step[] =>
    times.map((ms) => step('join', 0, ms));
  const quarters = (count: number): readonly Step[] =>
    pass(...Array.from({ length: count }, () => 250));
  /** Histories in which the clock had concluded what the news then said otherwise; each found a fault once. */
  const found: [Step[], number][] = [
    [
      [
        ...pass(1_000, 1_000),
        step('buy', 4, 5_000),
        ...pass(1_000, 250, 250, 1_000, 5_000),
        step('pass', 2, 250),
        ...pass(250, 5_000, 250, 250, 5_000, 12_000),
        ...quarters(11),
        ...pass(5_000, 1_000, 250),
      ],
      5,
    ],
    [
      [
        step('pass', 1, 250),
        ...pass(12_000, 12_000, 250, 250, 250, 5_000),
        ...quarters(12),
        step('join', 1, 250),
        ...quarters(2),
      ],
      7,
    ],
    [
      [
        step('buy', 2, 250),
        ...pass(12_000, 12_000, 12_000, 12_000, 12_000, 5_000, 250, 12_000, 5_000, 1_000, 250, 250),
        ...pass(1_000, 5_000, 1_000, 5_000, 1_000, 250, 12_000, 12_000, 250, 12_000, 1_000, 12_000),
        step('end', 2, 250),
        ...quarters(12),
      ],
      8,
    ],
    [
      [
        step('pass', 16, 250),
        ...pass(12_000, 12_000, 1_000, 12_000, 1_000, 250, 12_000, 5_000, 1_000, 250, 250, 250),
        ...pass(12_000, 250, 5_000, 250, 5_000, 12_000, 5_000, 1_000, 12_000, 250, 12_000, 5_000),
        ...pass(5_000, 1_000, 1_000, 12_000),
        step('failed', 0, 250),
        step('join', 16, 250),
        ...quarters(13),
      ],
      0,
    ],
  ];

  test.each(['draw', 'fifo', 'weighted', 'quota', 'lottery'] as const)(
    'a restart finds the very same room (%s), and the caps held throughout',
    async (mode) => {
      await fc.assert(
        fc.asyncProperty(histories, fc.nat(8), async (history, cap) => {
          const room = {
            mode,
            maxActive: 4 + cap,
            maxAdmissionsPerSecond: 2 + cap,
            quota: { places: { '': 50 }, leftover: 'to_all' as const },
            lotteryPlaces: 15,
          };
          const skus = [
            { skuId: 'a', stock: 12 },
            { skuId: 'b', stock: 9 },
          ];
          const w = await RoomWorld.started({ room, skus, seed: `${mode} ${cap}` });
          for (let at = 0; at < 25; at += 1) await w.join(`p${at}`, at % 4 === 0 ? ['a'] : []);
          await w.open();
          await play(w, history);
          await w.run(250);
          const live = w.published.at(-1)!;

          const fresh = w.newLoop();
          // Nothing may happen in its first turn but reading: the same instant, and no room to release.
          const { signals } = w;
          const log = await events(w);
          await fresh.runOnce();
          const again = w.published.at(-1)!;
          const more = (await events(w)).length - log.length;
          if (more === 0) expect(essence(again)).toEqual(essence(live));
          w.signals = signals;

          const times = log.flatMap((event) =>
            event.e === 'wave'
              ? [{ atMs: event.atMs, people: wavePeople(event) }]
              : event.e === 'bypassed'
                ? [{ atMs: event.atMs, people: 1 }]
                : [],
          );
          for (const { atMs } of times) {
            const inSecond = times.filter((t) => t.atMs > atMs - 1000 && t.atMs <= atMs);
            const people = inSecond.reduce((sum, t) => sum + t.people, 0);
            expect(people).toBeLessThanOrEqual(room.maxAdmissionsPerSecond);
          }
        }),
        { numRuns: 25, examples: found },
      );
    },
    120_000,
  );
});

describe('the caps', () => {
  test('never exceeded in 10,000 waves with random yields, crashes of control, leavers', async () => {
    let waves = 0;
    const random = new SeededRandom('caps');
    for (let round = 0; waves < 10_000; round += 1) {
      const maxActive = 1 + random.below(20);
      const maxAdmissionsPerSecond = 1 + random.below(12);
      const w = await RoomWorld.started({
        seed: `caps ${round}`,
        stock: 20 + random.below(200),
        room: { maxActive, maxAdmissionsPerSecond },
      });
      const tokens = await w.joinMany('p', 80 + random.below(100));
      await w.open();
      const buys = random.float();
      const leaves = random.float() * 0.3;
      const decided = new Map<string, string>();
      for (let step = 0; step < 160; step += 1) {
        for (const [name, token] of tokens) {
          if (step % 2 === 1 || decided.has(name)) continue;
          if (w.standing(token).state !== 'admitted') continue;
          const chance = random.float();
          if (chance < leaves) {
            decided.set(name, 'left');
            await w.door.leave('concert', person(name));
          } else if (chance < leaves + (1 - leaves) * buys) {
            decided.set(name, 'bought');
            await w.buy(name);
          } else decided.set(name, 'nothing');
        }
        if (random.below(12) === 0) w.loop = w.newLoop();
        await w.run(random.below(5) === 0 ? 2_500 : 250);
        const { active, released } = w.state.counts;
        expect(active).toBeLessThanOrEqual(maxActive);
        // Seen from outside: released, and neither bought, left nor past the window.
        if (step % 16 === 0) {
          const open = [...tokens.values()].filter((t) => w.standing(t).state === 'admitted');
          expect(open.length).toBeLessThanOrEqual(maxActive);
        }
        expect(released).toBeLessThanOrEqual(tokens.size);
      }
      const log = (await events(w)).filter((each) => each.e === 'wave');
      waves += log.length;
      for (const wave of log) {
        const people = log
          .filter((each) => each.atMs > wave.atMs - 1000 && each.atMs <= wave.atMs)
          .reduce((sum, each) => sum + wavePeople(each), 0);
        expect(people).toBeLessThanOrEqual(maxAdmissionsPerSecond);
      }
    }
  }, 300_000);
});
