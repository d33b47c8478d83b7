import { createHash, createHmac } from 'node:crypto';
import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { toHex } from './bytes.ts';
import {
  commitmentOf,
  Drawer,
  EntryIdMaker,
  exactLn,
  participantLeaf,
  weightedKey,
} from './draw.ts';
import { laneKey, laneParts, normalSkus } from './lanes.ts';
import { Line, livingBefore, sketchIntervals } from './line.ts';
import { LobbyDraw, sortSliced } from './lobby-draw.ts';
import { SequenceSet } from './sequence-set.ts';

const secret = new Uint8Array(32).fill(3);
const root = new Uint8Array(32).fill(4);
const id = (name: string): string =>
  createHash('sha256').update(name).digest().subarray(0, 16).toString('base64url');

describe('draw values', () => {
  test('are what the platform’s HMAC says: 53 bits of HMAC(secret, root ‖ beacon ‖ id)', () => {
    for (const beacon of [new Uint8Array(0), new Uint8Array(48).fill(9)]) {
      const drawer = new Drawer(secret, root, beacon);
      for (const name of ['a', 'b', 'c']) {
        const mac = createHmac('sha256', secret)
          .update(root)
          .update(beacon)
          .update(Buffer.from(id(name), 'base64url'))
          .digest();
        const wanted = Number(mac.readBigUInt64BE(0) >> 11n) / 2 ** 53;
        expect(drawer.valueOf(id(name))).toBe(wanted);
      }
    }
    expect(() => new Drawer(secret, root, root).valueOf('short')).toThrow(/"short"/);
    expect(commitmentOf(secret)).toBe(createHash('sha256').update(secret).digest('hex'));
  });

  test('entry ids differ by person, activity and key, and are 16 bytes', () => {
    const ids = [
      new EntryIdMaker(secret, 'a').idOf('ann'),
      new EntryIdMaker(secret, 'a').idOf('bob'),
      new EntryIdMaker(secret, 'b').idOf('ann'),
      new EntryIdMaker(root, 'a').idOf('ann'),
    ];
    expect(new Set(ids).size).toBe(4);
    expect(new EntryIdMaker(secret, 'a').idOf('ann')).toBe(ids[0]);
    for (const each of ids) expect(Buffer.from(each, 'base64url')).toHaveLength(16);
    expect(ids[0]).toBe(
      createHmac('sha256', secret).update('a\0ann').digest().subarray(0, 16).toString('base64url'),
    );
  });

  test('a leaf holds id and weight, and no two differ in less', () => {
    expect(toHex(participantLeaf(id('a'), 1)).slice(32)).toBe('3ff0000000000000');
    expect(participantLeaf(id('a'), 1)).not.toEqual(participantLeaf(id('a'), 1.0000000000000002));
    expect(() => participantLeaf('x', 1)).toThrow(/"x"/);
  });

  test('the exact logarithm is within 4 units of the last place, and its bits are pinned', () => {
    fc.assert(
      fc.property(fc.double({ min: 2 ** -53, max: 1, noNaN: true }), (x) => {
        const [ours, theirs] = [exactLn(x), Math.log(x)];
        expect(Math.abs(ours - theirs)).toBeLessThanOrEqual(4 * 2 ** -52 * Math.abs(theirs));
      }),
      { numRuns: 5000 },
    );
    const bits = (x: number): string => {
      const view = new DataView(new ArrayBuffer(8));
      view.setFloat64(0, x);
      return view.getBigUint64(0).toString(16);
    };
    expect(exactLn(1)).toBe(0);
    const sample = [0.5, 0.1, 0.7071, 0.9999999, 2 ** -53, 1 / 3].map((x) => bits(exactLn(x)));
    expect(createHash('sha256').update(sample.join()).digest('hex').slice(0, 16)).toBe(
      '95d97f626f491eea',
    );
  });

  test('weights: w tickets’ worth of chance to be first', () => {
    const drawer = new Drawer(secret, root, new Uint8Array(0));
    const rounds = 20_000;
    let heavyFirst = 0;
    for (let round = 0; round < rounds; round += 1) {
      const heavy = drawer.keyOf(id(`heavy ${round}`), 3, true);
      const light = drawer.keyOf(id(`light ${round}`), 1, true);
      if (heavy < light) heavyFirst += 1;
    }
    // Binomial with p = 3/4: five standard deviations.
    expect(Math.abs(heavyFirst / rounds - 0.75)).toBeLessThan(5 * Math.sqrt(0.1875 / rounds));
    expect(weightedKey(0, 1)).toBeGreaterThan(weightedKey(0.5, 1));
    expect(weightedKey(1 - 2 ** -53, 1)).toBe(0);
  });
});

