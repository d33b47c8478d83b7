import { createHash } from 'node:crypto';
import { fc } from '../../test/support/property.ts';
import { beforeAll, describe, expect, test } from 'vitest';
import { person, RoomWorld } from '../../test/support/room.ts';
import type { RoomWorldOptions } from '../../test/support/room.ts';
import { inclusionProof, verifyDraw } from '../core/room/audit.ts';
import { fromHex } from '../core/room/bytes.ts';
import { verifyInclusion } from '../core/room/merkle.ts';
import { auditLines } from './room-audit.ts';

async function auditOf(w: RoomWorld): Promise<string> {
  let text = '';
  for await (const line of auditLines(w.store, w.activity)) text += line;
  return text;
}

const claimsOf =
  (at: number) =>
  (name: string): string =>
    name === 'weight' ? String(1 + (at % 3)) : at % 2 === 0 ? 'eu' : '';

/** A sale with everything in it that an audit must be able to tell. */
async function eventfulSale(options: RoomWorldOptions): Promise<RoomWorld> {
  const w = await RoomWorld.started({
    skus: [
      { skuId: 'fri', stock: 30 },
      { skuId: 'sat', stock: 20 },
    ],
    ...options,
    room: { maxAdmissionsPerSecond: 20, beacon: 'round 7', ...options.room },
  });
  const wishes = [[], ['fri'], ['sat'], ['fri', 'sat']];
  for (let at = 0; at < 120; at += 1) {
    await w.door.join(
      'concert',
      { ...person(`p${at}`), claim: claimsOf(at) },
      { skuIds: wishes[at % 4]! },
    );
  }
  for (let at = 0; at < 120; at += 13) await w.door.leave('concert', person(`p${at}`));
  await w.join('p13');
  w.beacon = 'beacon value';
  await w.open();
  for (let at = 0; at < 20; at += 1) await w.join(`late${at}`, wishes[at % 3]);
  for (let step = 0; step < 30; step += 1) {
    for (let at = step; at < 120; at += 7) await w.buy(`p${at}`, at % 2 === 0 ? 'fri' : 'sat');
    if (step === 4) await w.door.leave('concert', person('p50'));
    if (step === 8) {
      const entryId = await w.door.entryIdOf('concert', 'late3');
      expect(await w.loop.bypass(entryId, 'operator', 'press')).toBe(true);
      // Stock comes back, so that decisions follow this one: the last of a log has nothing after it.
      w.setStock('fri', w.availableOf('fri') + 5);
    }
    if (step === 10) await w.loop.revokeWave(3, 'operator', 'wrong');
    if (step === 14) await w.loop.pause('operator', 'shop down');
    if (step === 16) await w.loop.resume('operator', 'shop up');
    if (step === 18) w.signals = { ...w.signals!, backlogRatio: 0.9 };
    if (step === 22) w.loop = w.newLoop();
    await w.run(1_000);
  }
  return w;
}

/** Makes the file whole again after a forger's change: right count, right digest. */
function reseal(lines: readonly string[]): string {
  const body = lines.slice(0, -1);
  const text = body.map((line) => `${line}\n`).join('');
  const digest = createHash('sha256').update(text).digest('hex');
  return `${text}${JSON.stringify(['end', body.length, digest])}\n`;
}

/** The forger states the checkpoint of what is left. */
function stated(lines: readonly string[]): string[] {
  const at = lines.findIndex((line) => line.startsWith('["h"'));
  const own = verifyDraw(reseal(lines)).checkpoint;
  return lines.map((line, index) => (index === at ? JSON.stringify(['h', own]) : line));
}

/** Only what the last decision that is left had taken in. */
function withoutChangesAfter(lines: readonly string[]): string[] {
  const last = lines.findLast((line) => line.startsWith('["e"'))!;
  const { seen } = (JSON.parse(last) as [string, { seen: number }])[1];
  let changes = 0;
  return lines.filter((line) => !line.startsWith('["c"') || (changes += 1) <= seen);
}

