import { beforeEach, describe, expect, test } from 'vitest';
import type { ReleaseState } from '../core/room/release.ts';
import { SequenceSet } from '../core/room/sequence-set.ts';
import type { Epoch, SoldOutSnapshot } from '../pipeline/sold-out-flags.ts';
import { Bloom } from '../pipeline/bloom.ts';
import { Air } from '../../test/support/air.ts';
import { World } from '../../test/support/world.ts';
import { Fleet, type InstanceReport } from './fleet.ts';
import type { Role } from './roles.ts';

const sku = { activityId: 'show', skuId: 'floor' };

const state = (epoch: number, version: number): ReleaseState =>
  ({
    schemaVersion: 1,
    activityId: 'show',
    epoch,
    version,
    left: new SequenceSet(),
    claimed: new SequenceSet(),
    lapsed: new SequenceSet(),
    lanes: [],
  }) as unknown as ReleaseState;

describe('a fleet', () => {
  let world: World;
  let air: Air;
  let told: string[];
  const errors: string[] = [];
  beforeEach(() => {
    world = new World();
    air = new Air(world);
    told = [];
    errors.length = 0;
  });

  const join = async (instance: string, roles: readonly Role[]): Promise<Fleet> => {
    const note = (what: string): void => void told.push(`${instance} ${what}`);
    const fleet = new Fleet({
      broadcast: air.broadcast(),
      instance,
      roles,
      activities: () => [{ activityId: 'show' }],
      skus: () => [sku],
      clock: world,
      timers: world,
      report: () => ({ instance, roles }) as unknown as InstanceReport,
      onRelease: ({ epoch, version }, ageMs) => note(`release ${epoch}.${version} ${ageMs}`),
      onEpoch: (_, { generation, stockEpoch }: Epoch) => note(`epoch ${generation}.${stockEpoch}`),
      onHolders: ({ holders }: SoldOutSnapshot) =>
        note(`holders ${holders !== undefined && Bloom.from(holders).mayHave('ann')}`),
      onForgot: (_, generation) => note(`forgot ${generation}`),
      onDoors: (word, ageMs) => note(`${word.kind} ${Math.round(ageMs)}`),
      onError: (what) => errors.push(what),
    });
    await fleet.start();
    return fleet;
  };
  const once = (line: string): number => told.filter((one) => one === line).length;

  test('what one tells, all hear at once', async () => {
    const control = await join('c', ['control']);
    await join('g', ['gateway']);
    control.tellRelease(state(1, 1));
    control.tellEpoch(sku, { generation: 1, stockEpoch: 1 });
    const holders = Bloom.of(['ann'], 1).toBytes();
    control.tellHolders({ ...sku, soldOut: true, generation: 1, stockEpoch: 1, holders }, 1);
    control.tellForgot(sku, 1);
    await world.advance(0);
    expect(told).toEqual(
      expect.arrayContaining(['g release 1.1 0', 'g epoch 1.1', 'g holders true', 'c forgot 1']),
    );
    expect(errors).toEqual([]);
  });

  test('with every word lost in the air, the last ones are read within a second', async () => {
    air.deaf = true;
    const control = await join('c', ['control']);
    const gateway = await join('g', ['gateway']);
    control.tellRelease(state(1, 7));
    control.tellEpoch(sku, { generation: 1, stockEpoch: 2 });
    gateway.tellForgot(sku, 4);
    await world.advance(0);
    expect(told).toEqual([]);
    await world.advance(1_000);
    expect(once('g epoch 1.2')).toBe(1);
    expect(told.some((line) => line.startsWith('g release 1.7 1000'))).toBe(true);
    expect(once('c forgot 4')).toBe(1);
    // A gateway does not mend, so it does not ask what is to be mended.
    expect(once('g forgot 4')).toBe(0);
  });

  test('an old release state is told with its age, and not at all once it is worth nothing', async () => {
    air.deaf = true;
    const control = await join('c', ['control']);
    control.tellRelease(state(1, 1));
    await world.advance(3_000);
    await join('late', ['gateway']);
    expect(told.some((line) => line === 'late release 1.1 3000')).toBe(true);
    await world.advance(10_000);
    const before = told.length;
    await join('later', ['gateway']);
    expect(told.slice(before).some((line) => line.startsWith('later release'))).toBe(false);
  });

  test('a deposed leader is not heard, neither its state nor its holders', async () => {
    const old = await join('old', ['control']);
    const next = await join('new', ['control']);
    await join('g', ['gateway']);
    next.tellRelease(state(2, 1));
    const sold = { ...sku, soldOut: true, generation: 1, stockEpoch: 1 };
    next.tellHolders({ ...sold, holders: Bloom.of(['ann'], 1).toBytes() }, 2);
    await world.advance(0);
    told = [];
    old.tellRelease(state(1, 99));
    old.tellHolders({ ...sold, holders: Bloom.of(['bob'], 1).toBytes() }, 1);
    await world.advance(0);
    expect(told).toEqual([]);
  });

  test('of words that wait for one another only the newest is said', async () => {
    const control = await join('c', ['control']);
    await world.advance(0);
    const before = air.said;
    for (let version = 1; version <= 50; version += 1) control.tellRelease(state(1, version));
    await world.advance(0);
    expect(air.said - before).toBe(2);
    expect(told.filter((line) => line.startsWith('c release'))).toEqual([
      'c release 1.1 0',
      'c release 1.50 0',
    ]);
  });

  test('others are known while they speak, and forgotten when they do not', async () => {
    const control = await join('c', ['control']);
    const gateway = await join('g', ['gateway']);
    await world.advance(1_000);
    expect(control.others().map(({ instance }) => instance)).toEqual(['g']);
    await gateway.stop();
    await world.advance(4_000);
    expect(control.others()).toHaveLength(1);
    await world.advance(2_000);
    expect(control.others()).toEqual([]);
  });

  test('the skew of clocks is that of the quickest of a few words, of the clock furthest away', async () => {
    const one = await join('c', ['control']);
    expect(one.clockSkewMs).toBeUndefined();
    const word = (instance: string, behindMs: number): Promise<boolean> =>
      air.broadcast().say(`instance/${instance}`, {
        epoch: 1,
        version: (version += 1),
        text: JSON.stringify({ instance, roles: [], saidAtMs: world.wallMs() - behindMs }),
        ttlMs: 5_000,
      });
    let version = 0;
    // 40 ms behind, with a word each that took longer.
    for (const delayMs of [300, 0, 90]) await word('late', 40 + delayMs);
    expect(one.clockSkewMs).toBe(40);
    // Ahead: what a word needs for its way makes it look less so.
    for (const delayMs of [500, 20]) await word('early', -700 + delayMs);
    expect(one.clockSkewMs).toBe(680);
    await air.broadcast().say('instance/old', {
      epoch: 1,
      version: 1,
      text: JSON.stringify({ instance: 'old', roles: [] }),
      ttlMs: 5_000,
    });
    expect(one.clockSkewMs).toBe(680);
    await world.advance(6_000);
    expect(one.clockSkewMs).toBeUndefined();
  });

  test('a word that cannot be said is an error, and the next one is said', async () => {
    const control = await join('c', ['control']);
    air.dumb = true;
    control.tellForgot(sku, 1);
    await world.advance(0);
    expect(errors).toContain('telling forgot/show/floor');
    air.dumb = false;
    control.tellForgot(sku, 1);
    await world.advance(0);
    expect(once('c forgot 1')).toBe(1);
  });

  test('an operator’s word on the doors reaches all, once, and those who start later too', async () => {
    const control = await join('c', ['control']);
    await join('g1', ['gateway']);
    control.tellDoors({ kind: 'pin', mode: 'CLOSED', forMs: 60_000, who: 'op', reason: 'drill' });
    await world.advance(3_000);
    expect(told.filter((line) => line.includes('pin'))).toEqual(['g1 pin 0']);
    await join('g2', ['gateway']);
    await world.advance(3_000);
    expect(told.filter((line) => line.includes('pin'))).toEqual(['g1 pin 0', 'g2 pin 3000']);
    // The deaf read it a second later at most.
    air.deaf = true;
    control.tellDoors({ kind: 'unpin' });
    await world.advance(1_500);
    expect(told.filter((line) => line.includes('unpin'))).toHaveLength(2);
  });
});
