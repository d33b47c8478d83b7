import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type {
  AdmissionStore,
  EntryChange,
  JoinRequest,
  TakePassRequest,
} from '../../src/ports/admission-store.ts';

/** An admission store under test; `reopen` kills it without a goodbye and starts it again. */
export interface AdmissionStoreUnderTest {
  readonly store: AdmissionStore;
  readonly reopen?: () => Promise<AdmissionStore>;
  dispose(): Promise<void>;
}

const nowMs = 1_800_000_000_250;
const activity = 'concert';

/** 16 bytes, base64url, as the room makes them. */
export const entryIdFor = (name: string): string =>
  createHash('sha256').update(name).digest().subarray(0, 16).toString('base64url');

const wish = (name: string, over: Partial<JoinRequest> = {}): JoinRequest => ({
  entryId: entryIdFor(name),
  skuIds: [],
  weight: 1,
  group: '',
  ...over,
});

const turn = (name: string, over: Partial<TakePassRequest> = {}): TakePassRequest => ({
  entryId: entryIdFor(name),
  skuId: 'front',
  wave: 1,
  claimBeforeMs: nowMs + 60_000,
  passLifeMs: 30_000,
  ...over,
});

/**
 * The promises of an admission store. Every implementation runs the same suite; one that says it
 * keeps nothing past its process (`forgets`) is not asked about kills.
 */