describe('the lobby’s draw', () => {
  const entry = (name: string, sequence: number) => ({
    entryId: id(name),
    sequence,
    weight: 1,
    group: '',
    skuIds: [],
  });
  const sorted = (draw: LobbyDraw) => {
    for (const _ of draw.sort()) expect(_).toBeUndefined();
    return draw;
  };

  test('sorts in slices as a native sort would', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 100_000 }), fc.integer(), (size, seed) => {
        let state = seed | 1;
        const keys = Float64Array.from({ length: size }, () => {
          state = Math.imul(state, 1_103_515_245) + 12_345;
          return (state >>> 4) % 5_000;
        });
        const wanted = keys.slice().sort();
        const slices = sortSliced(keys);
        let step = slices.next();
        while (step.done !== true) step = slices.next();
        expect(step.value).toEqual(wanted);
      }),
      { numRuns: 12 },
    );
  });

  test('the order does not depend on the order of feeding', () => {
    const drawer = new Drawer(secret, root, new Uint8Array(0));
    const forward = new LobbyDraw('draw', drawer);
    const backward = new LobbyDraw('draw', drawer);
    const names = Array.from({ length: 500 }, (_, at) => `p${at}`);
    names.forEach((name, at) => forward.add('', entry(name, at)));
    names.reverse().forEach((name, at) => backward.add('', entry(name, at)));
    expect(sorted(forward).lines()).toEqual(sorted(backward).lines());
  });

  test('equal values stand in the order of ids', () => {
    // A drawer with two values only makes ties of nearly everybody.
    const coarse = { keyOf: (entryId: string) => (entryId < 'M' ? 0.25 : 0.75) };
    const draw = new LobbyDraw('draw', coarse);
    const entries = Array.from({ length: 40 }, (_, at) => entry(`p${at}`, at));
    for (const each of entries) draw.add('', each);
    sorted(draw);
    expect(draw.hasTies).toBe(true);
    for (const each of entries) draw.addTied('', each);
    const { sorted: keys, ties } = draw.lines().get('')!;
    const line = new Line(keys, ties);
    const order = Array.from({ length: 40 }, (_, rank) => line.tieAt(rank));
    const ids = entries.map((each) => each.entryId);
    const byId = (list: string[]) => list.sort((a, b) => (a < b ? -1 : 1));
    expect(order).toEqual([
      ...byId(ids.filter((each) => each < 'M')),
      ...byId(ids.filter((each) => each >= 'M')),
    ]);
    order.forEach((each, rank) => expect(line.rankOf(line.keyAt(rank), each!)).toBe(rank));
    expect(line.countWithin(0.25, order[3])).toBe(4);
    expect(line.rankOf(0.25, 'nobody')).toBe(-1);
  });

  test('is asked for its lines only when sorted', () => {
    expect(() => new LobbyDraw('fifo', undefined).lines()).toThrow(/not sorted/);
  });
});