const linesOf = (text: string): string[] => text.trimEnd().split('\n');
const kindOf = (line: string): string => line.slice(0, 4);

describe.each(['draw', 'weighted', 'fifo', 'quota', 'lottery'] as const)(
  'an audit (%s)',
  (mode) => {
    let text = '';
    let world: RoomWorld;
    beforeAll(async () => {
      world = await eventfulSale({
        seed: mode,
        room: {
          mode,
          quota: { places: { eu: 20, '': 15 }, leftover: 'to_all' },
          lotteryPlaces: 40,
        },
      });
      text = await auditOf(world);
    });

    test('holds, and says what happened', () => {
      const verdict = verifyDraw(text);
      expect(verdict.problems).toEqual([]);
      expect(verdict).toMatchObject({
        holds: true,
        activityId: 'concert',
        participants: 141,
        lobby: 121,
        bypassed: 1,
        guarantee: mode === 'fifo' ? 'order_of_arrival' : 'beacon',
        released: world.state.counts.released,
      });
      expect(verdict.waves).toBeGreaterThan(4);
      expect(verdict.rateChanges).toBeGreaterThan(0);
      expect(text).not.toContain('p13');
    });

    test('any single changed byte is found, and its place told', () => {
      const bytes = Buffer.from(text);
      fc.assert(
        fc.property(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), (at, change) => {
          const forged = Buffer.from(bytes);
          forged[at] = (forged[at] ?? 0) ^ change;
          const verdict = verifyDraw(forged.toString('utf8'));
          expect(verdict.holds, `byte ${at} xor ${change}`).toBe(false);
          expect(verdict.problems[0]).toMatchObject({ what: expect.any(String) as string });
        }),
        { numRuns: 400 },
      );
      for (const cut of [1, 2, 70, 1000]) expect(verifyDraw(text.slice(0, -cut)).holds).toBe(false);
      expect(verifyDraw(`${text}\n`).holds).toBe(false);
      expect(verifyDraw('').holds).toBe(false);
    });

    test('a forger who mends the digest is found all the same', () => {
      const lines = linesOf(text);
      const forgeries: [string, (lines: string[]) => void, RegExp][] = [
        [
          'a participant dropped',
          (l) => void l.splice(l.findIndex((line) => kindOf(line) === '["p"') + 5, 1),
          /root|entries|change/,
        ],
        [
          'a participant doubled',
          (l) => {
            const at = l.findIndex((line) => kindOf(line) === '["p"') + 5;
            l.splice(at, 0, l[at]!);
          },
          /root/,
        ],
        [
          'two participants swapped',
          (l) => {
            const at = l.findIndex((line) => kindOf(line) === '["p"') + 5;
            [l[at], l[at + 1]] = [l[at + 1]!, l[at]!];
          },
          /root/,
        ],
        [
          'a weight changed',
          (l) => {
            const at = l.findIndex((line) => kindOf(line) === '["p"') + 5;
            const entry = JSON.parse(l[at]!) as unknown[];
            l[at] = JSON.stringify([entry[0], entry[1], 99, ...entry.slice(3)]);
          },
          /root/,
        ],
        [
          'two places swapped',
          (l) => {
            const at = l.findIndex((line) => kindOf(line) === '["o"');
            const [kind, lane, order] = JSON.parse(l[at]!) as [string, string, number[]];
            [order[2], order[3]] = [order[3]!, order[2]!];
            l[at] = JSON.stringify([kind, lane, order]);
          },
          /^order$/,
        ],
        [
          'another secret',
          (l) => {
            l[l.findIndex((line) => kindOf(line) === '["s"')] = JSON.stringify([
              's',
              'ab'.repeat(32),
            ]);
          },
          /SHA-256 of the secret/,
        ],
        [
          'a wave one larger',
          (l) => {
            const at = l.findIndex((line) => line.includes('"e":"wave"'));
            const [, event] = JSON.parse(l[at]!) as [string, { lanes: { count: number }[] }];
            event.lanes[0]!.count += 1;
            l[at] = JSON.stringify(['e', event]);
          },
          /wave 1/,
        ],
        [
          'a wave left out',
          (l) =>
            void l.splice(
              l.findIndex((line) => line.includes('"e":"wave"')),
              1,
            ),
          /decisions|wave/,
        ],
        [
          'a bypass hidden',
          (l) =>
            void l.splice(
              l.findIndex((line) => line.includes('"e":"bypassed"')),
              1,
            ),
          /decisions|wave/,
        ],
        [
          'somebody said to have left',
          (l) => {
            const at = l.findIndex((line) => kindOf(line) === '["c"');
            l.splice(at, 0, JSON.stringify(['c', 'left', 1, 0]));
          },
          /.+/,
        ],
      ];
      for (const [name, forge, where] of forgeries) {
        const forged = [...lines];
        forge(forged);
        expect(forged, name).not.toEqual(lines);
        const verdict = verifyDraw(reseal(forged));
        if (mode === 'fifo' && name === 'another secret') {
          expect(verdict.problems.map((each) => each.what)).toEqual(['SHA-256 of the secret']);
        }
        expect(verdict.holds, name).toBe(false);
        expect(verdict.problems[0]!.what, name).toMatch(where);
      }
      expect(verifyDraw(reseal(lines)).holds, 'control: nothing changed').toBe(true);
    });

    test('whole lines cut off at the end, the digest made anew: known from what the shop had shown', () => {
      const known = verifyDraw(text).checkpoint;
      expect(known).toBe(world.state.checkpoint);
      const lines = linesOf(text);
      const body = lines.slice(1, -1);
      const ofKind = (kind: string): number[] =>
        body.flatMap((line, at) => (line.startsWith(`["${kind}"`) ? [at + 1] : []));
      const kinds = { p: ofKind('p'), c: ofKind('c'), e: ofKind('e') };
      const late = kinds.p.slice(121);
      const cut = (places: readonly number[], least: number): fc.Arbitrary<readonly number[]> =>
        fc
          .integer({ min: least, max: places.length })
          .map((n) => (n === 0 ? [] : places.slice(-n)));
      const cuts = fc
        .tuple(cut(kinds.c, 0), cut(kinds.e.slice(2), 0), cut(late, 0))
        .map((each) => new Set(each.flat()))
        .filter((gone) => gone.size > 0);
      fc.assert(
        fc.property(cuts, (gone) => {
          const kept = lines.filter((_, at) => !gone.has(at));
          const alone = verifyDraw(reseal(stated(kept)));
          // What passes for a file of an earlier instant, alone, does not against the checkpoint.
          expect(alone.checkpoint).not.toBe(known);
          const forged = verifyDraw(reseal(stated(kept)), { checkpoint: known });
          expect(forged.holds, `${[...gone].join(' ')}`).toBe(false);
        }),
        { numRuns: 60 },
      );
      expect(verifyDraw(text, { checkpoint: known }).holds, 'control: nothing cut').toBe(true);
      // Without that knowledge an earlier instant is what it seems: the reason for the checkpoint.
      const earlier = lines.filter((_, at) => at !== kinds.e.at(-1));
      const trimmed = withoutChangesAfter(earlier);
      expect(verifyDraw(reseal(stated(trimmed))).problems).toEqual([]);
    });

    test('every checkpoint that was ever shown is in the file, and no other', () => {
      const shown = new Set(world.published.flatMap(({ checkpoint }) => checkpoint));
      expect(shown.size).toBeGreaterThan(10);
      for (const checkpoint of shown) {
        expect(verifyDraw(text, { checkpoint }).problems, checkpoint).toEqual([]);
      }
      const last = [...shown].at(-1)!;
      const other = last.replace(/.$/, (one) => (one === '0' ? '1' : '0'));
      expect(verifyDraw(text, { checkpoint: other }).problems[0]?.what).toMatch(/checkpoint/);
      const ahead = last.replace(/^\d+/, (n) => `${Number(n) + 1}`);
      expect(verifyDraw(text, { checkpoint: ahead }).problems[0]?.what).toBe('the end of the file');
      expect(verifyDraw(text, { checkpoint: 'nonsense' }).holds).toBe(false);
    });

    test('one entry can be shown to be in the tree, at its place', () => {
      const [first] = linesOf(text)
        .filter((line) => kindOf(line) === '["p"')
        .slice(7);
      const entryId = (JSON.parse(first!) as string[])[1]!;
      const proof = inclusionProof(text, entryId)!;
      expect(proof).toMatchObject({ index: 7, size: 121, root: verifyDraw(text).root });
      const path = proof.path.map((each) => fromHex(each)!);
      const [leaf, root] = [fromHex(proof.leaf)!, fromHex(proof.root)!];
      expect(verifyInclusion(leaf, proof.index, proof.size, path, root)).toBe(true);
      expect(verifyInclusion(leaf, 8, proof.size, path, root)).toBe(false);
      expect(proof.place).toBeGreaterThan(0);
      expect(proof.value === null).toBe(mode === 'fifo');
      expect(inclusionProof(text, 'A'.repeat(22))).toBeUndefined();
    });
  },
);