export function admissionStoreContract(
  name: string,
  make: () => Promise<AdmissionStoreUnderTest>,
  afterKill: 'remembers' | 'forgets' = 'remembers',
): void {
  describe(`admission store contract: ${name}`, () => {
    let under: AdmissionStoreUnderTest;
    let store: AdmissionStore;
    beforeEach(async () => {
      under = await make();
      store = under.store;
    });
    afterEach(() => under.dispose());

    const allChanges = async (): Promise<readonly EntryChange[]> => store.changes(activity, 0, 1e6);

    test('one entry per id, however often and from wherever it is asked for', async () => {
      const replies = await Promise.all(
        Array.from({ length: 50 }, () => store.join(activity, wish('ann'), nowMs)),
      );
      expect(replies.filter((reply) => reply.created)).toHaveLength(1);
      expect(new Set(replies.map((reply) => reply.entry.sequence)).size).toBe(1);
      expect(await store.findEntry(activity, entryIdFor('ann'))).toEqual({
        entryId: entryIdFor('ann'),
        cohort: 'lobby',
        sequence: 0,
        joinedAtMs: nowMs,
        skuIds: [],
        weight: 1,
        group: '',
        left: false,
      });
      expect(await store.findEntry(activity, entryIdFor('bob'))).toBeUndefined();
      expect(await store.findEntry('other', entryIdFor('ann'))).toBeUndefined();
    });

    test('sequences are gapless and in order, apart for each activity', async () => {
      for (let at = 0; at < 20; at += 1) {
        const { entry } = await store.join(activity, wish(`p${at}`), nowMs + at);
        expect(entry.sequence).toBe(at);
        const other = await store.join('other', wish(`p${at}`), nowMs);
        expect(other.entry.sequence).toBe(at);
      }
      const many = await Promise.all(
        Array.from({ length: 200 }, (_, at) => store.join(activity, wish(`q${at}`), nowMs)),
      );
      expect(many.map((reply) => reply.entry.sequence).sort((a, b) => a - b)).toEqual(
        Array.from({ length: 200 }, (_, at) => 20 + at),
      );
    });

    test('participants come back as they joined, in pages', async () => {
      await store.join(activity, wish('a', { skuIds: ['s1', 's2'], weight: 2.5, group: 'eu' }), 1);
      await store.join(activity, wish('b', { weight: 0.1 }), 2);
      await store.join(activity, wish('c', { skuIds: ['s2'] }), 3);
      const first = await store.participants(activity, 0, 2);
      expect(first).toEqual([
        { entryId: entryIdFor('a'), sequence: 0, skuIds: ['s1', 's2'], weight: 2.5, group: 'eu' },
        { entryId: entryIdFor('b'), sequence: 1, skuIds: [], weight: 0.1, group: '' },
      ]);
      const rest = await store.participants(activity, 2, 10);
      expect(rest.map((each) => each.sequence)).toEqual([2]);
      expect(await store.participants(activity, 3, 10)).toEqual([]);
      expect(await store.participants('other', 0, 10)).toEqual([]);
    });

    test('the marker parts lobby and late arrivals, once', async () => {
      await store.join(activity, wish('early'), nowMs);
      expect(await store.lobbyMarker(activity)).toBeUndefined();
      const marker = await store.closeLobby(activity, nowMs + 5);
      expect(marker).toEqual({ lobbySize: 1, closedAtMs: nowMs + 5 });
      const late = await store.join(activity, wish('late'), nowMs + 6);
      expect(late.entry).toMatchObject({ cohort: 'late', sequence: 1 });
      expect(await store.closeLobby(activity, nowMs + 99)).toEqual(marker);
      expect(await store.lobbyMarker(activity)).toEqual(marker);
      expect((await store.findEntry(activity, entryIdFor('early')))?.cohort).toBe('lobby');
      expect(await store.counts(activity)).toMatchObject({ joined: 2, lobby: 1 });
    });

    test('joins racing the marker are in the lobby exactly if they stand before it', async () => {
      const joins = Array.from({ length: 40 }, (_, at) =>
        store.join(activity, wish(`p${at}`), nowMs),
      );
      const closing = store.closeLobby(activity, nowMs);
      const after = Array.from({ length: 40 }, (_, at) =>
        store.join(activity, wish(`q${at}`), nowMs),
      );
      const { lobbySize } = await closing;
      for (const { entry } of [...(await Promise.all(joins)), ...(await Promise.all(after))]) {
        const now = await store.findEntry(activity, entry.entryId);
        expect(now?.cohort).toBe(entry.sequence < lobbySize ? 'lobby' : 'late');
      }
    });

    test('a lobby may close empty', async () => {
      expect(await store.closeLobby(activity, nowMs)).toMatchObject({ lobbySize: 0 });
      expect((await store.join(activity, wish('a'), nowMs)).entry.cohort).toBe('late');
    });

    test('leaving frees the place; joining again is a later arrival', async () => {
      await store.join(activity, wish('a'), nowMs);
      await store.join(activity, wish('b'), nowMs);
      await store.closeLobby(activity, nowMs);
      expect(await store.leave(activity, entryIdFor('a'), nowMs + 1)).toBe(true);
      expect(await store.leave(activity, entryIdFor('a'), nowMs + 2)).toBe(false);
      expect(await store.leave(activity, entryIdFor('nobody'), nowMs)).toBe(false);
      expect(await store.findEntry(activity, entryIdFor('a'))).toMatchObject({
        left: true,
        sequence: 0,
      });
      const again = await store.join(activity, wish('a'), nowMs + 3);
      expect(again).toMatchObject({
        created: true,
        entry: { cohort: 'late', sequence: 2, left: false, joinedAtMs: nowMs + 3 },
      });
      expect(await allChanges()).toEqual([
        { kind: 'left', entryId: entryIdFor('a'), sequence: 0, atMs: nowMs + 1 },
      ]);
      expect(await store.counts(activity)).toMatchObject({ joined: 3, left: 1 });
    });

    test('a pass: the same nonce and expiry while it lives, even past the claim window', async () => {
      await store.join(activity, wish('a'), nowMs);
      const first = await store.takePass(activity, turn('a'), nowMs);
      expect(first).toEqual({
        kind: 'taken',
        attempt: 1,
        wave: 1,
        issuedAtMs: nowMs,
        notBeforeMs: nowMs - 250,
        expiresAtMs: nowMs + 30_750,
        fresh: true,
      });
      expect(await store.takePass(activity, turn('a'), nowMs + 10_000)).toEqual({
        ...first,
        fresh: false,
      });
      const late = turn('a', { claimBeforeMs: nowMs + 20_000 });
      expect(await store.takePass(activity, late, nowMs + 30_749)).toEqual({
        ...first,
        fresh: false,
      });
      expect(await store.takePass(activity, late, nowMs + 30_750)).toEqual({ kind: 'missed' });
      expect(await allChanges()).toEqual([
        {
          kind: 'claimed',
          entryId: entryIdFor('a'),
          sequence: 0,
          skuId: 'front',
          wave: 1,
          attempt: 1,
          atMs: nowMs,
          expiresAtMs: nowMs + 30_750,
        },
      ]);
    });

    test('where passes renew, an expired one is followed by another', async () => {
      await store.join(activity, wish('a'), nowMs);
      const open = turn('a', { wave: 0, claimBeforeMs: nowMs + 1e9, renewable: true });
      await store.takePass(activity, open, nowMs);
      expect(await store.takePass(activity, open, nowMs + 30_749)).toMatchObject({ attempt: 1 });
      expect(await store.takePass(activity, open, nowMs + 30_750)).toMatchObject({ attempt: 2 });
      expect(await store.takePass(activity, open, nowMs + 1e9)).toEqual({ kind: 'missed' });
    });

    test('fifty askers at once take one pass', async () => {
      await store.join(activity, wish('a'), nowMs);
      const replies = await Promise.all(
        Array.from({ length: 50 }, () => store.takePass(activity, turn('a'), nowMs)),
      );
      expect(replies.filter((reply) => reply.kind === 'taken' && reply.fresh)).toHaveLength(1);
      expect(replies.every((reply) => reply.kind === 'taken' && reply.attempt === 1)).toBe(true);
      expect(await store.counts(activity)).toMatchObject({ claimed: 1 });
    });

    test('no pass after the window, for strangers, or for those who left', async () => {
      await store.join(activity, wish('a'), nowMs);
      await store.join(activity, wish('b'), nowMs);
      const closed = turn('a', { claimBeforeMs: nowMs });
      expect(await store.takePass(activity, closed, nowMs)).toEqual({ kind: 'missed' });
      expect((await store.takePass(activity, closed, nowMs - 1)).kind).toBe('taken');
      expect(await store.takePass(activity, turn('x'), nowMs)).toEqual({ kind: 'unknown_entry' });
      expect(await store.takePass('other', turn('a'), nowMs)).toEqual({ kind: 'unknown_entry' });
      await store.leave(activity, entryIdFor('b'), nowMs);
      expect(await store.takePass(activity, turn('b'), nowMs)).toEqual({ kind: 'left' });
    });

    test('one release is for the one SKU chosen', async () => {
      await store.join(activity, wish('a'), nowMs);
      await store.takePass(activity, turn('a'), nowMs);
      const other = turn('a', { skuId: 'rear' });
      expect(await store.takePass(activity, other, nowMs + 1)).toEqual({
        kind: 'other_sku',
        skuId: 'front',
      });
      await store.endAttempt(activity, entryIdFor('a'), 'front', 1, nowMs);
      expect(await store.takePass(activity, other, nowMs + 2)).toMatchObject({
        kind: 'taken',
        attempt: 1,
        fresh: true,
      });
    });

    test('an attempt number is never given out twice', async () => {
      await store.join(activity, wish('a'), nowMs);
      await store.takePass(activity, turn('a'), nowMs);
      const end = (name: string, attempt: number): Promise<boolean> =>
        store.endAttempt(activity, entryIdFor(name), 'front', attempt, nowMs);
      expect([await end('a', 1), await end('a', 1), await end('a', 7)]).toEqual([
        true,
        false,
        false,
      ]);
      expect(await end('nobody', 1)).toBe(false);
      expect((await allChanges())[1]).toEqual({
        kind: 'ended',
        entryId: entryIdFor('a'),
        sequence: 0,
        skuId: 'front',
        attempt: 1,
        atMs: nowMs,
      });
      expect(await store.takePass(activity, turn('a'), nowMs + 1)).toMatchObject({ attempt: 2 });
      // Released again while the old pass lives (its wave was revoked): a new permission.
      const again = turn('a', { wave: 2 });
      expect(await store.takePass(activity, again, nowMs + 2)).toMatchObject({
        attempt: 3,
        wave: 2,
        fresh: true,
      });
      await store.leave(activity, entryIdFor('a'), nowMs + 3);
      await store.join(activity, wish('a'), nowMs + 4);
      const third = turn('a', { wave: 3 });
      expect(await store.takePass(activity, third, nowMs + 5)).toMatchObject({ attempt: 4 });
    });

    test('ended after the window: nothing new in this release', async () => {
      await store.join(activity, wish('a'), nowMs);
      await store.takePass(activity, turn('a'), nowMs);
      await store.endAttempt(activity, entryIdFor('a'), 'front', 1, nowMs);
      expect(await store.takePass(activity, turn('a'), nowMs + 60_000)).toEqual({ kind: 'missed' });
    });

    test('an admitted entry finishes once per claim', async () => {
      await store.join(activity, wish('a'), nowMs);
      expect(await store.finish(activity, entryIdFor('a'), 'bought', nowMs)).toBe(false);
      await store.takePass(activity, turn('a'), nowMs);
      expect(await store.finish(activity, entryIdFor('a'), 'bought', nowMs + 1)).toBe(true);
      expect(await store.finish(activity, entryIdFor('a'), 'failed', nowMs + 2)).toBe(false);
      expect(await store.finish(activity, entryIdFor('nobody'), 'failed', nowMs)).toBe(false);
      expect((await allChanges())[1]).toEqual({
        kind: 'finished',
        entryId: entryIdFor('a'),
        sequence: 0,
        outcome: 'bought',
        atMs: nowMs + 1,
      });
      expect(await store.counts(activity)).toMatchObject({ claimed: 1, finished: 1 });
    });

    test('changes come in pages, in one order', async () => {
      for (let at = 0; at < 10; at += 1) {
        await store.join(activity, wish(`p${at}`), nowMs);
        await store.takePass(activity, turn(`p${at}`), nowMs + at);
        if (at % 2 === 0) await store.finish(activity, entryIdFor(`p${at}`), 'gave_up', nowMs + at);
        if (at % 3 === 0) await store.leave(activity, entryIdFor(`p${at}`), nowMs + at);
      }
      const all = await allChanges();
      const paged: EntryChange[] = [];
      for (;;) {
        const page = await store.changes(activity, paged.length, 3);
        expect(page.length).toBeLessThanOrEqual(3);
        if (page.length === 0) break;
        paged.push(...page);
      }
      expect(paged).toEqual(all);
      expect(all.map((change) => change.kind)).toHaveLength(19);
    });

    test('small durable facts are compared and set', async () => {
      expect(await store.loadState('room/x')).toBeUndefined();
      expect(await store.saveState('room/x', 'one', 1)).toBe(false);
      expect(await store.saveState('room/x', 'one', 0)).toBe(true);
      expect(await store.saveState('room/x', 'lost', 0)).toBe(false);
      expect(await store.loadState('room/x')).toEqual({ value: 'one', version: 1 });
      const race = await Promise.all(
        ['a', 'b', 'c'].map((value) => store.saveState('room/x', value, 1)),
      );
      expect(race.filter(Boolean)).toHaveLength(1);
      expect((await store.loadState('room/x'))?.version).toBe(2);
    });

    test('whoever was deposed writes nothing, not even what nobody else has written', async () => {
      const fence = { name: 'room/x/epoch', version: 1 };
      expect(await store.saveState('room/x/e/1', 'early', 0, fence)).toBe(false);
      expect(await store.saveState('room/x/epoch', '1', 0)).toBe(true);
      expect(await store.saveState('room/x/e/1', 'mine', 0, fence)).toBe(true);
      expect(await store.saveState('room/x/epoch', '2', 1)).toBe(true);
      expect(await store.saveState('room/x/e/2', 'late', 0, fence)).toBe(false);
      expect(await store.loadState('room/x/e/2')).toBeUndefined();
      expect(await store.saveState('room/x/e/2', 'new', 0, { ...fence, version: 2 })).toBe(true);
      expect(await store.loadState('room/x/e/1')).toEqual({ value: 'mine', version: 1 });
    });

    test('an entry that comes again and again keeps its numbers', async () => {
      await store.join(activity, wish('a'), nowMs);
      for (let at = 1; at <= 150; at += 1) {
        const wave = turn('a', { wave: at, skuId: at === 3 ? 'rear' : 'front' });
        const attempt = at === 3 ? 1 : at < 3 ? at : at - 1;
        expect(await store.takePass(activity, wave, nowMs + at)).toMatchObject({ attempt });
      }
      const rear = turn('a', { wave: 151, skuId: 'rear' });
      expect(await store.takePass(activity, rear, nowMs + 151)).toMatchObject({ attempt: 2 });
      expect(await store.endAttempt(activity, entryIdFor('a'), 'front', 149, nowMs)).toBe(true);
      expect(await store.counts(activity)).toMatchObject({ claimed: 151 });
    });

    if (afterKill === 'forgets') return;
    test('everything answered survives a kill', async () => {
      const { reopen } = under;
      if (reopen === undefined) throw new Error(`${name} cannot be killed by this test`);
      await store.join(activity, wish('a', { skuIds: ['front'], weight: 3, group: 'eu' }), nowMs);
      await store.join(activity, wish('b'), nowMs);
      await store.closeLobby(activity, nowMs + 1);
      await store.join(activity, wish('c'), nowMs + 2);
      await store.takePass(activity, turn('a'), nowMs + 3);
      await store.finish(activity, entryIdFor('a'), 'failed', nowMs + 4);
      await store.endAttempt(activity, entryIdFor('a'), 'front', 1, nowMs);
      await store.leave(activity, entryIdFor('b'), nowMs + 5);
      await store.join(activity, wish('b'), nowMs + 6);
      await store.saveState('room/x', '{"line":"\\n"}', 0);
      const look = async (): Promise<unknown> => [
        await store.participants(activity, 0, 100),
        await allChanges(),
        await store.counts(activity),
        await store.lobbyMarker(activity),
        await store.loadState('room/x'),
        await Promise.all(['a', 'b', 'c'].map((n) => store.findEntry(activity, entryIdFor(n)))),
      ];
      const before = await look();
      store = await reopen();
      expect(await look()).toEqual(before);
      expect(await store.takePass(activity, turn('a'), nowMs + 7)).toMatchObject({ attempt: 2 });
      expect(await store.closeLobby(activity, nowMs + 99)).toEqual({
        lobbySize: 2,
        closedAtMs: nowMs + 1,
      });
    });
  });
}