describe('a line', () => {
  test('counts the living as a plain list would', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 200 }),
        fc.array(fc.nat(199), { maxLength: 150 }),
        fc.nat(220),
        fc.nat(220),
        (size, gone, a, b) => {
          const line = new Line(Float64Array.from({ length: size }, (_, at) => at * 2));
          const plain = new Set<number>();
          for (const rank of gone) {
            if (rank >= size) continue;
            expect(line.markGone(rank)).toBe(!plain.has(rank));
            plain.add(rank);
          }
          const [from, to] = [Math.min(a, b), Math.max(a, b)];
          let living = 0;
          for (let at = from; at < Math.min(to, size); at += 1) if (!plain.has(at)) living += 1;
          expect(line.livingBetween(from, to)).toBe(living);
          expect(line.living).toBe(size - plain.size);
          let next = from;
          while (next < size && plain.has(next)) next += 1;
          expect(line.nextLiving(from)).toBe(Math.max(next, from));
          expect(line.rankOf(4, '')).toBe(size > 2 ? 2 : -1);
          expect(line.rankOf(5, '')).toBe(-1);
          expect(line.countWithin(5, undefined)).toBe(Math.min(size, 3));
        },
      ),
    );
  });

  test('grows at its end only', () => {
    const line = new Line();
    for (let key = 0; key < 1000; key += 1) line.push(key * 3);
    expect(line.rankOf(2997, '')).toBe(999);
    expect(() => line.push(2997)).toThrow(/2997/);
    line.markGone(999);
    line.push(3000);
    expect(line.isGone(999)).toBe(true);
    expect(line.isGone(1000)).toBe(false);
    expect(() => line.keyAt(1001)).toThrow(/1001/);
  });

  test('its sketch places everybody to within 0.1 % of the room, and the bound is a bound', () => {
    for (const size of [1, 7, 1024, 5000, 100_000]) {
      const drawer = new Drawer(secret, root, new Uint8Array(0));
      const draw = new LobbyDraw('draw', drawer);
      for (let at = 0; at < size; at += 1) {
        draw.add('', { entryId: id(`${at}`), sequence: at, weight: 1, group: '', skuIds: [] });
      }
      for (const _ of draw.sort()) expect(_).toBeUndefined();
      const { sorted: keys, ties } = draw.lines().get('')!;
      const line = new Line(keys, ties);
      for (let rank = 0; rank < size; rank += 3) line.markGone(rank);
      const sketch = line.sketch();
      expect(sketch.keys.length).toBeLessThanOrEqual(sketchIntervals);
      const allowed = size <= sketchIntervals ? 0 : Math.ceil(size / sketchIntervals);
      expect(allowed).toBeLessThanOrEqual(Math.max(1, size * 0.001));
      for (let rank = 0; rank < size; rank += Math.max(1, Math.floor(size / 997))) {
        const truth = line.livingBetween(0, rank);
        const { estimate, atMost } = livingBefore(sketch, line.keyAt(rank));
        expect(Math.abs(estimate - truth), `${rank} of ${size}`).toBeLessThanOrEqual(allowed);
        expect(atMost).toBeGreaterThanOrEqual(truth);
        expect(atMost - truth).toBeLessThanOrEqual(allowed);
      }
    }
    expect(livingBefore(new Line().sketch(), 0.5)).toEqual({ estimate: 0, atMost: 0 });
  });
});

describe('a set of sequences', () => {
  test('behaves as a plain set, and its snapshots stand still', () => {
    const changes = fc.array(
      fc.record({ put: fc.boolean(), at: fc.oneof(fc.nat(200), fc.nat(300_000)) }),
    );
    fc.assert(
      fc.property(changes, changes, (before, after) => {
        const set = new SequenceSet();
        const plain = new Set<number>();
        const apply = (list: typeof before) => {
          for (const { put, at } of list) {
            expect(put ? set.add(at) : set.delete(at)).toBe(put !== plain.has(at));
            if (put) plain.add(at);
            else plain.delete(at);
          }
        };
        apply(before);
        const wanted = [...plain].sort((a, b) => a - b);
        const snapshot = set.snapshot();
        const text = set.encode();
        apply(after);
        expect([...snapshot]).toEqual(wanted);
        expect(snapshot.size).toBe(wanted.length);
        expect([...set]).toEqual([...plain].sort((a, b) => a - b));
        expect([...SequenceSet.decode(text)!]).toEqual(wanted);
      }),
      { numRuns: 200 },
    );
  });

  test('writes dense chunks whole, and reads nothing else than it writes', () => {
    const set = new SequenceSet();
    for (let at = 0; at < 70_000; at += 1) if (at % 3 !== 0) set.add(at);
    const text = set.encode();
    expect(text.length).toBeLessThan(17_000);
    expect([...SequenceSet.decode(text)!]).toEqual([...set]);
    for (const bad of ['x', '0:', '0:zzzzzz', '0=AA', '0:1 ', '123456:1']) {
      expect(SequenceSet.decode(bad), bad).toBeUndefined();
    }
  });
});

test('lanes are named in one way', () => {
  expect(normalSkus(['b', 'a', 'b'], ['a', 'b', 'c'])).toEqual({ skuIds: ['a', 'b'] });
  expect(normalSkus([], ['a'])).toEqual({ skuIds: [] });
  expect(normalSkus(['c', 'b', 'a'], ['a', 'b', 'c'])).toEqual({ skuIds: [] });
  expect(normalSkus(['z'], ['a'])).toEqual({ unknown: 'z' });
  for (const [group, skuIds] of [
    ['', []],
    ['eu', []],
    ['', ['a', 'b']],
    ['eu', ['a']],
  ] as const) {
    expect(laneParts(laneKey(group, skuIds))).toEqual({ group, skuIds });
  }
});