test('there is no audit before the draw: the secret stays one', async () => {
  const w = await RoomWorld.started();
  await w.join('ann');
  await expect(auditOf(w)).rejects.toThrow(/has not been drawn/);
});

test('without a named beacon the audit says which guarantee holds', async () => {
  const w = await RoomWorld.started({ stock: 3 });
  await w.joinMany('p', 10);
  await w.open();
  expect(verifyDraw(await auditOf(w))).toMatchObject({ holds: true, guarantee: 'commitment_only' });
});

test('a sale that has closed says so, and a file without that is not whole', async () => {
  const w = await RoomWorld.started({ stock: 3 });
  await w.joinMany('p', 10);
  await w.open();
  await w.join('late');
  await w.run(1_000);
  const running = await auditOf(w);
  expect(verifyDraw(running)).toMatchObject({ holds: true, finished: false });
  await w.world.advance(w.activity.closesAtMs - w.world.wallMs());
  // Whoever leads then writes it once, a second leader does not write it again.
  await w.loop.runOnce();
  w.loop = w.newLoop();
  await w.run(1_000);
  // Nobody is let in past the line into a sale that is over.
  const late = await w.door.entryIdOf('concert', 'late');
  expect(await w.loop.bypass(late, 'operator', 'a friend')).toBe(false);
  const whole = await auditOf(w);
  const nowMs = w.activity.closesAtMs + 120_000;
  expect(verifyDraw(whole, { nowMs })).toMatchObject({ holds: true, finished: true });
  expect(whole.match(/"e":"over"/g)).toHaveLength(1);

  // Any of its last lines gone, and everything else made to fit.
  const lines = linesOf(whole);
  const last = lines.findIndex((line) => line.includes('"e":"over"'));
  for (let gone = 1; gone <= 3; gone += 1) {
    const kept = lines.filter((_, at) => at <= last - gone || at > last);
    const forged = verifyDraw(reseal(stated(withoutChangesAfter(kept))), { nowMs });
    expect(forged.problems.map(({ what }) => what)).toContain('the decision that closes the sale');
  }
  const withoutLate = lines.filter((_, at) => at !== 11);
  expect(lines[11]).toMatch(/^\["p"/);
  expect(verifyDraw(reseal(stated(withoutLate)), { nowMs }).problems[0]?.what).toBe(
    'late arrivals',
  );
  // Made while the sale ran, looked at after it: no longer the whole story.
  expect(verifyDraw(running, { nowMs }).holds).toBe(false);
});

test('an empty lobby is an audit too', async () => {
  const w = await RoomWorld.started({ stock: 3 });
  await w.open();
  await w.join('late');
  await w.run(1_000);
  expect(verifyDraw(await auditOf(w))).toMatchObject({ holds: true, lobby: 0, released: 1 });
});
